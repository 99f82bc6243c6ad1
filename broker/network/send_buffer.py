"""What a connection still has to send: bytes in few calls, regions of files from the file to the transport."""

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum, auto
from itertools import islice
from typing import Final, cast

from broker.network.transport import MORE_FOLLOWS, Bytes, Region, Transport
from protocol.codec import Chunk

MOST_PIECES: Final = 512
"""Pieces in one `Transport.send_pieces`; systems take 1,024."""


JOINED_BYTES: Final = 4096
"""Pieces that are smaller together are copied into one."""

_IN_MEMORY: Final = (bytes, bytearray, memoryview)
"""The types of a chunk that is no region."""


class RegionCutShort(Exception):
    """The file ends inside a region whose size is announced already: the answer cannot be finished."""


class SendOutcome(Enum):
    """How far a turn has come."""

    DONE = auto()
    """Nothing is left."""
    TURN_OVER = auto()
    """More could be sent, but other connections wait."""
    BLOCKED = auto()
    """The transport takes no more now."""


class SendBuffer:
    """Chunks in the order in which they are sent. A chunk that is sent is forgotten at once, a region with its file."""

    __slots__ = ("_chunks", "_head_sent", "_is_corked", "_send", "_transport", "add")

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._send = transport.send
        self._chunks: deque[Chunk] = deque()
        self.add: Callable[[Iterable[Chunk]], None] = self._chunks.extend
        """Send these, behind all others."""
        self._head_sent = 0
        """Bytes of the first chunk that are sent."""
        self._is_corked = False
        """Whether the transport keeps what does not fill a packet until everything is sent."""

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def clear(self) -> None:
        self._chunks.clear()
        self._head_sent = 0

    @property
    def held_bytes(self) -> int:
        """The memory that waits here. Regions are no memory."""
        held = held_bytes(self._chunks)
        return held - self._head_sent if held and isinstance(self._chunks[0], _IN_MEMORY) else held

    def send(self, most: int) -> tuple[SendOutcome, int]:
        """Send until nothing is left, the transport takes no more or about ``most`` bytes are sent; return which, and
        how many bytes were sent. Raises `OSError` where the connection is lost, `RegionCutShort`."""
        chunks = self._chunks
        total = 0
        try:
            while chunks:
                if total >= most:
                    return SendOutcome.TURN_OVER, total
                head = chunks[0]
                if isinstance(head, _IN_MEMORY):
                    sent = self._send_bytes()
                else:
                    sent = self._send_region(cast(Region, head), most - total)
                total += sent
        except (BlockingIOError, InterruptedError):
            return SendOutcome.BLOCKED, total
        if self._is_corked:
            self._is_corked = False
            self._transport.cork(False)
        return SendOutcome.DONE, total

    def _send_region(self, region: Region, most: int) -> int:
        position = region.position + self._head_sent
        left = len(region) - self._head_sent
        sent = self._transport.send_region(region, position, min(left, most)) if left else 0
        if left and not sent:
            raise RegionCutShort(
                f"{left} bytes at {position} of {region.file} are announced, and the file ends before them"
            )
        self._head_has_sent(sent, left)
        return sent

    def _send_bytes(self) -> int:
        """Send the bytes that stand before the next region, as far as the transport takes them."""
        chunks = self._chunks
        if not self._head_sent and len(chunks) > 1 and not isinstance(chunks[1], _IN_MEMORY):
            # A fetch of many partitions is little else: one piece, its records, one piece (bench: fetch-16x64kb).
            if not self._is_corked and len(chunks) > 2:
                # `send_region` has no flag for more bytes to follow: it sends the last packet of its records as it is.
                self._is_corked = True
                self._transport.cork(True)
            piece = cast(Bytes, chunks[0])
            sent = self._send(piece, MORE_FOLLOWS)
            self._head_has_sent(sent, len(piece))
            return sent
        pieces: list[Bytes] = []
        flags = 0
        for chunk in islice(chunks, MOST_PIECES):
            if not isinstance(chunk, _IN_MEMORY):
                # The records follow at once: no packet of their own for what stands before them.
                flags = MORE_FOLLOWS
                break
            pieces.append(chunk)
        if self._head_sent:
            pieces[0] = memoryview(pieces[0])[self._head_sent :]
        size = sum(map(len, pieces))
        if len(pieces) == 1:
            sent = self._send(pieces[0], flags)
        elif size <= JOINED_BYTES:
            # Many small answers: to join them costs less than a vector of them (bench: produce-one-record).
            sent = self._send(b"".join(pieces), flags)
        else:
            sent = self._transport.send_pieces(pieces, flags)
        if sent == size and len(pieces) == len(chunks):
            chunks.clear()
            self._head_sent = 0
        else:
            self._forget(sent)
        return sent

    def _head_has_sent(self, sent: int, left: int) -> None:
        """Of the ``left`` bytes of the first chunk ``sent`` are sent."""
        if sent == left:
            self._chunks.popleft()
            self._head_sent = 0
        else:
            self._head_sent += sent

    def _forget(self, sent: int) -> None:
        """``sent`` bytes are sent: drop the chunks that they end."""
        chunks = self._chunks
        sent += self._head_sent
        while chunks and sent >= (size := len(chunks[0])):
            sent -= size
            chunks.popleft()
        self._head_sent = sent


def held_bytes(chunks: Iterable[Chunk]) -> int:
    """The memory in an answer. Regions are no memory."""
    return sum(len(chunk) for chunk in chunks if isinstance(chunk, _IN_MEMORY))
