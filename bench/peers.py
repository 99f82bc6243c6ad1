"""Minimal servers that the broker is measured against, each run as a process of its own.

    python -m bench.peers echo [--congestion NAME] [--send-buffer BYTES] [--receive-buffer BYTES] [--each-frame]
    python -m bench.peers sendfile --file FILE --size BYTES --header BYTES --request BYTES [...]
    python -m bench.peers append --file FILE --request BYTES --header BYTES [...]

Each prints its port and serves until its standard input closes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
import threading
from collections.abc import Callable

from storage.batch.checksum import crc32c

RECEIVE_BYTES = 256 * 1024


def set_options(connection: socket.socket, options: argparse.Namespace) -> None:
    """Set the socket options that the broker sets on its connections."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if options.congestion and hasattr(socket, "TCP_CONGESTION"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, options.congestion.encode())
    if options.send_buffer > 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer)
    if options.receive_buffer > 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer)


class Echo:
    """A server of `add_reader`, `recv_into` and `send`: the least that a Python process on an event loop can do with a
    request.

    With `each_frame` every request is cut out and answered by a `send` of its own; without, the bytes of one
    `recv_into` are sent back at once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, options: argparse.Namespace) -> None:
        self._loop = loop
        self._options = options
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.setblocking(False)
        set_options(connection, self._options)
        reader = self._frames(connection) if self._options.each_frame else self._whatever(connection)
        self._loop.add_reader(connection, reader)

    def _whatever(self, connection: socket.socket) -> Callable[[], None]:
        view = memoryview(bytearray(RECEIVE_BYTES))

        def read() -> None:
            size = connection.recv_into(view)
            if size:
                connection.send(view[:size])
            else:
                self._end(connection)

        return read

    def _frames(self, connection: socket.socket) -> Callable[[], None]:
        buffer = bytearray(RECEIVE_BYTES)
        view = memoryview(buffer)
        held = 0

        def read() -> None:
            nonlocal held
            size = connection.recv_into(view[held:])
            if not size:
                self._end(connection)
                return
            end = held + size
            start = 0
            while end - start >= 4:
                following = start + 4 + int.from_bytes(buffer[start : start + 4], "big")
                if following > end:
                    break
                connection.send(view[start:following])
                start = following
            held = end - start
            if held and start:
                buffer[:held] = buffer[start:end]

        return read

    def _end(self, connection: socket.socket) -> None:
        self._loop.remove_reader(connection)
        connection.close()


def serve_echo(options: argparse.Namespace) -> None:
    """Serve the echo on the same kind of event loop as the broker's."""
    try:
        import uvloop

        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    except ImportError:
        loop = asyncio.new_event_loop()
    echo = Echo(loop, options)
    loop.add_reader(sys.stdin, loop.stop)
    announce(echo.port)
    loop.run_forever()


def serve_sendfile(options: argparse.Namespace) -> None:
    """Answer each request of a known size with a header and so many bytes of a file, by blocking `sendfile`."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket, file: int) -> None:
        size = 4 + options.header + options.size
        header = (size - 4).to_bytes(4, "big") + bytes(options.header)
        received = 0
        while piece := connection.recv(RECEIVE_BYTES):
            received += len(piece)
            while received >= options.request:
                received -= options.request
                connection.send(header, socket.MSG_MORE)
                sent = 0
                while sent < options.size:
                    sent += os.sendfile(connection.fileno(), file, sent, options.size - sent)

    def accept() -> None:
        file = os.open(options.file, os.O_RDONLY)
        while True:
            connection, _ = listener.accept()
            set_options(connection, options)
            threading.Thread(target=serve, args=(connection, file), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    announce(listener.getsockname()[1])
    sys.stdin.read()


def serve_append(options: argparse.Namespace) -> None:
    """Receive requests of a known size, compute their CRCs, write them to a file, answer: an append without a broker.

    Connections are served one after another, blocking, with the same buffer: the least that one thread of Python can do
    to move these bytes.
    """
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        view = memoryview(bytearray(options.request))
        answer = options.header.to_bytes(4, "big") + bytes(options.header)
        while True:
            connection, _ = listener.accept()
            set_options(connection, options)
            file = os.open(options.file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            position = 0
            while received := connection.recv_into(view):
                while received < options.request and (more := connection.recv_into(view[received:])):
                    received += more
                crc32c(view)
                position += os.pwrite(file, view, position)
                connection.send(answer)
            connection.close()
            os.close(file)

    threading.Thread(target=serve, daemon=True).start()
    announce(listener.getsockname()[1])
    sys.stdin.read()


def announce(port: int) -> None:
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["echo", "sendfile", "append"])
    parser.add_argument("--congestion", default="")
    parser.add_argument("--send-buffer", type=int, default=-1)
    parser.add_argument("--receive-buffer", type=int, default=-1)
    parser.add_argument("--each-frame", action="store_true")
    parser.add_argument("--file")
    parser.add_argument("--size", type=int)
    parser.add_argument("--header", type=int)
    parser.add_argument("--request", type=int)
    options = parser.parse_args()
    {"echo": serve_echo, "sendfile": serve_sendfile, "append": serve_append}[options.kind](options)


if __name__ == "__main__":
    main()
