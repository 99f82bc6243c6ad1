"""Workloads of stock clients: librdkafka, kafka-python and Kafka's own programs."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from bench import librdkafka
from bench.limits import MEGABYTE
from bench.load import LoadFailed
from bench.side_by_side.verified import VerifiedBench
from bench.side_by_side.workload import CPU_S_GB, MB_S, RECORDS_S, Figures, Workload

SIZES: Final = {"100b": 100, "1kb": 1_000}
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""Each is produced with records of 1,000 B. Other records go without a codec: with one, the client is the limit."""

RDKAFKA_RECORDS: Final = {
    "100b": {"none": 2_500_000, "gzip": 200_000, "snappy": 1_500_000, "lz4": 1_500_000, "zstd": 800_000},
    "1kb": {"none": 800_000, "gzip": 25_000, "snappy": 400_000, "lz4": 400_000, "zstd": 150_000},
}
"""So many records take a second or two, most of it in the codec."""
SMALLER: Final = 3
"""With batches of 16 KB librdkafka and its broker are so many times slower."""

PYTHON_PRODUCED: Final = {"100b": 20_000, "1kb": 12_000}
PYTHON_CONSUMED: Final = {"100b": 250_000, "1kb": 150_000}
"""So many records take a second and a half: kafka-python's consumer sleeps for 0.2 s before the first record comes."""
JAVA_RECORDS: Final = {"100b": 1_200_000, "1kb": 300_000}


def _figures(count: int, size: int, seconds: float, cpu: float) -> Figures:
    return {
        "records_s": count / seconds,
        "mb_s": count * size / seconds / MEGABYTE,
        "cpu_s_gb": cpu / (count * size / 1e9),
        "cores": cpu / seconds,
    }


def _check_end(bench: VerifiedBench, topic: str, count: int) -> None:
    if (stored := bench.end_offsets(topic, 1)) != count:
        raise LoadFailed(f"{count} records were acknowledged, the log of {topic} holds {stored}")


# librdkafka -----------------------------------------------------------------------------------------------------------


def _rdkafka_produce(bench: VerifiedBench, *, size: int, records: int, settings: dict[str, str]) -> Figures:
    payloads = librdkafka.values(size)
    with bench.topic(1) as topic:
        cpu = bench.broker.cpu_seconds()
        count, seconds = librdkafka.produce(bench.broker.bootstrap, topic, payloads, bench.count(records), settings)
        cpu = bench.broker.cpu_seconds() - cpu
        _check_end(bench, topic, count)
    return _figures(count, size, seconds, cpu)


def _rdkafka_consume(bench: VerifiedBench, *, size: int, records: int, codec: str) -> Figures:
    with bench.topic(1) as topic:
        bootstrap = bench.broker.bootstrap
        settings = {"compression.codec": codec}
        count, _ = librdkafka.produce(bootstrap, topic, librdkafka.values(size), bench.count(records), settings)
        _check_end(bench, topic, count)
        cpu = bench.broker.cpu_seconds()
        seconds = librdkafka.consume(bootstrap, topic, count, {})
        cpu = bench.broker.cpu_seconds() - cpu
    return _figures(count, size, seconds, cpu)


def _rdkafka() -> list[Workload]:
    found = [
        _rdkafka_producer("100b", acks="1"),
        *(_rdkafka_producer(size, is_small=is_small) for size in SIZES for is_small in (False, True)),
        *(_rdkafka_producer("1kb", codec=codec) for codec in CODECS[1:]),
    ]
    for size, codec in _sizes_and_codecs():
        records = RDKAFKA_RECORDS[size][codec]
        found.append(
            Workload(
                name=_name("librdkafka-consume", size, codec),
                words=_words("consume", SIZES[size], codec),
                rows=(MB_S if size == "1kb" else RECORDS_S, CPU_S_GB),
                seconds=2.8,
                written_mb=records * SIZES[size] / MEGABYTE,
                measure=partial(_rdkafka_consume, size=SIZES[size], records=records, codec=codec),
                is_of_sockets=(size, codec) == ("1kb", "none"),
                warms=codec == "none",
            )
        )
    return found


def _rdkafka_producer(size: str, *, acks: str = "all", is_small: bool = False, codec: str = "none") -> Workload:
    """``is_small``: batches of 16 KB in the place of librdkafka's own of a megabyte."""
    records = RDKAFKA_RECORDS[size][codec] // (SMALLER if is_small else 1)
    settings = {"acks": acks, "compression.codec": codec, **({"batch.size": "16384"} if is_small else {})}
    return Workload(
        name=_name("librdkafka-produce", size, "all" if acks == "all" else "acks1", "16kb" if is_small else "", codec),
        words=_words("produce", SIZES[size], f"acks={acks}", "16-KB batches" if is_small else "", codec),
        rows=(MB_S if size == "1kb" else RECORDS_S, CPU_S_GB),
        seconds=1.5,
        written_mb=records * SIZES[size] / MEGABYTE,
        measure=partial(_rdkafka_produce, size=SIZES[size], records=records, settings=settings),
        is_of_sockets=(size, acks, codec) == ("1kb", "all", "none"),
        warms=acks == "all" and codec == "none",
    )


def _sizes_and_codecs() -> list[tuple[str, str]]:
    return [("100b", "none"), *(("1kb", codec) for codec in ("none", "lz4", "zstd"))]


def _name(*parts: str) -> str:
    return "-".join(part for part in parts if part not in ("", "none"))


def _words(doing: str, bytes_each: int, *rest: str) -> str:
    return ", ".join([f"{doing} {bytes_each:,} B", *(part for part in rest if part not in ("", "none"))])


# kafka-python ---------------------------------------------------------------------------------------------------------


def _python_produce(bench: VerifiedBench, *, size: int, records: int, codec: str) -> Figures:
    from kafka import KafkaProducer

    payloads = librdkafka.values(size)
    count = bench.count(records)
    with bench.topic(1) as topic:
        producer = KafkaProducer(
            bootstrap_servers=bench.broker.bootstrap,
            acks="all",
            compression_type=None if codec == "none" else codec,
        )
        cpu, started = bench.broker.cpu_seconds(), time.perf_counter()
        for number in range(count):
            producer.send(topic, payloads[number % len(payloads)])
        producer.flush()
        seconds = time.perf_counter() - started
        cpu = bench.broker.cpu_seconds() - cpu
        producer.close()
        _check_end(bench, topic, count)
    return _figures(count, size, seconds, cpu)


def _python_consume(bench: VerifiedBench, *, size: int, records: int, codec: str) -> Figures:
    """kafka-python's consumer checks the CRC of every batch, as it does by default."""
    from kafka import KafkaConsumer, TopicPartition

    with bench.topic(1) as topic:
        bootstrap = bench.broker.bootstrap
        settings = {"compression.codec": codec, "batch.size": "16384"}
        count, _ = librdkafka.produce(bootstrap, topic, librdkafka.values(size), bench.count(records), settings)
        _check_end(bench, topic, count)
        consumer = KafkaConsumer(bootstrap_servers=bootstrap)
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        cpu, started = bench.broker.cpu_seconds(), time.perf_counter()
        left = count
        while left > 0:
            for received in consumer.poll(timeout_ms=1000).values():
                left -= len(received)
        seconds = time.perf_counter() - started
        cpu = bench.broker.cpu_seconds() - cpu
        consumer.close()
        if left:
            raise LoadFailed(f"kafka-python was handed {count - left} records of {count}")
    return _figures(count, size, seconds, cpu)


def _python() -> list[Workload]:
    """Workloads of kafka-python. Its batches are 16 KB by default, so there is no second batch size."""
    found = []
    for size, codec in (("100b", "none"), ("1kb", "lz4")):
        measure = partial(_python_produce, size=SIZES[size], records=PYTHON_PRODUCED[size], codec=codec)
        name, words = (
            _name("kafka-python-produce", size, "all", codec),
            _words("produce", SIZES[size], "acks=all", codec),
        )
        found.append(_python_workload(name, words, PYTHON_PRODUCED[size] * SIZES[size], 1.0, measure))
    for size, codec in (("100b", "none"), ("1kb", "lz4")):
        measure = partial(_python_consume, size=SIZES[size], records=PYTHON_CONSUMED[size], codec=codec)
        name, words = _name("kafka-python-consume", size, codec), _words("consume", SIZES[size], codec)
        found.append(_python_workload(name, words, PYTHON_CONSUMED[size] * SIZES[size], 2.5, measure))
    return found


def _python_workload(
    name: str, words: str, written: int, seconds: float, measure: Callable[[VerifiedBench], Figures]
) -> Workload:
    return Workload(
        name=name,
        words=words,
        rows=(RECORDS_S, CPU_S_GB),
        seconds=seconds,
        written_mb=written / MEGABYTE,
        measure=measure,
    )


# Kafka's own ----------------------------------------------------------------------------------------------------------

PRODUCED: Final = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\).*p?99\.9th", re.MULTILINE)


def _tool(bench: VerifiedBench, name: str, *words: str) -> str:
    assert bench.libraries is not None
    command = [
        "java",
        "-Xmx512M",
        "-Dlog4j2.level=ERROR",
        "-cp",
        f"{bench.libraries}/*",
        f"org.apache.kafka.tools.{name}",
    ]
    done = subprocess.run(
        [*command, "--bootstrap-server", bench.broker.bootstrap, *words],
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    if done.returncode:
        raise LoadFailed(f"{name} ended with exit code {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def _java_produce(bench: VerifiedBench, *, size: int, records: int) -> Figures:
    with bench.topic(1) as topic:
        count = bench.count(records)
        cpu = bench.broker.cpu_seconds()
        said = _java_fill(bench, topic, count, size)
        cpu = bench.broker.cpu_seconds() - cpu
        _check_end(bench, topic, count)
    if (found := PRODUCED.search(said)) is None:
        raise LoadFailed(f"kafka-producer-perf-test said no throughput: {said[-500:]}")
    return _figures(count, size, count / float(found[2]), cpu)


def _java_fill(bench: VerifiedBench, topic: str, count: int, size: int) -> str:
    return _tool(
        bench, "ProducerPerformance",
        *("--topic", topic, "--num-records", str(count), "--record-size", str(size), "--throughput", "-1"),
    )  # fmt: skip


def _java_consume(bench: VerifiedBench, *, size: int, records: int) -> Figures:
    """Throughput of Kafka's consumer program, without the rebalance at its start."""
    with bench.topic(1) as topic:
        count, _ = librdkafka.produce(
            bench.broker.bootstrap, topic, librdkafka.values(size), bench.count(records), {"batch.size": "16384"}
        )
        _check_end(bench, topic, count)
        cpu = bench.broker.cpu_seconds()
        said = _tool(bench, "ConsumerPerformance", "--topic", topic, "--num-records", str(count), "--timeout", "30000")
        cpu = bench.broker.cpu_seconds() - cpu
    *_, names, values = (line.split(", ") for line in said.splitlines() if ", " in line)
    figures = dict(zip(names, values, strict=True))
    if int(figures["data.consumed.in.nMsg"]) < count:
        raise LoadFailed(f"kafka-consumer-perf-test read {figures['data.consumed.in.nMsg']} records of {count}")
    return _figures(count, size, count / float(figures["fetch.nMsg.sec"]), cpu)


def _java() -> list[Workload]:
    found = []
    for size, bytes_each in SIZES.items():
        records = JAVA_RECORDS[size]
        for doing, measure in (("produce", _java_produce), ("consume", _java_consume)):
            found.append(
                Workload(
                    name=f"kafka-{doing}r-perf-test-{size}",
                    words=_words(f"kafka-{doing}r-perf-test,", bytes_each),
                    rows=(RECORDS_S, CPU_S_GB),
                    seconds=3.5,
                    around_s=3.0,
                    written_mb=records * bytes_each / MEGABYTE,
                    measure=partial(measure, size=bytes_each, records=records),
                    needs_java=True,
                )
            )
    return found


def workloads() -> list[Workload]:
    """The workloads of stock clients, in the order of the page."""
    return [*_rdkafka(), *_python(), *_java()]
