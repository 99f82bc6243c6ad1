"""A million lines of real text, from a producer to a consumer by way of an archive that Spark makes: every one where it
was."""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from dev.broker_process import BrokerProcess
from tests.pipeline.archive.test_command import archive
from tests.pipeline.restore.archiving import restored
from tests.support.clients import CODECS, connect
from tests.support.stdlib_text import lines, source_files

LINES = 1_000_000
PARTITIONS = 2


@pytest.mark.usefixtures("spark")
@pytest.mark.timeout(600)  # as long as it takes on a machine that does something else, too
def test_a_million_lines_come_back_with_their_places(
    own_broker: BrokerProcess, second: BrokerProcess, tmp_path: Path
) -> None:
    admin = connect("confluent-kafka", own_broker.bootstrap)
    for codec in CODECS:
        admin.create_topic(codec, partitions=PARTITIONS, configs={"retention.ms": "-1"})
        produce(own_broker.bootstrap, codec)
    before = {place: digest(own_broker.bootstrap, *place) for place in places()}
    assert sum(count for count, _ in before.values()) == LINES

    archive(own_broker, tmp_path / "archive", "--target-file-mb", "16")
    restored(tmp_path / "archive", second.data_directory)

    second.start()
    assert {place: digest(second.bootstrap, *place) for place in places()} == before


def places() -> Iterator[tuple[str, int]]:
    return ((codec, partition) for codec in CODECS for partition in range(PARTITIONS))


def text() -> Iterator[tuple[str, int, bytes]]:
    """Lines of the standard library and of the packages beside it, each with its file and its number there."""
    installed = sorted(Path(sysconfig.get_path("purelib")).rglob("*.py"))
    for path in (*source_files(), *installed):
        yield from ((path.name, number, line) for number, line in enumerate(lines(path.read_bytes() + b"\n")))


def produce(bootstrap: str, codec: str) -> None:
    """A fifth of them, keyed by file, with the line's number as a header and a time of its own."""
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20})
    skipped = CODECS.index(codec) * LINES // len(CODECS)
    chosen = islice(text(), skipped, skipped + LINES // len(CODECS))
    for index, (name, number, line) in enumerate(chosen):
        producer.produce(
            codec, line, name, timestamp=1_750_000_000_000 + index * 100, headers=[("line", str(number).encode())]
        )
        if index % 10_000 == 0:
            producer.flush()
    assert producer.flush(60) == 0


def digest(bootstrap: str, topic: str, partition: int) -> tuple[int, str]:
    """How many records a consumer gets, and what they are: offset, time, key, value, headers."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "check.crcs": True}
    )
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        consumer.assign([TopicPartition(topic, partition, 0)])
        seen, count, offset = hashlib.sha256(), 0, -1
        while offset + 1 < end:
            for message in consumer.consume(10_000, timeout=0.5):
                assert message.error() is None, message.error()
                offset = message.offset()
                count += 1
                seen.update(
                    repr((offset, message.timestamp(), message.key(), message.value(), message.headers())).encode()
                )
        return count, seen.hexdigest()
    finally:
        consumer.close()
