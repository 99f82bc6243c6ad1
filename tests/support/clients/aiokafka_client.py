"""aiokafka behind the interface of `tests.support.clients`: every call runs an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.errors import BrokerResponseError, CommitFailedError, for_code
from aiokafka.helpers import create_ssl_context

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


def _token_provider(token: str) -> Any:
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            return token

    return Provider()


class StockClient:
    name = "aiokafka"

    def __init__(self, bootstrap: str, login: Login | None = None, tls: Tls | None = None) -> None:
        self._address: dict[str, Any] = {"bootstrap_servers": bootstrap}
        if login is not None or tls is not None:
            self._address["security_protocol"] = security_protocol(login, tls)
        if tls is not None:
            own = {"certfile": tls.certificate, "keyfile": tls.key} if tls.certificate else {}
            self._address["ssl_context"] = create_ssl_context(cafile=tls.authority, **own)
        if login is not None:
            self._address |= {
                "sasl_mechanism": login.mechanism,
                "sasl_plain_username": login.user,
                "sasl_plain_password": login.password,
            }
            if login.token:
                self._address["sasl_oauth_token_provider"] = _token_provider(login.token)

    def create_topic(
        self, topic: str, *, partitions: int = 1, replication: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        new = NewTopic(topic, partitions, replication, topic_configs=dict(configs or {}))

        async def run() -> None:
            async with self._admin() as admin:
                _check((await admin.create_topics([new])).topic_errors)
                deadline = time.monotonic() + TIMEOUT_S
                while not _has_leaders(await admin.describe_topics([topic]), partitions):
                    assert time.monotonic() < deadline, f"no leader for all of {topic} within {TIMEOUT_S} s"

        _run(run())

    def delete_topic(self, topic: str) -> None:
        async def run() -> None:
            async with self._admin() as admin:
                _check((await admin.delete_topics([topic])).topic_error_codes)

        _run(run())

    def topics(self) -> set[str]:
        async def run() -> set[str]:
            async with self._admin() as admin:
                return set(await admin.list_topics())

        return _run(run())

    def topic_configs(self, topic: str) -> dict[str, str]:
        async def run() -> dict[str, str]:
            async with self._admin() as admin:
                (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
                (resource,) = answer.resources
                _check([(topic, resource[0])])
                return {entry[0]: entry[1] for entry in resource[4]}

        return _run(run())

    def alter_topic(self, topic: str, configs: Mapping[str, str]) -> None:
        async def run() -> None:
            async with self._admin() as admin:
                resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(configs))
                (answer,) = await admin.alter_configs([resource])
                _check([(topic, *found[:2]) for found in answer.resources])

        _run(run())

    def cluster(self) -> Cluster:
        async def run() -> Cluster:
            async with self._admin() as admin:
                answer = await admin.describe_cluster()
                return Cluster(
                    cluster_id=answer["cluster_id"],
                    controller_id=answer["controller_id"],
                    brokers=tuple((b["node_id"], b["host"], b["port"]) for b in answer["brokers"]),
                )

        return _run(run())

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
            options["compression_type"] = codec
        if idempotent is not None:
            options["enable_idempotence"] = idempotent
        if most_bytes is not None:
            options["max_request_size"] = most_bytes

        async def run() -> list[Produced]:
            async with AIOKafkaProducer(**options) as producer:
                futures = [
                    await producer.send(
                        topic,
                        value=record.value,
                        key=record.key,
                        partition=record.partition,
                        timestamp_ms=record.timestamp_ms,
                        headers=list(record.headers),
                    )
                    for record in records
                ]
                answers = await asyncio.wait_for(asyncio.gather(*futures), TIMEOUT_S)
                return [Produced(partition=a.partition, offset=a.offset, timestamp_ms=a.timestamp) for a in answers]

        return _run(run())

    def partitions(self, topic: str) -> list[int]:
        async def run() -> list[int]:
            async with self._consumer() as consumer:
                return await _partitions(consumer, topic)

        return _run(run())

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        async def run() -> dict[int, tuple[int, int]]:
            async with self._consumer() as consumer:
                return {place.partition: pair for place, pair in (await _offsets(consumer, topic)).items()}

        return _run(run())

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        place = TopicPartition(topic, partition)

        async def run() -> int | None:
            async with self._consumer() as consumer:
                found = (await consumer.offsets_for_times({place: timestamp_ms}))[place]
                return None if found is None else int(found.offset)

        return _run(run())

    def consume(self, topic: str, *, partition: int, offset: int, count: int) -> list[Received]:
        place = TopicPartition(topic, partition)

        async def run() -> list[Received]:
            async with self._consumer() as consumer:
                consumer.assign([place])
                consumer.seek(place, offset)

                async def wants_more(received: list[Received]) -> bool:
                    return len(received) < count

                return (await _poll(consumer, wants_more))[:count]

        return _run(run())

    def consume_all(self, topic: str) -> list[Received]:
        async def run() -> list[Received]:
            async with self._consumer() as consumer:
                bounds = await _offsets(consumer, topic)
                consumer.assign(list(bounds))
                for place, (first, _) in bounds.items():
                    consumer.seek(place, first)

                async def wants_more(_: list[Received]) -> bool:
                    return any([await consumer.position(place) < end for place, (_, end) in bounds.items()])

                return await _poll(consumer, wants_more)

        return _run(run())

    def commit(self, group: str, offsets: Mapping[Place, Committed]) -> None:
        wanted = {TopicPartition(*place): tuple(one) for place, one in offsets.items()}

        async def run() -> None:
            async with self._consumer(group_id=group, enable_auto_commit=False) as consumer:
                consumer.assign(list(wanted))
                try:
                    await consumer.commit(wanted)
                except CommitFailedError as error:
                    raise error.__cause__ or error from None

        _run(run())

    def committed(self, group: str, places: Iterable[Place]) -> dict[Place, Committed]:
        wanted = list(places)

        async def run() -> dict[Place, Committed]:
            async with self._admin() as admin:
                # It takes an error that holds for the whole group for a group without offsets.
                await _describe(admin, group)
                found = await admin.list_consumer_group_offsets(group, partitions=wanted)
            known = {Place(*place): Committed(one.offset, one.metadata) for place, one in found.items()}
            return {place: one for place, one in known.items() if one.offset >= 0}

        return _run(run())

    def describe_group(self, group: str) -> GroupSeen:
        async def run() -> GroupSeen:
            async with self._admin() as admin:
                state, members = await _describe(admin, group)
                return GroupSeen(state=state, assignments=tuple(_assignment(member[-1]) for member in members))

        return _run(run())

    def group_consumer(self, membership: Membership, tell: Tell) -> GroupConsumer:
        from tests.support.clients.aiokafka_member import GroupConsumer as Consumer

        return Consumer(self._address, membership, tell)

    @contextlib.asynccontextmanager
    async def _admin(self) -> AsyncIterator[Any]:
        admin = AIOKafkaAdminClient(**self._address)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    @contextlib.asynccontextmanager
    async def _consumer(self, **options: Any) -> AsyncIterator[Any]:
        consumer = AIOKafkaConsumer(**self._address, **options)
        await consumer.start()
        try:
            yield consumer
        finally:
            await consumer.stop()


def _run(work: Coroutine[Any, Any, T]) -> T:
    try:
        return asyncio.run(work)
    except BrokerResponseError as error:
        raise RequestFailed(error.errno, str(error)) from error


def _check(entries: Sequence[Sequence[Any]]) -> None:
    """Raise for the first entry (name, error code, perhaps a message …) that is not a success."""
    for name, code, *rest in entries:
        if code:
            raise RequestFailed(code, f"{for_code(code).__name__} for {name} {rest}")


async def _describe(admin: Any, group: str) -> tuple[str, list[Any]]:
    """State and members of a group, once the coordinator has loaded it."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            ((code, name, state, _, _, members),) = (await admin.describe_consumer_groups([group]))[0].groups
            _check([(name, code)])
            return state, members
        except (RequestFailed, BrokerResponseError) as error:
            code = error.code if isinstance(error, RequestFailed) else error.errno
            if code not in COORDINATOR_NOT_YET or time.monotonic() > deadline:
                raise


def _assignment(data: bytes) -> frozenset[Place]:
    if not data:  # of a member in a rebalance
        return frozenset()
    return frozenset(Place(*place) for place in ConsumerProtocol.ASSIGNMENT.decode(data).partitions())


def _has_leaders(topics: Any, partitions: int) -> bool:
    (topic,) = topics
    return len(topic["partitions"]) == partitions and all(p["leader"] >= 0 for p in topic["partitions"])


async def _partitions(consumer: Any, topic: str) -> list[int]:
    # Without a subscription aiokafka knows no topic until its metadata has been asked for it.
    await consumer._client.add_topic(topic)
    return sorted(consumer.partitions_for_topic(topic) or ())


async def _offsets(consumer: Any, topic: str) -> dict[Any, tuple[int, int]]:
    places = [TopicPartition(topic, number) for number in await _partitions(consumer, topic)]
    first, following = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
    return {place: (first[place], following[place]) for place in places}


async def _poll(consumer: Any, wants_more: Callable[[list[Received]], Awaitable[bool]]) -> list[Received]:
    records: list[Received] = []
    deadline = time.monotonic() + TIMEOUT_S
    while await wants_more(records):
        assert time.monotonic() < deadline, f"{len(records)} records within {TIMEOUT_S} s, more were expected"
        for batch in (await consumer.getmany(timeout_ms=500)).values():
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
