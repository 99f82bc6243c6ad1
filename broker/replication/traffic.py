"""Traffic of partitions, counted as in Kafka's BrokerTopicMetrics (docs/metrics.md).

A log counts all appends to it; the other counts are here. What a follower fetches is no traffic of its topic, as in
Kafka: the replica manager counts it. A request for five partitions counts five times. A refused
batch counts as failed only where Kafka counts it: for a record that breaks a rule, but not for a batch that is too
large or damaged, a missing partition or an unusable disk.
"""

from dataclasses import dataclass, fields

from broker.replication.partition import Partition
from broker.request.faults import NegativeFetchSize, NotEnoughReplicas
from storage.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidOffsetsOrSequence,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    RejectedRecords,
    UndecodableRecords,
)
from storage.log_stats import LogStats

_UNEXPECTED_OF_PRODUCERS = (
    RejectedRecords,
    OutOfOrderSequence,
    InvalidProducerEpoch,
    InvalidTransactionState,
    UndecodableRecords,
    NotEnoughReplicas,
)
_UNEXPECTED_OF_CONSUMERS = (NegativeFetchSize,)


@dataclass(slots=True, eq=False, repr=False)
class Traffic:
    """The traffic of one or more partitions."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_rejected: int = 0
    produces: int = 0
    fetches: int = 0
    failed_produces: int = 0
    failed_fetches: int = 0

    def add(self, partition: Partition) -> None:
        """Add the traffic of a partition."""
        log, stats = partition.log.stats, partition.stats
        self.messages_in += log.records_appended + log.duplicate_records - stats.followed_records
        self.bytes_in += log.bytes_appended + log.duplicate_bytes - stats.followed_bytes
        self.bytes_out += stats.fetched_bytes
        self.bytes_rejected += stats.refused_bytes
        self.produces += log.batches_appended + log.duplicates + stats.refused_batches - stats.followed_batches
        self.fetches += stats.fetches
        self.failed_produces += stats.failed_batches
        self.failed_fetches += stats.failed_fetches

    def add_all(self, other: "Traffic") -> None:
        """Add the traffic of several partitions, which is summed up already."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


@dataclass(slots=True, eq=False, repr=False)
class ReplicaStats:
    """Counts of all partitions together."""

    isr_shrinks: int = 0
    """Changes of ISRs that leaders here have asked for, and that took a follower out. Those that the controller makes
    itself, of brokers that stop or are silent, are not counted, as in Kafka."""
    isr_expands: int = 0
    """Changes that leaders here have asked for, and that added a follower."""
    failed_isr_updates: int = 0
    """Changes of ISRs that the controller has not made."""
    replication_bytes_in: int = 0
    """Bytes of batches that this node has fetched as a follower."""
    replication_bytes_out: int = 0
    """Bytes of records in answers to followers."""
    reassignment_bytes_in: int = 0
    """The part of ``replication_bytes_in`` for replicas that a reassignment adds to this node."""
    reassignment_bytes_out: int = 0
    """The part of ``replication_bytes_out`` for replicas that a reassignment adds."""
    follower_fetches_expired: int = 0
    """Fetches of followers that were answered because their time was over."""
    batches_with_wrong_crc: int = 0
    batches_with_wrong_offsets: int = 0
    """Batches with wrong offsets, or with a sequence number without a producer."""
    records_without_key: int = 0
    """Records without key for compacted topics, where each record needs a key."""


def count_followed(partition: Partition, before: LogStats, stats: ReplicaStats) -> None:
    """Count what this node has fetched as a follower and appended, since its log's counters were ``before``."""
    log, of_partition = partition.log.stats, partition.stats
    appended = log.bytes_appended - before.bytes_appended
    of_partition.followed_batches += log.batches_appended - before.batches_appended
    of_partition.followed_records += log.records_appended - before.records_appended
    of_partition.followed_bytes += appended
    stats.replication_bytes_in += appended
    if partition.node_id in partition.adding_replicas:
        stats.reassignment_bytes_in += appended


def count_replicated(partition: Partition, replica: int, size: int, stats: ReplicaStats) -> None:
    """Count bytes of records that a follower is answered."""
    stats.replication_bytes_out += size
    if replica in partition.adding_replicas:
        stats.reassignment_bytes_out += size


def count_refused(partition: Partition, batch_bytes: int, error: Exception, stats: ReplicaStats) -> None:
    """Count a batch that was not appended."""
    of_partition = partition.stats
    of_partition.refused_batches += 1
    if isinstance(error, _UNEXPECTED_OF_PRODUCERS):
        of_partition.failed_batches += 1
    if isinstance(error, BatchTooLarge):
        of_partition.refused_bytes += batch_bytes
    elif isinstance(error, CorruptBatch):
        stats.batches_with_wrong_crc += 1
    elif isinstance(error, InvalidOffsetsOrSequence):
        stats.batches_with_wrong_offsets += 1
    elif isinstance(error, RejectedRecords):
        stats.records_without_key += error.records_without_key


def count_unreadable(partition: Partition, error: Exception) -> None:
    """Count a partition that could not be read."""
    if isinstance(error, _UNEXPECTED_OF_CONSUMERS):
        partition.stats.failed_fetches += 1
