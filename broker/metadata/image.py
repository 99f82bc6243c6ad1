"""What the records of ``__cluster_metadata`` add up to (KIP-500); pure, changed by `MetadataImage.replay` only."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, TypeAlias

from broker.metadata.topic_rules import INTERNAL_TOPICS, collision_key
from protocol.records.cluster_metadata import (
    NO_LEADER_CHANGE,
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnknownRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from protocol.schema import NO_UUID
from storage.topic_partition import TopicPartition

Record: TypeAlias = MetadataRecord | UnknownRecord

NO_LEADER: Final = -1

METADATA_VERSION: Final = "metadata.version"
ELIGIBLE_LEADERS_FEATURE: Final = "eligible.leader.replicas.version"

RESOURCE_TOPIC: Final = 2
RESOURCE_BROKER: Final = 4

# From which metadata.version on a record is written in a newer layout.
_ZK_MIGRATION_SINCE: Final = 8  # 3.4-IV0
_DIRECTORIES_SINCE: Final = 17  # 3.7-IV2
_ELIGIBLE_LEADERS_SINCE: Final = 23  # 4.0-IV1
_CORDONED_SINCE: Final = 30  # 4.3-IV0


class InconsistentMetadata(Exception):
    """A record that does not fit the records before it: the metadata log can't be trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """One partition as the metadata log has it; replaced whole, never changed."""

    index: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    """The broker that leads, -1 if none."""
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int = 0
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    directories: tuple[bytes, ...] = ()
    """The log directory of each replica (KIP-858), in the order of ``replicas``; empty in logs older than 3.7."""
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    def directory_of(self, broker_id: int) -> bytes:
        """The id of the log directory where ``broker_id`` keeps its replica, zeros if it is not known."""
        if broker_id in self.replicas and self.directories:
            return self.directories[self.replicas.index(broker_id)]
        return NO_UUID

    @property
    def directory(self) -> bytes:
        """The log directory of the first replica, which on a single node is the only one."""
        return self.directories[0] if self.directories else NO_UUID


_index_of = attrgetter("index")


@dataclass(slots=True, kw_only=True)
class TopicImage:
    """One topic: its partitions stand at their own index."""

    name: str
    topic_id: bytes
    partitions: list[PartitionImage] = field(default_factory=list)

    @property
    def is_internal(self) -> bool:
        """Whether coordinators own the topic."""
        return self.name in INTERNAL_TOPICS

    def partition(self, index: int) -> PartitionImage | None:
        """The partition ``index``, None if the topic has no such partition."""
        if 0 <= index < len(self.partitions):
            found = self.partitions[index]
            if found.index == index:
                return found
        return None

    def put(self, partition: PartitionImage) -> None:
        """Set a partition. Kafka's snapshots may bring them in any order, so there can be gaps until all have come."""
        index = partition.index
        if not self.partitions or self.partitions[-1].index < index:
            self.partitions.append(partition)
        elif self.partition(index) is not None:
            self.partitions[index] = partition
        else:
            position = bisect_left(self.partitions, index, key=_index_of)
            if self.partitions[position].index == index:
                self.partitions[position] = partition
            else:
                self.partitions.insert(position, partition)

    def find(self, index: int) -> PartitionImage | None:
        """Like `partition`, but sees across gaps."""
        if (found := self.partition(index)) is not None:
            return found
        position = bisect_left(self.partitions, index, key=_index_of)
        if position < len(self.partitions) and self.partitions[position].index == index:
            return self.partitions[position]
        return None


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class MetadataDelta:
    """What some records changed. Whoever applies it takes the deletions first: a name may be both gone and new."""

    created_topics: dict[str, TopicImage] = field(default_factory=dict)
    deleted_topics: list[TopicImage] = field(default_factory=list)
    """As they were when they were removed."""
    changed_partitions: dict[TopicPartition, PartitionImage] = field(default_factory=dict)
    """New and changed partitions of topics that were there before."""
    changed_configs: set[tuple[int, str]] = field(default_factory=set)
    """Resources (type, name) with other dynamic configs than before; topics created or deleted here included."""
    features_changed: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing that subscribers know of has changed."""
        return not (
            self.created_topics
            or self.deleted_topics
            or self.changed_partitions
            or self.changed_configs
            or self.features_changed
        )


class MetadataImage:
    """Everything that the metadata log says, as of the last record replayed."""

    __slots__ = (
        "_carried",
        "_pending",
        "_unknown_count",
        "brokers",
        "configs",
        "controllers",
        "features",
        "names_by_collision_key",
        "producer_ids",
        "topics_by_id",
        "topics_by_name",
    )

    def __init__(self) -> None:
        self.topics_by_name: dict[str, TopicImage] = {}
        self.topics_by_id: dict[bytes, TopicImage] = {}
        self.names_by_collision_key: dict[str, set[str]] = {}
        self.features: dict[str, int] = {}
        """Finalised levels; a feature at level 0 is not in it."""
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        """Dynamic configs by (resource type, resource name)."""
        self.brokers: dict[int, RegisterBrokerRecord] = {}
        """Registrations by broker id, with what `BrokerRegistrationChangeRecord`s made of them."""
        self.controllers: dict[int, RegisterControllerRecord] = {}
        self.producer_ids: ProducerIdsRecord | None = None
        self._carried: dict[tuple[object, ...], Record] = {}
        self._unknown_count = 0
        self._pending: list[Record] | None = None

    @property
    def next_producer_id(self) -> int:
        """The first producer id that no broker has been given."""
        return 0 if self.producer_ids is None else self.producer_ids.next_producer_id

    @property
    def metadata_version(self) -> int:
        """The finalised level of metadata.version, 0 before the first record."""
        return self.features.get(METADATA_VERSION, 0)

    @property
    def is_in_transaction(self) -> bool:
        """Whether a metadata transaction (KIP-868) has begun and not ended: its records do not count yet."""
        return self._pending is not None

    def topic_configs(self, name: str) -> dict[str, str]:
        """The configs set on a topic; empty if none are."""
        return self.configs.get((RESOURCE_TOPIC, name), {})

    def replay(self, record: Record, delta: MetadataDelta | None = None) -> None:
        """Apply one record, and note in ``delta`` what it changed.

        Records between `BeginTransactionRecord` and `EndTransactionRecord` are held back and applied at the end, or
        dropped if the transaction is aborted.

        Raises:
            InconsistentMetadata: the record speaks of a topic, partition or broker that there is not.
        """
        kind = type(record)
        if kind is BeginTransactionRecord:
            if self._pending is not None:
                raise InconsistentMetadata("a metadata transaction begins inside another one")
            self._pending = []
        elif kind is EndTransactionRecord or kind is AbortTransactionRecord:
            if self._pending is None:
                raise InconsistentMetadata("a metadata transaction ends that never began")
            pending, self._pending = self._pending, None
            if kind is EndTransactionRecord:
                for held_back in pending:
                    self._apply(held_back, delta)
        elif self._pending is not None:
            self._pending.append(record)
        else:
            self._apply(record, delta)

    def copy(self) -> MetadataImage:
        """An image of its own with the same content."""
        other = MetadataImage()
        for name, topic in self.topics_by_name.items():
            twin = TopicImage(name=name, topic_id=topic.topic_id, partitions=list(topic.partitions))
            other.topics_by_name[name] = other.topics_by_id[topic.topic_id] = twin
        other.names_by_collision_key = {key: set(names) for key, names in self.names_by_collision_key.items()}
        other.features = dict(self.features)
        other.configs = {resource: dict(configs) for resource, configs in self.configs.items()}
        other.brokers = dict(self.brokers)
        other.controllers = dict(self.controllers)
        other.producer_ids = self.producer_ids
        other._carried = dict(self._carried)
        other._unknown_count = self._unknown_count
        other._pending = None if self._pending is None else list(self._pending)
        return other

    def records(self) -> Iterator[Record]:
        """The shortest list of records that adds up to this image: a snapshot's content.

        Features come first, since a reader needs metadata.version to read the rest; records that mean nothing here
        come last, in the order in which they arrived.
        """
        for name in sorted(self.features, key=lambda name: (name != METADATA_VERSION, name)):
            yield FeatureLevelRecord(name=name, feature_level=self.features[name])
        yield from self.brokers.values()
        yield from self.controllers.values()
        for topic in self.topics_by_name.values():
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
            for partition in topic.partitions:
                yield partition_record(topic.topic_id, partition)
        for (resource_type, resource_name), configs in self.configs.items():
            for name, value in configs.items():
                yield ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
        if self.producer_ids is not None:
            yield self.producer_ids
        yield from self._carried.values()

    def version_of(self, record: Record) -> int:
        """The version in which ``record`` is written at this image's metadata.version (facts B.3).

        `UnknownRecord`s carry their own.
        """
        level = self.metadata_version
        match record:
            case PartitionRecord() | PartitionChangeRecord():
                return 2 if level >= _ELIGIBLE_LEADERS_SINCE else 1 if level >= _DIRECTORIES_SINCE else 0
            case RegisterBrokerRecord():
                if level >= _CORDONED_SINCE:
                    return 4
                return 3 if level >= _DIRECTORIES_SINCE else 2 if level >= _ZK_MIGRATION_SINCE else 1
            case BrokerRegistrationChangeRecord():
                if record.cordoned_log_dirs is not None:
                    return 3
                return 2 if record.log_dirs else 1 if record.in_controlled_shutdown else 0
            case UnknownRecord():
                return record.version
            case _:
                return 0

    # How each kind of record is applied. What is not known here is carried from snapshot to snapshot.

    def _apply(self, record: Record, delta: MetadataDelta | None) -> None:
        apply = _APPLY.get(type(record))
        if apply is None:
            self._carry(record)
        else:
            apply(self, record, delta if delta is not None else MetadataDelta())

    def _topic_of(self, topic_id: bytes, record: Record) -> TopicImage:
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise InconsistentMetadata(
                f"{type(record).__name__} speaks of topic id {topic_id.hex()}, which there is not"
            )
        return topic

    def _broker_of(self, broker_id: int, record: Record) -> RegisterBrokerRecord:
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise InconsistentMetadata(f"{type(record).__name__} speaks of broker {broker_id}, which is not registered")
        return broker

    def _create_topic(self, record: TopicRecord, delta: MetadataDelta) -> None:
        name, topic_id = record.name, bytes(record.topic_id)
        if name in self.topics_by_name:
            raise InconsistentMetadata(f"topic {name} is created twice")
        topic = TopicImage(name=name, topic_id=topic_id)
        self.topics_by_name[name] = self.topics_by_id[topic_id] = topic
        key = collision_key(name)
        if key is not None:
            self.names_by_collision_key.setdefault(key, set()).add(name)
        delta.created_topics[name] = topic

    def _remove_topic(self, record: RemoveTopicRecord, delta: MetadataDelta) -> None:
        topic = self._topic_of(bytes(record.topic_id), record)
        name = topic.name
        del self.topics_by_id[topic.topic_id], self.topics_by_name[name]
        key = collision_key(name)
        if key is not None:
            alike = self.names_by_collision_key[key]
            alike.discard(name)
            if not alike:
                del self.names_by_collision_key[key]
        if self.configs.pop((RESOURCE_TOPIC, name), None):
            delta.changed_configs.add((RESOURCE_TOPIC, name))
        for partition in topic.partitions:
            delta.changed_partitions.pop(TopicPartition(name, partition.index), None)
        if delta.created_topics.pop(name, None) is None:
            delta.deleted_topics.append(topic)

    def _put_partition(self, topic: TopicImage, partition: PartitionImage, delta: MetadataDelta) -> None:
        topic.put(partition)
        if topic.name not in delta.created_topics:
            delta.changed_partitions[TopicPartition(topic.name, partition.index)] = partition

    def _set_partition(self, record: PartitionRecord, delta: MetadataDelta) -> None:
        partition = PartitionImage(
            index=record.partition_id,
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            leader_recovery_state=record.leader_recovery_state,
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            directories=tuple(bytes(directory) for directory in record.directories),
            eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
        )
        self._put_partition(self._topic_of(bytes(record.topic_id), record), partition, delta)

    def _change_partition(self, record: PartitionChangeRecord, delta: MetadataDelta) -> None:
        topic = self._topic_of(bytes(record.topic_id), record)
        partition = topic.find(record.partition_id)
        if partition is None:
            raise InconsistentMetadata(
                f"PartitionChangeRecord speaks of {topic.name}-{record.partition_id}, which there is not"
            )
        changes: dict[str, Any] = {"partition_epoch": partition.partition_epoch + 1}
        for name in (
            "isr",
            "replicas",
            "removing_replicas",
            "adding_replicas",
            "eligible_leader_replicas",
            "last_known_elr",
        ):
            value = getattr(record, name)
            if value is not None:
                changes[name] = tuple(value)
        if record.directories is not None:
            changes["directories"] = tuple(bytes(directory) for directory in record.directories)
        if record.leader != NO_LEADER_CHANGE:
            # Naming the leader begins an epoch, even if it is the same as before.
            changes["leader"] = record.leader
            changes["leader_epoch"] = partition.leader_epoch + 1
        if record.leader_recovery_state != -1:
            changes["leader_recovery_state"] = record.leader_recovery_state
        self._put_partition(topic, dataclasses.replace(partition, **changes), delta)

    def _clear_elr(self, record: ClearElrRecord, delta: MetadataDelta) -> None:
        """Forget the eligible leaders of one topic, or of all if the name is empty."""
        if record.topic_name:
            topic = self.topics_by_name.get(record.topic_name)
            if topic is None:
                raise InconsistentMetadata(f"ClearElrRecord speaks of topic {record.topic_name}, which there is not")
            topics = [topic]
        else:
            topics = list(self.topics_by_name.values())
        for topic in topics:
            for partition in list(topic.partitions):
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    cleared = dataclasses.replace(
                        partition,
                        eligible_leader_replicas=(),
                        last_known_elr=(),
                        partition_epoch=partition.partition_epoch + 1,
                    )
                    self._put_partition(topic, cleared, delta)

    def _set_config(self, record: ConfigRecord, delta: MetadataDelta) -> None:
        resource = (record.resource_type, record.resource_name)
        configs = self.configs.setdefault(resource, {})
        if record.value is None:
            configs.pop(record.name, None)
            if not configs:
                del self.configs[resource]
        else:
            configs[record.name] = record.value
        delta.changed_configs.add(resource)

    def _set_feature(self, record: FeatureLevelRecord, delta: MetadataDelta) -> None:
        if record.feature_level:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)
        delta.features_changed = True

    def _register_broker(self, record: RegisterBrokerRecord, delta: MetadataDelta) -> None:
        self.brokers[record.broker_id] = record

    def _unregister_broker(self, record: UnregisterBrokerRecord, delta: MetadataDelta) -> None:
        self._broker_of(record.broker_id, record)
        del self.brokers[record.broker_id]

    def _change_broker(self, record: BrokerRegistrationChangeRecord, delta: MetadataDelta) -> None:
        broker = self._broker_of(record.broker_id, record)
        changes: dict[str, Any] = {}
        # -1 is "no longer", 1 is "from now on", 0 leaves it as it is.
        if record.fenced:
            changes["fenced"] = record.fenced > 0
        if record.in_controlled_shutdown:
            changes["in_controlled_shutdown"] = record.in_controlled_shutdown > 0
        if record.log_dirs:
            changes["log_dirs"] = record.log_dirs
        if record.cordoned_log_dirs is not None:
            changes["cordoned_log_dirs"] = record.cordoned_log_dirs
        self.brokers[record.broker_id] = dataclasses.replace(broker, **changes)

    def _fence_broker(self, record: FenceBrokerRecord, delta: MetadataDelta) -> None:
        self.brokers[record.id] = dataclasses.replace(self._broker_of(record.id, record), fenced=True)

    def _unfence_broker(self, record: UnfenceBrokerRecord, delta: MetadataDelta) -> None:
        self.brokers[record.id] = dataclasses.replace(self._broker_of(record.id, record), fenced=False)

    def _register_controller(self, record: RegisterControllerRecord, delta: MetadataDelta) -> None:
        self.controllers[record.controller_id] = record

    def _set_producer_ids(self, record: ProducerIdsRecord, delta: MetadataDelta) -> None:
        self.producer_ids = record

    def _ignore(self, record: Record, delta: MetadataDelta) -> None:
        pass

    def _carry(self, record: Record) -> None:
        self._unknown_count += 1
        self._carried["unknown", self._unknown_count] = record

    def _carry_by_key(self, record: Record, delta: MetadataDelta) -> None:
        key = _CARRIED_KEYS[type(record)](record)
        self._carried.pop(key, None)
        self._carried[key] = record

    def _drop_carried(self, record: Record, delta: MetadataDelta) -> None:
        self._carried.pop(_CARRIED_KEYS[type(record)](record), None)

    def _carry_quota(self, record: ClientQuotaRecord, delta: MetadataDelta) -> None:
        entity = tuple(sorted((part.entity_type, part.entity_name or "") for part in record.entity))
        key = ("quota", entity, record.key)
        self._carried.pop(key, None)
        if not record.remove:
            self._carried[key] = record


def partition_record(topic_id: bytes, partition: PartitionImage) -> PartitionRecord:
    """The record that creates ``partition`` as it is."""
    return PartitionRecord(
        partition_id=partition.index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        # Absent and empty mean the same; Kafka writes nothing where there are none.
        eligible_leader_replicas=list(partition.eligible_leader_replicas) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


# Records that nothing here acts on yet, by what a later record of their kind replaces or removes.
_CARRIED_KEYS: Final[dict[type[Any], Callable[[Any], tuple[object, ...]]]] = {
    AccessControlEntryRecord: lambda record: ("acl", bytes(record.id)),
    RemoveAccessControlEntryRecord: lambda record: ("acl", bytes(record.id)),
    UserScramCredentialRecord: lambda record: ("scram", record.name, record.mechanism),
    RemoveUserScramCredentialRecord: lambda record: ("scram", record.name, record.mechanism),
    DelegationTokenRecord: lambda record: ("token", record.token_id),
    RemoveDelegationTokenRecord: lambda record: ("token", record.token_id),
    ZkMigrationStateRecord: lambda record: ("zk migration",),
}

_APPLY: Final[dict[type[Any], Callable[[MetadataImage, Any, MetadataDelta], None]]] = {
    TopicRecord: MetadataImage._create_topic,
    RemoveTopicRecord: MetadataImage._remove_topic,
    PartitionRecord: MetadataImage._set_partition,
    PartitionChangeRecord: MetadataImage._change_partition,
    ClearElrRecord: MetadataImage._clear_elr,
    ConfigRecord: MetadataImage._set_config,
    FeatureLevelRecord: MetadataImage._set_feature,
    RegisterBrokerRecord: MetadataImage._register_broker,
    UnregisterBrokerRecord: MetadataImage._unregister_broker,
    BrokerRegistrationChangeRecord: MetadataImage._change_broker,
    FenceBrokerRecord: MetadataImage._fence_broker,
    UnfenceBrokerRecord: MetadataImage._unfence_broker,
    RegisterControllerRecord: MetadataImage._register_controller,
    ProducerIdsRecord: MetadataImage._set_producer_ids,
    NoOpRecord: MetadataImage._ignore,
    AccessControlEntryRecord: MetadataImage._carry_by_key,
    RemoveAccessControlEntryRecord: MetadataImage._drop_carried,
    UserScramCredentialRecord: MetadataImage._carry_by_key,
    RemoveUserScramCredentialRecord: MetadataImage._drop_carried,
    DelegationTokenRecord: MetadataImage._carry_by_key,
    RemoveDelegationTokenRecord: MetadataImage._drop_carried,
    ZkMigrationStateRecord: MetadataImage._carry_by_key,
    ClientQuotaRecord: MetadataImage._carry_quota,
}
