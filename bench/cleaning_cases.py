"""Cases: how fast compacted logs are cleaned, and in how much memory; and how long clients wait meanwhile.

Apache Kafka cleans a copy of the directory.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from bench.conversation import Conversation, fetch_frame, produce_frame
from bench.limits import MEGABYTE
from bench.load import run_paced
from bench.processes import Disturber, OwnBroker, memory_mb
from bench.raw_cases import percentiles
from config.log_config import LogConfig
from dev.apache_kafka import ApacheKafka
from dev.kafka_jars import NoKafka, libraries
from storage.batch.record_batch import Codec
from storage.batch.records import Record, encode_batch
from storage.files import FileSystem
from storage.loading import open_log
from storage.topic_partition import TopicPartition

UPDATES_A_KEY: Final = 10
BATCH_BYTES: Final = 16_000
CODECS: Final = (Codec.NONE, Codec.LZ4, Codec.ZSTD)
VALUE_BYTES: Final = (100, 1_000)
CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(64 << 20), "min.cleanable.dirty.ratio": "0.01"}
SETTINGS: Final = {"log.cleaner.backoff.ms": "100"}
PATIENCE_S: Final = 600
BUSY: Final = 16
"""Logs that are cleaned one after the other while clients are served: a round of one log is soon over."""
SERVED: Final = "served"
PACE: Final = 1_000
"""Requests a second."""
STRETCH: Final = 250
"""Requests that are measured before it is looked whether logs are still being cleaned."""
OUR_LINE: Final = re.compile(r"cleaned (\S+)-\d+ from offset 0 to \d+ in ([\d.]+) s")
KAFKAS_LINE: Final = re.compile(
    r"cleaned log (\S+)-0 \(dirty section = \[0, \d+\]\)\s+[\d.,]+ MB of log processed in ([\d.,]+) s"
)

KAFKAS_LEAST_S: Final = 0.05
"""Kafka tells tenths of a second: what it calls 0.0 s took less than this. It happens at small scales only."""


class Topic(NamedTuple):
    """A topic that is to be cleaned, by the records that it has."""

    value_bytes: int
    codec: Codec

    @property
    def name(self) -> str:
        return f"{self.value_bytes}-{self.codec.name.lower()}"


def cleaning(directory: Path, scale: float) -> dict[str, float]:
    """MB/s of logs with ten updates of each key, by the size of their values and by codec, and the cleaner's memory."""
    made = directory / "made"
    sizes = _make(made, int(128 * MEGABYTE * scale))
    figures: dict[str, float] = {}
    ours, memory = _our_seconds(_copy(made, directory / "ours"), sizes)
    kafkas: dict[str, float] = {}
    with contextlib.suppress(NoKafka):
        kafkas = _kafkas_seconds(_copy(made, directory / "kafka"), sizes)
    for topic, size in sizes.items():
        figures[f"{topic}_mb_s"] = size / MEGABYTE / ours[topic]
        if topic in kafkas:
            figures[f"{topic}_kafka_mb_s"] = size / MEGABYTE / kafkas[topic]
            figures[f"{topic}_ratio"] = kafkas[topic] / ours[topic]
    figures["memory_mb"] = memory
    shutil.rmtree(directory)
    return figures


def cleaning_latency(directory: Path, scale: float) -> dict[str, float]:
    """The latency of 1,000 one-record requests a second with acks=all, and of as many fetches of 16 KB, in turns: while
    logs are cleaned without a pause, and after that, alone (`alone_`) and beside a busy loop (`busy_loop_`). In
    microseconds from the moment at which each request was due. Also the MB/s at which these logs were cleaned."""
    busy = Topic(100, Codec.NONE)
    size = _make_busy(directory, busy, int(64 * MEGABYTE * scale))
    broker = OwnBroker(directory, settings=SETTINGS)
    clients = _Clients(broker)
    with Conversation(broker.bootstrap) as client:
        client.alter_topic(busy.name, {"min.cleanable.dirty.ratio": "0.01"})
    for _ in _until(lambda: bool(_children(broker.pid))):
        pass
    began = time.perf_counter()
    stretches = 0
    while len(OUR_LINE.findall(broker.log_text())) < BUSY:
        clients.serve()
        stretches += 1
    seconds = time.perf_counter() - began
    latencies = {"": clients.take_latencies()}
    for _ in range(stretches):
        clients.serve()
    latencies["alone_"] = clients.take_latencies()
    with Disturber("spin", "--share", "1"):
        for _ in range(stretches):
            clients.serve()
    latencies["busy_loop_"] = clients.take_latencies()
    broker.close()
    shutil.rmtree(directory)
    figures: dict[str, float] = {}
    for name in latencies[""]:
        for phase, of_phase in latencies.items():
            found = percentiles(of_phase[name])
            figures |= {f"{phase}{name}_{figure}": found[figure] for figure in ("p50_us", "p99_us")}
        figures[f"{name}_p99_ratio"] = figures[f"{name}_p99_us"] / figures[f"alone_{name}_p99_us"]
    return {**figures, "mb_s": size / MEGABYTE / seconds}


def _make_busy(home: Path, topic: Topic, log_bytes: int) -> int:
    """Make a data directory with equal logs of one topic, which are not to be cleaned yet. Returns their bytes."""
    broker = OwnBroker(home)
    with Conversation(broker.bootstrap) as client:
        client.create_topic(topic.name, partitions=BUSY, configs={**CONFIGS, "min.cleanable.dirty.ratio": "1"})
        client.create_topic(SERVED, partitions=1)
    broker.close()
    data = home / "data"
    size = _fill(data, topic, log_bytes)
    for number in range(1, BUSY):
        shutil.copytree(data / f"{topic.name}-0", data / f"{topic.name}-{number}", dirs_exist_ok=True)
    return size * BUSY


class _Clients:
    """A producer and a consumer of a topic that is not cleaned."""

    def __init__(self, broker: OwnBroker) -> None:
        self._bootstrap = broker.bootstrap
        # A fetch that asks for less than the first batch gets the first batch, and nothing else.
        run_paced(self._bootstrap, [produce_frame(SERVED, 0, records=16, value_bytes=1_000)], rate=PACE, requests=1)
        self._frames = {
            "produce": produce_frame(SERVED, 0, records=1, value_bytes=100),
            "fetch": fetch_frame(SERVED, [0], partition_bytes=BATCH_BYTES),
        }
        self._latencies: dict[str, list[float]] = {name: [] for name in self._frames}

    def serve(self) -> None:
        """Have a stretch of requests answered, of one kind after the other."""
        for name, frame in self._frames.items():
            self._latencies[name] += run_paced(self._bootstrap, [frame], rate=PACE, requests=STRETCH)

    def take_latencies(self) -> dict[str, list[float]]:
        """The latencies in seconds of all requests since the last call, by their kind."""
        taken, self._latencies = self._latencies, {name: [] for name in self._frames}
        return taken


def _make(home: Path, log_bytes: int) -> dict[str, int]:
    """Make a data directory as a broker leaves it after a clean stop. Returns the bytes of each topic's log."""
    topics = [Topic(value_bytes, codec) for value_bytes in VALUE_BYTES for codec in CODECS]
    broker = OwnBroker(home)
    with Conversation(broker.bootstrap) as client:
        for topic in topics:
            client.create_topic(topic.name, partitions=1, configs=CONFIGS)
    broker.close()
    return {topic.name: _fill(home / "data", topic, log_bytes) for topic in topics}


def _fill(data: Path, topic: Topic, log_bytes: int) -> int:
    """Append records of ``log_bytes``, counted before they are compressed, to a topic's log; returns its size."""
    now_ms, chance = int(time.time() * 1000), random.Random(topic.name)
    place = TopicPartition(topic.name, 0)
    log = open_log(
        FileSystem(), str(data / place.dir_name), topic_partition=place, now_ms=now_ms, was_clean=True,
        config=LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=64 << 20),
    )  # fmt: skip
    records = BATCH_BYTES // topic.value_bytes
    values = os.urandom(1 << 20).hex().encode()
    count = max(log_bytes // (topic.value_bytes + 20) // records, 1)
    keys = max(count * records // UPDATES_A_KEY, 1)
    for _ in range(count):
        content = [
            Record(timestamp=now_ms, key=b"%012d" % chance.randrange(keys), value=values[at : at + topic.value_bytes])
            for at in (chance.randrange(1 << 20) for _ in range(records))
        ]
        log.stage_trusted(encode_batch(content, codec=topic.codec), leader_epoch=0)
        log.append_all(now_ms)
    log.advance_high_watermark(log.log_end_offset)
    log.roll(now_ms)
    size = log.size
    log.close(now_ms)
    return size


def _copy(made: Path, home: Path) -> Path:
    shutil.copytree(made, home)
    return home


def _our_seconds(home: Path, topics: Collection[str]) -> tuple[dict[str, float], float]:
    """The seconds that each topic took, and the most MB that the cleaner's process has held."""
    broker = OwnBroker(home, settings=SETTINGS)
    most_mb = 0.0
    for _ in _until(lambda: len(_found(OUR_LINE, broker.log_text())) == len(topics)):
        for cleaner in _children(broker.pid):
            with contextlib.suppress(OSError, AssertionError):  # it may end at any time
                most_mb = max(most_mb, memory_mb(cleaner)[1])
    found = _found(OUR_LINE, broker.log_text())
    broker.close(signal.SIGKILL)
    assert most_mb, "the cleaner's process was not seen"
    return found, most_mb


class _Kafka(ApacheKafka):
    log_level = "INFO"


def _kafkas_seconds(home: Path, topics: Collection[str]) -> dict[str, float]:
    kafka = _Kafka(home, settings=SETTINGS, port=0, libraries=str(libraries()))
    kafka.start()
    for _ in _until(lambda: len(_found(KAFKAS_LINE, kafka.log_path.read_text())) == len(topics)):
        assert kafka.is_running, kafka.log_text()[-4000:]
    found = _found(KAFKAS_LINE, kafka.log_path.read_text())
    kafka.kill()
    return {topic: max(seconds, KAFKAS_LEAST_S) for topic, seconds in found.items()}


def _until(is_over: Callable[[], bool]) -> Iterator[None]:
    """Give turns until ``is_over``."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_over():
        assert time.monotonic() < deadline, f"not all logs were cleaned in {PATIENCE_S} s"
        yield
        time.sleep(0.05)


def _found(line: re.Pattern[str], text: str) -> dict[str, float]:
    return {topic: float(seconds.replace(",", "")) for topic, seconds in line.findall(text)}


def _children(pid: int) -> list[int]:
    """The processes that a process has started, in any of its threads."""
    lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for one in lists for child in one.split()]
