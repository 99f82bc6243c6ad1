"""Reading for a fetch: which bytes of which segment each partition gives, within the limits of the request."""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from broker.replication.partition import NO_EPOCH, Partition
from broker.request.faults import Fault, NegativeFetchSize
from storage.errors import OffsetOutOfRange, StorageError
from storage.files import FileRegion
from storage.index.transaction_index import AbortedTransaction
from storage.leader_epochs import EpochEndOffset

NO_OFFSET = -1


class Isolation(IntEnum):
    """What a consumer may see, by the codes of the protocol (KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class FetchRequirements(NamedTuple):
    """What a fetch asks for as a whole."""

    isolation: Isolation
    min_bytes: int
    """An answer with less waits for more."""
    max_bytes: int
    max_wait_ms: int


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
    )

    def __init__(
        self,
        *,
        index: int,
        partition: Partition | None,
        fault: Exception | None,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int,
        last_fetched_epoch: int,
    ) -> None:
        self.index = index
        self.partition = partition
        self.fault = fault
        """Why there is no partition to read from."""
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch


class PartitionRead:
    """What one partition gives: a region of its log, or why not."""

    __slots__ = (
        "aborted_transactions",
        "diverging_epoch",
        "error",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "region",
    )

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.region: FileRegion | None = None
        self.high_watermark = NO_OFFSET
        self.last_stable_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.aborted_transactions: Sequence[AbortedTransaction] | None = None
        """None under READ_UNCOMMITTED, which does not ask."""
        self.diverging_epoch: EpochEndOffset | None = None


def visible_end(partition: Partition, isolation: Isolation) -> int:
    """The first offset that a consumer of this isolation may not see yet."""
    log = partition.log
    return log.last_stable_offset if isolation is Isolation.READ_COMMITTED else log.high_watermark


def read_partition(
    fetch: PartitionFetch, isolation: Isolation, *, max_bytes: int, at_least_one_batch: bool
) -> PartitionRead:
    """Read one partition; whatever is wrong stands in the answer's ``error``.

    Records are given as whole bytes of one segment, cut at ``max_bytes``, so the last batch may be partial; the first
    one is whole however large it is if ``at_least_one_batch`` (facts of the fetch path; KIP-74).
    """
    partition = fetch.partition
    if partition is None:
        return PartitionRead(fetch.fault)
    try:
        if fetch.max_bytes < 0 or max_bytes < 0:
            raise NegativeFetchSize(f"{partition.topic_partition}: at most {fetch.max_bytes} bytes asked for")
        partition.check_leadership(max(fetch.current_leader_epoch, NO_EPOCH))  # to Kafka every negative one is none
        return _read(partition, fetch, isolation, max_bytes, at_least_one_batch)
    except (Fault, StorageError) as error:
        return PartitionRead(error)


def _read(
    partition: Partition, fetch: PartitionFetch, isolation: Isolation, max_bytes: int, at_least_one_batch: bool
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
    found = log.read(
        fetch.fetch_offset,
        max_bytes=max_bytes,
        upper_bound_offset=visible_end(partition, isolation),
        at_least_one_batch=at_least_one_batch,
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


class FetchRound:
    """One pass over all partitions of a fetch, in the request's order and within its limits."""

    __slots__ = ("has_news", "reads", "size")

    def __init__(self, fetches: Sequence[PartitionFetch], requirements: FetchRequirements) -> None:
        self.reads: list[PartitionRead] = []
        self.size = 0
        self.has_news = False
        """Whether something other than records is to be told at once: an error, a diverging epoch."""
        left = requirements.max_bytes
        for fetch in fetches:
            read = read_partition(
                fetch,
                requirements.isolation,
                max_bytes=min(fetch.max_bytes, left),
                at_least_one_batch=self.size == 0,
            )
            self.reads.append(read)
            if read.region is not None:
                size = read.region.size
                self.size += size
                left = max(0, left - size)
            elif read.error is not None or read.diverging_epoch is not None:
                self.has_news = True
