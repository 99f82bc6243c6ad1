"""`ottla.testing`: the fixtures as users have them, with stock clients."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from dev.repository import REPOSITORY
from dev.waiting import until
from ottla.testing import Broker, BrokerError, NotInTime
from protocol.messages.fetch import FetchRequest
from tests.support.clients import Client, Record, connect, values
from tests.support.raw_client import RawClient


def produce(kafka: Broker, topic: str, *sent: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "client.id": "shop"})
    for value in sent:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


@pytest.fixture
def consumer(kafka: Broker) -> Iterator[Consumer]:
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    yield consumer
    consumer.close()


@pytest.mark.parametrize("client_name", ["kafka-python", "confluent-kafka", "aiokafka"])
def test_a_stock_client_finds_an_empty_broker(kafka: Broker, client_name: str) -> None:
    client: Client = connect(client_name, kafka.bootstrap_servers)
    assert client.topics() == set()
    client.create_topic("orders")
    client.produce("orders", [Record(value=b"1")])
    assert values(client.consume_all("orders")) == [b"1"]
    assert [record.value for record in kafka.records("orders")] == [b"1"]


@pytest.mark.kafka(topics={"orders": 3}, seeds={"orders": [{"key": "a", "value": {"n": 1}}, b"2"]})
def test_a_test_begins_with_what_its_marker_says(kafka: Broker) -> None:
    one, two = sorted(kafka.records("orders"), key=lambda record: record.value or b"")
    assert (one.value, two.key, json.loads(two.value or b"")) == (b"2", b"a", {"n": 1})


def test_what_clients_do_can_be_waited_for_and_asked_about(kafka: Broker, consumer: Consumer) -> None:
    produce(kafka, "orders", b"1", b"2")
    kafka.wait_for(topic="orders", records=2)
    consumer.subscribe(["orders"])
    assert [consumer.poll(30).value() for _ in range(2)] == [b"1", b"2"]
    kafka.wait_for(group="readers", state="Stable", members=1)
    consumer.commit(asynchronous=False)
    kafka.wait_for(group="readers", topic="orders", caught_up=True)
    assert kafka.committed("readers") == {("orders", 0): 2}
    assert {one["client_id"] for one in kafka.requests(api="Produce", topic="orders")} == {"shop"}
    with pytest.raises(NotInTime, match="waited 100 ms for"):
        kafka.wait_for(topic="orders", records=3, timeout=0.1)


def test_a_request_that_nobody_knows_costs_its_connection_only(kafka: Broker) -> None:
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as unknown:
        unknown.sendall(bytes.fromhex("0000000a 2710 0000 00000001 ffff"))
        assert unknown.recv(1) == b""
    produce(kafka, "orders", b"1")
    kafka.wait_for(topic="orders", records=1)


def test_a_dead_member_is_gone_at_once(kafka: Broker, consumer: Consumer) -> None:
    kafka.create_topic("orders")
    consumer.subscribe(["orders"])
    until(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), "its partition")
    assert kafka.expire_members("readers") == 1
    kafka.wait_for(group="readers", state="Empty")
    with pytest.raises(BrokerError, match="no group of this name with members"):
        kafka.expire_members("readers")


@pytest.mark.kafka(settings={"ottla.clock": "manual"}, topics={"orders": {"configs": {"retention.ms": "60000"}}})
def test_time_passes_when_the_test_says_so(kafka_broker: Broker) -> None:
    produce(kafka_broker, "orders", b"1")
    began_ms = kafka_broker.now_ms()
    kafka_broker.advance(timedelta(seconds=59))
    kafka_broker.run("retention")
    assert [record.value for record in kafka_broker.records("orders")] == [b"1"]
    kafka_broker.advance(days=7)
    assert kafka_broker.records("orders") == []
    assert kafka_broker.now_ms() - began_ms == timedelta(days=7, seconds=59) // timedelta(milliseconds=1)


@pytest.mark.kafka(settings={"ottla.clock": "manual"}, topics=["orders"])
def test_a_fetch_waits_by_the_time_that_passes(kafka_broker: Broker) -> None:
    topic = FetchRequest.Topic(
        topic="orders",
        partitions=[FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
    )
    with RawClient(kafka_broker.bootstrap_servers) as client:
        [answered] = client.ask(FetchRequest(max_wait_ms=50, min_bytes=1, topics=[topic]), 11).responses
    assert answered.partitions[0].high_watermark == 0


@pytest.mark.kafka(topics={"table": {"configs": {"cleanup.policy": "compact"}}})
def test_a_table_is_compacted_at_once(kafka: Broker) -> None:
    kafka.produce("table", [{"key": f"k{n % 3}", "value": n} for n in range(30)])
    kafka.run("compaction")
    assert [record.value for record in kafka.records("table")] == [b"27", b"28", b"29"]


def test_an_application_that_wants_three_replicas_gets_one(kafka: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    topic = NewTopic("orders", 2, replication_factor=3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])["orders"].result(30)
    produce(kafka, "orders", b"1")
    kafka.wait_for(topic="orders", records=1)
    assert "topic orders gets 1 replica instead of 3" in kafka.log_text()


def test_the_clock_of_the_shared_broker_goes_by_itself(kafka: Broker) -> None:
    with pytest.raises(BrokerError, match="goes by itself"):
        kafka.advance(days=1)


@pytest.mark.kafka(listeners=2)
def test_a_broker_may_have_several_listeners(kafka_broker: Broker) -> None:
    assert len(set(kafka_broker.listener_addresses.values())) == 2
    for address in kafka_broker.listener_addresses.values():
        assert connect("confluent-kafka", address).topics() == set()


def test_settings_that_are_wrong_are_told() -> None:
    with pytest.raises(BrokerError, match=r"num\.partitions"), Broker({"num.partitions": "none"}):
        pass


A_TEST = """
def test_fails(kafka):
    kafka.produce("orders", ["1"])
    assert kafka.records("orders") == []
"""


def test_a_test_that_fails_shows_what_the_broker_has_seen(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(A_TEST)
    command = [sys.executable, "-m", "pytest", "-p", "ottla.testing.plugin", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.count("Kafka in '") == 1
    assert "Kafka in 'kafka'" in done.stdout
    assert "creating topic orders with 1 partition" in done.stdout


def run_python(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Python with this repository's packages, in a directory of a user's tests."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


WRONG_MARKERS = """
import pytest

@pytest.mark.parametrize("nothing", [
    pytest.param(0, marks=pytest.mark.kafka(topics="orders")),
    pytest.param(0, marks=pytest.mark.kafka(topics={"orders": "3"})),
    pytest.param(0, marks=pytest.mark.kafka(topics={"orders": {"partition": 3}})),
    pytest.param(0, marks=pytest.mark.kafka(topics=["orders"], seeds=["a"])),
    pytest.param(0, marks=pytest.mark.kafka(topic=["orders"])),
    pytest.param(0, marks=pytest.mark.kafka(settings={"ottla.clock": "manual"})),
])
def test_it(kafka, nothing):
    pass
"""


def test_a_wrong_argument_of_the_marker_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(WRONG_MARKERS)
    done = run_python("-m", "pytest", "-rN", "-p", "ottla.testing.plugin", "-p", "no:cacheprovider", ".", cwd=tmp_path)
    for sentence in (  # without -rN the summary repeats them where it is not shortened, as in CI
        "topics= of the marker is 'orders', expected names of topics",
        "topics= of the marker has 'orders': '3', expected partitions",
        "topics= of the marker has 'orders': {'partition': 3}, expected partitions",
        "seeds= of the marker is ['a'], expected records",
        "the marker 'kafka' takes topics=, seeds=",
        "settings= of the marker is for kafka_broker",
    ):
        assert done.stdout.count(f"Failed: {sentence}") == 1, done.stdout


TOLD = """
import os

def test_{number}(kafka):
    kafka.produce("orders", ["{number}"])
    assert [record.value for record in kafka.records("orders")] == [b"{number}"]
    with open("brokers", "a") as told:
        print(os.environ["PYTEST_XDIST_WORKER"], kafka.process_id, file=told)
"""


def test_each_worker_of_xdist_has_a_broker_of_its_own(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"test_{number}.py").write_text(TOLD.format(number=number))
    words = ("-m", "pytest", "-p", "ottla.testing.plugin", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadfile")
    done = run_python(*words, cwd=tmp_path)
    assert "4 passed" in done.stdout, done.stdout
    brokers = {line.split()[0]: line.split()[1] for line in (tmp_path / "brokers").read_text().splitlines()}
    assert len(set(brokers.values())) == len(brokers) == 2
    assert len(set((tmp_path / "brokers").read_text().splitlines())) == 2, "a worker has more than one broker"


def test_the_tests_with_unittest_of_the_page_pass(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs/testing.md").read_text()
    [block] = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "import unittest" in block]
    (tmp_path / "test_orders.py").write_text(block)
    done = run_python("-m", "unittest", "test_orders", cwd=tmp_path)
    assert re.search(r"Ran 2 tests .*\n\nOK", done.stderr), done.stderr
