"""kafka-python behind the interface of `tests.support.clients`."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource
from kafka.errors import BrokerResponseError, CommitFailedError

from tests.support.clients import (
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


def _token_provider(token: str) -> Any:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return token

    return Provider()


class StockClient:
    name = "kafka-python"

    def __init__(self, bootstrap: str, login: Login | None = None, tls: Tls | None = None) -> None:
        self._address: dict[str, Any] = {"bootstrap_servers": bootstrap}
        if login is not None or tls is not None:
            self._address["security_protocol"] = security_protocol(login, tls)
        if tls is not None:
            self._address["ssl_cafile"] = tls.authority
            if tls.certificate:
                self._address |= {"ssl_certfile": tls.certificate, "ssl_keyfile": tls.key}
        if login is not None:
            self._address |= {
                "sasl_mechanism": login.mechanism,
                "sasl_plain_username": login.user,
                "sasl_plain_password": login.password,
            }
            if login.token:
                self._address["sasl_oauth_token_provider"] = _token_provider(login.token)

    @contextlib.contextmanager
    def _admin(self) -> Iterator[Any]:
        with contextlib.closing(KafkaAdminClient(**self._address)) as admin, _refusals():
            yield admin

    def create_topic(
        self, topic: str, *, partitions: int = 1, replication: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": replication, "configs": dict(configs or {})}
        with self._admin() as admin:
            admin.create_topics({topic: wanted})
            admin.wait_for_topics([topic])

    def delete_topic(self, topic: str) -> None:
        with self._admin() as admin:
            admin.delete_topics([topic])

    def topics(self) -> set[str]:
        with self._admin() as admin:
            return set(admin.list_topics())

    def topic_configs(self, topic: str) -> dict[str, str]:
        with self._admin() as admin:
            answer = admin.describe_configs([ConfigResource("TOPIC", topic)], config_filter="all")
            return {key: entry["value"] for key, entry in answer["topic"][topic].items()}

    def alter_topic(self, topic: str, configs: Mapping[str, str]) -> None:
        with self._admin() as admin:
            answer = admin.alter_configs([ConfigResource("TOPIC", topic, dict(configs))], raise_on_unknown=False)
            # It gives errors as text: "[Error 40] InvalidConfigurationError: …".
            if refused := re.match(r"\[Error (\d+)\]", answer["topic"][topic]):
                raise RequestFailed(int(refused[1]), answer["topic"][topic])
            assert answer["topic"][topic] == "OK"

    def cluster(self) -> Cluster:
        with self._admin() as admin:
            answer = admin.describe_cluster()
            return Cluster(
                cluster_id=answer["cluster_id"],
                controller_id=answer["controller_id"],
                brokers=tuple((b.get("broker_id", b.get("node_id")), b["host"], b["port"]) for b in answer["brokers"]),
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
        options: dict[str, Any] = {}
        if codec != "none":
            options["compression_type"] = codec
        if idempotent is not None:
            options["enable_idempotence"] = idempotent
        if most_bytes is not None:
            options["max_request_size"] = most_bytes
        with contextlib.closing(KafkaProducer(**self._address, **options)) as producer, _refusals():
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            answers = [future.get(TIMEOUT_S) for future in futures]
        return [Produced(partition=a.partition, offset=a.offset, timestamp_ms=a.timestamp) for a in answers]

    @contextlib.contextmanager
    def _consumer(self, **options: Any) -> Iterator[Any]:
        with contextlib.closing(KafkaConsumer(**self._address, **options)) as consumer, _refusals():
            yield consumer

    def partitions(self, topic: str) -> list[int]:
        with self._consumer() as consumer:
            return sorted(consumer.partitions_for_topic(topic) or ())

    def _offsets(self, consumer: Any, topic: str) -> dict[Any, tuple[int, int]]:
        partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
        first, following = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        return {partition: (first[partition], following[partition]) for partition in partitions}

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        with self._consumer() as consumer:
            return {partition.partition: pair for partition, pair in self._offsets(consumer, topic).items()}

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        place = TopicPartition(topic, partition)
        with self._consumer() as consumer:
            found = consumer.offsets_for_times({place: timestamp_ms})[place]
            return None if found is None else int(found.offset)

    def consume(self, topic: str, *, partition: int, offset: int, count: int) -> list[Received]:
        place = TopicPartition(topic, partition)
        with self._consumer() as consumer:
            consumer.assign([place])
            consumer.seek(place, offset)
            return _poll(consumer, lambda received: len(received) >= count)[:count]

    def consume_all(self, topic: str) -> list[Received]:
        with self._consumer() as consumer:
            bounds = self._offsets(consumer, topic)
            consumer.assign(list(bounds))
            for place, (first, _) in bounds.items():
                consumer.seek(place, first)
            return _poll(consumer, lambda _: all(consumer.position(p) >= bounds[p][1] for p in bounds))

    def commit(self, group: str, offsets: Mapping[Place, Committed]) -> None:
        with self._consumer(group_id=group, enable_auto_commit=False) as consumer:
            try:
                consumer.commit({TopicPartition(*p): OffsetAndMetadata(*one, -1) for p, one in offsets.items()})
            except CommitFailedError as error:
                raise error.args[0] from None  # the broker's own

    def committed(self, group: str, places: Iterable[Place]) -> dict[Place, Committed]:
        with self._consumer(group_id=group, enable_auto_commit=False) as consumer:
            found = {place: consumer.committed(TopicPartition(*place), metadata=True) for place in places}
        return {place: Committed(one.offset, one.metadata) for place, one in found.items() if one is not None}

    def describe_group(self, group: str) -> GroupSeen:
        with self._admin() as admin:
            seen = admin.describe_groups([group])[group]
        return GroupSeen(
            state=seen["group_state"],
            assignments=tuple(
                frozenset(
                    Place(part["topic"], number)
                    for part in (member["member_assignment"] or {}).get("assigned_partitions", ())
                    for number in part["partitions"]
                )
                for member in seen["members"]
            ),
        )

    def group_consumer(self, membership: Membership, tell: Tell) -> GroupConsumer:
        from tests.support.clients.kafka_python_member import GroupConsumer as Consumer

        return Consumer(self._address, membership, tell)


def _poll(consumer: Any, is_enough: Any) -> list[Received]:
    records: list[Received] = []
    deadline = time.monotonic() + TIMEOUT_S
    while not is_enough(records):
        assert time.monotonic() < deadline, f"{len(records)} records within {TIMEOUT_S} s, more were expected"
        for batch in consumer.poll(timeout_ms=500).values():
            records.extend(map(received, batch))
    return records


def received(record: Any) -> Received:
    return Received(
        partition=record.partition,
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp,
        is_log_append_time=record.timestamp_type == 1,
    )


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except BrokerResponseError as error:
        raise RequestFailed(error.errno, str(error)) from error
