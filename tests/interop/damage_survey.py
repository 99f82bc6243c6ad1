"""Apache Kafka and Ottla on copies of one damaged directory, side by side: `python -m tests.interop.damage_survey`.

Prints a table in Markdown. Everything happens below the directory that is named, on the ports from the one named.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.topics import CreateTopicsRequest
from storage.batch.record_batch import HEADER_SIZE, computed_crc, read_header
from storage.batch.records import Record
from tests.interop.directory_damages import (
    DAMAGES,
    DANGEROUS,
    LOG_END,
    OF_THE_DIRECTORY,
    RECORDS_A_BATCH,
    RECOVERY_POINT,
    SEGMENTS,
    PartitionFiles,
)
from tests.support.apache_kafka import ApacheKafka
from tests.support.batches import produced
from tests.support.kafka_jars import libraries
from tests.support.raw_client import RawClient
from tests.support.requests import fetch_request, produce_request
from tests.support.server import BrokerDidNotStart, BrokerProcess

CONFIGS = {
    "segment.ms": "60000",
    "segment.index.bytes": "8192",
    "index.interval.bytes": "200",
    "retention.ms": "-1",
}
FIRST_TIMESTAMP = int(time.time() * 1000) - 3_600_000


def timestamp_of(offset: int) -> int:
    return FIRST_TIMESTAMP + min(offset // 60, 3) * 120_000 + offset % 60


def batch_at(offset: int, producer_id: int) -> memoryview:
    records = [
        Record(timestamp=timestamp_of(at), key=b"key %d" % at, value=b"value %d" % at)
        for at in range(offset, offset + RECORDS_A_BATCH)
    ]
    return produced(records, producer_id=producer_id, producer_epoch=0, base_sequence=offset)


@dataclass(slots=True)
class Seen:
    """What a client sees of a topic."""

    start: int | str = ""
    end: int | str = ""
    ranges: list[str] = field(default_factory=list)
    """Offsets that come when everything is read from the start, and why it ends where it does."""
    lost_seeks: list[str] = field(default_factory=list)
    """Offsets that a fetch which starts there does not find."""
    times: list[str] = field(default_factory=list)
    """Look-ups by time that find the wrong offset."""
    duplicate: str = ""
    following: str = ""
    gone: str = ""

    def __str__(self) -> str:
        parts = [f"{self.start}..{self.end}", "reads " + ", ".join(self.ranges)]
        if self.lost_seeks:
            parts.append("seeks fail: " + ", ".join(self.lost_seeks))
        if self.times:
            parts.append("by time: " + ", ".join(self.times))
        parts.append(f"dup {self.duplicate}, next {self.following}")
        if self.gone:
            parts.append(self.gone)
        return "; ".join(parts)


def name_of(code: int) -> str:
    return ErrorCode(code).name


class Observer:
    """Asks one broker."""

    def __init__(self, bootstrap: str, producer_id: int) -> None:
        self.bootstrap = bootstrap
        self.producer_id = producer_id
        self.client = RawClient(bootstrap)

    def _offset(self, topic: str, timestamp: int) -> int | str:
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsRequest.Topic(
                    name=topic,
                    partitions=[ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=timestamp)],
                )
            ],
        )
        deadline = time.monotonic() + 10
        while True:
            answer = self.client.ask(request, 7).topics[0].partitions[0]
            if answer.error_code in (5, 3, 6) and time.monotonic() < deadline:
                time.sleep(0.2)
                continue
            return answer.offset if answer.error_code == 0 else name_of(answer.error_code)

    def _fetch(self, topic: str, offset: int) -> tuple[int, bytes]:
        request = fetch_request(topic, offset=offset, partition_max_bytes=1 << 24)
        try:
            answer = self.client.ask(request, 12).responses[0].partitions[0]
        except AssertionError:
            self.client = RawClient(self.bootstrap)
            return -99, b""
        return answer.error_code, bytes(answer.records or b"")

    def _batches(self, topic: str, offset: int) -> Iterator[tuple[int, int] | str]:
        """First and last offset of each batch from ``offset`` on, at last why there is no more."""
        while True:
            code, content = self._fetch(topic, offset)
            if code:
                yield "connection closed" if code == -99 else name_of(code)
                return
            if not content:
                return
            position = 0
            while position + HEADER_SIZE <= len(content):
                header = read_header(content, position)
                if header.magic != 2:
                    yield f"magic {header.magic}"
                    return
                if position + header.size > len(content):
                    if position == 0:
                        yield "batch does not end"
                        return
                    break
                if computed_crc(content, position, header.size) != header.crc:
                    yield "CRC"
                    return
                yield header.base_offset, header.last_offset
                if header.last_offset + 1 <= offset and position:
                    yield f"offset falls to {header.base_offset}"
                    return
                offset = header.last_offset + 1
                position += header.size
            else:
                if position == 0:
                    yield f"{len(content)} bytes only"
                    return

    def look(self, topic: str) -> Seen:
        seen = Seen(start=self._offset(topic, -2), end=self._offset(topic, -1))
        if not isinstance(seen.start, int) or not isinstance(seen.end, int):
            seen.ranges.append("nothing")
            return seen
        at = seen.start
        starts = [at, *(base for base in SEGMENTS if base > at)]
        for start in starts:
            if start < at or start >= seen.end:
                continue
            begun: int | None = None
            why = ""
            for found in self._batches(topic, start):
                if isinstance(found, str):
                    why = found
                    break
                if begun is None:
                    begun = found[0]
                elif found[0] != at:
                    seen.ranges.append(f"{begun}-{at - 1}")
                    begun = found[0]
                at = found[1] + 1
            if begun is not None:
                seen.ranges.append(f"{begun}-{at - 1}")
            if why:
                seen.ranges.append(f"[{why}]")
                at = max(at, start + 1)
        for offset in range(1, LOG_END, 7):
            if not seen.start <= offset < seen.end:
                continue
            code, content = self._fetch(topic, offset)
            if code:
                seen.lost_seeks.append(f"{offset} {name_of(code) if code > -2 else 'connection closed'}")
            elif len(content) < HEADER_SIZE:
                seen.lost_seeks.append(f"{offset} nothing")
            else:
                header = read_header(content)
                if not header.base_offset <= offset <= header.last_offset:
                    seen.lost_seeks.append(f"{offset} gives {header.base_offset}")
        for offset in (*range(2, LOG_END, 20), 59, 119, 179, 239):
            found_offset = self._offset(topic, timestamp_of(offset))
            if found_offset != offset and seen.start <= offset < seen.end:
                seen.times.append(f"{offset} gives {found_offset}")
        seen.duplicate = self._produce(topic, batch_at(LOG_END - RECORDS_A_BATCH, self.producer_id))
        seen.following = self._produce(topic, batch_at(LOG_END, self.producer_id))
        return seen

    def _produce(self, topic: str, batch: memoryview) -> str:
        try:
            answer = self.client.ask(produce_request(topic, batch), 9).responses[0].partition_responses[0]
        except AssertionError:
            self.client = RawClient(self.bootstrap)
            return "connection closed"
        return f"at {answer.base_offset}" if answer.error_code == 0 else name_of(answer.error_code)


def shortened(words: list[str]) -> list[str]:
    return words if len(words) < 5 else [*words[:3], f"… {len(words)} in all"]


class Survey:
    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.ports = iter(range(port, port + 80, 2))
        self.topics = {name.replace("+", "-"): damage for name, damage in (DAMAGES | DANGEROUS).items()}
        self.producer_id = -1

    # The directory

    def prepare(self) -> None:
        """`killed` and `clean`: the same topics, left by a broker that was killed and by one that stopped."""
        shutil.rmtree(self.directory / "origin", ignore_errors=True)
        broker = BrokerProcess(self.directory / "origin", settings={"log.retention.check.interval.ms": "86400000"})
        broker.start()
        with RawClient(broker.bootstrap) as client:
            configs = [CreateTopicsRequest.Topic.Config(name=key, value=value) for key, value in CONFIGS.items()]
            wanted = [
                CreateTopicsRequest.Topic(
                    name=name, num_partitions=1, replication_factor=1, assignments=[], configs=configs
                )
                for name in self.topics
            ]
            for result in client.ask(CreateTopicsRequest(topics=wanted), 7).topics:
                assert result.error_code == 0, result
            self.producer_id = client.ask(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4
            ).producer_id
            for topic in self.topics:
                for offset in range(0, LOG_END, RECORDS_A_BATCH):
                    answer = client.ask(produce_request(topic, batch_at(offset, self.producer_id)), 9)
                    (result,) = answer.responses[0].partition_responses
                    assert (result.error_code, result.base_offset) == (0, offset), result
        time.sleep(2)
        broker.kill()
        data = broker.data_directory
        self._copy(data, self.directory / "killed")
        lines = [f"{topic} 0 {RECOVERY_POINT}" for topic in self.topics]
        text = "".join(f"{line}\n" for line in ("0", len(lines), *lines))
        (self.directory / "killed" / "recovery-point-offset-checkpoint").write_text(text)
        broker.start()
        broker.stop()
        self._copy(data, self.directory / "clean")
        for topic in self.topics:
            found = sorted(path.name for path in (data / f"{topic}-0").glob("*.log"))
            assert found == [f"{base:020d}.log" for base in SEGMENTS], (topic, found)

    def _copy(self, source: Path, target: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)
        (target / ".lock").unlink(missing_ok=True)

    # The runs

    def run(
        self, name: str, origin: str, damage: Callable[[Path, list[str]], None], topics: Iterable[str]
    ) -> dict[str, list[str]]:
        """What each broker makes of one damaged copy: by topic, what Kafka and what Ottla shows."""
        columns: dict[str, list[str]] = {}
        topics = list(topics)
        remaining = ["kafka", "ottla"]
        refused: dict[str, str] = {}
        sound = list(topics)
        while remaining:
            kind = remaining.pop(0)
            place = self.directory / "runs" / f"{name}.{origin}.{kind}"
            shutil.rmtree(place, ignore_errors=True)
            self._copy(self.directory / origin, place / "data")
            damage(place / "data", [topic for topic in topics if topic not in refused or kind == "ottla"])
            before = {topic: self._listing(place / "data" / f"{topic}-0") for topic in topics}
            broker = self._broker(kind, place)
            try:
                broker.start(timeout_s=90)
            except BrokerDidNotStart as error:
                reason = self._reason(str(error))
                guilty = re.search(r"/data/([a-z.-]+)-0[/,\s]", reason)
                if name == "shared" and guilty and guilty[1] in sound:
                    # Without this one the others can be looked at.
                    refused[guilty[1]] = reason
                    sound.remove(guilty[1])
                    remaining.insert(0, kind)
                    continue
                columns.setdefault("*", []).append(f"does not start: {reason}")
                for topic in topics:
                    columns.setdefault(topic, []).append("")
                continue
            try:
                observer = Observer(broker.bootstrap, self.producer_id)
                files: dict[str, str] = {}
                for topic in topics:
                    if topic in refused and kind == "kafka":
                        columns.setdefault(topic, []).append(f"**the broker does not start**: {refused[topic]}")
                        continue
                    seen = observer.look(topic)
                    seen.ranges = shortened(seen.ranges)
                    seen.times = shortened(seen.times)
                    seen.lost_seeks = shortened(seen.lost_seeks)
                    after = self._listing(place / "data" / f"{topic}-0")
                    lost = sorted(before[topic] - after)
                    new = sorted(n for n in after - before[topic] if not n.endswith(".snapshot"))
                    if lost or new:
                        seen.gone = " ".join([*(f"-{n}" for n in lost), *(f"+{n}" for n in new)])
                    columns.setdefault(topic, []).append(str(seen))
                others = sorted(
                    path.name
                    for path in (place / "data").iterdir()
                    if path.is_dir() and path.name.removesuffix("-0") not in self.topics
                )
                exit_text = ""
                try:
                    broker.stop(timeout_s=60)
                except AssertionError as error:
                    exit_text = f"; stop: {str(error).splitlines()[0]}"
                columns.setdefault("*", []).append(f"starts; directories beside: {' '.join(others)}{exit_text}")
            finally:
                broker.close()
            if not name.startswith("shared"):
                shutil.rmtree(place / "data", ignore_errors=True)
        return columns

    def _broker(self, kind: str, place: Path) -> BrokerProcess:
        port = next(self.ports, None)
        if port is None:
            self.ports = iter(range(22_010, 22_090, 2))
            port = next(self.ports)
        settings = {"log.retention.check.interval.ms": "86400000", "node.id": "1"}
        if kind == "ottla":
            return BrokerProcess(place, settings=settings, port=port)
        kafka = ApacheKafka(place, settings=settings, port=port, libraries=str(libraries()))
        kafka.heap = "512M"
        return kafka

    @staticmethod
    def _listing(directory: Path) -> set[str]:
        if not directory.exists():
            return set()
        names = {path.name for path in directory.iterdir()}
        return {re.sub(r"^0{10,}(\d+)", r"\1", name) for name in names} - {"leader-epoch-checkpoint"}

    @staticmethod
    def _reason(text: str) -> str:
        lines = [
            line
            for line in text.splitlines()
            if re.search(r"error in one of the threads|cannot start|Exception: ", line)
        ]
        lines = lines or [
            line for line in text.splitlines() if re.search(r"ERROR|FATAL|CRITICAL|Exception|error", line)
        ]
        return (lines[0] if lines else text.splitlines()[-1] if text else "?")[:400].replace("|", "/")


def damage_topics(catalog: dict[str, Callable[[PartitionFiles], None]]) -> Callable[[Path, list[str]], None]:
    def damage(data: Path, names: list[str]) -> None:
        for name in names:
            catalog[name](PartitionFiles(data / f"{name}-0"))

    return damage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--port", type=int, default=22_010)
    parser.add_argument("--only", default="", help="shared, dangerous, directory")
    arguments = parser.parse_args()
    survey = Survey(arguments.directory, arguments.port)
    survey.prepare()
    catalog = DAMAGES | DANGEROUS

    def table(title: str, columns: dict[str, list[str]], key: Callable[[str], str] = str) -> None:
        print(f"\n### {title}\n\n| damage | Kafka 4.3.1 | Ottla |\n|---|---|---|", flush=True)
        for name, cells in columns.items():
            kafka, ottla = cells
            if kafka == ottla:
                ottla = "the same"
            print(f"| {key(name)} | {kafka} | {ottla} |", flush=True)

    for origin in ("killed", "clean"):
        if arguments.only in ("", "shared"):
            columns = survey.run("shared", origin, damage_topics(catalog), DAMAGES)
            table(f"Directory of a broker that was {origin}: one topic each", columns)
        if arguments.only in ("", "dangerous"):
            for name in DANGEROUS:
                columns = survey.run(name, origin, damage_topics(catalog), [name, "none"])
                table(f"{origin}: {name}", columns)
        if arguments.only in ("", "directory"):
            for name, damage in OF_THE_DIRECTORY.items():
                columns = survey.run(name, origin, lambda data, _, damage=damage: damage(data), ["none", "magic.old"])
                table(f"{origin}: {name}", columns)


if __name__ == "__main__":
    main()
