"""Repeated produce requests are recognised by their bytes, and answered as if they had been read."""

from typing import Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from broker.handlers.produce_repeats import MOST_REMEMBERED, RepeatedProduce, Repeats
from broker.replication.in_sync_replicas import FollowerFetch
from broker.replication.partition import LeaderAndIsr, Partition
from broker.runtime.worker_thread import Flusher
from dev.serving import every_version
from protocol.errors import ErrorCode as E
from protocol.headers import encode_request
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.topics import DeleteTopicsRequest
from protocol.messages.transactions import DescribeTransactionsRequest
from storage.batch.record_batch import Codec
from storage.errors import DiskFull
from storage.files import File
from tests.support.batches import changed, produced, record
from tests.support.broker import Client, ConnectionClosed, InProcessBroker
from tests.support.requests import produce_request
from tests.unit.broker.handlers.transactional_client import TransactionalClient, with_coordinators


@pytest.fixture
def orders(broker: InProcessBroker) -> bytes:
    """A topic with two partitions."""
    return broker.create_topic("orders", partitions=2)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each request so far was taken for a repeated one."""
    outcomes: list[bool] = []
    take = Repeats.take

    def remembering(repeats: Repeats, slot: object) -> bool:
        outcomes.append(take(repeats, slot))  # type: ignore[arg-type]
        return outcomes[-1]

    monkeypatch.setattr(Repeats, "take", remembering)
    return outcomes


@every_version(ProduceRequest)
def test_the_second_request_is_recognised_and_answered_like_the_first(
    broker: InProcessBroker, orders: bytes, taken: list[bool], version: int
) -> None:
    client = broker.connect()
    answers = [client.ask(produce_request("orders", produced(2), topic_id=orders), version) for _ in range(3)]

    assert taken == [True, True]
    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
    assert offsets == [0, 2, 4]
    for answer in answers:
        answer.responses[0].partition_responses[0].base_offset = 0
    assert answers[0] == answers[1] == answers[2]


@every_version(ProduceRequest)
def test_the_answer_to_a_repeated_request_says_how_long_its_client_is_throttled(
    broker: InProcessBroker, orders: bytes, taken: list[bool], version: int
) -> None:
    client = broker.connect()
    for throttle_time_ms in (125, 0, 125, 0):
        client.connection.session.throttle_time_ms = throttle_time_ms
        answer = client.ask(produce_request("orders", produced(2), topic_id=orders), version)
        assert answer.throttle_time_ms == throttle_time_ms
    assert taken == [True] * 3


def test_partitions_are_told_apart(broker: InProcessBroker, orders: bytes, taken: list[bool]) -> None:
    client = broker.connect()
    for _ in range(2):
        for partition in (0, 1):
            answer = client.ask(produce_request("orders", produced(1), partition=partition), 9)
            assert answer.responses[0].partition_responses[0].index == partition
    assert taken == [False, True, True]
    assert [broker.log("orders", partition).log_end_offset for partition in (0, 1)] == [2, 2]


def test_what_differs_in_anything_is_read(broker: InProcessBroker, orders: bytes, taken: list[bool]) -> None:
    client = broker.connect()
    client.ask(produce_request("orders", produced(1)), 9)
    client.ask(produce_request("orders", produced(1), acks=1), 9)
    client.ask(produce_request("orders", produced(1)), 9, client_id="another")
    client.ask(produce_request("orders", produced(1)), 8)
    assert taken == [False, False, False]
    assert broker.log("orders").log_end_offset == 4


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (changed(produced(1), crc=1), E.CORRUPT_MESSAGE),
        (produced(1)[:40], E.INVALID_RECORD),
        (changed(produced(2), record_count=1), E.INVALID_RECORD),
        (produced(1, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True), 53),
        (produced(1, producer_id=7, producer_epoch=0, base_sequence=9), E.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
def test_a_batch_that_is_refused_is_refused_in_the_same_words(
    broker: InProcessBroker, orders: bytes, batch: memoryview, code: int
) -> None:
    broker.connect().ask(produce_request("orders", produced(1, producer_id=7, producer_epoch=0, base_sequence=0)), 9)
    repeating = broker.connect()
    repeating.ask(produce_request("orders", produced(1)), 9)

    refused = repeating.ask(produce_request("orders", bytearray(batch)), 9)

    assert refused.responses[0].partition_responses[0].error_code == code
    assert refused == broker.connect().ask(produce_request("orders", bytearray(batch)), 9)


def test_a_codec_that_the_version_does_not_know_is_refused(broker: InProcessBroker, orders: bytes) -> None:
    client = broker.connect()
    client.ask(produce_request("orders", produced(1)), 6)
    refused = client.ask(produce_request("orders", produced(1, codec=Codec.ZSTD)), 6)
    assert refused.responses[0].partition_responses[0].error_code == E.UNSUPPORTED_COMPRESSION_TYPE


def test_a_deleted_topic_is_not_written_to(broker: InProcessBroker, orders: bytes) -> None:
    client = broker.connect()
    client.ask(produce_request("orders", produced(1)), 9)
    broker.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), 5)
    unknown = client.ask(produce_request("orders", produced(1)), 9)
    assert unknown.responses[0].partition_responses[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION

    broker.create_topic("orders")
    for _ in range(2):
        answer = client.ask(produce_request("orders", produced(1)), 9).responses[0].partition_responses[0]
        assert answer.error_code == E.NONE
    assert broker.log("orders").log_end_offset == 2, "the new topic of that name got them"


def test_who_does_not_lead_any_more_says_so(broker: InProcessBroker, orders: bytes) -> None:
    client = broker.connect()
    client.ask(produce_request("orders", produced(1)), 9)
    broker.server.components.replicas.partition("orders", 0).leader = 2
    refused = client.ask(produce_request("orders", produced(1)), 9)
    assert refused.responses[0].partition_responses[0].error_code == E.NOT_LEADER_OR_FOLLOWER


def test_a_write_that_fails_is_told(
    broker: InProcessBroker, orders: bytes, taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(file: File, buffers: object, position: int) -> int:
        raise DiskFull(f"no space left to write {file.path}")

    client = broker.connect()
    client.ask(produce_request("orders", produced(1)), 9)
    with monkeypatch.context() as full_disk:
        full_disk.setattr(File, "append_vector", no_space)
        failed = client.ask(produce_request("orders", produced(1)), 9)
    assert taken == [True]
    assert failed.responses[0].partition_responses[0].error_code == E.KAFKA_STORAGE_ERROR
    assert client.ask(produce_request("orders", produced(1)), 9).responses[0].partition_responses[0].base_offset == 1


@pytest.mark.settings(log_flush_interval_messages=1)
def test_an_acknowledgement_that_has_to_wait_waits(
    broker: InProcessBroker, orders: bytes, taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = broker.connect()
    client.ask(produce_request("orders", produced(1)), 9)
    monkeypatch.setattr(Flusher, "flush", lambda *_: None)
    client.send(produce_request("orders", produced(1)), 9)
    assert client.has_no_answer()
    assert taken == [True]
    broker.advance(30_000)
    assert client.receive().responses[0].partition_responses[0].error_code == E.REQUEST_TIMED_OUT


@every_version(ProduceRequest)
def test_a_repeated_request_that_has_waited_for_a_follower_is_answered_like_the_first(
    broker: InProcessBroker, orders: bytes, taken: list[bool], version: int
) -> None:
    partition = with_a_follower(broker)
    client = broker.connect()
    answers = []
    for end_offset in (2, 4, 6):
        client.send(produce_request("orders", produced(2), topic_id=orders), version)
        assert client.has_no_answer()
        follower_has(broker, partition, end_offset)
        answers.append(client.receive())

    assert taken == [True, True]
    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
    assert offsets == [0, 2, 4]
    for answer in answers:
        answer.responses[0].partition_responses[0].base_offset = 0
    assert answers[0] == answers[1] == answers[2]


def test_of_several_repeated_requests_those_are_answered_that_the_follower_has(
    broker: InProcessBroker, orders: bytes, taken: list[bool]
) -> None:
    partition = with_a_follower(broker)
    client = broker.connect()
    for _ in range(3):
        client.send(produce_request("orders", produced(1), topic_id=orders), 9)
    assert client.has_no_answer()

    follower_has(broker, partition, 2)
    assert [client.receive().responses[0].partition_responses[0].base_offset for _ in range(2)] == [0, 1]
    assert client.has_no_answer()
    follower_has(broker, partition, 3)
    assert client.receive().responses[0].partition_responses[0].base_offset == 2
    assert taken == [True, True]


@pytest.mark.settings(min_insync_replicas=2)
def test_a_repeated_request_is_told_that_too_few_replicas_were_in_sync_in_the_end(
    broker: InProcessBroker, orders: bytes, taken: list[bool]
) -> None:
    partition = with_a_follower(broker)
    client = broker.connect()
    client.send(produce_request("orders", produced(1), topic_id=orders), 9)
    follower_has(broker, partition, 1)
    assert client.receive().responses[0].partition_responses[0].error_code == E.NONE
    client.send(produce_request("orders", produced(1), topic_id=orders), 9)
    assert client.has_no_answer()

    async def shrink_when_acknowledged() -> None:
        partition.log.advance_high_watermark(2)
        partition.in_sync_replicas = frozenset({1})
        broker.server.components.replicas.watermark_moved(partition)

    broker.run(shrink_when_acknowledged())
    answer = client.receive().responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 1)
    assert taken == [True]


def with_a_follower(broker: InProcessBroker) -> Partition:
    """Partition 0 of `orders` with broker 2 as a follower in sync that has no records yet."""
    replicas = broker.server.components.replicas
    partition = replicas.partition("orders", 0)

    async def apply() -> None:
        replicas.apply(partition, LeaderAndIsr(1, 1, (1, 2), frozenset({1, 2}), partition_epoch=1))

    broker.run(apply())
    return partition


def follower_has(broker: InProcessBroker, partition: Partition, end_offset: int) -> None:
    """The follower fetches at this offset."""

    async def fetched() -> None:
        assert partition.followers is not None
        fetch = FollowerFetch(end_offset, 0, broker_epoch=1)
        partition.followers.fetched(2, fetch, leaders_end_offset=partition.log.log_end_offset, now_ms=0)
        assert partition.advance_high_watermark()
        broker.server.components.replicas.watermark_moved(partition)

    broker.run(fetched())


@pytest.mark.parametrize("size", range(1, 12))
def test_a_request_too_short_for_anything_closes_its_connection_only(
    broker: InProcessBroker, orders: bytes, size: int
) -> None:
    client = broker.connect()
    client.ask(produce_request("orders", produced(1)), 9)
    client.send_bytes(size.to_bytes(4, "big") + bytes(size))
    assert client.is_closed()
    assert broker.produce("orders", b"others go on") == 1


def test_a_bug_on_the_short_way_closes_its_connection_only(
    broker: InProcessBroker, orders: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = broker.connect()
    client.ask(produce_request("orders", produced(1)), 9)

    def broken(*_: object) -> bool:
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as bug:
        bug.setattr(Repeats, "take", broken)
        client.send(produce_request("orders", produced(1)), 9)
        assert client.is_closed()
    assert broker.produce("orders", b"others go on") == 1


def test_only_so_many_partitions_are_remembered(broker: InProcessBroker) -> None:
    topic_id = broker.create_topic("orders")
    client = broker.connect()
    client.ask(produce_request("orders", produced(1), topic_id=topic_id), 9)
    repeats = client.connection.stream.repeats
    assert isinstance(repeats, Repeats)
    (repeated,) = repeats._known.values()
    assert isinstance(repeated, RepeatedProduce)
    for number in range(MOST_REMEMBERED * 2):
        repeats.add(b"%d" % number, repeated)
    assert len(repeats._known) <= MOST_REMEMBERED


BEHIND: Final = 99
"""The correlation id of a request that is sent behind another."""


def answer_bytes(client: Client, frame: bytes) -> bytes | None:
    """What comes back for a frame: None if the connection is closed, nothing if no answer is due (acks=0)."""
    behind = encode_request(BEHIND, "test", ApiVersionsRequest(), 0)
    client.send_bytes(len(frame).to_bytes(4, "big") + frame + behind)
    try:
        first = client.receive_payload()
        if first.startswith(BEHIND.to_bytes(4, "big")):
            return b""
        client.receive_payload()
        return first
    except ConnectionClosed:
        return None


@pytest.fixture
def shop(broker: InProcessBroker, orders: bytes) -> TransactionalClient:
    """A producer that has a transaction open in ``orders-0`` with one batch."""
    with_coordinators(broker)
    client = TransactionalClient(broker).begun()
    assert client.produce(12).error_code == E.NONE
    return client


def test_the_next_batches_of_an_open_transaction_are_recognised(shop: TransactionalClient, taken: list[bool]) -> None:
    assert [shop.produce(12).base_offset for _ in range(3)] == [1, 2, 3]
    assert taken == [True, True, True]


def test_the_first_batch_of_the_next_transaction_is_verified(
    broker: InProcessBroker, shop: TransactionalClient, taken: list[bool]
) -> None:
    for _ in range(2):
        shop.produce(12)
    assert shop.end(5, commit=True) is E.NONE
    broker.wait_until(lambda: broker.log("orders").last_stable_offset == 4)
    del taken[:]
    assert shop.produce(12).error_code == E.NONE
    assert shop.produce(12).error_code == E.NONE
    assert taken == [False, True]
    (described,) = broker.ask(DescribeTransactionsRequest(transactional_ids=["shop"]), 0).transaction_states
    assert described.transaction_state == "Ongoing", "the partition was added again"


def test_a_batch_of_a_fenced_producer_is_read_and_refused(
    broker: InProcessBroker, shop: TransactionalClient, taken: list[bool]
) -> None:
    for _ in range(2):
        shop.produce(12)
    next_one = TransactionalClient(broker)
    assert next_one.begin() is E.CONCURRENT_TRANSACTIONS, "the open transaction is aborted first"
    broker.wait_until(lambda: broker.log("orders").last_stable_offset == 4)
    assert shop.produce(12).error_code == E.INVALID_PRODUCER_EPOCH
    assert taken[-1] is False
    assert broker.log("orders").log_end_offset == 4


def test_a_batch_outside_the_open_transaction_is_refused_in_the_same_words(
    broker: InProcessBroker, shop: TransactionalClient, taken: list[bool]
) -> None:
    client = broker.connect()
    client.ask(produce_request("orders", produced(1)), 11)
    outside = produced(1, producer_id=shop.producer_id, producer_epoch=shop.producer_epoch, base_sequence=1)
    repeated = client.ask(produce_request("orders", outside), 11)
    assert taken[-1] is False
    assert repeated.responses == broker.connect().ask(produce_request("orders", outside), 11).responses
    assert repeated.responses[0].partition_responses[0].error_code == E.INVALID_TXN_STATE


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    position=st.integers(0, 10_000),
    byte=st.integers(0, 255),
    cut=st.integers(0, 3),
    tail=st.binary(max_size=3),
    version=st.sampled_from([3, 7, 9, 12]),
)
@example(position=1, byte=28, cut=0, tail=b"", version=7)  # the client id swallows what stands before: acks=0
def test_whatever_is_changed_in_a_request_is_answered_as_on_a_new_connection(
    broker: InProcessBroker, position: int, byte: int, cut: int, tail: bytes, version: int
) -> None:
    if "orders" not in broker.topics():
        broker.create_topic("orders")
    first = encode_request(7, "test", produce_request("orders", produced([record(b"v")])), version)[4:]
    frame = bytearray(first)
    frame[8 + position % (len(frame) - 8)] = byte  # the correlation id, key and version stay
    sent = bytes(frame[: len(frame) - cut] + tail)

    repeating, fresh = broker.connect(), broker.connect()
    assert answer_bytes(repeating, first) is not None

    def end() -> int:
        return int(broker.log("orders").log_end_offset)

    before = end()
    repeated_answer = answer_bytes(repeating, sent)
    between = end()
    fresh_answer = answer_bytes(fresh, sent)
    after = end()

    assert between - before == after - between
    if between == before:
        assert repeated_answer == fresh_answer
    else:
        assert repeated_answer is not None
        assert fresh_answer is not None
        expected = fresh_answer.replace(between.to_bytes(8, "big"), before.to_bytes(8, "big"))
        assert repeated_answer == expected
    repeating.close()
    fresh.close()
