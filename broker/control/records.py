"""Records: the calls that make topics, write records (seeds), and read what a topic has."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from broker.control.arguments import BadArguments, argument, shown
from broker.control.calls import CHANGES, Answer, Call, CannotDo
from broker.control.conditions import described_topic
from broker.control.partitioner import partition_of_key
from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from storage.batch.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT
from storage.batch.records import Record, encode_batch, iterate_records
from storage.sentinels import NO_TIMESTAMP

if TYPE_CHECKING:
    from broker.control.broker_host import BrokerHost
    from broker.control.own_client import OwnClient

MOST_READ: Final = 10_000
"""How many records a call reads at most."""

MOST_PARTITIONS: Final = 10_000
"""As many as Kafka makes in one request."""

_BATCH_BYTES: Final = 1 << 19
"""A batch has keys and values of this size at most, or one record: half of what Kafka's max.message.bytes is by
default."""

_BROKERS_DEFAULT: Final = -1
_TIMEOUT_MS: Final = 10_000
_OF_ARGUMENTS: Final = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
    }
)
"""Error codes that say that what was asked for can never be done."""
_CREATE_VERSION: Final = 7
_PRODUCE_VERSION: Final = 9


@dataclasses.dataclass(frozen=True)
class NewTopic:
    """A topic to be made."""

    name: str = argument("the topic's name")
    partitions: int = argument(
        "how many partitions; -1 is num.partitions", _BROKERS_DEFAULT, least=_BROKERS_DEFAULT, most=MOST_PARTITIONS
    )
    configs: dict[str, str] = argument("its configs, such as cleanup.policy", default_factory=dict)


@dataclasses.dataclass(frozen=True)
class NewTopics:
    """Topics to be made."""

    topics: list[NewTopic] = argument("the topics")


@dataclasses.dataclass(frozen=True)
class NewHeader:
    """A header of a record. Text, or bytes in Base64."""

    key: str = argument("the header's name")
    value: str | None = argument("the value as text; null without value and value_base64", None)
    value_base64: str | None = argument("the value as bytes", None)


@dataclasses.dataclass(frozen=True)
class NewRecord:
    """A record to be written. Text, or bytes in Base64."""

    value: str | None = argument("the value as text; without value and value_base64 a tombstone", None)
    value_base64: str | None = argument("the value as bytes", None)
    key: str | None = argument("the key as text", None)
    key_base64: str | None = argument("the key as bytes", None)
    headers: dict[str, str | None] | list[NewHeader] = argument(
        "headers: texts by their names, or a list as /records/read answers it", default_factory=dict
    )
    partition: int | None = argument("the partition; without it the one that Java's client chooses for the key", None)
    timestamp_ms: int | None = argument("milliseconds since 1970; without it the broker's time", None)


@dataclasses.dataclass(frozen=True)
class NewRecords:
    """Records to be written into a topic, which is made if it is missing and may be made by a client."""

    topic: str = argument("the topic's name")
    records: list[NewRecord] = argument("the records, in their order")


@dataclasses.dataclass(frozen=True)
class WhichRecords:
    """Records to be read."""

    topic: str = argument("the topic's name")
    partition: int | None = argument("one partition; without it all", None)
    from_offset: int = argument("the first offset, in each partition", 0)
    limit: int = argument(f"how many records at most, up to {MOST_READ}", MOST_READ, most=MOST_READ)
    uncommitted: bool = argument("records of open and aborted transactions, too", False)


class Records:
    """The topics of the broker of now."""

    def __init__(self, host: BrokerHost, client: OwnClient) -> None:
        self._host = host
        self._client = client

    def calls(self) -> list[Call]:
        """The calls about topics and records."""
        return [
            Call(CHANGES, "/topics/create", "Make topics.", NewTopics, self._create),
            Call(CHANGES, "/records/write", "Write records; answers their offsets.", NewRecords, self._write),
            Call(CHANGES, "/records/read", "The records of a topic, as a reader sees them.", WhichRecords, self._read),
        ]

    async def _create(self, new: NewTopics) -> Answer:
        topics = [
            CreateTopicsRequest.Topic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=_BROKERS_DEFAULT,
                assignments=[],
                configs=[CreateTopicsRequest.Topic.Config(name=key, value=text) for key, text in topic.configs.items()],
            )
            for topic in new.topics
        ]
        request = CreateTopicsRequest(topics=topics, timeout_ms=_TIMEOUT_MS)
        answer = await self._client.ask(request, CreateTopicsResponse, version=_CREATE_VERSION)
        for result in answer.topics:
            if result.error_code != ErrorCode.NONE:
                raise _refused(f"the topic {result.name!r} cannot be made", result)
        return {"topics": [described_topic(self._host.server, topic.name) for topic in new.topics]}

    async def _write(self, new: NewRecords) -> Answer:
        if self._host.server.metadata.image.topics.by_name.get(new.topic) is None:
            await self._create(NewTopics([NewTopic(new.topic)]))
        found = self._host.server.metadata.image.topics.by_name[new.topic]
        offsets: list[Answer | None] = [None] * len(new.records)
        for index, places in self._by_partition(new.records, len(found.partitions)).items():
            for batch in _batches(places):
                base_offset = await self._produce(new.topic, index, batch)
                for distance, place in enumerate(batch):
                    offsets[place] = {"partition": index, "offset": base_offset + distance}
        return {"offsets": offsets}

    def _by_partition(self, records: list[NewRecord], partitions: int) -> Mapping[int, dict[int, Record]]:
        """The records of each partition, by their places in the call. Raises `BadArguments`."""
        turns = count()
        sorted_out: dict[int, dict[int, Record]] = {}
        for place, new in enumerate(records):
            record = _record(new, place, self._host.clock.now_ms())
            index = new.partition
            if index is None:
                index = next(turns) % partitions if record.key is None else partition_of_key(record.key, partitions)
            _check_partition(f"records[{place}].partition", index, partitions)
            sorted_out.setdefault(index, {})[place] = record
        return sorted_out

    async def _produce(self, topic: str, index: int, places: Mapping[int, Record]) -> int:
        """Write one batch; return the offset of its first record. Raises `BadArguments` and `CannotDo`."""
        batch = memoryview(encode_batch(list(places.values())))
        data = ProduceRequest.TopicData.PartitionData(index=index, records=batch)
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[ProduceRequest.TopicData(name=topic, partition_data=[data])],
        )
        answer = await self._client.ask(request, ProduceResponse, version=_PRODUCE_VERSION)
        result = answer.responses[0].partition_responses[0]
        if result.error_code != ErrorCode.NONE:
            first, *_, last = (*places, *places)
            which = f"records[{first}]" if first == last else f"records[{first}] to records[{last}]"
            raise _refused(f"{which} cannot be written into {topic}-{index}", result)
        return result.base_offset

    async def _read(self, which: WhichRecords) -> Answer:
        server = self._host.server
        found = server.metadata.image.topics.by_name.get(which.topic)
        if found is None:
            raise BadArguments(f"topic is {shown(which.topic)}, and there is no such topic")
        if which.partition is not None:
            _check_partition("partition", which.partition, len(found.partitions))
        records: list[Answer] = []
        for index in range(len(found.partitions)):
            if which.partition in (None, index):
                for record in self._records_of(which, index):
                    if len(records) >= which.limit:
                        break
                    records.append({"partition": index, **_shown(record)})
        return {"records": records}

    def _records_of(self, which: WhichRecords, index: int) -> Iterator[Record]:
        """The records of a partition that a reader sees."""
        log = self._host.server.components.replicas.partition(which.topic, index).log
        end = log.high_watermark if which.uncommitted else log.last_stable_offset
        aborted = set() if which.uncommitted else _aborted_offsets(log, end)
        for header, data in log.batches(which.from_offset, end_offset=end):
            if header.attributes & CONTROL_BIT:
                continue
            if header.attributes & TRANSACTIONAL_BIT and header.base_offset in aborted:
                continue
            for record in iterate_records(data):
                if record.offset >= max(which.from_offset, log.log_start_offset):
                    yield record


def _aborted_offsets(log: Any, end_offset: int) -> set[int]:
    """The base offsets of the batches that belong to aborted transactions."""
    open_batches: dict[int, list[int]] = {}
    aborted: set[int] = set()
    for header, data in log.batches(end_offset=end_offset):
        if not header.attributes & TRANSACTIONAL_BIT:
            continue
        if not header.attributes & CONTROL_BIT:
            open_batches.setdefault(header.producer_id, []).append(header.base_offset)
            continue
        ended = open_batches.pop(header.producer_id, [])
        marker = next(iterate_records(data))
        if marker.key is not None and not int.from_bytes(marker.key[2:4], "big"):
            aborted.update(ended)
    return aborted


def _batches(places: Mapping[int, Record]) -> Iterator[dict[int, Record]]:
    """The records of a partition in batches, so that many small records are not too large together."""
    batch: dict[int, Record] = {}
    size = 0
    for place, record in places.items():
        record_bytes = len(record.key or b"") + len(record.value or b"")
        if batch and size + record_bytes > _BATCH_BYTES:
            yield batch
            batch, size = {}, 0
        batch[place] = record
        size += record_bytes
    yield batch


def _record(new: NewRecord, place: int, now_ms: int) -> Record:
    return Record(
        timestamp=now_ms if new.timestamp_ms is None else new.timestamp_ms,
        key=_bytes(new.key, new.key_base64, f"records[{place}].key"),
        value=_bytes(new.value, new.value_base64, f"records[{place}].value"),
        headers=[
            (one.key, _bytes(one.value, one.value_base64, f"records[{place}].headers[{number}].value"))
            for number, one in enumerate(_headers(new.headers))
        ],
    )


def _headers(given: dict[str, str | None] | list[NewHeader]) -> list[NewHeader]:
    return given if isinstance(given, list) else [NewHeader(key, value) for key, value in given.items()]


def _bytes(text: str | None, encoded: str | None, where: str) -> bytes | None:
    if encoded is None:
        return None if text is None else text.encode()
    if text is not None:
        raise BadArguments(f"{where} and {where}_base64 are both given, expected one of them")
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError:
        raise BadArguments(f"{where}_base64 is {shown(encoded)}, which is no Base64") from None


def _check_partition(where: str, index: int, partitions: int) -> None:
    if index >= partitions:
        raise BadArguments(f"{where} is {index}, expected 0 to {partitions - 1}: a partition that the topic has")


def _shown(record: Record) -> Answer:
    shown: Answer = {"offset": record.offset}
    if record.timestamp != NO_TIMESTAMP:
        shown["timestamp_ms"] = record.timestamp
    for name, data in (("key", record.key), ("value", record.value)):
        shown |= _as_text(name, data)
    shown["headers"] = [{"key": key, **_as_text("value", value)} for key, value in record.headers]
    return shown


def _as_text(name: str, data: bytes | None) -> Answer:
    """Bytes as text where they are UTF-8, else in Base64."""
    if data is None:
        return {name: None}
    try:
        return {name: bytes(data).decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _refused(what: str, result: Any) -> BadArguments | CannotDo:
    kind = BadArguments if result.error_code in _OF_ARGUMENTS else CannotDo
    said = "" if result.error_message is None else f": {result.error_message}"
    return kind(f"{what}: {ErrorCode(result.error_code).name}{said}")
