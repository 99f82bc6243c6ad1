"""Dead letter queues (KIP-1191): records that a share group has given up are copied to a topic of the group's choice.

A dead letter says in its headers which record it stands for, and why. Key and value of the record are copied only where
the group asks for it. The records are archived whatever becomes of their copies, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol

from broker.metadata.cache import ImageSource
from broker.replication.append import Publication
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from broker.request.faults import Fault, error_code_of
from broker.runtime.clock import Clock
from broker.runtime.timing_wheel import TimingWheel
from broker.share.group_configs import ShareGroupConfigs
from broker.share.remote_letters import ACKNOWLEDGED_IN_MS, Letters, RemoteLetters
from broker.share.requests import Change, DeadLetterCause
from broker.share.stats import ShareGroupStats
from config.log_config import LogConfig
from protocol.errors import ErrorCode
from storage.appending import StagedAppend
from storage.batch.record_batch import HEADER_SIZE
from storage.batch.records import Record, encode_batch, encode_fields, encode_record, iterate_records
from storage.errors import StorageError, UndecodableRecords
from storage.topic_partition import TopicPartition

log = logging.getLogger(__name__)

MOST_ATTEMPTS: Final = 5
FIRST_PAUSE_MS: Final = 1_000

TOPIC_CONFIGS: Final = (("errors.deadletterqueue.group.enable", "true"), ("message.timestamp.type", "CreateTime"))
"""The configs of a dead letter queue that the broker creates."""

_WHY: Final = {
    DeadLetterCause.REJECTED: b"Offset rejected by client.",
    DeadLetterCause.DELIVERED_TOO_OFTEN: b"Offset delivery count exceeded the threshold.",
}
"""What programs read in the header ``__dlq.errors.message``."""


class CreateTopic(Protocol):
    """Creates topics, wherever the controller is."""

    def __call__(self, name: str, configs: tuple[tuple[str, str], ...], then: Callable[[], None]) -> None:
        """Create a topic with the broker's defaults and these configs; call ``then`` afterwards, also if that fails."""


class Place(NamedTuple):
    """A partition of a dead letter queue, and who leads it."""

    partition: TopicPartition
    topic_id: bytes
    leader_id: int
    """-1: nobody."""


class DeadLetters:
    """Copies records to dead letter queues."""

    def __init__(
        self,
        replicas: ReplicaManager,
        source: ImageSource,
        configs: ShareGroupConfigs,
        *,
        node_id: int,
        remote: RemoteLetters | None,
        topic_config: Callable[[str], LogConfig],
        create_topic: CreateTopic,
        clock: Clock,
        wheel: TimingWheel,
        stats: ShareGroupStats,
    ) -> None:
        """``node_id``: this node; ``remote``: writes letters to partitions that other nodes lead; None where there are
        no other nodes."""
        self.node_id = node_id
        self.remote = remote
        self.replicas = replicas
        self.topic_config = topic_config
        self.clock = clock
        self.wheel = wheel
        self.stats = stats
        self.create_topic = create_topic
        self._source = source
        self.configs = configs

    def bury(self, group_id: str, partition: Partition, change: Change, then: Callable[[], None]) -> None:
        """Copy records of a partition to the dead letter queue of a group; call ``then`` when that is done or given
        up."""
        _Burial(self, group_id, partition, change, then).go_on()

    def queue_of(self, group_id: str) -> str:
        """The dead letter queue of a group, which may have to be created. Raises ValueError if it may have none."""
        name = self.configs.dead_letter_topic(group_id)
        if name is None:
            raise ValueError("the group has no dead letter queue any more")
        if name.startswith("__"):
            raise ValueError(f"the name of {name} begins with two underscores")
        if self.exists(name):
            if not self.topic_config(name).errors_deadletterqueue_group_enable:
                raise ValueError(f"{name} does not allow it (errors.deadletterqueue.group.enable)")
        elif not self.configs.creates_dead_letter_topics:
            raise ValueError(f"there is no topic {name} (errors.deadletterqueue.auto.create.topics.enable)")
        if not name.startswith(prefix := self.configs.dead_letter_prefix):
            raise ValueError(
                f"the name of {name} does not begin with {prefix} (errors.deadletterqueue.topic.name.prefix)"
            )
        return name

    def exists(self, topic: str) -> bool:
        """Whether there is such a topic."""
        return topic in self._source.image.topics.by_name

    def place(self, topic: str, source_index: int) -> Place | None:
        """The partition of a dead letter queue for records of partition ``source_index``; None where there is none."""
        known = self._source.image.topics.by_name.get(topic)
        if known is None or not known.partitions:
            return None
        index = source_index % len(known.partitions)
        partition = known.partition(index)
        return None if partition is None else Place(TopicPartition(topic, index), known.topic_id, partition.leader)


class _Burial:
    """Consecutive records on their way to a dead letter queue."""

    __slots__ = ("_attempts", "_change", "_group_id", "_letters", "_next_offset", "_partition", "_sent_to", "_then")

    def __init__(
        self, letters: DeadLetters, group_id: str, partition: Partition, change: Change, then: Callable[[], None]
    ) -> None:
        self._letters = letters
        self._group_id = group_id
        self._partition = partition
        self._change = change
        self._then = then
        self._next_offset = change.stored.first_offset
        self._sent_to = self._next_offset
        self._attempts = 0

    def go_on(self) -> None:
        """Create the topic if need be, and append the next letters."""
        letters = self._letters
        try:
            topic = letters.queue_of(self._group_id)
        except ValueError as problem:
            self._give_up(str(problem))
            return
        if not letters.exists(topic):
            letters.create_topic(topic, TOPIC_CONFIGS, partial(self._again, f"{topic} is not there"))
            return
        place = letters.place(topic, self._partition.topic_partition.partition)
        if place is not None and place.leader_id == letters.node_id:
            self._append(place.partition)
        elif place is not None and place.leader_id >= 0 and letters.remote is not None:
            make = partial(self._batch, topic)
            letters.remote.append(place.leader_id, Letters(place.partition, place.topic_id, make, self._answered))
        else:
            self._again(f"{topic} has no leader")

    def _append(self, destination: TopicPartition) -> None:
        letters = self._letters
        try:
            partition = letters.replicas.partition(*destination)
            partition.check_append(by_all=True)
            letters.replicas.appender.append_own(partition, self._batch(destination.topic), self._written)
        except (Fault, StorageError) as error:
            self._failed(error_code_of(error), str(error))

    def _answered(self, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            self._acknowledged()
        else:
            self._failed(code, f"the leader's answer is {code.name}")

    def _written(self, staged: StagedAppend, outcome: Publication | StorageError | Fault) -> None:
        if not isinstance(outcome, Publication):
            self._failed(error_code_of(outcome), str(outcome))
        elif outcome.is_complete:
            self._acknowledged()
        else:
            self._letters.replicas.acknowledge(
                (outcome,),
                by_all=True,
                timeout_ms=ACKNOWLEDGED_IN_MS,
                then=lambda late: (
                    self._again("not all replicas have it") if late or outcome.is_lost else self._acknowledged()
                ),
            )

    def _acknowledged(self) -> None:
        self._letters.stats.dead_letters[self._group_id] += self._sent_to - self._next_offset
        self._next_offset = self._sent_to
        self._attempts = 0
        if self._next_offset > self._change.stored.last_offset:
            self._then()
        else:
            self.go_on()

    def _failed(self, code: ErrorCode, why: str) -> None:
        if code.retriable:
            self._again(why)
        else:
            self._give_up(why)

    def _again(self, why: str) -> None:
        self._attempts += 1
        if self._attempts >= MOST_ATTEMPTS:
            self._give_up(why)
            return
        self._letters.wheel.add_after(FIRST_PAUSE_MS << (self._attempts - 1), self.go_on)

    def _give_up(self, why: str) -> None:
        stored = self._change.stored
        self._letters.stats.failed_dead_letter_requests[self._group_id] += 1
        log.error(
            "records %d to %d of %s are lost to the dead letter queue of group %s: %s",
            self._next_offset,
            stored.last_offset,
            self._partition.topic_partition,
            self._group_id,
            why,
        )
        self._then()

    def _batch(self, topic: str) -> bytearray:
        """Letters for the next offsets, as many as a batch for this topic takes, at least one."""
        self._letters.stats.dead_letter_requests[self._group_id] += 1
        most_bytes = self._letters.topic_config(topic).max_message_bytes
        copied = self._copied(most_bytes) if self._letters.configs.copies_records(self._group_id) else {}
        now_ms = self._letters.clock.now_ms()
        records: list[Record] = []
        size, offset = HEADER_SIZE, self._next_offset
        while offset <= self._change.stored.last_offset:
            letter = self._letter(offset, now_ms, copied.get(offset))
            size += len(encode_record(0, len(records), encode_fields(letter)))
            if size > most_bytes and records:
                break
            records.append(letter)
            offset += 1
        self._sent_to = offset
        return encode_batch(records)

    def _letter(self, offset: int, now_ms: int, record: Record | None) -> Record:
        topic, index = self._partition.topic_partition
        headers: list[tuple[str, bytes | None]] = [
            ("__dlq.errors.topic", topic.encode()),
            ("__dlq.errors.partition", str(index).encode()),
            ("__dlq.errors.offset", str(offset).encode()),
            ("__dlq.errors.group", self._group_id.encode()),
            ("__dlq.errors.delivery.count", str(self._change.stored.delivery_count).encode()),
        ]
        if self._change.cause is not None:
            headers.append(("__dlq.errors.message", _WHY[self._change.cause]))
        return Record(
            timestamp=now_ms,
            key=None if record is None else record.key,
            value=None if record is None else record.value,
            headers=headers,
        )

    def _copied(self, most_bytes: int) -> Mapping[int, Record]:
        """The records, as far as the next batch of letters takes them. A batch of the log that cannot be read,
        or opens to more than ``most_bytes``, gives none."""
        found: dict[int, Record] = {}
        size, last_offset = 0, self._change.stored.last_offset
        try:
            for header, batch in self._partition.log.batches(self._next_offset, end_offset=last_offset + 1):
                if header.is_control:
                    continue
                try:
                    for record in iterate_records(batch, most_bytes=most_bytes):
                        if self._next_offset <= record.offset <= last_offset:
                            found[record.offset] = record
                            size += len(record.key or b"") + len(record.value or b"")
                            if size > most_bytes:
                                return found
                except UndecodableRecords as error:
                    log.warning("%s: dead letters without their records: %s", self._partition.topic_partition, error)
        except StorageError as error:
            log.warning("%s: dead letters without their records: %s", self._partition.topic_partition, error)
        return found
