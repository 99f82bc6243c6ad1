"""Segments and topics are deleted while readers are in the middle of their data."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode as E
from protocol.messages.configs import IncrementalAlterConfigsRequest
from protocol.messages.topics import DeleteTopicsRequest
from tests.support.batches import T, produced, record
from tests.support.broker import Client, InProcessBroker, running_broker
from tests.support.files import FaultyFileSystem
from tests.support.requests import fetch_request, produce_request

CHECK_MS = 10_000
DELAY_MS = 7_000
VALUE = b"v" * 1000
TOPIC, SET = 2, 0


@pytest.fixture
def files() -> FaultyFileSystem:
    return FaultyFileSystem()


@pytest.fixture
def broker(tmp_path: Path, files: FaultyFileSystem) -> Iterator[InProcessBroker]:
    """A broker that looks for what is too old every ten seconds, with `orders` in five segments of two records."""
    with running_broker(
        tmp_path / "data", files=files, log_retention_check_interval_ms=CHECK_MS, log_initial_task_delay_ms=0
    ) as broker:
        broker.advance(0)  # the first look, at nothing
        broker.create_topic("orders", file_delete_delay_ms=DELAY_MS, retention_ms=-1)
        log = broker.log("orders")
        for number in range(5):
            log.roll(broker.clock.now_ms())
            batch = produced([record(VALUE, timestamp=T + (number - 5) * 60_000) for _ in range(2)])
            answer = broker.ask(produce_request("orders", batch), 12)
            assert answer.responses[0].partition_responses[0].error_code == E.NONE
        assert log.segments.bases == (0, 2, 4, 6, 8)
        yield broker


def alter(broker: InProcessBroker, **configs: object) -> None:
    changes = [
        IncrementalAlterConfigsRequest.Resource.Config(
            name=key.replace("_", "."), config_operation=SET, value=str(value)
        )
        for key, value in configs.items()
    ]
    resource = IncrementalAlterConfigsRequest.Resource(resource_type=TOPIC, resource_name="orders", configs=changes)
    answer = broker.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert answer.responses[0].error_code == E.NONE


def delete(broker: InProcessBroker, topic: str = "orders") -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name=topic, topic_id=bytes(16))], timeout_ms=1000)
    assert broker.ask(request, 6).responses[0].error_code == E.NONE
    broker.wait_until(lambda: broker.server.components.replicas.find(topic, 0) is None)


def names(broker: InProcessBroker, pattern: str) -> list[str]:
    return sorted(path.name for path in broker.directory.glob(pattern))


def fetch(client: Client | InProcessBroker, offset: int, **fields: int) -> tuple[int, int, int]:
    """Error code, log start offset and bytes."""
    (of_partition,) = client.ask(fetch_request(offset=offset, **fields), 12).responses[0].partitions
    return of_partition.error_code, of_partition.log_start_offset, len(of_partition.records)


def test_a_new_retention_time_counts_from_the_next_look_on(broker: InProcessBroker) -> None:
    oldest_kept_ms = T - 3 * 60_000
    alter(broker, retention_ms=broker.clock.now_ms() + CHECK_MS - oldest_kept_ms)
    assert broker.log("orders").log_start_offset == 0
    broker.advance(CHECK_MS)
    assert broker.log("orders").segments.bases == (4, 6, 8)
    alter(broker, retention_ms=-1)
    broker.advance(10 * CHECK_MS)
    assert broker.log("orders").segments.bases == (4, 6, 8)


def test_a_new_retention_size_does_too(broker: InProcessBroker) -> None:
    log = broker.log("orders")
    alter(broker, retention_bytes=log.size // 2)
    broker.advance(CHECK_MS)
    assert (log.segments.bases, log.log_start_offset) == ((4, 6, 8), 4)


def test_files_stay_for_their_delay_under_another_name(broker: InProcessBroker) -> None:
    alter(broker, retention_bytes=broker.log("orders").size // 2)
    broker.advance(CHECK_MS)
    renamed = ["00000000000000000000.log.deleted", "00000000000000000002.log.deleted"]
    assert names(broker, "orders-0/*.log.deleted") == renamed
    assert names(broker, "orders-0/*.log")[0] == "00000000000000000004.log"
    broker.advance(DELAY_MS - 1)
    assert names(broker, "orders-0/*.log.deleted") == renamed
    broker.advance(2)  # the wheel's tick
    broker.wait_until(lambda: not names(broker, "orders-0/*.deleted"))


def test_a_new_delay_counts_for_what_goes_from_then_on(broker: InProcessBroker) -> None:
    alter(broker, retention_bytes=1, file_delete_delay_ms=0)
    broker.advance(CHECK_MS)
    broker.advance(2)
    broker.wait_until(lambda: not names(broker, "orders-0/*.deleted"))


def test_a_consumer_whose_place_is_gone_is_told_so_and_where_the_log_begins(broker: InProcessBroker) -> None:
    client = broker.connect()
    assert fetch(client, 1)[0] == E.NONE
    alter(broker, retention_bytes=broker.log("orders").size // 2)
    broker.advance(CHECK_MS)
    assert fetch(client, 2)[0] == E.OFFSET_OUT_OF_RANGE
    assert fetch(client, 4)[:2] == (E.NONE, 4)


def test_a_session_whose_place_is_gone_is_told_so(broker: InProcessBroker) -> None:
    client = broker.connect()
    begun = client.ask(fetch_request(offset=3, session_epoch=0), 12)
    alter(broker, retention_bytes=broker.log("orders").size // 2)
    broker.advance(CHECK_MS)
    again = fetch_request(session_id=begun.session_id, session_epoch=1)
    again.topics.clear()
    (told,) = client.ask(again, 12).responses[0].partitions
    assert told.error_code == E.OFFSET_OUT_OF_RANGE


def test_a_fetch_that_waits_below_the_new_start_is_told_at_once(broker: InProcessBroker) -> None:
    client = broker.connect()
    client.send(fetch_request(offset=9, min_bytes=1 << 20, max_wait_ms=3_600_000), 12)
    assert client.has_no_answer()
    alter(broker, retention_ms=1)
    broker.advance(CHECK_MS)
    assert broker.log("orders").segments.bases == (10,), "the active segment went too"
    assert client.receive().responses[0].partitions[0].error_code == E.OFFSET_OUT_OF_RANGE


def test_a_deleted_topic_is_renamed_at_once_and_removed_after_its_delay(broker: InProcessBroker) -> None:
    delete(broker)
    assert names(broker, "orders-0") == []
    assert len(names(broker, "orders-0.*-delete")) == 1
    broker.advance(DELAY_MS - 1)
    assert len(names(broker, "orders-0.*-delete")) == 1
    broker.advance(2)
    broker.wait_until(lambda: not names(broker, "orders-0*"))


def test_what_is_left_of_the_delay_begins_anew_at_the_next_start(broker: InProcessBroker) -> None:
    delete(broker)
    broker.restart()
    assert len(names(broker, "orders-0.*-delete")) == 1
    broker.advance(3_600_000)
    broker.wait_until(lambda: not names(broker, "orders-0*"))


def test_a_topic_that_is_deleted_while_it_is_being_sent_is_sent_to_its_end(broker: InProcessBroker) -> None:
    size = 4 << 20
    broker.create_topic("large", file_delete_delay_ms=0)
    while broker.log("large").size < size:
        broker.produce("large", *[b"v" * 64_000] * 8)
    slow = broker.connect()
    slow.send(fetch_request("large", partition_max_bytes=size, max_bytes=size), 12)
    broker.settle()  # as much as the socket takes is under way

    delete(broker, "large")
    broker.advance(2)
    broker.wait_until(lambda: not names(broker, "large-0*"))

    assert len(slow.receive().responses[0].partitions[0].records) == size


def test_a_topic_that_is_deleted_below_its_flush_takes_nobody_with_it(
    broker: InProcessBroker, files: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("safe", flush_messages=1)
    broker.create_topic("others", flush_messages=1)
    flusher = broker.server.services.flushers.of(str(broker.directory))
    held = []
    with monkeypatch.context() as patched:
        patched.setattr(flusher._thread, "submit", lambda *job: held.append(job))
        first, second = broker.connect(), broker.connect()
        first.send(produce_request("others", produced([record()])), 12)
        second.send(produce_request("safe", produced([record()])), 12)
        broker.wait_until(lambda: len(held) == 1 and bool(flusher._waiting))
        safe = broker.server.components.replicas.partition("safe", 0)
        broker.server.components.replicas.drop("safe", 0)
        assert second.receive().responses[0].partition_responses[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
        broker.server.components.logs.delete(safe.topic_partition, "0" * 32)

    async def go_on() -> None:
        flusher._thread.submit(*held.pop())

    broker.run(go_on())

    assert first.receive().responses[0].partition_responses[0].error_code == E.NONE
    assert broker.server.failure is None
