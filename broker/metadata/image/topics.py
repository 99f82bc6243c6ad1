"""TopicsImage and TopicsDelta: topics and their partitions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from broker.metadata.image.records import EMPTY, InconsistentMetadata, Record
from broker.metadata.topic_rules import INTERNAL_TOPICS, collision_key, fault_of_name
from broker.request.faults import UnknownTopicId
from protocol.records.cluster_metadata import (
    NO_LEADER_CHANGE,
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.schema import NO_UUID
from storage.topic_partition import TopicPartition

MOST_FORMER_NAMES: Final = 1_000
"""Of so many topics that were deleted last an image knows the names."""


class PartitionImage(NamedTuple):
    """One partition."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which has no meaning here
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    """The broker that leads, `NO_LEADER` if none does."""
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


def _place_of(index: int, partitions: Sequence[PartitionImage]) -> int | None:
    """The place of partition ``index`` in ``partitions``, which are in the order of their indexes; None: not there."""
    if 0 <= index < len(partitions) and partitions[index].index == index:
        return index
    # A log that was cut in the middle may know partition 2 and not partition 1.
    place = bisect_left(partitions, index, key=_index_of)
    return place if place < len(partitions) and partitions[place].index == index else None


class TopicImage(NamedTuple):
    """One topic; its partitions in the order of their indexes."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionImage, ...] = ()
    is_renewed: bool = False
    """Whether a topic of this name was deleted not long before: a directory that names no topic may be of that one."""

    @property
    def is_internal(self) -> bool:
        """Whether coordinators own the topic."""
        return self.name in INTERNAL_TOPICS

    def partition(self, index: int) -> PartitionImage | None:
        """The partition ``index``, None if the topic has no such partition."""
        place = _place_of(index, self.partitions)
        return None if place is None else self.partitions[place]

    def owns(self, topic_id: bytes | None) -> bool:
        """Whether a log whose directory names ``topic_id`` (None: no topic) is of this topic.

        Otherwise the log is of a deleted topic of the same name.
        """
        # The topic's own directory would have its id where the name was in use before: `LogManager.create`.
        return not self.is_renewed if topic_id is None else topic_id == self.topic_id


class TopicsImage(NamedTuple):
    """All topics. Readers change nothing in its maps."""

    by_name: Mapping[str, TopicImage] = EMPTY
    by_id: Mapping[bytes, TopicImage] = EMPTY
    names_by_collision_key: Mapping[str, frozenset[str]] = EMPTY
    """Names that metrics cannot tell apart, since dots and underscores are one there."""
    former_names: tuple[str, ...] = ()
    """The names of the topics that were deleted last, `MOST_FORMER_NAMES` at most."""

    def of_id(self, topic_id: bytes) -> TopicImage:
        """The topic with this id. Raises `UnknownTopicId`."""
        topic = self.by_id.get(topic_id)
        if topic is None:
            raise UnknownTopicId(f"no topic has the id {topic_id.hex()}")
        return topic

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """The partition; None if there is no such topic, or no such partition."""
        found = self.by_name.get(topic)
        return None if found is None else found.partition(index)

    def records(self) -> Iterator[Record]:
        """The records that add up to this image."""
        for topic in self.by_name.values():
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
            for partition in topic.partitions:
                yield partition_record(topic.topic_id, partition)


class _TopicEdit:
    """A topic that records have created or changed."""

    __slots__ = ("before", "changed", "is_renewed", "name", "topic_id")

    def __init__(self, name: str, topic_id: bytes, before: TopicImage | None, *, is_renewed: bool) -> None:
        self.name = name
        self.topic_id = topic_id
        self.is_renewed = is_renewed
        self.before = before
        """None: the topic is new."""
        self.changed: dict[int, PartitionImage] = {}
        """New and changed partitions by index."""

    def partition(self, index: int) -> PartitionImage | None:
        return self.changed.get(index) or (None if self.before is None else self.before.partition(index))

    def partitions(self) -> Iterator[PartitionImage]:
        """All partitions as they are now; the order is any."""
        if self.before is not None:
            yield from (partition for partition in self.before.partitions if partition.index not in self.changed)
        yield from self.changed.values()

    def image(self) -> TopicImage:
        # The partitions that have not changed are copied, and not looked at: a topic may have ten thousand.
        partitions = [] if self.before is None else list(self.before.partitions)
        added: list[PartitionImage] = []
        for index, partition in self.changed.items():
            place = _place_of(index, partitions)
            if place is None:
                added.append(partition)
            else:
                partitions[place] = partition
        return TopicImage(
            name=self.name,
            topic_id=self.topic_id,
            partitions=tuple(sorted([*partitions, *added], key=_index_of) if added else partitions),
            is_renewed=self.is_renewed,
        )


class TopicsDelta:
    """The changes of topics. A subscriber applies the deletions first: a name may be both deleted and new."""

    __slots__ = (
        "_edits",
        "_former_names",
        "_image",
        "_new_ids",
        "_replacement",
        "changed_partitions",
        "created",
        "deleted",
    )

    def __init__(self, image: TopicsImage) -> None:
        self._image = image
        self._edits: dict[bytes, _TopicEdit] = {}
        self._new_ids: dict[str, bytes] = {}
        """Topics that this delta creates: their ids by name."""
        self._former_names: list[str] = []
        """The names of topics that this delta deletes."""
        self._replacement: TopicsImage | None = None
        self.created: dict[str, TopicImage] = {}
        """New topics by name; complete once the delta has been applied."""
        self.deleted: dict[bytes, TopicImage] = {}
        """Topics by id, as they were before this delta."""
        self.changed_partitions: dict[TopicPartition, PartitionImage] = {}
        """New and changed partitions of topics that existed before this delta."""

    @property
    def is_empty(self) -> bool:
        """Whether no topic has changed."""
        return not (self._edits or self.deleted or self.created or self.changed_partitions)

    def create(self, record: TopicRecord) -> None:
        """Create a topic, without partitions yet."""
        name, topic_id = record.name, bytes(record.topic_id)
        if self._find_name(name) is not None:
            raise InconsistentMetadata(f"topic {name} is created twice")
        if (fault := fault_of_name(name)) is not None:  # the name becomes a part of paths
            raise InconsistentMetadata(f"{name!r} is no name of a topic: {fault}")
        is_renewed = name in self._former_names or name in self._image.former_names
        self._edits[topic_id] = _TopicEdit(name, topic_id, None, is_renewed=is_renewed)
        self._new_ids[name] = topic_id

    def remove(self, record: RemoveTopicRecord) -> str:
        """Delete a topic with its partitions. Returns its name."""
        topic_id = bytes(record.topic_id)
        edit = self._edit(topic_id, record)
        del self._edits[topic_id]
        self._former_names.append(edit.name)
        if edit.before is None:
            del self._new_ids[edit.name]
        else:
            self.deleted[topic_id] = edit.before
            for partition in edit.partitions():
                self.changed_partitions.pop(TopicPartition(edit.name, partition.index), None)
        return edit.name

    def set_partition(self, record: PartitionRecord) -> None:
        """Create or replace a partition."""
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
        self._put(self._edit(bytes(record.topic_id), record), partition)

    def change_partition(self, record: PartitionChangeRecord) -> None:
        """Change some properties of an existing partition."""
        topic = self._edit(bytes(record.topic_id), record)
        partition = topic.partition(record.partition_id)
        if partition is None:
            raise InconsistentMetadata(
                f"PartitionChangeRecord speaks of {topic.name}-{record.partition_id}, which there is not"
            )
        self._put(topic, changed_partition(partition, record))

    def clear_elr(self, record: ClearElrRecord) -> None:
        """Forget the eligible leaders (KIP-966) of one topic, or of all topics if the record names none."""
        if record.topic_name:
            topic_id = self._find_name(record.topic_name)
            if topic_id is None:
                raise InconsistentMetadata(f"ClearElrRecord speaks of topic {record.topic_name}, which there is not")
            topic_ids = [topic_id]
        else:
            topic_ids = [topic_id for topic_id in self._image.by_id if topic_id not in self.deleted]
            topic_ids += self._new_ids.values()
        for topic_id in topic_ids:
            topic = self._edit(topic_id, record)
            for partition in list(topic.partitions()):
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    cleared = partition._replace(
                        eligible_leader_replicas=(),
                        last_known_elr=(),
                        partition_epoch=partition.partition_epoch + 1,
                    )
                    self._put(topic, cleared)

    def replace(self, image: TopicsImage) -> None:
        """Replace all topics by those of ``image``, which was made from a snapshot."""
        before = self._image
        self._replacement = image
        self.deleted = {topic_id: topic for topic_id, topic in before.by_id.items() if topic_id not in image.by_id}
        for topic_id, topic in image.by_id.items():
            known = before.by_id.get(topic_id)
            if known is None:
                self.created[topic.name] = topic
                continue
            for partition in topic.partitions:
                if known.partition(partition.index) != partition:
                    self.changed_partitions[TopicPartition(topic.name, partition.index)] = partition

    def apply(self) -> TopicsImage:
        """The next image."""
        if self._replacement is not None:
            return self._replacement
        if self.is_empty:
            return self._image
        by_name, by_id = dict(self._image.by_name), dict(self._image.by_id)
        for topic in self.deleted.values():
            del by_name[topic.name], by_id[topic.topic_id]
        for edit in self._edits.values():
            topic = by_name[edit.name] = by_id[edit.topic_id] = edit.image()
            if edit.before is None:
                self.created[edit.name] = topic
        former = self._image.former_names
        if self._former_names:
            former = tuple(dict.fromkeys((*former, *self._former_names)))[-MOST_FORMER_NAMES:]
        return TopicsImage(by_name, by_id, self._names_by_collision_key(), former)

    def _names_by_collision_key(self) -> Mapping[str, frozenset[str]]:
        names: dict[str, frozenset[str]] = {}
        for gone in self.deleted.values():
            if (key := collision_key(gone.name)) is not None:
                names[key] = names.get(key, self._image.names_by_collision_key[key]) - {gone.name}
        for new in self.created:
            if (key := collision_key(new)) is not None:
                names[key] = names.get(key, self._image.names_by_collision_key.get(key, frozenset())) | {new}
        if not names:
            return self._image.names_by_collision_key
        return {key: alike for key, alike in {**self._image.names_by_collision_key, **names}.items() if alike}

    def _find_name(self, name: str) -> bytes | None:
        """The id of the topic of this name, None if there is no such topic."""
        known = self._image.by_name.get(name)
        if known is not None and known.topic_id not in self.deleted:
            return known.topic_id
        return self._new_ids.get(name)

    def _edit(self, topic_id: bytes, record: Record) -> _TopicEdit:
        edit = self._edits.get(topic_id)
        if edit is None:
            before = self._image.by_id.get(topic_id)
            if before is None or topic_id in self.deleted:
                raise InconsistentMetadata(
                    f"{type(record).__name__} speaks of topic id {topic_id.hex()}, which there is not"
                )
            edit = self._edits[topic_id] = _TopicEdit(before.name, topic_id, before, is_renewed=before.is_renewed)
        return edit

    def _put(self, topic: _TopicEdit, partition: PartitionImage) -> None:
        if partition.index < 0:
            raise InconsistentMetadata(f"topic {topic.name} has no partition {partition.index}")
        if partition.directories and len(partition.directories) != len(partition.replicas):
            raise InconsistentMetadata(
                f"{topic.name}-{partition.index} has {len(partition.replicas)} replicas in "
                f"{len(partition.directories)} directories"
            )
        topic.changed[partition.index] = partition
        if topic.before is not None:
            self.changed_partitions[TopicPartition(topic.name, partition.index)] = partition


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


def changed_partition(partition: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """The partition after ``record``, which speaks of it."""
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
        # A record with a leader begins a leader epoch, even if the leader is the same as before.
        changes["leader"] = record.leader
        changes["leader_epoch"] = partition.leader_epoch + 1
    if record.leader_recovery_state != -1:
        changes["leader_recovery_state"] = record.leader_recovery_state
    return partition._replace(**changes)
