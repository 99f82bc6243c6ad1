"""Snapshots and forks of a broker for tests: what a copy has, and that neither sees the other's changes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer

from dev.repository import REPOSITORY
from dev.waiting import until
from ottla.testing import Broker, BrokerError, Snapshot
from tests.support.clients import Place, Record, connect, values
from tests.support.clients.transactions import ConfluentProducer


def contents(kafka: Broker, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in kafka.records(topic)]


@pytest.mark.kafka(topics={"orders": 1, "table": {"configs": {"cleanup.policy": "compact"}}}, seeds={"orders": ["1"]})
def test_a_broker_goes_back_to_a_snapshot_as_often_as_it_is_told(kafka: Broker) -> None:
    kafka.produce("table", [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}])
    client = connect("confluent-kafka", kafka.bootstrap_servers)
    before = kafka.snapshot()
    for number in range(2):
        kafka.produce("orders", ["2", "3"])
        kafka.run("compaction")
        kafka.create_topic("later")
        assert contents(kafka) == [b"1", b"2", b"3"]
        before.restore()
        assert contents(kafka) == [b"1"]
        assert contents(kafka, "table") == [b"1", b"2"]
        assert client.topics() == {"orders", "table"}
        client.produce("orders", [Record(value=b"%d" % number)])
        assert values(client.consume_all("orders")) == [b"1", b"%d" % number]
        before.restore()
    kafka.reset()
    before.restore()
    assert contents(kafka) == [b"1"]


@pytest.mark.kafka(topics={"orders": 1}, seeds={"orders": ["1"]})
def test_a_fork_and_its_original_do_not_see_each_others_records(kafka: Broker) -> None:
    with kafka.fork() as fork:
        assert fork.bootstrap_servers != kafka.bootstrap_servers
        kafka.produce("orders", ["original"])
        fork.produce("orders", ["fork"])
        assert contents(kafka) == [b"1", b"original"]
        assert contents(fork) == [b"1", b"fork"]
        kafka.reset()
        with fork.fork() as second:
            assert contents(second) == contents(fork) == [b"1", b"fork"]
    with pytest.raises(BrokerError, match="does not run"):
        contents(fork)
    with pytest.raises(BrokerError, match="there is no such topic"):
        contents(kafka)


@pytest.mark.kafka(topics={"orders": 3})
def test_a_fork_under_load_is_a_beginning_of_the_original(kafka: Broker) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 1})
    is_over = threading.Event()

    def write() -> None:
        number = 0
        while not is_over.is_set():
            producer.produce("orders", b"%d" % number, partition=number % 3)
            number += 1
            if number % 500 == 0:
                producer.flush(30)
        producer.flush(30)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        kafka.wait_for(topic="orders", records=1_000, timeout=30)
        forks = [kafka.fork() for _ in range(3)]
        grown = kafka.wait_for(topic="orders", records=1_500, timeout=30)
    finally:
        is_over.set()
        writing.join()
    assert grown["topic"]["records"] >= 1_500
    for partition in range(3):
        whole = [record.value for record in kafka.records("orders", partition=partition)]
        sizes = []
        for fork in forks:
            part = [record.value for record in fork.records("orders", partition=partition)]
            assert part == whole[: len(part)]
            sizes.append(len(part))
        assert sizes == sorted(sizes)
        assert sizes[0] > 300
    for fork in forks:
        fork.close()


def directory_of(kafka: Broker) -> Path:
    """Below which a broker has its data, its snapshots and the data of its forks."""
    descriptors = Path(f"/proc/{kafka.process_id}/fd")
    opened = [os.readlink(path) for path in descriptors.iterdir() if path.is_symlink()]
    (found,) = {path.partition("/1/__cluster_metadata-0/")[0] for path in opened if "/1/__cluster_metadata-0/" in path}
    return Path(found)


def assert_sound(*directories: Path) -> None:
    """`ottla verify` finds nothing wrong with the data of a broker."""
    for directory in directories:
        command = [sys.executable, "-m", "ottla", "verify", str(directory)]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_copies_under_load_are_one_moment_of_the_original() -> None:
    """A program writes step after step, in turns into three partitions; another one transforms a topic in transactions.
    A copy has all steps up to some moment and none behind it, and whole transactions."""
    is_over = threading.Event()
    with Broker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}) as kafka:
        kafka.create_topic("steps", partitions=3)
        kafka.create_topic("out", partitions=2)
        directory = directory_of(kafka)

        def write_steps() -> None:
            producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0})
            number = 0
            while not is_over.is_set():
                producer.produce("steps", b"%d" % number, partition=number % 3)
                producer.flush(60)
                number += 1

        def transform() -> None:
            producer = ConfluentProducer(kafka.bootstrap_servers, "transform")
            number = 0
            while not is_over.is_set():
                producer.begin()
                for partition in range(2):
                    producer.send(Place("out", partition), b"%d" % number)
                producer.send_offsets("transform", {Place("in", 0): number + 1})
                producer.commit()
                number += 1

        programs = [threading.Thread(target=write_steps), threading.Thread(target=transform)]
        for program in programs:
            program.start()
        forks = []
        try:
            kafka.create_topic("in")
            for number in range(1, 4):
                kafka.wait_for(topic="steps", records=100 * number, timeout=60)
                until(lambda wanted=5 * number: len(contents(kafka, "out")) >= wanted, "transactions")
                forks.append(kafka.fork())
        finally:
            is_over.set()
            for program in programs:
                program.join()
        ends = []
        for fork in forks:
            steps = sorted(int(value or b"") for value in contents(fork, "steps"))
            assert steps == list(range(len(steps)))
            ends.append(len(steps))

            def is_whole(fork: Broker = fork) -> bool:
                # Of a transaction whose end was decided, the copy may have no marker yet: its coordinator writes it.
                written = [len(fork.records("out", partition=partition)) for partition in range(2)]
                return set(written) == {fork.committed("transform").get(("in", 0), 0)}

            until(is_whole, "the end of the transactions that were being ended")
            fork.produce("steps", ["of the fork"])
            fork.close()
        assert ends == sorted(set(ends))
        assert len(contents(kafka, "steps")) > ends[-1]
        assert_sound(*(directory / "snapshots").iterdir(), *(directory / "forks").glob("*/1"))


def test_a_snapshot_that_was_never_taken_is_told(kafka: Broker) -> None:
    with pytest.raises(BrokerError, match="snapshot is 999, and there is no such snapshot"):
        Snapshot(kafka, 999).restore()
