"""Reading for a fetch: which bytes of which segment each partition gives, within the limits of the request."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import NamedTuple

from broker.replication.isolation import Isolation, visible_end
from broker.replication.partition import NO_EPOCH, Partition
from broker.replication.traffic import count_unreadable
from broker.request.faults import Fault, NegativeFetchSize
from storage.errors import LogDirFailed, OffsetOutOfRange, StorageError
from storage.files import FileRegion
from storage.index.transaction_index import AbortedTransaction
from storage.leader_epochs import EpochEndOffset
from storage.read_ahead import NotInMemory, ReadAhead

NO_OFFSET = -1
NO_TOPIC_ID = bytes(16)


class FetchRequirements(NamedTuple):
    """What a fetch asks for as a whole."""

    isolation: Isolation
    min_bytes: int
    """An answer with less waits for more."""
    max_bytes: int
    max_wait_ms: int


PartitionKey = tuple[bytes | str, int]
"""What tells a partition of a fetch from the others: topic id, or topic name before version 13, and index."""


class PartitionFetch:
    """One partition of a fetch: what is asked, and where."""

    __slots__ = (
        "current_leader_epoch",
        "fault",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
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
    ) -> None:
        self.topic = topic
        """None until the topic id has been found."""
        self.topic_id = topic_id
        """Zero where the request gave a name."""
        self.index = index
        self.partition: Partition | None = None
        """What is read, once it has been located; None where that failed."""
        self.fault: Exception | None = None
        """Why nothing can be read: no partition was found, or it may not be read in this way."""
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch

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
        "region",
    )

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error and error.with_traceback(None)
        """Without a traceback, which would keep whoever is on the stack until the garbage collector comes."""
        self.ahead: ReadAhead | None = None
        """What must be in memory before there is an answer."""
        self.region: FileRegion | None = None
        self.high_watermark = NO_OFFSET
        self.last_stable_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.aborted_transactions: Sequence[AbortedTransaction] | None = None
        """None under READ_UNCOMMITTED, which does not ask."""
        self.diverging_epoch: EpochEndOffset | None = None


def read_partition(
    fetch: PartitionFetch,
    isolation: Isolation,
    *,
    max_bytes: int,
    at_least_one_batch: bool,
    in_memory_only: bool = False,
) -> PartitionRead:
    """Read one partition; whatever is wrong stands in the answer's ``error``; with ``in_memory_only`` what must be read
    from the disk first in ``ahead``.

    Records are given as whole bytes of one segment, cut at ``max_bytes``, so the last batch may be partial; the first
    one is whole however large it is if ``at_least_one_batch`` (KIP-74).
    """
    partition = fetch.partition
    if partition is None or fetch.fault is not None:
        return PartitionRead(fetch.fault)
    try:
        partition.check_leadership(max(fetch.current_leader_epoch, NO_EPOCH))  # to Kafka every negative one is none
        return _read(partition, fetch, isolation, max_bytes, at_least_one_batch, in_memory_only)
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
    isolation: Isolation,
    max_bytes: int,
    at_least_one_batch: bool,
    in_memory_only: bool,
) -> PartitionRead:
    log = partition.log
    read = PartitionRead()
    read.high_watermark = log.high_watermark
    read.last_stable_offset = log.last_stable_offset
    read.log_start_offset = log.log_start_offset
    if isolation is Isolation.READ_COMMITTED:
        read.aborted_transactions = ()
    if fetch.last_fetched_epoch > NO_EPOCH:
        read.diverging_epoch = _diverging_epoch(partition, fetch)
        if read.diverging_epoch is not None:
            return read
    upper_bound_offset = visible_end(partition, isolation)
    if max_bytes < 0 and log.log_start_offset <= fetch.fetch_offset < upper_bound_offset:
        raise NegativeFetchSize(f"{partition.topic_partition}: at most {max_bytes} bytes asked for")
    found = log.read(
        fetch.fetch_offset,
        max_bytes=max_bytes,
        upper_bound_offset=upper_bound_offset,
        at_least_one_batch=at_least_one_batch,
        in_memory_only=in_memory_only,
    )
    read.region = found.region
    if isolation is Isolation.READ_COMMITTED and found.region is not None:
        read.aborted_transactions = log.aborted_transactions(fetch.fetch_offset, found)
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
"""Sets ``partition``, or says in ``fault`` why it can't."""


class Told(NamedTuple):
    """What the answer to a fetch says."""

    session_id: int
    """0: the client has no session, and asks for everything again next time."""
    partitions: Sequence[tuple[PartitionFetch, "PartitionRead"]]
    fault: Fault | None = None
    """Why there is no answer for any partition."""


class Fetch(ABC):
    """One fetch request under way: what it reads, what it waits for, and what of it is told."""

    __slots__ = ()

    @abstractmethod
    def partitions(self) -> Sequence[PartitionFetch]:
        """What is to be read now, in this order; those that were not found come last."""

    @abstractmethod
    def wakers(self) -> Collection[Hashable]:
        """Whose events may complete it. Empty if there is nothing to wait for."""

    @property
    def is_superseded(self) -> bool:
        """Whether it must not wait any longer, whatever there is to read."""
        return False

    @abstractmethod
    def conclude(self, partitions: Sequence[PartitionFetch], reads: Sequence[PartitionRead]) -> Told:
        """What to tell of the reads of ``partitions``, which `partitions` has just returned."""


def located_first(fetches: Sequence[PartitionFetch]) -> Sequence[PartitionFetch]:
    """In the same order, but those without a partition behind the others, where Kafka's answers have them."""
    located = [fetch for fetch in fetches if fetch.partition is not None]
    if len(located) == len(fetches):
        return fetches
    return located + [fetch for fetch in fetches if fetch.partition is None]


class FetchRound:
    """One pass over what a fetch reads, in its order and within its limits."""

    __slots__ = ("ahead", "has_news", "reads", "size")

    def __init__(
        self, fetches: Sequence[PartitionFetch], requirements: FetchRequirements, *, in_memory_only: bool = False
    ) -> None:
        self.reads: list[PartitionRead] = []
        self.ahead: list[ReadAhead] = []
        """With ``in_memory_only``: what a thread must read before all this can be said."""
        self.size = 0
        self.has_news = False
        """Whether something other than records is to be told at once: an error of reading, a diverging epoch, a
        partition that is offline. That one does not exist can wait for the others, as Kafka has it."""
        left = requirements.max_bytes
        for fetch in fetches:
            read = read_partition(
                fetch,
                requirements.isolation,
                max_bytes=min(fetch.max_bytes, left),
                at_least_one_batch=self.size == 0 and not self.ahead,
                in_memory_only=in_memory_only,
            )
            self.reads.append(read)
            if read.ahead is not None:
                self.ahead.append(read.ahead)
                left = max(0, left - read.ahead.size)
            elif read.region is not None:
                size = read.region.size
                self.size += size
                left = max(0, left - size)
            elif read.diverging_epoch is not None or (
                read.error is not None and (fetch.partition is not None or isinstance(read.error, StorageError))
            ):
                self.has_news = True
