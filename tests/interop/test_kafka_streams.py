"""A Kafka Streams application with exactly_once_v2 that is killed, and whose changelog is cleaned all the time: what it
has counted is exact."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from dev.broker_process import BrokerProcess
from dev.brokers import broker_for_tests
from dev.waiting import until
from tests.interop import programs
from tests.interop.compaction import committed
from tests.interop.conftest import installed
from tests.interop.programs import Running
from tests.support.cleaning import table
from tests.support.clients import Place, Record, connect
from tests.support.clients.transactions import FENCE, read

APPLICATION: Final = Path(__file__).with_name("WordCounts.java")
LINES: Final = "lines"
COUNTS: Final = "counts"
PLACES: Final = [Place(COUNTS, number) for number in range(3)]
CHANGELOG: Final = [Place("word-counts-counts-changelog", number) for number in range(3)]
WORDS: Final = [f"word{number}" for number in range(40)]

SETTINGS: Final = {
    "group.min.session.timeout.ms": "1000",
    "log.cleaner.backoff.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


@pytest.fixture
def command() -> list[str]:
    """How the application is started."""
    words: list[str] = installed(lambda: programs.java_source(APPLICATION, programs.kafka_streams_libraries()))
    return words


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that soon gives up what was killed."""
    with broker_for_tests(tmp_path, settings=SETTINGS) as process:
        client = connect("confluent-kafka", process.bootstrap)
        for topic in (LINES, COUNTS):
            client.create_topic(topic, partitions=len(PLACES))
        yield process


class Lines:
    """Lines of random words, which a thread produces until `stop`, or for as long as the `with` lasts."""

    def __init__(self, bootstrap: str, chance: random.Random) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._chance = chance
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._produce)
        self.words: Counter[str] = Counter()
        """Of all lines that are acknowledged."""
        self.failures: list[Any] = []

    def __enter__(self) -> Lines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Return when every line is acknowledged."""
        self._stopping.set()
        self._thread.join()

    def _produce(self) -> None:
        while not self._stopping.wait(0.01):
            line = " ".join(self._chance.choices(WORDS, k=4))
            self._producer.produce(LINES, line.encode(), on_delivery=self._delivered)
            self._producer.poll(0)
        self._producer.flush(60)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.words.update(message.value().decode().split())
        else:
            self.failures.append(error)


class Watcher:
    """A reader of the counts that are committed."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "watcher", "isolation.level": "read_committed"}
        self._consumer = Consumer(settings)
        self._consumer.assign([TopicPartition(*place, 0) for place in PLACES])
        self.seen = 0
        """How many counts were read."""

    def await_counts(self, count: int, application: Running) -> None:
        """Wait until there are so many, while the application runs."""

        def are_there() -> bool:
            application.check()
            self.seen += len([1 for message in self._consumer.consume(500, 0.1) if message.error() is None])
            return self.seen >= count

        until(are_there, f"count {count} of the words")

    def close(self) -> None:
        self._consumer.close()


def is_changelog_cleaned(bootstrap: str) -> bool:
    """Whether of each partition's records, one for each time that a word was counted, few are left."""
    for place in CHANGELOG:
        records = committed(bootstrap, *place)
        written = sum(int.from_bytes(count) for count in table(records).values())
        if len(records) >= written / 4:
            return False
    return True


@pytest.mark.timeout(600)
def test_words_are_counted_exactly_once_though_the_application_is_killed(
    command: list[str], own_broker: BrokerProcess, tmp_path: Path
) -> None:
    chance = random.Random(890)
    bootstrap = own_broker.bootstrap

    def run(state_directory: str) -> Running:
        return Running([*command, bootstrap, LINES, COUNTS, str(tmp_path / state_directory)])

    with closing(Watcher(bootstrap)) as watcher, Lines(bootstrap, chance) as lines:
        for _ in range(2):
            with run("state") as killed:
                watcher.await_counts(watcher.seen + chance.randint(100, 2_000), killed)
                until(lambda: is_changelog_cleaned(bootstrap), "the changelog is cleaned")
        # As on another machine: all of its state comes from the changelog.
        with run("elsewhere") as last:
            watcher.await_counts(watcher.seen + 100, last)
            lines.stop()
            watcher.await_counts(lines.words.total(), last)
    assert lines.failures == []

    client = connect("confluent-kafka", bootstrap)
    client.produce(COUNTS, [Record(value=FENCE, partition=place.partition) for place in PLACES])
    counts: defaultdict[str, list[int]] = defaultdict(list)
    for value in read(bootstrap, "confluent-kafka", PLACES, isolation="read_committed"):
        word, count = value.decode().split()
        counts[word].append(int(count))
    assert counts == {word: list(range(1, count + 1)) for word, count in lines.words.items()}
