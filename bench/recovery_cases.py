"""Cases of long starts: logs to recover after an unclean stop, and many partitions to open."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from bench.conversation import Conversation
from bench.limits import MEGABYTE
from bench.partition_cases import produce_to_all
from bench.processes import OwnBroker, memory_mb
from dev.apache_kafka import ApacheKafka
from dev.kafka_jars import NoKafka, libraries
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from storage.batch.record_batch import stamp
from storage.batch.records import Record, encode_batch

TOPIC = "recovered"
LOGS = 4
"""Partitions over which the bytes are spread, so that two workers have work."""
WORKERS = (1, 2)
OUR_LINE = re.compile(r"loaded \d+ logs? in ([\d.]+) s")
KAFKAS_LINE = re.compile(r"Loaded \d+ logs in (\d+)ms")


def one_record(directory: Path, scale: float) -> dict[str, float]:
    """Recover batches of one record with a value of 100 bytes."""
    return _recovery(directory, value_bytes=100, records=1, log_bytes=int(64 * MEGABYTE * scale))


def sixteen_kb(directory: Path, scale: float) -> dict[str, float]:
    """Recover batches of about 16 KB."""
    return _recovery(directory, value_bytes=1_000, records=16, log_bytes=int(256 * MEGABYTE * scale))


def one_mb(directory: Path, scale: float) -> dict[str, float]:
    """Recover batches of a little less than 1 MB."""
    return _recovery(directory, value_bytes=1_000, records=980, log_bytes=int(256 * MEGABYTE * scale))


def _recovery(directory: Path, *, value_bytes: int, records: int, log_bytes: int) -> dict[str, float]:
    """MB/s of an unclean start with one worker and with two; Apache Kafka's on a copy, if its jars are at hand."""
    killed = directory / "killed"
    size, batches = _make_killed(killed, value_bytes=value_bytes, records=records, log_bytes=log_bytes)
    figures = {"mb": size / MEGABYTE, "batches": float(batches)}
    for workers in WORKERS:
        settings = {"num.recovery.threads.per.data.dir": str(workers)}
        ours_s = _on_a_copy(killed, directory / "ours", lambda home, given=settings: _our_seconds(home, given))
        figures[f"workers_{workers}_mb_s"] = size / MEGABYTE / ours_s
        with contextlib.suppress(NoKafka):
            kafkas_s = _on_a_copy(
                killed, directory / "kafka", lambda home, given=settings: _kafkas_seconds(home, given)
            )
            figures[f"kafka_{workers}_mb_s"] = size / MEGABYTE / kafkas_s
            figures[f"to_kafka_{workers}_ratio"] = kafkas_s / ours_s
    shutil.rmtree(directory)
    return figures


def _make_killed(directory: Path, *, value_bytes: int, records: int, log_bytes: int) -> tuple[int, int]:
    """Make a data directory of a killed broker, with logs as the broker would have written them. Returns their bytes
    and batches.

    Writing the files is quicker than producing. Nothing counts as flushed, so everything is checked at the next
    start.
    """
    broker = OwnBroker(directory)
    with Conversation(broker.bootstrap) as client:
        client.create_topic(TOPIC, partitions=LOGS)
    broker.close(signal.SIGKILL)
    now_ms = int(time.time() * 1000)
    batch = encode_batch([Record(timestamp=now_ms, value=bytes(value_bytes)) for _ in range(records)])
    count = log_bytes // len(batch)
    for number in range(LOGS):
        with (directory / "data" / f"{TOPIC}-{number}" / f"{0:020d}.log").open("r+b") as file:
            for at in range(count):
                stamp(batch, at * records, 0)
                file.write(batch)
    return count * len(batch) * LOGS, count * LOGS


def _on_a_copy(killed: Path, home: Path, measure: Callable[[Path], float]) -> float:
    shutil.copytree(killed, home)
    try:
        return measure(home)
    finally:
        shutil.rmtree(home)


def _our_seconds(home: Path, settings: dict[str, str]) -> float:
    broker = OwnBroker(home, settings=settings)
    broker.close(signal.SIGKILL)
    *_, last = OUR_LINE.findall(broker.log_text())
    return float(last)


class _Kafka(ApacheKafka):
    log_level = "INFO"


def _kafkas_seconds(home: Path, settings: dict[str, str]) -> float:
    kafka = _Kafka(home, settings=settings, port=0, libraries=str(libraries()))
    kafka.start()
    # Its port opens before its logs do.
    while (loaded := KAFKAS_LINE.search(kafka.log_path.read_text())) is None:
        assert kafka.is_running, kafka.log_text()[-4000:]
        time.sleep(0.1)
    kafka.kill()
    return int(loaded[1]) / 1000


# Many partitions ------------------------------------------------------------------------------------------------------

PARTITIONS = (10, 1_000, 5_000)


def many_partitions(directory: Path, scale: float) -> dict[str, float]:
    """Seconds to `ready` with a record in each of so many partitions (times `scale`): after a clean stop and
    after a kill; the memory then, and the seconds of the clean stop."""
    figures: dict[str, float] = {}
    counts = [PARTITIONS[0], *(max(PARTITIONS[0], int(count * scale)) for count in PARTITIONS[1:])]
    for count in counts:
        home = directory / str(count)
        broker = OwnBroker(home)
        with Conversation(broker.bootstrap) as client:
            client.create_topic("many", partitions=count)
            topic_id = client.ask(MetadataRequest(topics=None), MetadataResponse).topics[0].topic_id
            produce_to_all(client, "many", topic_id, count)
        stopped = time.perf_counter()
        broker.close()
        figures[f"stop_{count}_s"] = time.perf_counter() - stopped
        broker, figures[f"clean_{count}_s"] = _timed_start(home)
        if count == counts[-1]:
            figures[f"memory_{count}_mb"] = memory_mb(broker.pid)[0]
        broker.close(signal.SIGKILL)
        broker, figures[f"unclean_{count}_s"] = _timed_start(home)
        broker.close(signal.SIGKILL)
    return figures


def _timed_start(home: Path) -> tuple[OwnBroker, float]:
    started = time.perf_counter()
    broker = OwnBroker(home)
    return broker, time.perf_counter() - started
