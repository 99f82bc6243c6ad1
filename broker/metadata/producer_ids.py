"""ProducerIds: takes blocks of 1000 producer ids from the metadata log, and hands the ids out singly (KIP-730)."""

from collections import deque
from collections.abc import Callable
from typing import Final

from storage.errors import StorageError

BLOCK_SIZE: Final = 1000
_PREFETCH_AT: Final = BLOCK_SIZE // 10
"""The next block is requested when so many ids are left."""

AllocateBlock = Callable[[Callable[[range], None], Callable[[StorageError], None]], None]
"""Requests a block, and calls the first function with it once its record is on disk, perhaps before it returns. Calls
the second if the record cannot be written."""


class ProducerIds:
    """Hands out ids that no producer has had before, not even before a crash: a block is durable before it is used."""

    __slots__ = ("_allocate", "_blocks", "_is_allocating", "_waiting")

    def __init__(self, allocate: AllocateBlock) -> None:
        self._allocate = allocate
        self._blocks: deque[range] = deque()
        self._is_allocating = False
        self._waiting: deque[tuple[Callable[[int], None], Callable[[StorageError], None]]] = deque()

    def assign(self, then: Callable[[int], None], failed: Callable[[StorageError], None]) -> None:
        """Call ``then`` with a new id, at once or when the next block has come; or ``failed`` if there is no block."""
        if not self._waiting and self._blocks:
            producer_id = self._take()
            self._prefetch()
            then(producer_id)
        else:
            self._waiting.append((then, failed))
            self._prefetch()

    def take(self) -> int | None:
        """A new id if there is one at hand; None while the next block is on its way."""
        if self._waiting or not self._blocks:
            self._prefetch()
            return None
        producer_id = self._take()
        self._prefetch()
        return producer_id

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
            self._allocate(self._received, self._failed)

    def _failed(self, error: StorageError) -> None:
        # While ids are left, no request waits, and the next `assign` requests a block again.
        self._is_allocating = False
        while self._waiting:
            self._waiting.popleft()[1](error)

    def _received(self, block: range) -> None:
        self._is_allocating = False
        self._blocks.append(block)
        while self._waiting and self._blocks:
            self._waiting.popleft()[0](self._take())
        self._prefetch()
