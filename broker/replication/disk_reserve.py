"""DiskReserve: the space of a data directory's disk that clients may not fill, kept for the broker's own writes.

    total
    |----- used -----|-- open to clients --|-- reserve --|
                                            __consumer_offsets, __transaction_state, the metadata log, checkpoints

Asking the system for the free space costs 1 or 2 µs on every file system that was tried, an append only 10 µs. So the
system is asked once a quarter of the open space has been appended, and once a second where appends are few. Writes of
other programs take from the reserve meanwhile: the reserve is for that, too.
"""

import logging
from typing import Final

from storage.errors import DiskFull
from storage.log_dir import LogDir

log = logging.getLogger(__name__)

GOOD_FOR_MS: Final = 1_000
"""How long an answer of the system is valid, in milliseconds."""

RETRY_MS: Final = 100
"""How long a full disk counts as full before the system is asked again."""

REOPENS_AT_BYTES: Final = 4 << 20
REOPENS_AT_SHARE: Final = 256
"""A full disk takes records again once so many bytes, or this part of the file system, are open to clients. Otherwise
each few bytes that become free would open the disk, with two lines in the log each time."""


_UNKNOWN: Final = 1 << 62
"""Open bytes where the file system does not tell how many there are."""


class NoSpaceForClients(DiskFull):
    """An append was refused because it would have used the disk reserve."""


class DiskReserve:
    """Admits appends to ordinary topics of one data directory. Times are in milliseconds of the wall clock."""

    __slots__ = (
        "_asked_ms", "_budget_bytes", "_directory", "_is_on_trial", "_refused_ms", "_reserve_bytes", "is_full",
    )  # fmt: skip

    def __init__(self, directory: LogDir, *, reserve_bytes: int) -> None:
        self._directory = directory
        self._reserve_bytes = reserve_bytes
        self._budget_bytes = -1
        """Bytes that may be appended before the system is asked again."""
        self._asked_ms = 0
        self._refused_ms: int | None = None
        """When the system was last asked, if the free space did not suffice then; else None."""
        self._is_on_trial = False
        """The system has refused a write and reports free space all the same, as it does where a quota is used up. The
        next append is tried, and the disk counts as open again only if that append succeeds."""
        self.is_full = False
        """Whether it has been logged that the disk is full."""

    def take(self, size: int, now_ms: int) -> None:
        """Admit an append of ``size`` bytes.

        Raises DiskFull where the append would use the reserve, LogDirFailed where the system cannot tell.
        """
        if size <= self._budget_bytes and 0 <= now_ms - self._asked_ms < GOOD_FOR_MS:
            self._budget_bytes -= size
        else:
            self._ask(size, now_ms)

    def found_full(self, error: DiskFull) -> None:
        """An append has failed with ``error``. If the system refused the write (ENOSPC, EDQUOT), the disk is full."""
        if not isinstance(error, NoSpaceForClients):
            self._budget_bytes = -1
            self._is_on_trial = True
            self._say_full(str(error))

    def _ask(self, size: int, now_ms: int) -> None:
        if self._refused_ms is not None and 0 <= now_ms - self._refused_ms < RETRY_MS:
            raise self._refusal(size)
        space = self._directory.space()
        if not space.total_bytes:  # a file system that does not tell: a write that finds no space says so
            self._budget_bytes = _UNKNOWN
            self._asked_ms = now_ms
            return
        reserve_bytes = space.reserve(self._reserve_bytes)
        open_bytes = space.usable_bytes - reserve_bytes
        margin_bytes = min(REOPENS_AT_BYTES, space.total_bytes // REOPENS_AT_SHARE) if self.is_full else 0
        if open_bytes < size + margin_bytes:
            self._refused_ms = now_ms
            self._budget_bytes = -1
            self._is_on_trial = False
            self._say_full(f"{space.usable_bytes} bytes are free, and {reserve_bytes} are the reserve of the broker")
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
            log.error("%s is full, it takes no records until space is freed: %s", self._directory.path, why)

    def _refusal(self, size: int) -> NoSpaceForClients:
        return NoSpaceForClients(
            f"{self._directory.path} has no space for {size} bytes beside the reserve of the broker"
        )
