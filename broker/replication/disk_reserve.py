"""How much of a data directory's disk clients may fill: all but a reserve, kept for what the broker itself must write.

    total
    |----- used -----|-- open to clients --|-- reserve --|
                                            __consumer_offsets, __transaction_state, the metadata log, checkpoints

Asking the system costs a microsecond or two on every file system that was tried, an append only ten; so it is asked
once a quarter of what was open has been appended, and once a second at most where appends are few. Whoever else writes
to the disk meanwhile takes from the reserve: that too is what it is for.
"""

import logging
from typing import Final

from storage.errors import DiskFull
from storage.log_dir import LogDir

log = logging.getLogger(__name__)

GOOD_FOR_MS: Final = 1_000
"""How long an answer of the system counts, whatever is appended."""

RETRY_MS: Final = 100
"""How long a full disk counts as full before somebody looks again."""

LARGEST_SHARE: Final = 8
"""The reserve is an eighth of its file system at most: on a small one, 64 MiB could be all there is."""

REOPENS_AT_BYTES: Final = 4 << 20
REOPENS_AT_SHARE: Final = 256
"""A full disk takes records again once so many bytes, or this part of the file system, are open: not for each few bytes
that come free, with two lines in the log every time."""


class NoSpaceForClients(DiskFull):
    """An append was refused before it reached the disk."""


class DiskReserve:
    """The room that appends to ordinary topics have in one data directory. Times are the wall clock's."""

    __slots__ = (
        "_asked_ms", "_budget_bytes", "_directory", "_is_on_trial", "_refused_ms", "_reserve_bytes", "is_full",
    )  # fmt: skip

    def __init__(self, directory: LogDir, *, reserve_bytes: int) -> None:
        self._directory = directory
        self._reserve_bytes = reserve_bytes
        self._budget_bytes = -1
        """What may be appended before the system is asked again."""
        self._asked_ms = 0
        self._refused_ms: int | None = None
        """When the reserve was found to be touched; None if the last answer was another one."""
        self._is_on_trial = False
        """The system has refused a write and says that there is room, as it does where a quota is used up: the next
        append has a try, and only where that succeeds the disk counts as open again."""
        self.is_full = False
        """Whether it has been said that the disk is full."""

    def take(self, size: int, now_ms: int) -> None:
        """Let ``size`` bytes be appended.

        Raises DiskFull where that would touch the reserve, LogDirFailed where the system cannot tell.
        """
        if size <= self._budget_bytes and 0 <= now_ms - self._asked_ms < GOOD_FOR_MS:
            self._budget_bytes -= size
        else:
            self._ask(size, now_ms)

    def found_full(self, error: DiskFull) -> None:
        """An append has failed for want of room: where the system itself said so, nobody was asked before."""
        if not isinstance(error, NoSpaceForClients):
            self._budget_bytes = -1
            self._is_on_trial = True
            self._say_full(str(error))

    def _ask(self, size: int, now_ms: int) -> None:
        if self._refused_ms is not None and 0 <= now_ms - self._refused_ms < RETRY_MS:
            raise self._refusal(size)
        space = self._directory.space()
        reserve_bytes = min(self._reserve_bytes, space.total_bytes // LARGEST_SHARE)
        open_bytes = space.usable_bytes - reserve_bytes
        margin_bytes = min(REOPENS_AT_BYTES, space.total_bytes // REOPENS_AT_SHARE) if self.is_full else 0
        if open_bytes < size + margin_bytes:
            self._refused_ms = now_ms
            self._budget_bytes = -1
            self._is_on_trial = False
            self._say_full(f"{space.usable_bytes} bytes are free, and {reserve_bytes} are kept for the broker itself")
            raise self._refusal(size)
        self._refused_ms = None
        self._asked_ms = now_ms
        if self._is_on_trial:
            self._is_on_trial = False
            return
        self._budget_bytes = open_bytes // 4 - size
        if self.is_full:
            self.is_full = False
            log.info("%s takes records again: %d bytes are free", self._directory.path, space.usable_bytes)

    def _say_full(self, why: str) -> None:
        if not self.is_full:
            self.is_full = True
            log.error("%s is full, it takes no more records until there is room: %s", self._directory.path, why)

    def _refusal(self, size: int) -> NoSpaceForClients:
        return NoSpaceForClients(
            f"{self._directory.path} has no room for {size} bytes beside what is kept for the broker itself"
        )
