"""TlsTransport: a connection's bytes as TLS records. OpenSSL reads and writes the socket (docs/decisions/tls.md).

Imported where a listener has TLS only, since it imports `ssl`.

What OpenSSL has begun to send it must be given again as it was: a `send` that is blocked keeps its bytes, and the next
call sends these, whatever it was called with. The caller forgets nothing that has not been reported as sent, so these
are the bytes that the caller still has to send first.
"""

import contextlib
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final

from broker.network.transport import (
    MORE_FOLLOWS,
    Bytes,
    Handshake,
    HandshakeFailed,
    PeerViolation,
    Region,
    cork_socket,
)

RECORD_BYTES: Final = 16 * 1024
"""The most bytes that a TLS record carries. A record that is full is mostly followed by another."""

MOST_SENT_BYTES: Final = 8 * RECORD_BYTES
"""What is encrypted in one call, so that others have their turn."""

PrincipalOf = Callable[[bytes | None], str]
"""The principal of a client by its certificate, None where it has shown none. Raises `HandshakeFailed`."""


class TlsTransport:
    """A `Transport` whose bytes are encrypted."""

    __slots__ = (
        "_ahead",
        "_has_ended",
        "_is_done",
        "_principal_of",
        "_receive_some",
        "_reports",
        "_socket",
        "_unsent",
        "_write",
        "descriptor",
        "pending",
        "principal",
        "receive_into",
        "send",
    )

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, principal_of: PrincipalOf) -> None:
        """``connected`` is non-blocking. Raises `OSError` where the peer has gone."""
        wrapped = context.wrap_socket(connected, server_side=True, do_handshake_on_connect=False)
        self._socket = wrapped
        self._principal_of = principal_of
        self._receive_some = wrapped.recv_into
        self._write = wrapped.send
        self._is_done = False
        """The handshake is done."""
        self._has_ended = False
        """The peer has said that it sends no more."""
        self._ahead: Bytes = b""
        """Bytes that are reported as sent, and leave in one record with those that follow."""
        self._unsent: Bytes | None = None
        """What OpenSSL has begun to send."""
        self._reports = 0
        """How many bytes are reported as sent once `_unsent` is."""
        self.principal: str | None = None
        self.descriptor = wrapped.fileno()
        self.receive_into: Callable[[memoryview], int] = self._receive
        self.send: Callable[[Bytes, int], int] = self._send
        self.pending: Callable[[], bool] | None = self._is_pending

    def handshake(self) -> Handshake:
        """Part of `Transport`."""
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            return Handshake.WANTS_READ
        except ssl.SSLWantWriteError:
            return Handshake.WANTS_WRITE
        except ssl.SSLEOFError as error:
            raise ConnectionError("the peer has left during the handshake") from error
        except ssl.SSLError as error:
            raise HandshakeFailed(words(error)) from error
        self.principal = self._principal_of(self._socket.getpeercert(binary_form=True))
        self._is_done = True
        return Handshake.DONE

    def _receive(self, memory: memoryview) -> int:
        size = len(memory)
        try:
            received = count = self._receive_some(memory)
            while count == RECORD_BYTES and received < size:
                try:
                    count = self._receive_some(memory[received:])
                except ssl.SSLWantReadError:
                    break
                received += count
                self._has_ended = not count
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise _violation(error) from error
        return received

    def _is_pending(self) -> bool:
        """There is something to receive that does not make the descriptor readable."""
        return self._has_ended or self._socket.pending() > 0

    def _send(self, data: Bytes, flags: int) -> int:
        if self._unsent is not None:
            return self._send_again()
        size = len(data)
        if flags & MORE_FOLLOWS and len(self._ahead) + size < RECORD_BYTES:
            self._ahead = b"".join((self._ahead, data))
            return size
        if size > MOST_SENT_BYTES:
            data = memoryview(data)[:MOST_SENT_BYTES]
            size = MOST_SENT_BYTES
        if self._ahead:
            data = b"".join((self._ahead, data))
            self._ahead = b""
        return self._encrypt(data, size)

    def _encrypt(self, data: Bytes, reports: int) -> int:
        try:
            sent = self._write(data)
        except ssl.SSLWantWriteError:
            self._unsent = data
            self._reports = reports
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise _violation(error) from error
        if sent < len(data):
            self._unsent = memoryview(data)[sent:]
            self._reports = reports
            raise BlockingIOError
        return reports

    def _send_again(self) -> int:
        assert self._unsent is not None
        unsent, self._unsent = self._unsent, None
        return self._encrypt(unsent, self._reports)

    def send_pieces(self, pieces: Sequence[Bytes], flags: int) -> int:
        """Part of `Transport`. Small pieces are made one record."""
        if len(pieces[0]) >= RECORD_BYTES:
            return self._send(pieces[0], flags)
        joined: list[Bytes] = []
        room = MOST_SENT_BYTES
        for piece in pieces:
            if len(piece) >= room:
                joined.append(memoryview(piece)[:room])
                flags = 0
                break
            joined.append(piece)
            room -= len(piece)
        return self._send(b"".join(joined), flags)

    def send_region(self, region: Region, position: int, size: int) -> int:
        """Part of `Transport`: the bytes are read, and encrypted in pieces."""
        if self._unsent is not None:
            return self._send_again()
        # What stands before the records, and the first of these, leave in one record.
        most = RECORD_BYTES - len(self._ahead) if self._ahead else MOST_SENT_BYTES
        data = region.file.pread(min(size, most), position)
        return self._send(data, 0) if data else 0

    def cork(self, is_corked: bool) -> None:
        """Part of `Transport`."""
        cork_socket(self._socket, is_corked)

    def close(self) -> None:
        """Part of `Transport`. The peer is told that this is the end, and nobody has cut the connection."""
        if self._is_done and self._unsent is None:
            with contextlib.suppress(OSError, ValueError):
                self._socket.unwrap()
        self._socket.close()


def words(error: ssl.SSLError) -> str:
    """What OpenSSL finds wrong, in its words."""
    if error.reason in ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "UNEXPECTED_MESSAGE"):
        return f"it speaks no TLS ({error.reason.replace('_', ' ').lower()})"
    message = getattr(error, "verify_message", None)
    return message or (error.reason or str(error)).replace("_", " ").lower()


def _violation(error: ssl.SSLError) -> OSError:
    """A peer that breaks TLS, or has a new handshake wanted, is let go."""
    if isinstance(error, ssl.SSLWantReadError | ssl.SSLWantWriteError):
        return PeerViolation("it has more to say of the connection than of requests, and does not listen")
    return PeerViolation(words(error))
