"""What changes when a broker comes, goes or loses a log directory: its registration, leaders, replicas in sync.

Each function returns the records of one change, in Kafka's order. They are written as one batch: a broker that was
fenced leads nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice

from broker.controller.cluster_view import ClusterView
from broker.controller.partition_change import Election, Wanted, plan_change
from broker.metadata.image.records import Record
from broker.metadata.image.topics import PartitionImage, TopicImage
from protocol.records.cluster_metadata import (
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)


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
    return [
        BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, fenced=-1),
        *arrive(view, broker.broker_id),
    ]


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
    """The changes of the partitions whose ISR the broker leaves."""
    return _without(view, broker_id, _with_broker_in_isr(view, broker_id))


def leave_uncleanly(view: ClusterView, broker_id: int) -> Iterator[Record]:
    """The changes of the partitions for which the broker's replica cannot be trusted any more (KIP-966)."""
    concerned = (
        (topic, partition)
        for topic, partition in view.partitions()
        if broker_id in partition.isr or broker_id in partition.eligible_leader_replicas
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
