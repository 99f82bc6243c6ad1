"""Misbehaving clients, each run as a process of its own, and the busy loop that they are compared with.

    python -m bench.disturbers trickle --bootstrap HOST:PORT --topic NAME     sends one byte a second
    python -m bench.disturbers deaf ...                                       requests 1 MB again and again, never reads
    python -m bench.disturbers pipeline ...                                   10,000 requests at once, again and again
    python -m bench.disturbers greedy ...                                     requests 100 MB at a time
    python -m bench.disturbers cold ... --log FILE --records N --step N       reads a log that is not in the page cache
    python -m bench.disturbers scrape --bootstrap HOST:PORT                   requests all metrics once a second
    python -m bench.disturbers spin --share 0.3                               takes 30 % of a processor, no requests

Each prints a line when it has begun and ends when its standard input closes.
"""

from __future__ import annotations

import argparse
import os
import select
import socket
import sys
import time
from collections.abc import Callable

from bench.conversation import Conversation, address_of, fetch_frame, produce_frame

PIPELINED = 10_000
GREEDY_BYTES = 100_000_000
COLD_BYTES = 1024 * 1024
RECEIVE_BYTES = 1 << 20
SPIN_PERIOD_S = 0.01


def is_over(after_s: float) -> bool:
    """Wait for up to ``after_s`` seconds. Returns whether standard input has closed."""
    return bool(select.select([sys.stdin], [], [], after_s)[0])


def connect(bootstrap: str) -> socket.socket:
    connection = socket.create_connection(address_of(bootstrap))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def trickle(options: argparse.Namespace) -> None:
    """Send a request of 1 MB so slowly that it would take eleven days."""
    frame = produce_frame(options.topic, 0, records=990, value_bytes=1_000)
    with connect(options.bootstrap) as connection:
        begun()
        for position in range(len(frame)):
            connection.send(frame[position : position + 1])
            if is_over(1.0):
                return


def deaf(options: argparse.Namespace) -> None:
    frame = fetch_frame(options.topic, [0], partition_bytes=1 << 20)
    with connect(options.bootstrap) as connection:
        connection.setblocking(False)
        begun()
        while not is_over(0.0):
            _, writable, _ = select.select([sys.stdin], [connection], [], 1.0)
            if writable:
                try:
                    connection.send(frame)
                except BlockingIOError:
                    continue


def pipeline(options: argparse.Namespace) -> None:
    frame = produce_frame(options.topic, 1, records=1, value_bytes=100)
    exchange(options, frame, PIPELINED)


def greedy(options: argparse.Namespace) -> None:
    frame = fetch_frame(options.topic, [0], partition_bytes=GREEDY_BYTES)
    exchange(options, frame, 1)


def cold(options: argparse.Namespace) -> None:
    """Consume, again and again, a log that is dropped from the page cache before."""
    with Conversation(options.bootstrap) as conversation:
        forget(options.log)
        begun()
        while True:
            for offset in range(0, options.records, options.step):
                if is_over(0.0):
                    return
                conversation.exchange(fetch_frame(options.topic, [0], partition_bytes=COLD_BYTES, fetch_offset=offset))
            forget(options.log)


def forget(path: str) -> None:
    """Write a file's dirty pages to the disk and drop the file from the page cache."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def exchange(options: argparse.Namespace, frame: bytes, at_once: int) -> None:
    """Send ``at_once`` requests, reading answers while writing, and begin again when all are answered."""
    view = memoryview(bytearray(RECEIVE_BYTES))
    with connect(options.bootstrap) as connection:
        connection.sendall(frame)
        size = 4 + int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        left = size - 4
        connection.setblocking(False)
        begun()
        unsent = memoryview(b"")
        while not is_over(0.0):
            readable, writable, _ = select.select([connection, sys.stdin], [connection] if unsent else [], [])
            if connection in readable:
                left -= connection.recv_into(view)
            if writable:
                unsent = unsent[connection.send(unsent) :]
            if not left:
                left = at_once * size
                unsent = memoryview(frame * at_once)


def scrape(options: argparse.Namespace) -> None:
    begun()
    while not is_over(1.0):
        with socket.create_connection(address_of(options.bootstrap)) as connection:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: bench\r\n\r\n")
            while connection.recv(RECEIVE_BYTES):
                pass


def spin(options: argparse.Namespace) -> None:
    begun()
    busy_s = SPIN_PERIOD_S * options.share
    while not is_over(max(SPIN_PERIOD_S - busy_s, 0.0)):
        until = time.perf_counter() + busy_s
        while time.perf_counter() < until:
            pass


def begun() -> None:
    sys.stdout.write("begun\n")
    sys.stdout.flush()


KINDS: dict[str, Callable[[argparse.Namespace], None]] = {
    "trickle": trickle,
    "deaf": deaf,
    "pipeline": pipeline,
    "greedy": greedy,
    "cold": cold,
    "scrape": scrape,
    "spin": spin,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("--bootstrap", default="")
    parser.add_argument("--topic", default="")
    parser.add_argument("--log", default="")
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--share", type=float, default=1.0)
    options = parser.parse_args()
    KINDS[options.kind](options)


if __name__ == "__main__":
    main()
