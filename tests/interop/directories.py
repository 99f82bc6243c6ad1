"""One data directory that Ottla and Apache Kafka serve in turns, and what is to be seen of it through the protocol."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from dev.apache_kafka import ApacheKafka
from dev.broker_process import BrokerProcess, port_below_client_ports
from dev.kafka_jars import release_of
from dev.waiting import until
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.fetch import FetchResponse
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from protocol.schema import NO_UUID
from storage.batch.record_batch import HEADER_SIZE, BatchHeader, computed_crc, read_header
from storage.batch.records import Record, iterate_records
from tests.support.batches import produced
from tests.support.raw_client import RawClient
from tests.support.requests import fetch_request, produce_request

NODE_ID: Final = 1
LAST_HOUR_MS: Final = int(time.time() * 1000) - 3_600_000

EARLIEST: Final = -2
LATEST: Final = -1
OF_LARGEST_TIME: Final = -3

TOPIC: Final = 2
BROKER: Final = 4
_DYNAMIC_SOURCES: Final = {1: "topic", 2: "broker", 3: "all brokers"}

_NOT_YET: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


class SharedDirectory:
    """A directory for both brokers: each comes on the same port, with the same settings, when the other is gone.

    Ottla formats it with the feature levels of the Kafka."""

    def __init__(self, directory: Path, libraries: Path | str, *, settings: Mapping[str, str] | None = None) -> None:
        common = {"node.id": str(NODE_ID), **(settings or {})}
        port = port_below_client_ports()
        self.data = directory / "data"
        levels = {"ottla.release.version": release_of(libraries)}
        self.ottla = BrokerProcess(directory, settings=common | levels, port=port)
        self.kafka = ApacheKafka(directory, settings=common, port=port, libraries=str(libraries))
        self.kafka.heap = "512M"
        self.kafka.quick_start = True

    def close(self) -> None:
        self.ottla.close()
        self.kafka.close()


class BatchSeen(NamedTuple):
    """A stored batch: its CRC, which was found right, stands for everything from the attributes to the last record."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    producer: tuple[int, int, int]
    crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSeen:
    """What consumers see of a partition."""

    start: int
    end: int
    last_stable: int
    by_time: tuple[tuple[int, int], ...]
    """Offsets found by time stamps; -3 stands for the record with the largest one."""
    batches: tuple[BatchSeen, ...]
    aborted: tuple[tuple[int, int], ...]
    """Aborted transactions: producer id, first offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSeen:
    topic_id: bytes
    configs: Mapping[str, str | None]
    partitions: Mapping[int, PartitionSeen]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Everything that a broker shows of its data. Two that are equal have the same records, byte for byte."""

    topics: Mapping[str, TopicSeen]
    broker_configs: Mapping[tuple[str, str], str | None]
    """Dynamic configs, by where they are set and their name."""
    leader_epochs: Mapping[tuple[str, int], int] = field(compare=False)

    def values(self, topic: str, partition: int = 0) -> list[tuple[int, int]]:
        """First and last offset of each batch."""
        return [(batch.base_offset, batch.last_offset) for batch in self.topics[topic].partitions[partition].batches]


class Visitor(RawClient):
    """A client of whichever broker serves the directory now."""

    def create(self, topic: str, *, partitions: int = 1, **configs: str) -> None:
        """Create a topic; in the names of configs, underscores stand for dots."""
        wanted = CreateTopicsRequest.Topic(
            name=topic,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[
                CreateTopicsRequest.Topic.Config(name=name.replace("_", "."), value=value)
                for name, value in configs.items()
            ],
        )
        (result,) = self.ask(CreateTopicsRequest(topics=[wanted]), 7).topics
        assert result.error_code == 0, result
        until(lambda: self._leaders({topic}), f"topic {topic} with its leaders")

    def add_partitions(self, topic: str, count: int) -> None:
        wanted = CreatePartitionsRequest.Topic(name=topic, count=count, assignments=None)
        (result,) = self.ask(
            CreatePartitionsRequest(topics=[wanted], timeout_ms=30_000, validate_only=False), 3
        ).results
        assert result.error_code == 0, result
        until(lambda: len(self._metadata()[topic].partitions) == count and self._leaders({topic}))

    def delete(self, topic: str) -> None:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.Topic(name=topic, topic_id=NO_UUID)], timeout_ms=30_000
        )
        (result,) = self.ask(request, 6).responses
        assert result.error_code == 0, result
        until(lambda: topic not in self._metadata(), f"topic {topic} is gone")

    def configure(self, kind: int, name: str, configs: Mapping[str, str | None]) -> None:
        """Set configs of a topic or broker ("" for all brokers), or with None take them away."""
        resource = IncrementalAlterConfigsRequest.Resource(
            resource_type=kind,
            resource_name=name,
            configs=[
                IncrementalAlterConfigsRequest.Resource.Config(
                    name=key, config_operation=0 if value is not None else 1, value=value
                )
                for key, value in configs.items()
            ],
        )
        (result,) = self.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert result.error_code == 0, result

    def delete_records(self, topic: str, before: int, *, partition: int = 0) -> None:
        wanted = DeleteRecordsRequest.Topic(
            name=topic,
            partitions=[DeleteRecordsRequest.Topic.Partition(partition_index=partition, offset=before)],
        )
        answer = self.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=30_000), 2)
        (result,) = answer.topics[0].partitions
        assert (result.error_code, result.low_watermark) == (0, before), result

    def new_producer_id(self) -> int:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answers: list[Any] = []

        def answered() -> bool:
            answers.append(self.ask(request, 4))
            return answers[-1].error_code not in _NOT_YET

        until(answered, "an answer to InitProducerId")
        assert answers[-1].error_code == 0, answers[-1]
        return int(answers[-1].producer_id)

    def produce(self, topic: str, batch: memoryview | bytearray, *, partition: int = 0) -> int:
        """Append a batch; the offset that it got."""
        code, offset = self.try_to_produce(topic, batch, partition=partition)
        assert code == 0, f"{ErrorCode(code).name} from producing to {topic}-{partition}"
        return offset

    def try_to_produce(self, topic: str, batch: memoryview | bytearray, *, partition: int = 0) -> tuple[int, int]:
        """Error code and base offset of the answer."""
        answer = self.ask(produce_request(topic, batch, partition=partition), 9)
        (result,) = answer.responses[0].partition_responses
        return result.error_code, result.base_offset

    def offset_at(self, topic: str, timestamp: int, *, partition: int = 0) -> int:
        """The offset of a time, or of one of the numbers that stand for a place."""
        wanted = ListOffsetsRequest.Topic(
            name=topic,
            partitions=[ListOffsetsRequest.Topic.Partition(partition_index=partition, timestamp=timestamp)],
        )
        answer = self.ask(ListOffsetsRequest(replica_id=-1, topics=[wanted]), 7)
        (result,) = answer.topics[0].partitions
        assert result.error_code == 0, result
        return int(result.offset)

    def fetch(
        self, topic: str, offset: int, *, partition: int = 0, committed: bool = False
    ) -> FetchResponse.Response.Partition:
        request = fetch_request(
            topic, offset=offset, partition=partition, partition_max_bytes=1 << 24, isolation_level=int(committed)
        )
        (result,) = self.ask(request, 12).responses[0].partitions
        assert result.error_code == 0, (topic, partition, offset, ErrorCode(result.error_code).name)
        found: FetchResponse.Response.Partition = result
        return found

    def stored(self, topic: str, *, partition: int = 0) -> list[memoryview]:
        """Every batch from the start of a partition to its end."""
        offset = self.offset_at(topic, EARLIEST, partition=partition)
        end = self.offset_at(topic, LATEST, partition=partition)
        batches: list[memoryview] = []
        while offset < end:
            content = memoryview(bytes(self.fetch(topic, offset, partition=partition).records or b""))
            assert content, f"nothing at offset {offset} of {topic}-{partition}, which ends at {end}"
            position = 0
            while position + HEADER_SIZE <= len(content):
                header = read_header(content, position)
                if position + header.size > len(content):
                    break
                batches.append(content[position : position + header.size])
                position += header.size
                offset = header.next_offset
        return batches

    def records(self, topic: str, *, partition: int = 0) -> dict[int, Record]:
        """Every record that a consumer gets, aborted ones included, by its offset."""
        start = self.offset_at(topic, EARLIEST, partition=partition)
        return {
            record.offset: record
            for batch in self.stored(topic, partition=partition)
            if not read_header(batch).is_control
            for record in iterate_records(batch)
            if record.offset >= start
        }

    def features(self) -> dict[str, int]:
        """The finalised features as ApiVersions names them."""
        answer = self.ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 3)
        return {feature.name: feature.max_version_level for feature in answer.finalized_features}

    def picture(self) -> Picture:
        """Look at everything. Waits until every partition has its leader."""
        until(lambda: self._leaders(set()), "every partition has its leader")
        metadata = self._metadata()
        return Picture(
            topics={
                name: TopicSeen(
                    topic_id=bytes(topic.topic_id),
                    configs=self._overrides(TOPIC, name, (1,)),
                    partitions={
                        partition.partition_index: self._partition(name, partition.partition_index)
                        for partition in topic.partitions
                    },
                )
                for name, topic in sorted(metadata.items())
            },
            broker_configs={
                (_DYNAMIC_SOURCES[source], name): value
                for source in (2, 3)
                for name, value in self._overrides(BROKER, str(NODE_ID) if source == 2 else "", (source,)).items()
            },
            leader_epochs={
                (name, partition.partition_index): partition.leader_epoch
                for name, topic in metadata.items()
                for partition in topic.partitions
            },
        )

    def _metadata(self) -> dict[str, Any]:
        answer = self.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
        return {topic.name: topic for topic in answer.topics}

    def _leaders(self, wanted: set[str]) -> bool:
        """Whether these topics are there, and every partition of every topic has its leader."""
        known = self._metadata()
        return wanted <= known.keys() and all(
            topic.partitions
            and all(
                partition.leader_id == NODE_ID and self._is_served(name, partition.partition_index)
                for partition in topic.partitions
            )
            for name, topic in known.items()
        )

    def _is_served(self, topic: str, partition: int) -> bool:
        wanted = ListOffsetsRequest.Topic(
            name=topic, partitions=[ListOffsetsRequest.Topic.Partition(partition_index=partition, timestamp=LATEST)]
        )
        (result,) = self.ask(ListOffsetsRequest(replica_id=-1, topics=[wanted]), 7).topics[0].partitions
        return result.error_code not in _NOT_YET

    def _overrides(self, kind: int, name: str, sources: Sequence[int]) -> dict[str, str | None]:
        resource = DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name, configuration_keys=None)
        (result,) = self.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=False), 4).results
        assert result.error_code == 0, result
        return {config.name: config.value for config in result.configs if config.config_source in sources}

    def _partition(self, topic: str, partition: int) -> PartitionSeen:
        stored = self.stored(topic, partition=partition)
        headers = [read_header(batch) for batch in stored]
        for batch, header in zip(stored, headers, strict=True):
            assert computed_crc(batch, 0, header.size) == header.crc, f"{topic}-{partition}: {header}"
        start = self.offset_at(topic, EARLIEST, partition=partition)
        committed = self.fetch(topic, start, partition=partition, committed=True)
        times = sorted({header.max_timestamp for header in headers if not header.is_control})
        return PartitionSeen(
            start=start,
            end=self.offset_at(topic, LATEST, partition=partition),
            last_stable=committed.last_stable_offset,
            by_time=tuple(
                (time, self.offset_at(topic, time, partition=partition))
                for time in (OF_LARGEST_TIME, *times[:3], *times[-3:])
            ),
            batches=tuple(map(_seen, headers)),
            aborted=tuple((one.producer_id, one.first_offset) for one in committed.aborted_transactions or ()),
        )


def _seen(header: BatchHeader) -> BatchSeen:
    return BatchSeen(
        header.base_offset,
        header.last_offset,
        header.partition_leader_epoch,
        (header.producer_id, header.producer_epoch, header.base_sequence),
        header.crc,
    )


@dataclass(slots=True, kw_only=True)
class IdempotentProducer:
    """A producer with an identity, which may outlive the broker that gave it."""

    producer_id: int
    topic: str
    partition: int = 0
    next_sequence: int = 0
    sent: list[tuple[int, int]] = field(default_factory=list)
    """Base offset and base sequence of each batch of three records."""

    def batch(self, sequence: int) -> memoryview:
        return produced(
            # A producer whose records are old is forgotten at the next start (`producer.id.expiration.ms`).
            [Record(timestamp=LAST_HOUR_MS, key=None, value=value) for value in self._values(sequence)],
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )

    def values(self, number: int) -> list[bytes]:
        """The records of a batch that was sent."""
        return self._values(self.sent[number][1])

    def _values(self, sequence: int) -> list[bytes]:
        return [b"%d of producer %d" % (sequence + n, self.producer_id) for n in range(3)]

    def send(self, visitor: Visitor) -> None:
        offset = visitor.produce(self.topic, self.batch(self.next_sequence), partition=self.partition)
        self.sent.append((offset, self.next_sequence))
        self.next_sequence += 3

    def repeat(self, visitor: Visitor) -> None:
        """Send the last batches again: each is answered with the offset that it has."""
        for offset, sequence in self.sent[-1:]:
            answer = visitor.try_to_produce(self.topic, self.batch(sequence), partition=self.partition)
            assert answer == (ErrorCode.NONE, offset), f"repeated batch: {answer}, expected offset {offset}"

    def leave_a_gap(self, visitor: Visitor) -> None:
        """A batch out of order is refused."""
        batch = self.batch(self.next_sequence + 30)
        code, _ = visitor.try_to_produce(self.topic, batch, partition=self.partition)
        assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode(code).name


# "-1 is followed by 120" is said of every log that does not begin with offset 0.
_COMPLAINT: Final = re.compile(
    r"isvalid: false|^ *\d+ is followed by|Mismatches in|not found in|out of order timestamp|timestamp mismatch"
    r"|invalid bytes at the end|Exception|Could not|Error|UNKNOWN"
)
_DUMPED_SUFFIXES: Final = {".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint"}
METADATA_DIRECTORY: Final = "__cluster_metadata-0"
FIRST_SNAPSHOT: Final = f"{0:020d}-{0:010d}.checkpoint"
"""What formatting leaves."""


def complaints_of_dump_log(java: Sequence[str], data: Path) -> list[str]:
    """What `kafka-dump-log` finds wrong in any file of a directory that nobody serves."""
    metadata, others = [], []
    for path in sorted(data.glob("*-*/*")):
        if path.suffix not in _DUMPED_SUFFIXES or path.parent.name.endswith(("-delete", "-stray")):
            continue
        # Kafka 4.4 does not cut the indexes of its metadata log when it stops, and its tool takes zeros for an entry.
        if path.suffix != ".index" or any(path.read_bytes()):
            (metadata if path.parent.name == METADATA_DIRECTORY else others).append(path)
    assert metadata, f"no metadata log in {data}"
    assert others, f"no logs in {data}"
    # An index is read together with the log beside it, so both go into one call.
    indexes_of_metadata = [path for path in metadata if path.suffix not in (".log", ".checkpoint")]
    logs_of_metadata = [path for path in metadata if path.suffix in (".log", ".checkpoint")]
    return [
        *_complaints(java, [*others, *indexes_of_metadata], "--deep-iteration"),
        *_complaints(java, logs_of_metadata, "--cluster-metadata-decoder"),
        *(_complaints(java, of_groups, "--offsets-decoder") if (of_groups := logs_of_groups(data)) else ()),
        *(_complaints(java, of_states, "--share-group-state-decoder") if (of_states := _logs_of_states(data)) else ()),
    ]


def logs_of_groups(data: Path) -> list[Path]:
    return sorted(data.glob("__consumer_offsets-*/*.log"))


def _logs_of_states(data: Path) -> list[Path]:
    return [path for path in sorted(data.glob("__share_group_state-*/*.log")) if path.stat().st_size]


def _complaints(java: Sequence[str], files: Sequence[Path], option: str) -> list[str]:
    done = _dump(java, files, option)
    lines = [*done.stdout.decode(errors="replace").splitlines(), *done.stderr.decode(errors="replace").splitlines()]
    dumped = sum(line.startswith("Dumping ") for line in lines)
    found = [line for line in lines if _COMPLAINT.search(line)]
    if done.returncode or dumped < len(files):
        found.append(f"exit code {done.returncode}, dumped {dumped} of {len(files)} files; last: {lines[-3:]}")
    return found


_DUMPED_RECORD: Final = re.compile(r"^\| offset: .* key: (?P<key>\{.*?\}\}) payload: (?P<value>.*)$")


def records_of_groups(java: Sequence[str], data: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """What stands in the groups' topic as `kafka-dump-log` reads it, as if compacted: (group,) or (group, topic,
    partition) for each key. Fails if it cannot read a record."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    done = _dump(java, logs_of_groups(data), "--offsets-decoder")
    for line in done.stdout.decode().splitlines():
        if not line.startswith("| "):
            continue
        record = _DUMPED_RECORD.match(line)
        assert record is not None, f"no record of groups: {line}"
        key = tuple(json.loads(record["key"])["data"].values())
        if record["value"] == "<DELETE>":
            found.pop(key, None)
        else:
            found[key] = json.loads(record["value"])["data"]
    return found


def _dump(java: Sequence[str], files: Sequence[Path], option: str) -> subprocess.CompletedProcess[bytes]:
    command = [*java, "org.apache.kafka.tools.DumpLogSegments", option, "--files", ",".join(map(str, files))]
    return subprocess.run(command, capture_output=True, check=False, timeout=120)
