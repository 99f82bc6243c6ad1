"""What is done with is gone at once: nothing of it waits for the garbage collector, which hardly ever runs here."""

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest
from protocol.messages.topics import DeleteTopicsRequest
from tests.support.broker import InProcessBroker, running_broker
from tests.support.groups import Consumer, commit_request, create_offsets_topic, leave_request

OURS = ("broker", "config", "protocol", "storage")


@pytest.fixture(scope="module", autouse=True)
def _only_what_these_tests_make() -> Iterator[None]:
    """The collector looks at nothing that other tests have left: that would take half a second each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with running_broker(tmp_path / "data") as broker:
        yield broker


def left_for_the_collector(action: Callable[[], object]) -> Counter[str]:
    """What of our own only the garbage collector would have freed, by name."""
    gc.collect()
    gc.disable()
    try:
        action()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return Counter(filter(None, map(name_of, gc.garbage)))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def name_of(one: object) -> str:
    """The name of an object of ours, and of what our functions leave behind; empty for everybody else's."""
    if isinstance(one, FrameType):
        return one.f_code.co_qualname if any(f"/{room}/" in one.f_code.co_filename for room in OURS) else ""
    named = one if hasattr(one, "__qualname__") else type(one)
    module = getattr(named, "__module__", None) or ""
    return f"{module}.{named.__qualname__}" if module.partition(".")[0] in OURS else ""


def fetch_request(topic: str, partitions: int = 1, **fields: object) -> FetchRequest:
    """Ask for a topic's partitions from their beginning, half a second at most."""
    return FetchRequest(
        **{"max_wait_ms": 500, "min_bytes": 1, "session_id": 0, "session_epoch": -1, **fields},
        topics=[
            FetchRequest.Topic(
                topic=topic,
                partitions=[
                    FetchRequest.Topic.Partition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
                    for index in range(partitions)
                ],
            )
        ],
        forgotten_topics_data=[],
    )


def delete(broker: InProcessBroker, topic: str) -> None:
    """Delete a topic, and let the time pass after which its files are removed."""
    asked = DeleteTopicsRequest.Topic(name=topic, topic_id=bytes(16))
    broker.ask(DeleteTopicsRequest(topics=[asked], timeout_ms=1000), 6)
    broker.advance(61_000)
    broker.settle()


def test_what_was_produced_and_fetched(broker: InProcessBroker) -> None:
    broker.create_topic("orders")

    def exchange() -> None:
        broker.produce("orders", b"v")
        broker.ask(fetch_request("orders"), 12)

    assert left_for_the_collector(exchange) == Counter()


@pytest.mark.parametrize("session_epoch", [-1, 0], ids=["without a session", "with a session"])
def test_a_fetch_that_has_waited(broker: InProcessBroker, session_epoch: int) -> None:
    broker.create_topic("orders", partitions=3)
    client = broker.connect()

    def wait() -> None:
        client.send(fetch_request("orders", 3, session_epoch=session_epoch), 12)
        assert client.has_no_answer()
        broker.produce("orders", b"v", partition=1)
        client.receive()
        client.send(fetch_request("orders", 1, session_epoch=session_epoch), 12)
        assert client.has_no_answer()
        broker.advance(500)
        client.receive()

    assert left_for_the_collector(wait) == Counter()


def test_a_fetch_of_what_does_not_exist(broker: InProcessBroker) -> None:
    broker.create_topic("orders")

    def ask() -> None:
        broker.ask(fetch_request("orders", 2, max_wait_ms=0), 12)
        broker.ask(fetch_request("payments"), 12)

    assert left_for_the_collector(ask) == Counter()


@pytest.mark.parametrize("session_epoch", [-1, 0], ids=["without a session", "with a session"])
def test_a_topic_that_is_deleted_while_a_fetch_waits_for_it(broker: InProcessBroker, session_epoch: int) -> None:
    client = broker.connect()

    def make_and_delete() -> None:
        broker.create_topic("orders", partitions=3, retention_ms=1000)
        broker.produce("orders", b"v", partition=2)
        client.send(fetch_request("orders", 2, session_epoch=session_epoch), 12)
        assert client.has_no_answer()
        delete(broker, "orders")
        client.receive()

    assert left_for_the_collector(make_and_delete) == Counter()


def test_a_session_that_its_client_closes(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=3)

    def open_and_close() -> None:
        session_id = broker.ask(fetch_request("orders", 3, session_epoch=0, max_wait_ms=0), 12).session_id
        assert session_id
        broker.ask(fetch_request("orders", 3, session_id=session_id, session_epoch=-1, max_wait_ms=0), 12)

    assert left_for_the_collector(open_and_close) == Counter()


def test_a_client_that_hangs_up_while_its_fetch_waits(broker: InProcessBroker) -> None:
    broker.create_topic("orders")

    def hang_up() -> None:
        client = broker.connect()
        client.send(fetch_request("orders"), 12)
        assert client.has_no_answer()
        broker.forget(client)
        broker.advance(500)

    assert left_for_the_collector(hang_up) == Counter()


def test_a_group_that_has_come_and_gone(broker: InProcessBroker) -> None:
    create_offsets_topic(broker)
    broker.create_topic("orders")

    def come_and_go() -> None:
        member = Consumer(broker)
        assert member.join().error_code == ErrorCode.NONE
        member.sync({member.joined.member_id: b"part"})
        assert member.heartbeat() == ErrorCode.NONE
        fields = {"member_id": member.joined.member_id, "generation_id_or_member_epoch": member.joined.generation_id}
        member.client.ask(commit_request({("orders", 0): 1}, **fields), 8)
        member.client.ask(leave_request(member.joined.member_id), 1)
        broker.forget(member.client)

    assert left_for_the_collector(come_and_go) == Counter()
