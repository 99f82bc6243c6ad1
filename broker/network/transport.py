"""How the bytes of a connection come and go: a transport stands between a connection and its socket.

A raw socket is one, and TLS another (`broker.network.tls_transport`). What a transport is asked at every request is an
attribute that is bound once, so that a raw socket's own methods are called without a function in between.
"""

import logging
import os
import socket
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, Protocol

log = logging.getLogger(__name__)

MOST_READ_BYTES: Final = 256 * 1024
"""What is read at a time where a region must pass through memory."""

MORE_FOLLOWS: Final[int] = getattr(socket, "MSG_MORE", 0)
"""Flag of `Transport.send`: more bytes follow at once, so no small packet need leave for these. Linux has it."""

_NOT_THERE: Final = -1
_TCP_CORK: Final[int] = getattr(socket, "TCP_CORK", _NOT_THERE)
"""Linux has it. Not an optional int: narrowed, that is misread in compiled code (docs/decisions/compiled.md)."""

Bytes = bytes | bytearray | memoryview


class OpenFile(Protocol):
    @property
    def path(self) -> str: ...
    def fileno(self) -> int: ...
    def pread(self, size: int, position: int) -> bytes: ...


class Region(Protocol):
    """Bytes of a file that are sent without being read: a `storage.files.FileRegion`. A region keeps its file open."""

    @property
    def file(self) -> OpenFile: ...
    @property
    def position(self) -> int: ...
    def __len__(self) -> int: ...


class Handshake(Enum):
    """What the two ends of a connection have to exchange before the first request."""

    DONE = auto()
    """Requests may be received, and answers sent."""
    WANTS_READ = auto()
    """The handshake goes on when the descriptor is readable."""
    WANTS_WRITE = auto()
    """The handshake goes on when the descriptor is writable."""


class Transport(Protocol):
    """A non-blocking stream of bytes from and to a peer.

    Every method that moves bytes raises `BlockingIOError` where none can be moved now, and another `OSError` where the
    connection is lost.
    """

    @property
    def descriptor(self) -> int:
        """What the event loop watches."""

    @property
    def principal(self) -> str | None:
        """Who the peer is by the handshake, once that is done; None where a handshake does not say."""

    @property
    def pending(self) -> Callable[[], bool] | None:
        """Tells whether there is more to receive though the descriptor is not readable; None where that cannot be."""

    @property
    def receive_into(self) -> Callable[[memoryview], int]:
        """Receive into a piece of memory; return how many bytes, 0 where the peer sends no more."""

    @property
    def send(self) -> Callable[[Bytes, int], int]:
        """Send bytes, with the flag `MORE_FOLLOWS` or 0; return how many of them were sent."""

    def handshake(self) -> Handshake:
        """Go on with the handshake as far as it goes now. Raises `HandshakeFailed`, and another `OSError` where the
        connection is lost."""

    def send_pieces(self, pieces: Sequence[Bytes], flags: int) -> int:
        """`send` for several pieces in one call."""

    def send_region(self, region: Region, position: int, size: int) -> int:
        """Send up to ``size`` bytes that stand at ``position`` of the region's file; return how many were sent, 0 where
        the file ends before them. Raises `StorageError` where the file cannot be read."""

    def cork(self, is_corked: bool) -> None:
        """Let only full packets leave until this ends; what is left leaves then, too. Where the system has no such
        thing, nothing happens."""

    def close(self) -> None:
        """Close the connection. What was sent is still delivered."""


class SendfileRefusals:
    """The directories from which files cannot be sent by sendfile(2): the log says it once for each data directory."""

    __slots__ = ("_directories",)

    def __init__(self) -> None:
        self._directories: set[str] = set()

    def note(self, path: str, reason: str) -> None:
        """sendfile(2) has refused the file ``path``, which stands in a partition's directory."""
        directory = os.path.dirname(os.path.dirname(path))
        if directory not in self._directories:
            self._directories.add(directory)
            log.warning(
                "files in %s cannot be sent by sendfile, they are read and sent instead, which is slower: %s",
                directory,
                reason,
            )


class PlaintextTransport:
    """A `Transport` of the socket's own bytes."""

    __slots__ = ("_refusals", "_socket", "descriptor", "pending", "principal", "receive_into", "send")

    def __init__(self, connected: socket.socket, refusals: "SendfileRefusals | None" = None) -> None:
        """``connected`` is non-blocking; ``refusals`` is shared by all transports of a broker."""
        self._socket = connected
        self._refusals = SendfileRefusals() if refusals is None else refusals
        self.descriptor = connected.fileno()
        self.principal: str | None = None
        self.pending: Callable[[], bool] | None = None
        self.receive_into: Callable[[memoryview], int] = connected.recv_into
        self.send: Callable[[Bytes, int], int] = connected.send

    def handshake(self) -> Handshake:
        """There is none."""
        return Handshake.DONE

    def send_pieces(self, pieces: Sequence[Bytes], flags: int) -> int:
        """Part of `Transport`."""
        return self._socket.sendmsg(pieces, (), flags)

    def send_region(self, region: Region, position: int, size: int) -> int:
        """Part of `Transport`: the bytes go from the file to the socket without passing through Python.

        Where the file system, or a sandbox, cannot do that, they are read and sent, as the manual page of sendfile(2)
        advises: one of the two finds out what the file or the connection really has.
        """
        reason = "it sends nothing"
        try:
            sent = os.sendfile(self.descriptor, region.file.fileno(), position, size)
            if sent:
                return sent
        except (BlockingIOError, InterruptedError, ConnectionError, TimeoutError):
            raise
        except OSError as error:
            reason = str(error)
        data = region.file.pread(min(size, MOST_READ_BYTES), position)
        if not data:
            return 0
        sent = self.send(data, 0)
        self._refusals.note(region.file.path, reason)
        return sent

    def cork(self, is_corked: bool) -> None:
        """Part of `Transport`."""
        cork_socket(self._socket, is_corked)

    def close(self) -> None:
        """Part of `Transport`."""
        self._socket.close()


def cork_socket(connected: socket.socket, is_corked: bool) -> None:
    """`Transport.cork` of a socket."""
    if _TCP_CORK == _NOT_THERE:
        return
    try:
        connected.setsockopt(socket.IPPROTO_TCP, _TCP_CORK, is_corked)
    except OSError:
        return  # no TCP, or a connection that is lost: the next `send` says so
