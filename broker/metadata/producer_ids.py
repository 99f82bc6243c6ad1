"""Producer ids: blocks of a thousand from the metadata log, handed out one by one (KIP-730)."""

from collections import deque
from collections.abc import Callable
from typing import Final

BLOCK_SIZE: Final = 1000
_PREFETCH_AT: Final = BLOCK_SIZE // 10
"""The next block is asked for when so many ids are left."""

AllocateBlock = Callable[[Callable[[range], None]], None]
"""Asks for a block; calls back with it once the metadata log has it on disk, perhaps before it returns."""


class ProducerIds:
    """Hands out ids that nobody has had before, not even before a crash: a block is durable before it is touched."""

    __slots__ = ("_allocate", "_blocks", "_is_allocating", "_waiting")

    def __init__(self, allocate: AllocateBlock) -> None:
        self._allocate = allocate
        self._blocks: deque[range] = deque()
        self._is_allocating = False
        self._waiting: deque[Callable[[int], None]] = deque()

    def assign(self, then: Callable[[int], None]) -> None:
        """Call ``then`` with a new id: at once, or when the next block has come."""
        if not self._waiting and self._blocks:
            producer_id = self._take()
            self._prefetch()
            then(producer_id)
        else:
            self._waiting.append(then)
            self._prefetch()

    def _take(self) -> int:
        block = self._blocks[0]
        if len(block) == 1:
            self._blocks.popleft()
        else:
            self._blocks[0] = block[1:]
        return block[0]

    def _prefetch(self) -> None:
        if not self._is_allocating and sum(map(len, self._blocks)) <= _PREFETCH_AT + len(self._waiting):
            self._is_allocating = True
            self._allocate(self._received)

    def _received(self, block: range) -> None:
        self._is_allocating = False
        self._blocks.append(block)
        while self._waiting and self._blocks:
            self._waiting.popleft()(self._take())
        self._prefetch()
