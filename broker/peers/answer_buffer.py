"""The memory that answers are received into.

Small answers are received several at a time into a head of fixed size, from which each is copied once. An answer that
is not whole there gets memory of its own, in pieces that grow with the bytes that arrive: what a node only announces
takes no memory. Its bytes are copied once, when the pieces are joined; an answer no larger than an earlier one of the
connection gets one piece, and is not copied. Nothing is received into the memory of an answer that was cut, so a
decoded message may hold views of it.
"""

import struct
from typing import Final

from protocol.primitives import Malformed

HEAD_BYTES: Final = 64 * 1024
SIZE_BYTES: Final = 4
LEAST_BYTES: Final = 4
"""An answer has a correlation id at least."""

_read_size = struct.Struct(">i").unpack_from


class AnswerBuffer:
    """What one connection has received and not handed on."""

    __slots__ = ("_arrived", "_end", "_free", "_head", "_largest", "_pieces", "_size", "_start")

    def __init__(self) -> None:
        self._head = memoryview(bytearray(HEAD_BYTES))
        self._start = self._end = 0
        """Where the bytes in the head begin and end that are not cut yet."""
        self._size = 0
        """Of the answer that has memory of its own; 0: there is none."""
        self._arrived = 0
        """Bytes of that answer."""
        self._pieces: list[memoryview] = []
        self._free = self._head[:0]
        """The end of the last piece, where nothing is yet."""
        self._largest = 0
        """Size of the largest answer so far."""

    @property
    def unread_bytes(self) -> int:
        """Received, and in no answer that was cut."""
        return self._end - self._start + self._arrived

    @property
    def held_bytes(self) -> int:
        """Memory beside the head."""
        return sum(map(len, self._pieces))

    def space(self) -> memoryview:
        """Where the next bytes are to be received: one at least, where `cut` has returned None or all is cut."""
        if not self._size:
            if self._start == self._end:  # the last answer may have filled the head to its end
                self._start = self._end = 0
            return self._head[self._end :]
        if not self._free:
            self._add_piece()
        return self._free

    def received(self, count: int) -> None:
        """So many bytes were received into `space`."""
        if self._size:
            self._free = self._free[count:]
            self._arrived += count
        else:
            self._end += count

    def cut(self, largest_bytes: int) -> memoryview | None:
        """Return the next whole answer, without its size; None where it is not whole yet.

        Raises `Malformed` for a size below four or above ``largest_bytes``.
        """
        if self._size:
            return self._take_own() if self._arrived == self._size else None
        head, start, end = self._head, self._start, self._end
        if end - start < SIZE_BYTES:
            self._head[: end - start] = bytes(head[start:end])
            self._start, self._end = 0, end - start
            return None
        (size,) = _read_size(head, start)
        if not LEAST_BYTES <= size <= largest_bytes:
            raise Malformed(f"an answer of {size} bytes was announced, it may have {LEAST_BYTES} to {largest_bytes}")
        start += SIZE_BYTES
        if start + size <= end:
            self._start = start + size
            return memoryview(bytearray(head[start : start + size]))
        self._size = size
        self._arrived = 0
        self._add_piece(end - start)
        self._free[: end - start] = head[start:end]
        self._start = self._end = 0
        self.received(end - start)
        return None

    def clear(self) -> None:
        """Forget what was received."""
        self._start = self._end = self._size = self._arrived = 0
        self._pieces = []
        self._free = self._head[:0]

    def _add_piece(self, at_hand: int = 0) -> None:
        most = max(HEAD_BYTES, self._arrived, self._largest - self._arrived, at_hand)
        self._free = memoryview(bytearray(min(self._size - self._arrived, most)))
        self._pieces.append(self._free)

    def _take_own(self) -> memoryview:
        pieces = self._pieces
        whole = pieces[0] if len(pieces) == 1 else memoryview(bytearray().join(pieces))
        self._largest = max(self._largest, self._size)
        self._size = self._arrived = 0
        self._pieces = []
        self._free = self._head[:0]
        return whole
