"""Reading for a fetch: which bytes of which segment each partition gives, within the limits of the request."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import NamedTuple

from broker.fetch.read_rules import FetchBudget, FetchRequirements, read_records
from broker.replication.partition import Partition
from broker.replication.traffic import count_unreadable
from broker.request.faults import Fault, NotLeaderOrFollower
from storage.errors import LogDirFailed, OffsetOutOfRange, StorageError
from storage.files import FileRegion
from storage.index.transaction_index import AbortedTransaction
from storage.leader_epochs import EpochEndOffset
from storage.read_ahead import NotInMemory, ReadAhead
from storage.sentinels import NO_EPOCH, NO_OFFSET

NO_TOPIC_ID = bytes(16)

ANSWERED_BYTES = 45
"""What a partition adds to an answer beside its records, about."""


PartitionKey = tuple[bytes | str, int]
"""What distinguishes a partition of a fetch from the others: topic id, or topic name before version 13, and index."""


class PartitionFetch:
    """One partition of a fetch: what is asked, and where."""

    __slots__ = (
        "current_leader_epoch",
        "fault",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        *,
        topic: str | None,
        topic_id: bytes,
        index: int,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int,
        last_fetched_epoch: int,
        log_start_offset: int = NO_OFFSET,
    ) -> None:
        """The epochs are -1 where the client does not say them; in a Fetch every negative epoch means that.

        ``log_start_offset`` is that of a follower's log.
        """
        self.topic = topic
        """None until the topic id has been found."""
        self.topic_id = topic_id
        """Zero where the request gave a name."""
        self.index = index
        self.partition: Partition | None = None
        """The partition to read, once it has been located; None where that failed."""
        self.fault: Exception | None = None
        """Why nothing can be read: no partition was found, or it may not be read in this way."""
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = max(current_leader_epoch, NO_EPOCH)
        self.last_fetched_epoch = max(last_fetched_epoch, NO_EPOCH)
        self.log_start_offset = log_start_offset

    @property
    def is_answered_in_order(self) -> bool:
        """Whether the partition stands in the order of the request. Kafka puts those behind all others that do not
        exist or may not be read."""
        return self.partition is not None or isinstance(self.fault, StorageError | NotLeaderOrFollower)

    @property
    def key(self) -> PartitionKey:
        """What the client calls it."""
        return (self.topic_id if self.topic is None or self.topic_id != NO_TOPIC_ID else self.topic, self.index)


class PartitionRead:
    """What one partition gives: a region of its log, or why not."""

    __slots__ = (
        "aborted_transactions",
        "ahead",
        "diverging_epoch",
        "error",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "preferred_read_replica",
        "region",
    )

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error and error.with_traceback(None)
        """Without a traceback, which would keep the callers' variables until the garbage collector comes."""
        self.ahead: ReadAhead | None = None
        """What must be in memory before there is an answer."""
        self.region: FileRegion | None = None
        self.high_watermark = NO_OFFSET
        self.last_stable_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.aborted_transactions: Sequence[AbortedTransaction] | None = None
        """None where they are not wanted."""
        self.diverging_epoch: EpochEndOffset | None = None
        self.preferred_read_replica: int | None = None
        """The broker from which the consumer had better read; then there are no records."""

    @property
    def is_news(self) -> bool:
        """Whether there is something to tell other than offsets."""
        return (
            self.region is not None
            or self.error is not None
            or self.diverging_epoch is not None
            or self.preferred_read_replica is not None
        )


def read_partition(
    fetch: PartitionFetch, requirements: FetchRequirements, budget: FetchBudget, *, in_memory_only: bool = False
) -> PartitionRead:
    """Read one partition. An error is in the result's ``error``; with ``in_memory_only``, what must be read from the
    disk first is in its ``ahead``.

    Records are bytes of one segment, cut where ``budget`` or the partition's own limit ends, so the last batch may be
    partial. The first batch of an answer is whole however large it is (KIP-74).
    """
    partition = fetch.partition
    if partition is None or fetch.fault is not None:
        return PartitionRead(fetch.fault)
    try:
        partition.check_readable(fetch.current_leader_epoch, requirements.only_leader)
        if requirements.follower is not None:
            requirements.follower.check(partition, fetch.current_leader_epoch)
        return _read(partition, fetch, requirements, budget, in_memory_only)
    except NotInMemory as error:
        read = PartitionRead()
        read.ahead = error.ahead
        return read
    except LogDirFailed as error:
        partition.disk_failed(error)
        return PartitionRead(error)
    except (Fault, StorageError) as error:
        count_unreadable(partition, error)
        return PartitionRead(error)


def _read(
    partition: Partition,
    fetch: PartitionFetch,
    requirements: FetchRequirements,
    budget: FetchBudget,
    in_memory_only: bool,
) -> PartitionRead:
    log = partition.log
    read = PartitionRead()
    read.high_watermark = log.high_watermark
    read.last_stable_offset = log.last_stable_offset
    read.log_start_offset = log.log_start_offset
    if requirements.replica_choice is not None:
        read.preferred_read_replica = requirements.replica_choice.preferred(partition, fetch.fetch_offset)
        if read.preferred_read_replica is not None:
            return read
    if fetch.last_fetched_epoch > NO_EPOCH:
        read.diverging_epoch = _diverging_epoch(partition, fetch)
        if read.diverging_epoch is not None:
            if requirements.wants_aborted:
                read.aborted_transactions = ()
            return read
    follower = requirements.follower
    if follower is not None and follower.is_withheld(partition):
        # Nothing is read, and the offset is checked all the same.
        offset = fetch.fetch_offset
        log.read(offset, max_bytes=0, upper_bound_offset=offset, at_least_one_batch=False)
    else:
        found, read.aborted_transactions = read_records(
            partition, fetch.fetch_offset, fetch.max_bytes, requirements, budget, in_memory_only
        )
        read.region = found.region
    if requirements.follower is not None:
        requirements.follower.has_fetched(partition, fetch.fetch_offset, fetch.log_start_offset)
        read.high_watermark = log.high_watermark  # which this fetch may have moved
    return read


def _diverging_epoch(partition: Partition, fetch: PartitionFetch) -> EpochEndOffset | None:
    """Where the client's log and ours part, if they do (KIP-595); `OffsetOutOfRange` if that can't be said."""
    log = partition.log
    end = log.end_offset_for_epoch(fetch.last_fetched_epoch)
    if end.epoch == NO_EPOCH or fetch.fetch_offset < log.log_start_offset:
        raise OffsetOutOfRange(
            f"{partition.topic_partition}: offset {fetch.fetch_offset} of epoch {fetch.last_fetched_epoch} "
            f"can't be placed in epochs that begin at {log.log_start_offset}"
        )
    if end.epoch < fetch.last_fetched_epoch or end.end_offset < fetch.fetch_offset:
        return end
    return None


Locate = Callable[[PartitionFetch], None]
"""Sets ``partition`` of a `PartitionFetch`, or ``fault`` where nothing can be read."""


class FetchResult(NamedTuple):
    """What the answer to a fetch contains."""

    session_id: int
    """0: the client has no session, and asks for everything again next time."""
    partitions: Sequence[tuple[PartitionFetch, "PartitionRead"]]
    fault: Fault | None = None
    """Why there is no answer for any partition."""


class Fetch(ABC):
    """One fetch request under way: what it reads, what it waits for, and what of that is answered."""

    __slots__ = ()

    @abstractmethod
    def partitions(self) -> Sequence[PartitionFetch]:
        """The partitions to read now, in this order; those that were not found come last."""

    @abstractmethod
    def wakers(self) -> Collection[Hashable]:
        """The keys of the purgatory whose events may complete the fetch. Empty if there is nothing to wait for."""

    @abstractmethod
    def changed_by(self, waker: Hashable) -> Iterable[PartitionFetch]:
        """The partitions of which events of ``waker`` tell that were not told before."""

    @property
    def is_superseded(self) -> bool:
        """Whether the fetch must not wait any longer, whatever there is to read."""
        return False

    @abstractmethod
    def withhold(self) -> FetchResult:
        """The answer without any partition: the client has exceeded a quota."""

    @abstractmethod
    def conclude(self, partitions: Sequence[PartitionFetch], reads: Sequence[PartitionRead]) -> FetchResult:
        """What to answer, from the reads of ``partitions``, which `partitions` has just returned."""


def concluded(
    fetch: Fetch,
    requirements: FetchRequirements,
    partitions: Sequence[PartitionFetch],
    reads: Sequence[PartitionRead],
) -> FetchResult:
    """What to answer, from the reads of ``partitions``, as far as the client's quotas admit it."""
    quota = requirements.quota
    if quota is not None:
        size = sum(ANSWERED_BYTES + (0 if read.region is None else read.region.size) for read in reads)
        if not quota.admits_fetch(size):
            return fetch.withhold()
    return fetch.conclude(partitions, reads)


def located_first(fetches: Sequence[PartitionFetch]) -> Sequence[PartitionFetch]:
    """In the same order, but those that do not exist behind the others, where Kafka's answers have them."""
    located = [fetch for fetch in fetches if fetch.is_answered_in_order]
    if len(located) == len(fetches):
        return fetches
    return located + [fetch for fetch in fetches if not fetch.is_answered_in_order]


class FetchRound:
    """One pass over what a fetch reads, in its order and within its limits."""

    __slots__ = ("ahead", "must_answer", "reads", "size")

    def __init__(
        self, fetches: Sequence[PartitionFetch], requirements: FetchRequirements, *, in_memory_only: bool = False
    ) -> None:
        self.reads: list[PartitionRead] = []
        self.ahead: list[ReadAhead] = []
        """With ``in_memory_only``: what a thread must read from the disk before there is an answer."""
        self.must_answer = False
        """Whether something other than records is to be answered at once: an error of reading, a diverging epoch, a
        replica to read from instead, a partition that is offline or on another broker. That a partition does not exist
        can wait for the others, as in Kafka."""
        budget = FetchBudget(requirements.max_bytes)
        for fetch in fetches:
            read = read_partition(fetch, requirements, budget, in_memory_only=in_memory_only)
            self.reads.append(read)
            if read.ahead is not None:
                self.ahead.append(read.ahead)
                budget.spend(read.ahead.size)
            elif (
                read.diverging_epoch is not None
                or read.preferred_read_replica is not None
                or (read.error is not None and fetch.is_answered_in_order)
            ):
                self.must_answer = True
        self.size = budget.size
        """Bytes of records that were found, those that are still on the disk only included."""
