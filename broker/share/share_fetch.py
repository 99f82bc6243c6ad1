"""A ShareFetch under way: what it acquires of its partitions, and when it has waited long enough."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from broker.replication.isolation import FetchIsolation
from broker.replication.partition import Partition
from broker.request.faults import Fault
from broker.runtime.purgatory import DelayedOperation
from broker.share.fetched import Fetched, fetched_in
from broker.share.requests import AcquiredRecords, Acquisition
from broker.share.sessions import TopicIdPartition
from broker.share.share_partition import Phase, SharePartition
from broker.share.stats import ShareFetchStats
from storage.errors import LogDirFailed, OffsetOutOfRange, StorageError
from storage.files import FileRegion
from storage.index.transaction_index import AbortedTransaction
from storage.read_ahead import NotInMemory, ReadAhead

log = logging.getLogger(__name__)


class ShareFetchPartition(NamedTuple):
    """A partition of a ShareFetch."""

    topic_id_partition: TopicIdPartition
    share: SharePartition
    partition: Partition


class ShareFetchAnswer(NamedTuple):
    """What a partition gives."""

    topic_id_partition: TopicIdPartition
    error: Exception | None = None
    region: FileRegion | None = None
    """Batches of the log, with all records that are acquired and perhaps others."""
    acquired: Sequence[AcquiredRecords] = ()
    taken_from: ShareFetchPartition | None = None


class ShareFetch:
    """What a ShareFetch asks for."""

    __slots__ = (
        "asked", "failed", "is_superseded", "isolation", "max_bytes", "max_wait_ms", "min_bytes", "partitions", "want",
    )  # fmt: skip

    def __init__(
        self,
        want: Acquisition,
        *,
        isolation: FetchIsolation,
        min_bytes: int,
        max_bytes: int,
        max_wait_ms: int,
        is_superseded: Callable[[], bool],
    ) -> None:
        """``is_superseded``: says whether nobody waits for the answer any more."""
        self.want = want
        self.isolation = isolation
        self.max_bytes = max_bytes
        self.min_bytes = min(min_bytes, max_bytes)
        self.max_wait_ms = max_wait_ms
        self.is_superseded = is_superseded
        self.asked = 0
        """How many partitions are asked for, those that cannot be read included."""
        self.partitions: list[ShareFetchPartition] = []
        self.failed: dict[TopicIdPartition, Exception] = {}
        """Partitions that cannot be read, and why."""

    def ready(self) -> list[ShareFetchPartition]:
        """The partitions that may give something now."""
        return [one for one in self.partitions if one.topic_id_partition not in self.failed and one.share.can_acquire()]

    def has_enough(self, ready: Sequence[ShareFetchPartition]) -> bool:
        """Whether there are as many bytes to acquire as the fetch wants, or something else to answer. ``ready``: what
        `ready` gives now."""
        if self.is_superseded() or any(one.share.phase is Phase.FENCED for one in self.partitions):
            return True
        if not ready:
            return False
        most = self._most_bytes_of_each(ready)
        available = 0
        for one in ready:
            size = self._readable_bytes(one, most)
            if size is None:
                return True
            available += size
        return available >= self.min_bytes

    def may_give(self, one: ShareFetchPartition) -> bool:
        """Whether a partition has anything for the answer now."""
        if one.share.phase is Phase.FENCED:
            return True
        if one.topic_id_partition in self.failed or not one.share.can_acquire():
            return False
        return self._readable_bytes(one, self.max_bytes) != 0

    def _readable_bytes(self, one: ShareFetchPartition, most: int) -> int | None:
        """How much there is to acquire; None if the partition must be read again, and has an error then."""
        offset, partition = one.share.window.next_fetch_offset(), one.partition
        if not partition.is_leader or not partition.log.log_start_offset <= offset <= partition.log.log_end_offset:
            return None
        try:
            return partition.log.readable_bytes(offset, partition.visible_end(self.isolation), most)
        except StorageError:
            return None

    def _most_bytes_of_each(self, ready: Sequence[ShareFetchPartition]) -> int:
        return max(self.max_bytes // len(ready), 1)

    def missing_in_memory(self) -> list[ReadAhead]:
        """What must be read from the disk first."""
        ahead: list[ReadAhead] = []
        ready = self.ready()
        for one in ready:
            try:
                self._read(one, self._most_bytes_of_each(ready), at_least_one_batch=True, in_memory_only=True)
            except NotInMemory as error:
                ahead.append(error.ahead)
            except (Fault, StorageError):
                continue  # reading it again finds the error, which is then answered
        return ahead

    def acquire(self, ready: Sequence[ShareFetchPartition]) -> list[ShareFetchAnswer]:
        """Acquire what there is; ``ready``: what `ready` gives now."""
        answers = [ShareFetchAnswer(key, error) for key, error in self.failed.items()]
        if self.is_superseded():
            return answers
        size, records = 0, 0
        for one in ready:
            want = self.want._replace(max_records=self.want.max_records - records)
            if one.topic_id_partition in self.failed or want.max_records <= 0 or size >= self.max_bytes:
                continue
            most = min(self._most_bytes_of_each(ready), self.max_bytes - size)
            answer = self._acquire(one, want, most, at_least_one_batch=not size)
            if answer.region is not None:
                size += answer.region.size
                records += sum(run.last_offset - run.first_offset + 1 for run in answer.acquired)
            answers.append(answer)
        return answers

    def _acquire(
        self, one: ShareFetchPartition, want: Acquisition, max_bytes: int, *, at_least_one_batch: bool
    ) -> ShareFetchAnswer:
        key, share = one.topic_id_partition, one.share
        try:
            region, fetched = self._read(one, max_bytes, at_least_one_batch=at_least_one_batch)
        except OffsetOutOfRange:
            # Records were deleted: the group goes on where the log begins now.
            share.window.log_start_moved(one.partition.log.log_start_offset)
            return ShareFetchAnswer(key)
        except LogDirFailed as error:
            one.partition.disk_failed(error)
            return ShareFetchAnswer(key, error.with_traceback(None))
        except (Fault, StorageError) as error:
            return ShareFetchAnswer(key, error.with_traceback(None))
        if region is None or fetched is None:
            return ShareFetchAnswer(key)
        acquired = share.acquire(want, share.window.next_fetch_offset(), fetched)
        if not acquired:
            return ShareFetchAnswer(key)
        cut = fetched.cut(region, acquired[0].first_offset, acquired[-1].last_offset)
        return ShareFetchAnswer(key, None, cut, acquired, one)

    def _read(
        self,
        one: ShareFetchPartition,
        max_bytes: int,
        *,
        at_least_one_batch: bool,
        in_memory_only: bool = False,
    ) -> tuple[FileRegion | None, Fetched | None]:
        partition, window = one.partition, one.share.window
        partition.check_leadership()
        offset = window.next_fetch_offset()
        found = partition.log.read(
            offset,
            max_bytes=max_bytes,
            upper_bound_offset=partition.visible_end(self.isolation),
            at_least_one_batch=at_least_one_batch,
            in_memory_only=in_memory_only,
        )
        if found.region is None or in_memory_only:
            return None, None
        aborted: Sequence[AbortedTransaction] = ()
        if self.isolation is FetchIsolation.TXN_COMMITTED:
            aborted = partition.log.aborted_transactions(offset, found)
        behind = max(offset, window.end_offset) + self.want.max_records
        return found.region, fetched_in(found.region, behind, aborted)

    @staticmethod
    def take_back(answers: Sequence[ShareFetchAnswer], member_id: str) -> None:
        """What the member has acquired is not delivered."""
        for answer in answers:
            if answer.taken_from is not None:
                answer.taken_from.share.window.take_back(member_id, answer.acquired)


class DelayedShareFetch(DelayedOperation):
    """A ShareFetch that waits for records."""

    __slots__ = ("_by_key", "_fetch", "_now_ms", "_ready", "_since_ms", "_stats", "_then")

    def __init__(
        self,
        fetch: ShareFetch,
        then: Callable[[list[ShareFetchAnswer]], None],
        *,
        stats: ShareFetchStats,
        now_ms: Callable[[], int],
    ) -> None:
        """``stats``: of the group; ``now_ms``: the monotonic clock."""
        super().__init__()
        self._fetch = fetch
        self._by_key: dict[Hashable, ShareFetchPartition] = {one.share.key: one for one in fetch.partitions}
        self._then = then
        self._stats = stats
        self._now_ms = now_ms
        self._since_ms = now_ms()
        self._ready: Sequence[ShareFetchPartition] = ()
        """What can be acquired now; nothing before there is enough."""

    def try_complete(self) -> bool:
        """Complete once there is enough."""
        ready = self._fetch.ready()
        if ready:
            self._count_time()
        if not self._fetch.has_enough(ready):
            return False
        self._ready = ready
        return self.complete()

    def try_complete_after(self, key: Hashable) -> bool:
        """The same after an event of ``key``: the session, or one of perhaps thousands of partitions, most of which
        have nothing."""
        changed = self._by_key.get(key)
        return (changed is None or self._fetch.may_give(changed)) and self.try_complete()

    def on_complete(self) -> None:
        """Acquire what there is, and answer."""
        fetch = self._fetch
        ready = self._ready
        if not ready:
            ready = fetch.ready()
            self._count_time()
        self._stats.fetch_ratios.record(100 * len(ready) // fetch.asked)
        self._then(fetch.acquire(ready))
        del self._fetch, self._then, self._ready, self._by_key

    def _count_time(self) -> None:
        now_ms = self._now_ms()
        self._stats.acquire_times.record(now_ms - self._since_ms)
        self._since_ms = now_ms

    def on_failure(self, error: Exception) -> None:
        """Answer with the error: raised again, it would reach the append that the fetch has waited for."""
        log.error("a share fetch failed: %s", error, exc_info=error)
        self._then([ShareFetchAnswer(one.topic_id_partition, error) for one in self._fetch.partitions])
        del self._fetch, self._then, self._by_key
