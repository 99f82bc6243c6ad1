"""Case: how fast compacted logs are cleaned, and in how much memory. Apache Kafka cleans a copy of the directory."""

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

from bench.conversation import Conversation
from bench.limits import MEGABYTE
from bench.processes import OwnBroker, memory_mb
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
OUR_LINE: Final = re.compile(r"cleaned (\S+)-0 from offset 0 to \d+ in ([\d.]+) s")
KAFKAS_LINE: Final = re.compile(
    r"cleaned log (\S+)-0 \(dirty section = \[0, \d+\]\)\s+[\d.,]+ MB of log processed in ([\d.,]+) s"
)


class Topic(NamedTuple):
    """A topic with one partition that is to be cleaned."""

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
    return found


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
