"""Apache Kafka and Ottla on copies of one damaged directory, side by side: `python -m tests.interop.damage_survey`.

Prints a table in Markdown; takes some minutes. Everything happens below the directory that is named.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dev.apache_kafka import ApacheKafka
from dev.broker_process import BrokerDidNotStart, BrokerProcess, port_below_client_ports
from dev.kafka_jars import KAFKA_VERSION, libraries
from dev.waiting import until
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
    SOUND,
    Damage,
    PartitionFiles,
)
from tests.support.batches import produced
from tests.support.raw_client import RawClient
from tests.support.requests import fetch_request, produce_request

CONFIGS = {
    "segment.ms": "60000",
    "segment.index.bytes": "8192",
    "index.interval.bytes": "200",
    "retention.ms": "-1",
}
SETTINGS = {"node.id": "1", "log.retention.check.interval.ms": "86400000"}

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
    readable: set[int] = field(default_factory=set)
    """The same offsets one by one."""
    lost_seeks: list[str] = field(default_factory=list)
    """Offsets that a fetch which starts there does not find."""
    times: list[str] = field(default_factory=list)
    """Look-ups by time that find the wrong offset."""
    duplicate: str = ""
    following: str = ""
    files: str = ""
    """Files that have gone and come since."""

    def __str__(self) -> str:
        parts = [f"{self.start}..{self.end}", "reads " + ", ".join(shortened(self.ranges))]
        if self.lost_seeks:
            parts.append("seeks fail: " + ", ".join(shortened(self.lost_seeks)))
        if self.times:
            parts.append("by time: " + ", ".join(shortened(self.times)))
        parts.append(f"dup {self.duplicate}, next {self.following}")
        if self.files:
            parts.append(self.files)
        return "; ".join(parts)


def name_of(code: int) -> str:
    return ErrorCode(code).name


class Observer:
    """Asks one broker."""

    def __init__(self, bootstrap: str, producer_id: int) -> None:
        self.bootstrap = bootstrap
        self.producer_id = producer_id
        self.client = RawClient(bootstrap)

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def _ask_anew(self) -> None:
        """The broker has closed the connection."""
        self.client.close()
        self.client = RawClient(self.bootstrap)

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
            self._ask_anew()
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
                seen.readable |= set(range(found[0], found[1] + 1))
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
            self._ask_anew()
            return "connection closed"
        return f"at {answer.base_offset}" if answer.error_code == 0 else name_of(answer.error_code)


@dataclass(slots=True, kw_only=True)
class Run:
    """What became of one broker on a damaged directory."""

    seen: dict[str, Seen] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    """Topics on whose account it does not start, and what it says."""
    failure: str = ""
    """Why it did not start at all."""
    directories_beside: list[str] = field(default_factory=list)

    def cell(self, topic: str) -> str:
        if self.failure:
            return f"does not start: {self.failure}"
        if topic in self.refusals:
            return f"does not start: {self.refusals[topic]}"
        return str(self.seen[topic])


class Survey:
    """The same damages on copies of the same directory, for both brokers."""

    def __init__(self, directory: Path, *, port: int, libraries: str) -> None:
        self.directory = directory
        self.port = port
        self.libraries = libraries
        self.producer_id = -1

    def prepare(self, topics: Sequence[str]) -> None:
        """Make `killed` and `clean`: the same topics, left by a broker that was killed and by one that stopped."""
        shutil.rmtree(self.directory / "origin", ignore_errors=True)
        broker = BrokerProcess(self.directory / "origin", settings=SETTINGS, port=self.port)
        broker.start()
        with RawClient(broker.bootstrap) as client:
            configs = [CreateTopicsRequest.Topic.Config(name=key, value=value) for key, value in CONFIGS.items()]
            wanted = [
                CreateTopicsRequest.Topic(
                    name=name, num_partitions=1, replication_factor=1, assignments=[], configs=configs
                )
                for name in topics
            ]
            for created in client.ask(CreateTopicsRequest(topics=wanted), 7).topics:
                assert created.error_code == 0, created
            identity = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            self.producer_id = client.ask(identity, 4).producer_id
            for topic in topics:
                for offset in range(0, LOG_END, RECORDS_A_BATCH):
                    answer = client.ask(produce_request(topic, batch_at(offset, self.producer_id)), 9)
                    (produced_at,) = answer.responses[0].partition_responses
                    assert (produced_at.error_code, produced_at.base_offset) == (0, offset), produced_at
        data = broker.data_directory
        # A thread writes them, and a busy machine lets it wait.
        written = [data / f"{topic}-0" / "leader-epoch-checkpoint" for topic in topics]
        until(lambda: all(path.exists() for path in written), "that every partition has its epochs on disk")
        broker.kill()
        for topic in topics:
            segments = sorted(path.name for path in (data / f"{topic}-0").glob("*.log"))
            assert segments == [f"{base:020d}.log" for base in SEGMENTS], (topic, segments)
        copy(data, self.directory / "killed")
        lines = [f"{topic} 0 {RECOVERY_POINT}" for topic in topics]
        text = "".join(f"{line}\n" for line in ("0", len(lines), *lines))
        (self.directory / "killed" / "recovery-point-offset-checkpoint").write_text(text)
        broker.start()
        broker.stop()
        copy(data, self.directory / "clean")

    def run(
        self, kind: str, origin: str, damages: Mapping[str, Damage], *, beside: Mapping[str, Damage] = SOUND
    ) -> Run:
        """Let one broker start with these topics damaged, without those of them that it does not start with."""
        run = Run()
        while True:
            sound = {topic: damage for topic, damage in damages.items() if topic not in run.refusals}

            def damage_all(data: Path, sound: Mapping[str, Damage] = sound) -> None:
                for topic, damage in sound.items():
                    damage(PartitionFiles(data / f"{topic}-0"))

            found = self.start(kind, origin, damage_all, [*sound, *beside])
            guilty = re.search(r"/data/([a-z.-]+)-0[/,\s]", found.failure)
            if guilty is None or guilty[1] not in sound:
                found.refusals = run.refusals
                return found
            run.refusals[guilty[1]] = found.failure

    def start(self, kind: str, origin: str, damage: Callable[[Path], object], topics: Sequence[str]) -> Run:
        """Let one broker start on a damaged copy, and look at these topics."""
        place = self.directory / kind
        shutil.rmtree(place, ignore_errors=True)
        data = place / "data"
        copy(self.directory / origin, data)
        damage(data)
        before = {topic: listing(data / f"{topic}-0") for topic in topics}
        strangers = {path.name for path in data.iterdir() if path.is_dir()}
        broker = BrokerProcess(place, settings=SETTINGS, port=self.port)
        if kind == "kafka":
            broker = ApacheKafka(place, settings=SETTINGS, port=self.port, libraries=self.libraries)
        run = Run()
        try:
            broker.start()
            for topic in topics:
                with Observer(broker.bootstrap, self.producer_id) as observer:
                    run.seen[topic] = seen = observer.look(topic)
                after = listing(data / f"{topic}-0")
                changed = [f"-{name}" for name in sorted(before[topic] - after)]
                changed += [f"+{name}" for name in sorted(after - before[topic]) if not name.endswith(".snapshot")]
                seen.files = " ".join(changed)
            run.directories_beside = sorted({path.name for path in data.iterdir() if path.is_dir()} - strangers)
            broker.stop()
        except BrokerDidNotStart as error:
            run.failure = reason_in(str(error))
        finally:
            broker.close()
        return run


def copy(source: Path, target: Path) -> None:
    """A copy that has holes where the source has them: indexes are long before they are full."""
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)
    (target / ".lock").unlink(missing_ok=True)


def listing(directory: Path) -> set[str]:
    """The files of a partition, offsets without their zeros."""
    if not directory.exists():
        return set()
    return {re.sub(r"^0{10,}(\d+)", r"\1", path.name) for path in directory.iterdir()} - {"leader-epoch-checkpoint"}


def reason_in(log: str) -> str:
    """The line that says why a broker did not start."""
    lines = log.splitlines()
    # 4.4.0 tells the exception in a line of its own, behind that of the error.
    telling = [line for line in lines if re.search(r"Exception: ", line)]
    telling = telling or [line for line in lines if "error in one of the threads" in line]
    telling = telling or [line for line in lines if re.search(r"ERROR|FATAL|CRITICAL|^ottla: ", line)] or lines[-1:]
    return telling[0][:400] if telling else ""


def shortened(words: list[str]) -> list[str]:
    return words if len(words) < 5 else [*words[:3], f"… {len(words)} in all"]


def say(line: str) -> None:
    sys.stdout.write(line.replace("\0", "") + "\n")
    sys.stdout.flush()


def say_row(name: str, kafka: str, ottla: str) -> None:
    kafka, ottla = (cell.replace("|", "/") for cell in (kafka, ottla))
    say(f"| {name} | {kafka} | {'the same' if ottla == kafka else ottla} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    survey = Survey(arguments.directory, port=arguments.port or port_below_client_ports(), libraries=str(libraries()))
    survey.prepare([*SOUND, *DAMAGES, *DANGEROUS])
    for origin in ("killed", "clean"):
        say(f"\n### The broker was {origin}\n\n| damage | Kafka {KAFKA_VERSION} | Ottla |\n|---|---|---|")
        kafka, ottla = (survey.run(kind, origin, DAMAGES) for kind in ("kafka", "ottla"))
        for topic in DAMAGES:
            say_row(topic, kafka.cell(topic), ottla.cell(topic))
        for topic, damage in DANGEROUS.items():
            kafka, ottla = (survey.run(kind, origin, {topic: damage}) for kind in ("kafka", "ottla"))
            say_row(topic, kafka.cell(topic), ottla.cell(topic))
        for name, damage_directory in OF_THE_DIRECTORY.items():
            kafka, ottla = (survey.start(kind, origin, damage_directory, ["none"]) for kind in ("kafka", "ottla"))
            cells = [f"{run.cell('none')} {' '.join(run.directories_beside)}" for run in (kafka, ottla)]
            say_row(name, *cells)


if __name__ == "__main__":
    main()
