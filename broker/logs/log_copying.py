"""LogCopying: gives the copy of a log, in another data directory, what it does not have (KIP-113).

Reading, checking and writing are done in a thread; the event loop finds places and publishes.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from broker.replication.disk_reserve import DiskReserve
from storage.batch.record_batch import BatchHeader
from storage.batch.walk import AtFault, BatchWalk, WalkPolicy, in_memory
from storage.errors import StorageError
from storage.files import FileRegion
from storage.future_logs import FutureLog
from storage.log import Log

CHUNK_BYTES: Final = 1 << 20
"""How much is read and written at a time."""

_CHECKED: Final = WalkPolicy(checks_crc=True, at_fault=AtFault.RAISE)


class LogCopying:
    """Copies one log."""

    def __init__(
        self,
        log: Log,
        future: FutureLog,
        *,
        reserve: DiskReserve,
        run: Callable[[Callable[[], Any]], Awaitable[Any]],
        now_ms: Callable[[], int],
    ) -> None:
        """``run`` runs a job in a thread; ``now_ms`` is the wall clock. Copies do not use ``reserve``."""
        self._log = log
        self._future = future
        self._reserve = reserve
        self._run = run
        self._now_ms = now_ms
        self.is_reading = False
        """Whether the log itself is read: what is raised meanwhile is an error of its directory."""

    async def copy_some(self) -> int:
        """Give the copy the next batches; returns how many bytes. 0 if it has everything.

        Raises StorageError; the copy is as it was then.
        """
        log, copy = self._log, self._future.log
        self._future.fit(log, self._now_ms())
        if copy.log_end_offset >= log.log_end_offset:
            self._take_offsets()
            return 0
        copied = await self._copy_region()
        self._take_offsets()
        return copied

    async def complete(self) -> None:
        """Let the copy have all else that the log has, on disk too. The log is held."""
        copy = self._future.log
        self._log.complete_copy(copy)
        target = copy.begin_flush(self._now_ms(), everything=True)
        if target is not None:
            await self._run(target.perform)
            copy.complete_flush(target)

    async def _copy_region(self) -> int:
        log, copy = self._log, self._future.log
        self.is_reading = True
        read = log.read(
            copy.log_end_offset,
            max_bytes=CHUNK_BYTES,
            upper_bound_offset=log.log_end_offset,
            at_least_one_batch=True,
        )
        region = read.region
        if region is None:
            self.is_reading = False
            copy.skip_to(log.log_end_offset, self._now_ms())
            return 1
        batches = await self._run(lambda: _batches_in(region))
        self.is_reading = False
        if self._future.cut_to is not None:
            return region.size  # the log was cut meanwhile, and these batches may not be in it any more
        copied = 0
        for header, data in batches:
            if header.last_offset < copy.next_offset:
                continue
            if header.base_offset < copy.next_offset:
                # The log begins inside of the batch, and the copy holds nothing yet.
                copy.truncate_fully_to(header.base_offset, self._now_ms())
            copy.stage_trusted(data, keep_offsets=True)
            copied += len(data)
        await self._write()
        return max(copied, 1)

    async def _write(self) -> None:
        """Write what is staged. On an error all of it is taken back."""
        copy = self._future.log
        while copy.staged:
            write = None
            try:
                write = copy.begin_write(self._now_ms())
                assert write is not None, "nobody else writes to a copy"
                self._reserve.take(write.size, self._now_ms())
                await self._run(write.perform)
            except StorageError as error:
                copy.fail_write(write, error)
                raise
            copy.complete_write(write)

    def _take_offsets(self) -> None:
        log, copy = self._log, self._future.log
        copy.advance_high_watermark(log.high_watermark)
        if copy.log_start_offset < log.log_start_offset <= copy.high_watermark:
            copy.start_offset_to(log.log_start_offset)


def _batches_in(region: FileRegion) -> list[tuple[BatchHeader, memoryview]]:
    """The whole batches of a region; a last one that is cut off is left out. Raises CorruptBatch, LogDirFailed."""
    data = region.file.pread(region.size, region.position)
    return [(header, batch) for header, _position, batch in BatchWalk(in_memory(data), 0, len(data), _CHECKED)]
