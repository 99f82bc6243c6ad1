"""TlsTransport: a connection's bytes as TLS records. OpenSSL works in memory (docs/decisions/tls.md).

    socket ── received ── MemoryBIO ── OpenSSL ── the connection's memory
    socket ── unsent   ── MemoryBIO ── OpenSSL ── answers, pieces of files

Imported where a listener has TLS only, since it imports `ssl`.

What is encrypted has to be sent before anything else. A `send` that is blocked keeps it, and the next call sends it,
whatever it was called with. The caller forgets nothing that has not been reported as sent, so these are the bytes that
the caller still has to send first.
"""

import contextlib
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final, cast

from broker.network.transport import MORE_FOLLOWS, Bytes, Handshake, Region, cork_socket
from broker.network.transport_errors import HandshakeFailed, PeerViolation

RECORD_BYTES: Final = 16 * 1024
"""The most bytes that a TLS record carries."""

RECEIVED_BYTES: Final = 32 * 1024
"""What is received at a time. OpenSSL keeps as much memory for a connection that has received so much (bench: tls)."""

MOST_SENT_BYTES: Final = 4 * RECORD_BYTES
"""What is encrypted at a time. The same goes for what is sent."""

PrincipalOf = Callable[[bytes | None], str]
"""The principal of a client by its certificate, None where it has shown none. Raises `HandshakeFailed`."""


class TlsTransport:
    """A `Transport` whose bytes are encrypted."""

    __slots__ = (
        "_ahead",
        "_decrypt",
        "_has_ended",
        "_has_more",
        "_in",
        "_is_done",
        "_out",
        "_principal_of",
        "_reports",
        "_scratch",
        "_socket",
        "_tls",
        "_unsent",
        "descriptor",
        "pending",
        "principal",
        "receive_into",
        "send",
    )

    def __init__(
        self, connected: socket.socket, context: ssl.SSLContext, principal_of: PrincipalOf, scratch: memoryview
    ) -> None:
        """``connected`` is non-blocking; ``scratch`` is memory of `RECEIVED_BYTES` that all connections share."""
        self._socket = connected
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._decrypt = cast("Callable[[int, memoryview], int]", self._tls.read)
        self._principal_of = principal_of
        self._scratch = scratch
        self._is_done = False
        """The handshake is done."""
        self._has_more = False
        """Records may be there that have been received and not been decrypted."""
        self._has_ended = False
        """The peer has said that it sends no more."""
        self._ahead: Bytes = b""
        """Bytes that are reported as sent, and leave in one record with those that follow."""
        self._unsent: memoryview | None = None
        """Records that the socket has not taken yet."""
        self._reports = 0
        """How many bytes are reported as sent once `_unsent` is."""
        self.principal: str | None = None
        self.descriptor = connected.fileno()
        self.receive_into: Callable[[memoryview], int] = self._receive
        self.send: Callable[[Bytes, int], int] = self._send
        self.pending: Callable[[], bool] | None = self._is_pending

    def handshake(self) -> Handshake:
        """Part of `Transport`."""
        while not self._is_done:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                if not self._flush():
                    return Handshake.WANTS_WRITE
                try:
                    if not self._take():
                        raise ConnectionError("the peer has left during the handshake")
                except BlockingIOError:
                    return Handshake.WANTS_READ
            except ssl.SSLError as error:
                raise HandshakeFailed(words(error)) from error
            else:
                self.principal = self._principal_of(self._tls.getpeercert(binary_form=True))
                self._is_done = True
                # The first request may have come with the end of the handshake.
                self._has_more = self._in.pending > 0
        return Handshake.DONE if self._flush() else Handshake.WANTS_WRITE

    # Receiving

    def _receive(self, memory: memoryview) -> int:
        if self._has_more and (received := self._decrypted(memory)):
            return received
        if self._has_ended or not self._take():
            return 0
        received = self._decrypted(memory)
        if self._out.pending:
            self._answer()
        if not received and not self._has_ended:
            raise BlockingIOError
        return received

    def _take(self) -> int:
        """Receive records. Raises `BlockingIOError` where there are none."""
        count = self._socket.recv_into(self._scratch)
        self._in.write(self._scratch[:count])
        return count

    def _decrypted(self, memory: memoryview) -> int:
        """Decrypt as many whole records as there are and have room; 0 where there is none."""
        decrypt = self._decrypt
        size = len(memory)
        received = 0
        self._has_more = False
        try:
            while received < size:
                count = decrypt(size - received, memory[received:] if received else memory)
                if not count:
                    self._has_ended = True
                    return received
                received += count
        except ssl.SSLWantReadError:
            return received
        except ssl.SSLError as error:
            raise PeerViolation(words(error)) from error
        self._has_more = True
        return received

    def _is_pending(self) -> bool:
        """There is something to receive that does not make the descriptor readable."""
        return self._has_more or self._has_ended

    def _answer(self) -> None:
        """Send what TLS itself has to answer. A peer that wants answers and does not read them is let go."""
        if self._out.pending > MOST_SENT_BYTES:
            raise PeerViolation("it wants more of TLS answered than it reads")
        self._flush()

    # Sending

    def _send(self, data: Bytes, flags: int) -> int:
        if self._unsent is not None and (reports := self._send_again()):
            return reports
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
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            raise PeerViolation(words(error)) from error
        self._reports = size
        if not self._flush():
            raise BlockingIOError
        return size

    def _send_again(self) -> int:
        """Send what was blocked; return what it reports. Raises `BlockingIOError`."""
        reports = self._reports
        if not self._flush():
            raise BlockingIOError
        self._reports = 0
        return reports

    def _flush(self) -> bool:
        """Send the records that are there; False where the socket does not take all of them."""
        try:
            while self._unsent is not None or self._out.pending:
                records = self._unsent or memoryview(self._out.read())
                self._unsent = records
                sent = self._socket.send(records)
                self._unsent = records[sent:] if sent < len(records) else None
        except (BlockingIOError, InterruptedError):
            return False
        return True

    def send_pieces(self, pieces: Sequence[Bytes], flags: int) -> int:
        """Part of `Transport`. Small pieces are made one record."""
        if len(pieces[0]) >= RECORD_BYTES:
            return self._send(pieces[0], 0)
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
        if self._unsent is not None and (reports := self._send_again()):
            return reports
        # What stands before the records, and the first of these, leave in one record.
        most = RECORD_BYTES - len(self._ahead) if self._ahead else MOST_SENT_BYTES
        data = region.file.pread(min(size, most), position)
        return self._send(data, 0) if data else 0

    def cork(self, is_corked: bool) -> None:
        """Part of `Transport`."""
        cork_socket(self._socket, is_corked)

    def close(self) -> None:
        """Part of `Transport`. The peer is told that this is the end, and why where its handshake has failed."""
        if self._is_done:
            with contextlib.suppress(OSError):
                self._tls.unwrap()
        with contextlib.suppress(OSError):
            self._flush()
        self._socket.close()
        # Its own methods are cycles, which the collector would leave for long (docs/decisions/freed-at-once.md).
        self.receive_into, self.send, self.pending = _closed_receive, _closed_send, None


def _closed_receive(memory: memoryview) -> int:
    raise ConnectionResetError("the transport is closed")


def _closed_send(data: Bytes, flags: int) -> int:
    raise ConnectionResetError("the transport is closed")


def words(error: ssl.SSLError) -> str:
    """What OpenSSL finds wrong, in its words."""
    if error.reason in ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "UNEXPECTED_MESSAGE"):
        return f"it speaks no TLS ({error.reason.replace('_', ' ').lower()})"
    message = getattr(error, "verify_message", None)
    return message or (error.reason or str(error)).replace("_", " ").lower()
