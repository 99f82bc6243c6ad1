"""CoordinatorRuntime: the coordinators of the partitions of an internal topic that this node leads, found by key.

    led ── waits ── loading ── active ── unloaded: led by another node, deleted, offline, or stopped
                       └──────────┘ another writer's batch was found: loaded again

Loading reads the log up to its end, and lasts until all of that is committed. A new epoch of the same leader changes
nothing, as in Kafka's coordinators of groups: no other coordinator can have written in between.

A coordinator is a partition's state machine (a shard) and the writer of the shard's records. Groups are in
``__consumer_offsets``, transactions in ``__transaction_state``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple

from broker.coordinators.partitioning import partition_of
from broker.coordinators.result import Completion, CoordinatorResult
from broker.coordinators.shard import ShardLoadingStats, ShardT, ShardType
from broker.metadata.cache import MetadataCache
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from broker.replication.transaction_marker import TransactionMarker
from broker.request.faults import CoordinatorLoadInProgress, CoordinatorNotAvailable, Fault, NotCoordinator
from broker.runtime.clock import Clock
from broker.runtime.histogram import RecentHistogram
from broker.runtime.time_slices import Step, Steps, TimeSlices
from broker.runtime.worker_thread import WorkerThread
from protocol.errors import ErrorCode
from storage.batch.record_batch import Codec

if TYPE_CHECKING:
    from broker.coordinators.loading import CommitWait, PartitionLoading
    from broker.coordinators.partition_writer import PartitionWriter

log = logging.getLogger(__name__)

LEAST_CHUNK_BYTES: Final = 64 << 10
"""Bytes of a partition that are read at a time at least, however many partitions are loading."""

_US_PER_MS: Final = 1000

Sweep = Callable[[ShardT], Iterator[CoordinatorResult[Any] | None]]
"""Work on a whole shard, in pieces. Each piece gives a result to be written, or None."""


class _Sweep(Generic[ShardT]):
    """A running sweep, and in how many shards it has not ended yet."""

    __slots__ = ("_finished", "left", "pieces_of")

    def __init__(self, pieces_of: Sweep[ShardT], shards: int, finished: Callable[[], None]) -> None:
        self.pieces_of = pieces_of
        self.left = shards
        self._finished = finished

    def count_shard(self) -> None:
        """The sweep has ended in one of the shards."""
        self.left -= 1
        if self.left == 0:
            self._finished()


class RuntimeSettings(NamedTuple):
    """How coordinators read and write their topic."""

    partitions: int
    """Partitions of the topic, where the topic does not exist yet."""
    codec: Codec
    """Compression of the batches that are written."""
    base_sequence: int
    """The sequence number that Kafka's coordinator of this topic writes into batches: it depends on the topic."""
    write_timeout_ms: int
    """How long a client waits for its records to be acknowledged."""
    load_buffer_bytes: int
    """How many bytes that were read and not replayed yet all loading partitions may hold together."""


class Coordinator(Generic[ShardT]):
    """The coordinator of all keys that belong to one partition."""

    __slots__ = ("partition", "shard", "writer")

    def __init__(self, partition: Partition, shard: ShardT, writer: PartitionWriter[Any]) -> None:
        self.partition = partition
        self.shard = shard
        self.writer = writer

    def write(self, result: CoordinatorResult[Any] | None) -> None:
        """Write the result of a step, if the step has a result."""
        if result is not None:
            self.writer.append(result)


class _Waiting(Generic[ShardT]):
    """A partition that waits to be loaded, or is loading."""

    __slots__ = ("began_ms", "commit_wait", "loading", "partition", "sweeps")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.loading: PartitionLoading | None = None
        """None before loading has begun, and once the log has been read."""
        self.commit_wait: CommitWait | None = None
        """What waits for the high watermark, once the log has been read."""
        self.began_ms = 0
        """When loading has begun, in milliseconds of the monotonic clock."""
        self.sweeps: list[_Sweep[ShardT]] = []
        """Sweeps that were started before the partition was loaded."""


class CoordinatorRuntime(Generic[ShardT]):
    """Every partition of the topic that this node leads."""

    def __init__(
        self,
        topic: str,
        *,
        settings: RuntimeSettings,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        clock: Clock,
        slices: TimeSlices,
        reader: WorkerThread,
        later: Callable[[int, Callable[[], None]], object],
        shard_type: Callable[[], ShardType[ShardT]],
    ) -> None:
        """``reader`` reads files, ``later`` calls after so many milliseconds; ``shard_type`` is called when the first
        partition is loaded."""
        self._topic = topic
        self._settings = settings
        self._metadata = metadata
        self._replicas = replicas
        self._clock = clock
        self._slices = slices
        self._reader = reader
        self._later = later
        self._shard_type = cache(shard_type)
        self._active: dict[int, Coordinator[ShardT]] = {}
        """Loaded coordinators, by partition."""
        self._waiting: dict[int, _Waiting[ShardT]] = {}
        self._is_started = False
        self._is_stopped = False
        self.loading_stats = ShardLoadingStats()
        """How far loading has come; after it, what was loaded last."""
        self.load_times = RecentHistogram()
        """How long each partition took to load, in microseconds."""
        replicas.watch_leadership(topic, self._leadership_changed)

    # What handlers ask

    @property
    def partitions(self) -> int:
        """How many partitions the topic has, or will have."""
        topic = self._metadata.image.topics.by_name.get(self._topic)
        return self._settings.partitions if topic is None else len(topic.partitions)

    def of(self, key: str) -> Coordinator[ShardT]:
        """The coordinator of a key.

        Raises `CoordinatorNotAvailable` while the broker stops, `CoordinatorLoadInProgress`, and `NotCoordinator` where
        this node does not lead the partition, or there is no such partition: as Kafka answers it.
        """
        index = partition_of(key, self.partitions)
        found = self._active.get(index)
        if found is None:
            raise self._why_unavailable(index)
        return found

    def all(self) -> list[Coordinator[ShardT]]:
        """The coordinators of all partitions. Raises `CoordinatorNotAvailable`, and `CoordinatorLoadInProgress` where a
        partition is still loading."""
        if self._is_stopped:
            raise _stopping()
        for waiting in self._waiting.values():
            raise _loading(waiting.partition)
        return list(self._active.values())

    def append_marker(self, index: int, marker: TransactionMarker, then: Completion) -> None:
        """Write a marker into a partition, through the coordinator that the partition's keys have. ``then`` gets the
        error where there is no such coordinator here."""
        coordinator = self._active.get(index)
        if coordinator is None:
            then(self._why_unavailable(index).code)
        else:
            coordinator.writer.append_marker(marker, then)

    # What metrics read

    @property
    def active(self) -> list[Coordinator[ShardT]]:
        """The coordinators of the partitions that are loaded."""
        return list(self._active.values())

    @property
    def loading(self) -> int:
        """How many partitions are not loaded yet."""
        return len(self._waiting)

    def _why_unavailable(self, index: int) -> Fault:
        if self._is_stopped:
            return _stopping()
        if (waiting := self._waiting.get(index)) is not None:
            return _loading(waiting.partition)
        return NotCoordinator(f"this node does not lead {self._topic}-{index}")

    # What the broker says

    def start(self) -> None:
        """Load the partitions that this node leads now. Partitions that it leads later are loaded at once."""
        self._is_started = True
        for waiting in list(self._waiting.values()):
            self._begin(waiting)

    def sweep(self, pieces_of: Sweep[ShardT], finished: Callable[[], None]) -> None:
        """Work through every shard, in time slices of the loop. A shard that is loading has its turn once it is loaded.

        ``finished`` is called when all shards are done; the last results may still be being written.
        """
        coordinators, waiting = list(self._active.values()), list(self._waiting.values())
        if not coordinators and not waiting:
            finished()
            return
        sweep = _Sweep(pieces_of, len(coordinators) + len(waiting), finished)
        for coordinator in coordinators:
            self._slices.run(self._sweep_steps(coordinator, sweep))
        for one in waiting:
            one.sweeps.append(sweep)

    def sweeping(self, pieces_of: Sweep[ShardT]) -> Callable[[], None]:
        """A job for the scheduler: a sweep, which is left out while the job's last sweep goes on."""
        is_sweeping = False

        def finished() -> None:
            nonlocal is_sweeping
            is_sweeping = False

        def job() -> None:
            nonlocal is_sweeping
            if not is_sweeping:
                is_sweeping = True
                self.sweep(pieces_of, finished)

        return job

    def stop(self) -> None:
        """No request is served any more: staged batches are written, and waiting requests are answered."""
        if self._is_stopped:
            return
        self._replicas.appender.write_staged()
        self._is_stopped = True
        for waiting in list(self._waiting.values()):
            self._drop(waiting)
        for coordinator in list(self._active.values()):
            self._unload(coordinator)

    def _leadership_changed(self, partition: Partition) -> None:
        index = partition.topic_partition.partition
        coordinator = self._active.get(index)
        if coordinator is not None:
            if partition is coordinator.partition and partition.is_leader:
                return
            self._unload(coordinator)
        waiting = self._waiting.get(index)
        if waiting is not None:
            if partition is waiting.partition and partition.is_leader:
                return
            self._drop(waiting)
        if partition.is_leader and not self._is_stopped:
            self._load(partition)

    # Loading

    def _load(self, partition: Partition) -> None:
        if not self._waiting:
            self.loading_stats = ShardLoadingStats(self._clock.monotonic_ms())
        self.loading_stats.partitions_total += 1
        waiting: _Waiting[ShardT] = _Waiting(partition)
        self._waiting[partition.topic_partition.partition] = waiting
        if self._is_started:
            self._begin(waiting)

    def _begin(self, waiting: _Waiting[ShardT]) -> None:
        # A broker that leads no partition of the topic needs neither this module nor the writer.
        from broker.coordinators.loading import PartitionLoading

        index = waiting.partition.topic_partition.partition

        def submit(result: CoordinatorResult[Any]) -> None:
            coordinator = self._active.get(index)
            if coordinator is None or coordinator.shard is not shard:
                # The shard was unloaded since its alarm was set.
                result.then(ErrorCode.NOT_COORDINATOR)
            else:
                coordinator.write(result)

        shard_type = self._shard_type()
        shard = shard_type.make_shard(submit)
        waiting.began_ms = self._clock.monotonic_ms()
        waiting.loading = loading = PartitionLoading(
            waiting.partition,
            shard,
            decode=shard_type.decode,
            is_compacted=shard_type.is_compacted,
            reader=self._reader,
            chunk_bytes=self._chunk_bytes,
            later=self._later,
            stats=self.loading_stats,
            done=partial(self._replayed, waiting, shard),
        )
        if loading.is_at_end:
            self._replayed(waiting, shard, loading.offset)
        else:
            loading.begin(self._slices)

    def _chunk_bytes(self) -> int:
        return max(self._settings.load_buffer_bytes // len(self._waiting), LEAST_CHUNK_BYTES)

    def _replayed(self, waiting: _Waiting[ShardT], shard: ShardT, end_offset: int) -> None:
        from broker.coordinators.loading import CommitWait

        waiting.loading = None  # which holds `waiting`, to call this
        partition = waiting.partition
        if partition.log.high_watermark >= end_offset:
            self._loaded(waiting, shard, end_offset)
            return
        log.info(
            "%s is read up to offset %d, and is loaded once that is committed; the high watermark is %d",
            partition.topic_partition,
            end_offset,
            partition.log.high_watermark,
        )
        waiting.commit_wait = CommitWait(partition, end_offset, partial(self._loaded, waiting, shard, end_offset))
        waiting.commit_wait.begin()

    def _loaded(self, waiting: _Waiting[ShardT], shard: ShardT, end_offset: int) -> None:
        from broker.coordinators.partition_writer import PartitionWriter

        partition = waiting.partition
        index = partition.topic_partition.partition
        del self._waiting[index]
        waiting.commit_wait = None  # which holds `waiting`, too
        writer: PartitionWriter[Any] = PartitionWriter(
            partition,
            replicas=self._replicas,
            clock=self._clock,
            encode=self._shard_type().encode,
            codec=self._settings.codec,
            base_sequence=self._settings.base_sequence,
            timeout_ms=self._settings.write_timeout_ms,
            end_offset=end_offset,
            shard=shard,
            other_writer_found=lambda: self._reload(coordinator),
        )
        coordinator = self._active[index] = Coordinator(partition, shard, writer)
        self.load_times.record((self._clock.monotonic_ms() - waiting.began_ms) * _US_PER_MS)
        self._count_loaded()
        shard.loaded()
        for sweep in waiting.sweeps:
            self._slices.run(self._sweep_steps(coordinator, sweep))

    def _count_loaded(self) -> None:
        stats = self.loading_stats
        stats.partitions_loaded += 1
        stats.took_ms = self._clock.monotonic_ms() - stats.began_ms
        if stats.batches and not self._waiting:
            log.info(
                "%s is loaded: %d records in %d batches of %d partitions, %d bytes, %d unreadable, in %.3f s",
                self._topic,
                stats.records,
                stats.batches,
                stats.partitions_loaded,
                stats.bytes,
                stats.passed_over,
                stats.took_ms / 1000,
            )

    def _drop(self, waiting: _Waiting[ShardT]) -> None:
        del self._waiting[waiting.partition.topic_partition.partition]
        if waiting.loading is not None:
            waiting.loading.cancel()
        if waiting.commit_wait is not None:
            waiting.commit_wait.cancel()
            waiting.commit_wait = None
        for sweep in waiting.sweeps:
            sweep.count_shard()

    def _reload(self, coordinator: Coordinator[ShardT]) -> None:
        self._unload(coordinator)
        self._load(coordinator.partition)

    def _unload(self, coordinator: Coordinator[ShardT]) -> None:
        del self._active[coordinator.partition.topic_partition.partition]
        coordinator.writer.close(ErrorCode.NOT_COORDINATOR)
        coordinator.shard.unload(ErrorCode.NOT_COORDINATOR)

    def _sweep_steps(self, coordinator: Coordinator[ShardT], sweep: _Sweep[ShardT]) -> Steps:
        index = coordinator.partition.topic_partition.partition
        pieces = sweep.pieces_of(coordinator.shard)
        while self._active.get(index) is coordinator:
            try:
                result = next(pieces)
            except StopIteration:
                break
            coordinator.write(result)
            yield Step.MORE
        sweep.count_shard()


def _stopping() -> Fault:
    return CoordinatorNotAvailable("this node stops")


def _loading(partition: Partition) -> Fault:
    return CoordinatorLoadInProgress(f"{partition.topic_partition} is being loaded")
