"""confluent-kafka (librdkafka) behind the interface of `tests.support.clients`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.support.clients import (
    COORDINATOR_NOT_YET,
    TIMEOUT_S,
    Cluster,
    Committed,
    GroupSeen,
    Login,
    Place,
    Produced,
    Received,
    Record,
    RequestFailed,
    Tls,
    security_protocol,
)

if TYPE_CHECKING:
    from tests.support.clients.members import GroupConsumer, Membership, Tell

T = TypeVar("T")


class StockClient:
    name = "confluent-kafka"

    def __init__(self, bootstrap: str, login: Login | None = None, tls: Tls | None = None) -> None:
        self._address: dict[str, Any] = {"bootstrap.servers": bootstrap}
        if login is not None or tls is not None:
            self._address["security.protocol"] = security_protocol(login, tls)
        if tls is not None:
            self._address["ssl.ca.location"] = tls.authority
            if tls.certificate:
                self._address |= {"ssl.certificate.location": tls.certificate, "ssl.key.location": tls.key}
        if login is not None:
            self._address |= {
                "sasl.mechanisms": login.mechanism,
                "sasl.username": login.user,
                "sasl.password": login.password,
            }
            if token := login.token:
                self._address["oauth_cb"] = lambda _: (token, time.time() + 600)

    def create_topic(
        self, topic: str, *, partitions: int = 1, replication: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=replication, config=dict(configs or {}))
        admin = AdminClient(self._address)
        with _refusals():
            admin.create_topics([new])[topic].result(TIMEOUT_S)
        deadline = time.monotonic() + TIMEOUT_S
        while not _has_leaders(admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic], partitions):
            assert time.monotonic() < deadline, f"no leader for every partition of {topic} within {TIMEOUT_S} s"

    def delete_topic(self, topic: str) -> None:
        admin = AdminClient(self._address)  # held by name: it takes its unanswered requests with it
        with _refusals():
            admin.delete_topics([topic])[topic].result(TIMEOUT_S)

    def topics(self) -> set[str]:
        return set(AdminClient(self._address).list_topics(timeout=TIMEOUT_S).topics)

    def topic_configs(self, topic: str) -> dict[str, str]:
        admin, resource = AdminClient(self._address), ConfigResource(ResourceType.TOPIC, topic)
        with _refusals():
            entries = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        return {name: entry.value for name, entry in entries.items()}

    def alter_topic(self, topic: str, configs: Mapping[str, str]) -> None:
        changes = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()
        ]
        admin = AdminClient(self._address)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
        with _refusals():
            admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    def cluster(self) -> Cluster:
        admin = AdminClient(self._address)
        answer = admin.describe_cluster().result(TIMEOUT_S)
        return Cluster(
            cluster_id=answer.cluster_id,
            controller_id=answer.controller.id,
            brokers=tuple((node.id, node.host, node.port) for node in answer.nodes),
        )

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        idempotent: bool | None = None,
        most_bytes: int | None = None,
    ) -> list[Produced]:
        options: dict[str, Any] = dict(self._address)
        if codec != "none":
            options["compression.type"] = codec
        if idempotent is not None:
            options["enable.idempotence"] = idempotent
        if most_bytes is not None:
            options["message.max.bytes"] = most_bytes
        producer = Producer(options)
        answers: dict[int, Produced] = {}
        failures: list[KafkaException] = []
        for number, record in enumerate(records):

            def delivered(error: Any, message: Message, number: int = number) -> None:
                if error is not None:
                    failures.append(KafkaException(error))
                    return
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                answers[number] = Produced(partition=partition, offset=offset, timestamp_ms=message.timestamp()[1])

            extra: dict[str, Any] = {"on_delivery": delivered}
            if record.partition is not None:
                extra["partition"] = record.partition
            if record.timestamp_ms is not None:
                extra["timestamp"] = record.timestamp_ms
            if record.headers:
                extra["headers"] = list(record.headers)
            _produce(producer, topic, record, extra)
        left = producer.flush(TIMEOUT_S)
        with _refusals():
            if failures:
                raise failures[0]
        assert left == 0, f"{left} records without an answer after {TIMEOUT_S} s"
        return [answers[number] for number in range(len(records))]

    @contextlib.contextmanager
    def _consumer(self, group: str = "assigned-by-hand") -> Iterator[Consumer]:
        # librdkafka demands a group id even for `assign`; with commits off it stays unused.
        consumer = Consumer({**self._address, "group.id": group, "enable.auto.commit": False})
        try:
            with _refusals():
                yield consumer
        finally:
            consumer.close()

    def partitions(self, topic: str) -> list[int]:
        with self._consumer() as consumer:
            return sorted(consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions)

    def _offsets(self, consumer: Consumer, topic: str) -> dict[int, tuple[int, int]]:
        numbers = sorted(consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions)
        return {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=TIMEOUT_S)
            for number in numbers
        }

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        with self._consumer() as consumer:
            return self._offsets(consumer, topic)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        with self._consumer() as consumer:
            asked = [TopicPartition(topic, partition, timestamp_ms)]
            (found,) = consumer.offsets_for_times(asked, timeout=TIMEOUT_S)
            return found.offset if found.offset >= 0 else None

    def consume(self, topic: str, *, partition: int, offset: int, count: int) -> list[Received]:
        with self._consumer() as consumer:
            consumer.assign([TopicPartition(topic, partition, offset)])
            return _poll(consumer, {partition: offset + count})

    def consume_all(self, topic: str) -> list[Received]:
        with self._consumer() as consumer:
            bounds = self._offsets(consumer, topic)
            consumer.assign([TopicPartition(topic, number, first) for number, (first, _) in bounds.items()])
            return _poll(consumer, {number: end for number, (first, end) in bounds.items() if end > first})

    def commit(self, group: str, offsets: Mapping[Place, Committed]) -> None:
        # An empty remark is written with a zero at its end, as every other; none at all is empty.
        wanted = [TopicPartition(*place, one.offset, *filter(None, (one.metadata,))) for place, one in offsets.items()]

        with self._consumer(group) as consumer:

            def commit() -> None:
                for answer in consumer.commit(offsets=wanted, asynchronous=False) or ():
                    if answer.error is not None:
                        raise KafkaException(answer.error)

            _ask_the_coordinator(commit)

    def committed(self, group: str, places: Iterable[Place]) -> dict[Place, Committed]:
        wanted = [TopicPartition(*place) for place in places]
        with self._consumer(group) as consumer:
            found = _ask_the_coordinator(lambda: consumer.committed(wanted, timeout=TIMEOUT_S))
        return {
            Place(one.topic, one.partition): Committed(one.offset, one.metadata or "")
            for one in found
            if one.offset >= 0
        }

    def describe_group(self, group: str) -> GroupSeen:
        admin = AdminClient(self._address)
        with _refusals():
            seen = _ask_the_coordinator(lambda: admin.describe_consumer_groups([group])[group].result(TIMEOUT_S))
        return GroupSeen(
            state=seen.state.name.title().replace("_", ""),
            assignments=tuple(
                frozenset(Place(one.topic, one.partition) for one in member.assignment.topic_partitions)
                for member in seen.members
            ),
        )

    def group_consumer(self, membership: Membership, tell: Tell) -> GroupConsumer:
        from tests.support.clients.confluent_kafka_member import GroupConsumer as Consumer

        return Consumer(self._address, membership, tell)


def _ask_the_coordinator(ask: Callable[[], T]) -> T:
    """Repeat a request until the coordinator has loaded the group; the other two clients do so by themselves."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in COORDINATOR_NOT_YET or time.monotonic() > deadline:
                raise


def _produce(producer: Producer, topic: str, record: Record, extra: dict[str, Any]) -> None:
    while True:
        try:
            producer.produce(topic, value=record.value, key=record.key, **extra)
            return
        except BufferError:  # the local queue is full: its documented remedy
            producer.poll(1.0)
        except KafkaException as error:
            raise RequestFailed(error.args[0].code(), str(error)) from error


def _has_leaders(topic: Any, partitions: int) -> bool:
    return len(topic.partitions) == partitions and all(p.leader >= 0 for p in topic.partitions.values())


def _poll(consumer: Consumer, ends: dict[int, int]) -> list[Received]:
    records: list[Received] = []
    open_ends = dict(ends)
    deadline = time.monotonic() + TIMEOUT_S
    while open_ends:
        assert time.monotonic() < deadline, f"{len(records)} records within {TIMEOUT_S} s, more were expected"
        for message in consumer.consume(500, timeout=0.2):
            if (error := message.error()) is not None:
                raise KafkaException(error)
            record = received(message)
            if record.offset < ends[record.partition]:
                records.append(record)
            if record.offset + 1 >= ends[record.partition]:
                open_ends.pop(record.partition, None)
    return records


def received(message: Message) -> Received:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    kind, timestamp_ms = message.timestamp()
    return Received(
        partition=partition,
        offset=offset,
        key=message.key(),  # type: ignore[arg-type]
        value=message.value(),  # type: ignore[arg-type]
        headers=tuple(message.headers() or ()),  # type: ignore[arg-type]
        timestamp_ms=timestamp_ms,
        is_log_append_time=kind == TIMESTAMP_LOG_APPEND_TIME,
    )


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise RequestFailed(error.args[0].code(), str(error)) from error
