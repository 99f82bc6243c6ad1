"""A limit for open files of segments: beyond it, the file used least recently is closed.

A broker with ten thousand partitions has a hundred thousand segment and index files, more than a process may open.
Every `Reopenable` reports each use here; beyond the limit the one that was used least recently drops its file, be it
of an active segment. (The file closes then, unless a flush or an answer still holds it: see `storage.files.File`. Bytes
that were written and are not on the disk yet are synced through the next descriptor.)
"""

from collections import OrderedDict
from typing import Final, Protocol

DEFAULT_LIMIT: Final = 512


class Reopenable(Protocol):
    """A segment or an index that holds an open file and can open it again."""

    def let_go(self) -> None:
        """Drop the open file and its mmap."""


class OpenFiles:
    """The reopenable files that are open, by last use."""

    __slots__ = ("_by_last_use", "limit")

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self._by_last_use: OrderedDict[Reopenable, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_last_use)

    def used(self, holder: Reopenable) -> None:
        """Note that ``holder`` has just opened its file, or used it again."""
        by_last_use = self._by_last_use
        if holder in by_last_use:
            by_last_use.move_to_end(holder)
            return
        by_last_use[holder] = None
        while len(by_last_use) > self.limit:
            oldest, _ = by_last_use.popitem(last=False)
            oldest.let_go()

    def forget(self, holder: Reopenable) -> None:
        """Note that ``holder`` has closed its file for good."""
        self._by_last_use.pop(holder, None)
