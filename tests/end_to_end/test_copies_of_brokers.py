"""Snapshots and forks of a broker for tests: what a copy has, and that neither sees the other's changes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer

from dev.broker_process import REPOSITORY
from ottla.testing import Broker, BrokerError, Snapshot
from tests.support.clients import Record, connect, values


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
    with pytest.raises(BrokerError, match="no topic"):
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


def test_the_files_of_a_snapshot_are_sound(tmp_path: Path) -> None:
    with Broker({"offsets.topic.num.partitions": "1"}) as kafka:
        kafka.produce("orders", [str(number) for number in range(100)])
        kafka.snapshot()
        of_process = Path(f"/proc/{kafka.process_id}/fd")
        opened = [os.readlink(path) for path in of_process.iterdir() if path.is_symlink()]
        (data,) = {path.partition("/1/orders-0/")[0] for path in opened if "/1/orders-0/" in path}
        command = [sys.executable, "-m", "ottla", "verify", f"{data}/snapshots/1"]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_snapshot_that_was_never_taken_is_told(kafka: Broker) -> None:
    with pytest.raises(BrokerError, match="there is no snapshot 999"):
        Snapshot(kafka, 999).restore()
