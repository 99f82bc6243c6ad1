"""What changes when a broker comes, goes or loses a log directory: its registration, leaders, replicas in sync.

Each function returns the records of one change, in Kafka's order. They are written as one batch: a broker that was
fenced leads nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from broker.controller.cluster_view import ClusterView
from broker.controller.partition_change import RECOVERED, Election, Wanted, plan_change
from broker.metadata.directories import LOST, UNASSIGNED, is_reserved
from broker.metadata.image.records import Record
from broker.metadata.image.topics import PartitionImage, TopicImage
from protocol.records.cluster_metadata import (
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from storage.topic_partition import TopicPartition


class FoundLogs(NamedTuple):
    """The logs of the controller's own broker, as its start has found them."""

    directories: Mapping[TopicPartition, bytes]
    """The log directory in which each log was found."""
    was_clean: bool
    """Whether all log directories had been closed cleanly."""
    is_complete: bool
    """Whether no log directory has failed, so that a log that was not found is nowhere."""
    cordoned: Sequence[bytes] = ()
    """The ids of the log directories that take no new replicas, which the registration request has no field for."""


def fence(view: ClusterView, broker: RegisterBrokerRecord) -> list[Record]:
    """The broker leads nothing any more, and is in no ISR; clients do not see it."""
    return [
        *leave(view, broker.broker_id),
        BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, fenced=1),
    ]


def begin_to_fence(view: ClusterView, broker: RegisterBrokerRecord, most: int) -> list[Record]:
    """The first ``most`` changes of `fence` where it has more than these; else none.

    Thousands of partitions are changed step by step, so that the loop turns in between. The broker is not fenced before
    the last step.
    """
    changes = list(islice(leave(view, broker.broker_id), most + 1))
    return changes[:most] if len(changes) > most else []


def unfence(view: ClusterView, broker: RegisterBrokerRecord) -> list[Record]:
    """The broker may be in sync and lead: it leads the partitions that have no leader, where it can."""
    return [_unfenced(broker), *arrive(view, broker.broker_id)]


def begin_controlled_shutdown(view: ClusterView, broker: RegisterBrokerRecord) -> list[Record]:
    """The broker hands its leaderships over, and leaves all ISRs; it may not stop yet."""
    return [
        BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, in_controlled_shutdown=1
        ),
        *leave(view, broker.broker_id),
    ]


def unregister(view: ClusterView, broker: RegisterBrokerRecord) -> list[Record]:
    """The broker is forgotten. Partitions keep it among their replicas."""
    return [
        *leave(view, broker.broker_id),
        UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch),
    ]


def fail_directories(view: ClusterView, broker: RegisterBrokerRecord, failed: Collection[bytes]) -> list[Record]:
    """The broker's replicas in these log directories neither lead nor are in sync (KIP-858).

    Directories that the broker has not registered, or that have failed before, change nothing.
    """
    newly = [directory for directory in broker.log_dirs if directory in failed]
    if not newly:
        return []
    concerned = (
        (topic, partition)
        for topic, partition in _with_broker_in_isr(view, broker.broker_id)
        if partition.directory_of(broker.broker_id) in newly
    )
    return [
        *_without(view, broker.broker_id, concerned),
        BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id,
            broker_epoch=broker.broker_epoch,
            log_dirs=[directory for directory in broker.log_dirs if directory not in newly],
        ),
    ]


def leave(view: ClusterView, broker_id: int) -> Iterator[Record]:
    """The changes of the partitions whose ISR the broker leaves.

    A partition of the controller's own broker alone keeps its leader and its leader epoch: nobody takes over.
    """
    concerned = (
        (topic, partition) for topic, partition in _with_broker_in_isr(view, broker_id) if not view.is_alone(partition)
    )
    return _without(view, broker_id, concerned)


def leave_uncleanly(view: ClusterView, broker_id: int) -> Iterator[Record]:
    """The changes of the partitions for which the broker's replica cannot be trusted any more (KIP-966).

    That of a partition of the controller's own broker alone is all there is.
    """
    concerned = (
        (topic, partition)
        for topic, partition in view.partitions()
        if (broker_id in partition.isr or broker_id in partition.eligible_leader_replicas)
        and not view.is_alone(partition)
    )
    return _without(view, broker_id, concerned, unclean_stops=(broker_id,))


def arrive(view: ClusterView, broker_id: int) -> Iterator[Record]:
    """The leaders of partitions without a leader, once the broker is active."""
    view = view.with_arriving(broker_id)
    for topic, partition in view.partitions():
        if partition.leader == NO_LEADER:
            record = plan_change(view, topic, partition, Wanted(election=election_of(view, topic)))
            if record is not None:
                yield record


def unfence_own(view: ClusterView, broker: RegisterBrokerRecord, logs: FoundLogs) -> tuple[list[Record], int]:
    """The controller's own broker may be in sync and lead. Where its logs were found counts.

    A partition of this broker alone has a new leader epoch after an unclean stop, so that a consumer that has read lost
    records can notice.

    Args:
        view: the cluster.
        broker: the registration of the broker.
        logs: its logs.

    Returns: the records, and how many partitions are offline.
    """
    own, offline = view.own, 0
    records: list[Record] = [_unfenced(broker)]
    arriving, leaving = view.with_arriving(own), view.with_leaving(own)
    for topic, partition in view.partitions():
        if own not in partition.replicas:
            continue
        is_alone, known = view.is_alone(partition), partition.directory_of(own)
        where = logs.directories.get(TopicPartition(topic.name, partition.index))
        if where is None and known == LOST and is_alone and logs.is_complete:
            where = UNASSIGNED  # another process has removed its files: it begins without records, as in Kafka
        if where is None and not view.has_online_directory(own, known):
            offline += 1
            isr = [replica for replica in partition.isr if replica != own]
            record = plan_change(leaving, topic, partition, Wanted(isr=isr, election=election_of(view, topic)))
        else:
            # For example, the node was killed while the replica was moved.
            is_elsewhere = where is not None and known != where and (known == LOST or not is_reserved(known))
            begins_epoch = is_alone and (is_elsewhere or not logs.was_clean)
            if is_alone and not begins_epoch and partition.leader == own and partition.isr == (own,):
                continue  # nearly all of them, after a clean stop
            record = plan_change(
                arriving,
                topic,
                partition,
                Wanted(
                    directories={own: where} if where is not None and is_elsewhere else {},
                    isr=[own] if is_alone else None,
                    leader_recovery_state=RECOVERED if is_alone else None,
                    unclean_stops=partition.replicas if is_alone else (),
                    begins_epoch=begins_epoch,
                    election=election_of(view, topic),
                ),
            )
        if record is not None:
            records.append(record)
    return records, offline


def _unfenced(broker: RegisterBrokerRecord) -> Record:
    return BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, fenced=-1)


def election_of(view: ClusterView, topic: TopicImage) -> Election:
    """Whom a partition of the topic may get as its leader when it loses the one it has."""
    return Election.UNCLEAN if view.allows_unclean_leaders(topic) else Election.ONLINE


def _with_broker_in_isr(view: ClusterView, broker_id: int) -> Iterator[tuple[TopicImage, PartitionImage]]:
    return ((topic, partition) for topic, partition in view.partitions() if broker_id in partition.isr)


def _without(
    view: ClusterView,
    broker_id: int,
    partitions: Iterable[tuple[TopicImage, PartitionImage]],
    *,
    unclean_stops: Collection[int] = (),
) -> Iterator[Record]:
    view = view.with_leaving(broker_id)
    for topic, partition in partitions:
        wanted = Wanted(
            isr=[replica for replica in partition.isr if replica != broker_id],
            unclean_stops=unclean_stops,
            election=election_of(view, topic),
        )
        record = plan_change(view, topic, partition, wanted)
        if record is not None:
            yield record
