"""A broker for tests is misused: ports that are taken, calls while it begins anew or ends, time by centuries, kills."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from dev.repository import REPOSITORY
from dev.waiting import until
from ottla.testing import Broker, BrokerError
from tests.end_to_end.test_copies_of_brokers import directory_of
from tests.support.clients import Record, connect, values


@pytest.mark.parametrize("setting", ["listeners", "ottla.control.listener"])
def test_a_port_that_is_taken_is_told(setting: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(BrokerError, match=address) as told:
            Broker({setting: f"PLAINTEXT://{address}" if setting == "listeners" else address}).start()
        assert "\n" not in str(told.value)
    with Broker({setting: f"PLAINTEXT://{address}" if setting == "listeners" else address}) as kafka:
        kafka.create_topic("orders")


SESSION = """
import pytest
from confluent_kafka.admin import AdminClient

@pytest.mark.parametrize("number", range(5))
def test_it_is_alone(kafka, number):
    kafka.create_topic(f"topic-{number}")
    topics = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=60).topics
    assert list(topics) == [f"topic-{number}"]
"""


def test_two_sessions_in_one_directory_do_not_meet(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SESSION)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "ottla.testing.plugin", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    sessions = [
        subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for session in sessions:
        said, _ = session.communicate()
        assert session.returncode == 0, said


def test_data_directories_that_are_set_are_not_touched(tmp_path: Path) -> None:
    for _ in range(2):
        with Broker({"log.dirs": str(tmp_path)}) as kafka, Broker({"log.dirs": str(tmp_path)}) as other:
            kafka.create_topic("orders")
            other.create_topic("orders")
            assert f"log.dirs={tmp_path} does not count" in kafka.log_text()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.kafka(topics={"orders": 1})
def test_rules_that_match_nothing_change_nothing(kafka: Broker) -> None:
    rules = [
        kafka.fail(topic="nothing", error="UNKNOWN_SERVER_ERROR"),
        kafka.fail(topic="orders", partition=7, error="UNKNOWN_SERVER_ERROR"),
        kafka.fail(topic="orders", partition=7, new_leader_epoch=True),
        kafka.fail(topic="nothing", disk="full"),
        kafka.fail(group="nobody", move_coordinator=True),
        kafka.fail(client_id="nobody", silence=True),
        kafka.fail(principal="User:nobody", close=True),
        kafka.fail(api="DescribeQuorum", delay_ms=60_000),
        kafka.fail(share=0.0, silence=True),
        kafka.fail(times=0, silence=True),
    ]
    client = connect("confluent-kafka", kafka.bootstrap_servers)
    client.produce("orders", [Record(value=b"1")])
    assert values(client.consume_all("orders")) == [b"1"]
    assert [rule.applied for rule in rules] == [0] * len(rules)
    rules[0].remove()
    with pytest.raises(BrokerError, match="there is no rule"):
        rules[0].remove()


@pytest.mark.kafka(settings={"ottla.clock": "manual"}, topics={"orders": 1})
def test_centuries_pass_in_seconds(kafka_broker: Broker) -> None:
    kafka_broker.produce("orders", ["1"])
    consumer = Consumer(
        {"bootstrap.servers": kafka_broker.bootstrap_servers, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    until(lambda: consumer.poll(0.1) is not None, "the record")
    consumer.commit(asynchronous=False)
    consumer.close()
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers, "transactional.id": "shop"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("orders", b"2")
    producer.flush(60)
    began_ms = kafka_broker.now_ms()
    kafka_broker.advance(days=300 * 365)
    assert kafka_broker.now_ms() - began_ms == 300 * 365 * 86_400_000
    assert kafka_broker.records("orders", uncommitted=True) == []
    assert kafka_broker.committed("readers") == {}
    for refused_days in (-1, 1001 * 365):
        with pytest.raises(BrokerError, match=r"cannot be moved by|ms is \d+, expected 0 to"):
            kafka_broker.advance(days=refused_days)
    kafka_broker.produce("orders", ["3"])
    assert [record.value for record in kafka_broker.records("orders")] == [b"3"]


@pytest.mark.kafka(topics={"orders": 1}, seeds={"orders": ["1"]})
@pytest.mark.parametrize("client_name", ["kafka-python", "confluent-kafka", "aiokafka"])
def test_clients_stay_while_their_broker_goes_back_to_a_snapshot(kafka: Broker, client_name: str) -> None:
    before = kafka.snapshot()
    settings = {"bootstrap.servers": kafka.bootstrap_servers}
    producer = Producer(settings)
    consumer = Consumer({**settings, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])

    def write(value: bytes) -> None:
        producer.produce("orders", value)
        assert producer.flush(60) == 0

    def read() -> bytes | None:
        message = consumer.poll(1)
        return None if message is None or message.error() else message.value()

    write(b"2")
    until(lambda: read() == b"2", "what was written")
    before.restore()
    assert [record.value for record in kafka.records("orders")] == [b"1"]
    write(b"3")
    until(lambda: read() == b"3", "what was written into the restored broker")
    assert [record.value for record in kafka.records("orders")] == [b"1", b"3"]
    consumer.close()


def calls_of(kafka: Broker) -> list[Callable[[], object]]:
    """All kinds of calls."""
    return [
        lambda: kafka.create_topic("other"),
        lambda: kafka.produce("orders", ["1"]),
        lambda: kafka.records("orders"),
        lambda: kafka.group("readers"),
        lambda: kafka.expire_members("readers"),
        lambda: kafka.requests(api="Metadata"),
        lambda: kafka.wait_for(topic="orders", records=10_000, timeout=0.05),
        lambda: kafka.fail(client_id="nobody", silence=True).applied,
        lambda: kafka.close_connections("nobody"),
        lambda: kafka.run("retention"),
        lambda: kafka.run("transaction-timeouts"),
        lambda: kafka.advance(seconds=1),
        lambda: kafka.snapshot().restore(),
        kafka.now_ms,
        kafka.report,
    ]


def calling(kafka: Broker, call: Callable[[], object], is_over: threading.Event, wrong: list[object]) -> None:
    """Call again and again; `BrokerError` is an answer, but neither a bug nor a call that never ends is."""
    while not is_over.is_set():
        try:
            call()
        except BrokerError as error:
            if "Error:" in str(error):
                wrong.append(error)
        except BaseException as error:
            wrong.append(error)
            raise


def test_calls_while_a_broker_begins_anew_are_answered_or_refused() -> None:
    with Broker({"ottla.clock": "manual"}) as kafka:
        is_over, wrong = threading.Event(), list[object]()
        callers = [threading.Thread(target=calling, args=(kafka, call, is_over, wrong)) for call in calls_of(kafka)]
        for caller in callers:
            caller.start()
        try:
            for _ in range(8):
                kafka.reset()
        finally:
            is_over.set()
        for caller in callers:
            caller.join()
        assert wrong == []
        assert kafka.log_text().partition("met a bug")[2][:2_000] == ""
        kafka.reset()
        kafka.produce("orders", ["1"])
        assert [record.value for record in kafka.records("orders")] == [b"1"]


@pytest.mark.parametrize("round", range(3))
def test_a_broker_ends_while_it_is_called(round: int) -> None:
    kafka = Broker({"ottla.clock": "manual"}).start()
    process, directory = Path(f"/proc/{kafka.process_id}"), directory_of(kafka)
    is_over, wrong = threading.Event(), list[object]()
    callers = [threading.Thread(target=calling, args=(kafka, call, is_over, wrong)) for call in calls_of(kafka)]
    for caller in callers:
        caller.start()
    try:
        kafka.close()
        until(lambda: not process.exists(), "the end of the process")
    finally:
        is_over.set()
        for caller in callers:
            caller.join()
    assert not directory.exists(), "the broker did not end by itself, and was killed"
    assert [one for one in wrong if not isinstance(one, BrokerError)] == []


KILLED = """
import os, signal, sys, threading
from ottla.testing import Broker
broker = Broker({"ottla.clock": "manual"}).start()
print(broker.process_id, flush=True)
"""
ENDS = {
    "at once": "",
    "with copies": "broker.produce('orders', ['1']); broker.snapshot(); fork = broker.fork(); broker.reset()",
    "while time passes": """
for _ in range(3):
    threading.Thread(target=broker.advance, kwargs={"days": 900 * 365}, daemon=True).start()
while broker.now_ms() < 10_000_000_000_000: pass
""",
    "while it waits": """
threading.Thread(target=broker.wait_for, kwargs={"topic": "orders", "records": 1, "timeout": 600}, daemon=True).start()
""",
    "while another broker starts": "threading.Thread(target=Broker().start, daemon=True).start()",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_test_that_is_killed_leaves_no_broker_and_no_directory(tmp_path: Path, end: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(tmp_path)}
    script = f"{KILLED}{ENDS[end]}\nos.kill(os.getpid(), signal.SIGKILL)\n"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    broker = int(done.stdout)
    until(lambda: not Path(f"/proc/{broker}").exists(), "the end of the broker")
    until(lambda: not any(is_below(process, tmp_path) for process in Path("/proc").iterdir()), "the end of the others")
    assert list(tmp_path.iterdir()) == []


FORKED = """
import os, signal, sys
from ottla.testing import Broker
broker = Broker().start()
if os.fork() == 0:
    os.read(int(sys.argv[1]), 1)  # until the test ends it
    os._exit(0)
print(broker.process_id, flush=True)
"""


@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_process_that_a_test_has_forked_holds_up_no_end(end: str) -> None:
    lives, ends = os.pipe()
    command = [sys.executable, "-c", f"{FORKED}\n{end}", str(lives)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, pass_fds=[lives]) as process:
        assert process.stdout is not None
        broker = Path(f"/proc/{int(process.stdout.readline())}")
        until(lambda: process.poll() is not None, "the end of the process, whose child lives on")
        until(lambda: not broker.exists(), "the end of the broker")
        os.close(lives)
        os.close(ends)


def is_below(process: Path, directory: Path) -> bool:
    """Whether a process was started for a test with this temporary directory."""
    try:
        return process.name.isdigit() and f"TMPDIR={directory}\0".encode() in (process / "environ").read_bytes()
    except OSError:
        return False  # of another user, or it has ended meanwhile
