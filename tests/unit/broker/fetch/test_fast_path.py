"""The fast path of Fetch answers from bytes what the slow path would answer."""

from collections.abc import Callable, Sequence
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.fetch.fast_path import MOST_MISSES, MOST_REMEMBERED, RepeatedFetch
from broker.request.response import ResponseSlot
from config.broker_settings import RACK_AWARE_SELECTOR
from dev.serving import every_version
from protocol.codec import Chunk
from protocol.errors import ErrorCode as E
from protocol.fetch_layout import FastFetchRequest, FetchAnswer, FetchLayout
from protocol.headers import encode_request
from protocol.messages.fetch import FetchRequest
from protocol.messages.topics import DeleteTopicsRequest
from storage.index.transaction_index import AbortedTransaction
from storage.log import Log
from tests.support.batches import T, end_marker, produced
from tests.support.broker import Client, ConnectionClosed, InProcessBroker
from tests.support.cluster import broker_record
from tests.support.leadership import OTHER, follower_fetches, replicate
from tests.support.metadata import pretend
from tests.support.requests import fetch_request, produce_request

Topic, Partition, Forgotten = FetchRequest.Topic, FetchRequest.Topic.Partition, FetchRequest.ForgottenTopic
VERSIONS = range(4, 19)


class FastPath:
    """How many requests the fast path has answered; and a switch for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken = 0
        self.is_open = True
        read, finish = FetchLayout.read, FetchAnswer.finish

        def reading(layout: FetchLayout, frame: memoryview, position: int) -> FastFetchRequest | None:
            return read(layout, frame, position) if self.is_open else None

        def finishing(answer: FetchAnswer, correlation_id: int) -> Sequence[Chunk]:
            self.taken += 1
            return finish(answer, correlation_id)

        monkeypatch.setattr(FetchLayout, "read", reading)
        monkeypatch.setattr(FetchAnswer, "finish", finishing)


@pytest.fixture
def fast_path(monkeypatch: pytest.MonkeyPatch) -> FastPath:
    return FastPath(monkeypatch)


@pytest.fixture
def topics(broker: InProcessBroker) -> dict[str, bytes]:
    """`orders` with three partitions of 5, 1 and 0 batches, `payments` with one of 2; their ids."""
    ids = {"orders": broker.create_topic("orders", partitions=3), "payments": broker.create_topic("payments")}
    for index, batches in ((0, 5), (1, 1)):
        for number in range(batches):
            broker.produce("orders", b"order %d" % number, partition=index)
    broker.produce("payments", b"p")
    broker.produce("payments", b"q")
    return ids


def payload(client: Client, frame: bytes) -> bytes | None:
    """What comes back for a frame, None if the connection is closed."""
    client.send_bytes(len(frame).to_bytes(4, "big") + frame)
    try:
        return client.receive_payload()
    except ConnectionClosed:
        return None


def both_ways(broker: InProcessBroker, fast_path: FastPath, frame: bytes) -> tuple[bytes | None, bytes | None]:
    """The answers to a request, from its bytes if that can be, and decoded."""
    answers = []
    for is_open in (True, False):
        fast_path.is_open = is_open
        client = broker.connect()
        answers.append(payload(client, frame))
        client.close()
    return answers[0], answers[1]


def several(topics: dict[str, bytes], **fields: object) -> FetchRequest:
    """A fetch of all partitions of both topics, from their beginnings."""
    request = fetch_request(**{"min_bytes": 1, **fields})  # type: ignore[arg-type]
    request.topics = [
        Topic(
            topic=name,
            topic_id=topics[name],
            partitions=[Partition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in indexes],
        )
        for name, indexes in (("orders", (2, 0, 1)), ("payments", (0,)))
    ]
    return request


@every_version(FetchRequest)
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_an_answer_from_bytes_is_the_one_of_the_codec(
    broker: InProcessBroker, topics: dict[str, bytes], fast_path: FastPath, version: int, isolation_level: int
) -> None:
    frame = encode_request(7, "test", several(topics, isolation_level=isolation_level), version)[4:]
    from_bytes, decoded = both_ways(broker, fast_path, frame)
    assert fast_path.taken == 1
    assert from_bytes == decoded
    assert from_bytes is not None
    assert b"order 4" in from_bytes


def test_what_it_counts_is_what_the_slow_path_counts(
    broker: InProcessBroker, topics: dict[str, bytes], fast_path: FastPath
) -> None:
    partition = broker.server.components.replicas.partition("orders", 0)
    errors = broker.server.registry.stats.errors["Fetch"] if broker.ask(several(topics), 12) else {}

    def counted() -> tuple[int, int, int]:
        return partition.stats.fetches, partition.stats.fetched_bytes, errors[E.NONE]

    counts = [counted()]
    for is_open in (True, False):
        fast_path.is_open = is_open
        broker.ask(several(topics), 12)
        counts.append(counted())
    first, from_bytes, decoded = counts
    assert fast_path.taken == 2
    assert [b - a for a, b in zip(first, from_bytes, strict=True)] == [
        b - a for a, b in zip(from_bytes, decoded, strict=True)
    ]


@every_version(FetchRequest)
def test_an_answer_says_how_long_its_client_is_throttled(
    broker: InProcessBroker, topics: dict[str, bytes], fast_path: FastPath, version: int
) -> None:
    for is_open in (True, False):
        fast_path.is_open = is_open
        client = broker.connect()
        for throttle_time_ms in (0, 125, 0):  # the second and the third request are repeated ones
            client.connection.session.throttle_time_ms = throttle_time_ms
            assert client.ask(several(topics), version).throttle_time_ms == throttle_time_ms
    assert fast_path.taken == 3


@pytest.mark.parametrize(
    "fields",
    [
        {"replica_id": 3},
        {"session_epoch": 0},
        {"session_id": 5, "session_epoch": -1},
        {"forgotten_topics_data": [Forgotten(topic="orders", partitions=[0])]},
        {"isolation_level": 2},
        {"cluster_id": "c"},
        {"offset": 99},
        {"partition": 9},
        {"partition_max_bytes": -1},
        {"max_bytes": -1},
        {"partition_fields": {"last_fetched_epoch": 0}},
        {"partition_fields": {"current_leader_epoch": 7}},
    ],
)
def test_what_it_cannot_read_is_for_the_slow_path(
    broker: InProcessBroker, topics: dict[str, bytes], fast_path: FastPath, fields: dict[str, object]
) -> None:
    frame = encode_request(7, "test", fetch_request(**fields), 12)[4:]  # type: ignore[arg-type]
    from_bytes, decoded = both_ways(broker, fast_path, frame)
    assert fast_path.taken == 0
    if "session_epoch" not in fields:  # whose answers have the ids of two sessions
        assert from_bytes == decoded


@pytest.mark.parametrize(("min_bytes", "taken"), [(1, 1), (2, 0)])
def test_nothing_to_get_is_waited_for(
    broker: InProcessBroker, topics: dict[str, bytes], fast_path: FastPath, min_bytes: int, taken: int
) -> None:
    client = broker.connect()
    client.send(fetch_request(offset=5, max_wait_ms=500, min_bytes=min_bytes), 12)
    assert client.has_no_answer()
    broker.produce("orders", b"late")
    assert b"late" in bytes(client.receive().responses[0].partitions[0].records)
    assert fast_path.taken == taken, "only the slow path adds up how much there is"


def test_nothing_to_get_and_no_time_to_wait_is_answered(
    broker: InProcessBroker, topics: dict[str, bytes], fast_path: FastPath
) -> None:
    frame = encode_request(7, "test", fetch_request(offset=5, max_wait_ms=0), 12)[4:]
    from_bytes, decoded = both_ways(broker, fast_path, frame)
    assert from_bytes == decoded
    assert fast_path.taken == 1


def test_aborted_transactions_are_answered_by_the_slow_path(
    broker: InProcessBroker, topics: dict[str, bytes], fast_path: FastPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    aborted = AbortedTransaction(producer_id=7, first_offset=1, last_offset=3, last_stable_offset=4)
    monkeypatch.setattr(Log, "aborted_transactions", lambda *_: [aborted])
    for isolation_level, expected in ((1, [7]), (0, None)):
        answer = broker.ask(fetch_request(isolation_level=isolation_level), 12).responses[0].partitions[0]
        transactions = answer.aborted_transactions
        assert (transactions and [one.producer_id for one in transactions]) == expected
    assert fast_path.taken == 1, "a consumer with READ_UNCOMMITTED is not given them"


def test_the_limit_of_the_whole_request_holds(
    broker: InProcessBroker, topics: dict[str, bytes], fast_path: FastPath
) -> None:
    for max_bytes in (1, 80, 200, 300):
        frame = encode_request(7, "test", several(topics, max_bytes=max_bytes), 12)[4:]
        from_bytes, decoded = both_ways(broker, fast_path, frame)
        assert from_bytes == decoded
    assert fast_path.taken == 4


def test_a_topic_may_come_twice_with_others_between(
    broker: InProcessBroker, topics: dict[str, bytes], fast_path: FastPath
) -> None:
    request = several(topics)
    request.topics.append(Topic(topic="orders", topic_id=topics["orders"], partitions=[]))
    request.topics[2].partitions.append(request.topics[0].partitions.pop())
    for order, taken in (((0, 1, 2), 1), ((0, 2, 1), 1)):  # of neighbours the codec makes one
        request.topics = [request.topics[place] for place in order]
        from_bytes, decoded = both_ways(broker, fast_path, encode_request(7, "test", request, 12)[4:])
        assert from_bytes == decoded
        assert fast_path.taken == taken


def test_a_partition_named_twice_is_answered_once(
    broker: InProcessBroker, topics: dict[str, bytes], fast_path: FastPath
) -> None:
    request = several(topics)
    request.topics[0].partitions.append(request.topics[0].partitions[0])
    twice = several(topics)
    twice.topics.append(twice.topics[1])
    between = several(topics)
    between.topics.append(between.topics[0])
    for odd in (request, twice, between):
        from_bytes, decoded = both_ways(broker, fast_path, encode_request(7, "test", odd, 12)[4:])
        assert from_bytes == decoded
    assert fast_path.taken == 0


def test_a_deleted_topic_is_not_read(broker: InProcessBroker, topics: dict[str, bytes], fast_path: FastPath) -> None:
    client = broker.connect()
    assert client.ask(fetch_request(), 12).responses[0].partitions[0].error_code == E.NONE
    broker.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), 5)
    answer = client.ask(fetch_request(), 12)
    assert answer.responses[0].partitions[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert fast_path.taken == 1


def test_a_node_that_no_longer_leads_answers_so(
    broker: InProcessBroker, topics: dict[str, bytes], fast_path: FastPath
) -> None:
    broker.server.components.replicas.partition("orders", 0).leader = 2
    answer = broker.ask(fetch_request(), 10).responses[0].partitions[0]
    assert answer.error_code == E.NOT_LEADER_OR_FOLLOWER
    assert fast_path.taken == 0


@pytest.mark.settings(replica_selector_class=RACK_AWARE_SELECTOR)
def test_a_consumer_with_a_rack_takes_the_slow_path_only_to_be_sent_to_another_broker(
    broker: InProcessBroker, topics: dict[str, bytes], fast_path: FastPath
) -> None:
    def preferred(rack: str, client: Client) -> int:
        replica: int = client.ask(fetch_request(rack_id=rack), 12).responses[0].partitions[0].preferred_read_replica
        return replica

    clients = {rack: broker.connect() for rack in ("", "b", "c")}
    assert {rack: preferred(rack, client) for rack, client in clients.items()} == {"": -1, "b": -1, "c": -1}
    assert fast_path.taken == 3, "there are no followers"

    follower_fetches(broker, replicate(broker, "orders"))
    pretend(broker.server.metadata, broker_record(OTHER, rack="b"))
    for _ in range(3):
        assert {rack: preferred(rack, client) for rack, client in clients.items()} == {"": -1, "b": OTHER, "c": -1}
    assert fast_path.taken == 9


class Transactions:
    """Random batches of four producers in ``orders-2``, most of them in transactions that are committed or aborted."""

    def __init__(self, broker: InProcessBroker, seed: int) -> None:
        self.random = Random(seed)
        self.log: Log = broker.log("orders", 2)
        self.sequences: dict[int, int] = {}
        for _ in range(40):
            self._step(self.random.randrange(4))
        self.log.append_all(T)
        self.log.advance_high_watermark(self.log.log_end_offset)

    def _step(self, producer_id: int) -> None:
        is_open = self.log.producers.has_open_transaction(producer_id, 0)
        if is_open and self.random.random() < 0.5:
            self.log.stage_trusted(
                bytearray(end_marker(commit=self.random.random() < 0.4, producer_id=producer_id, producer_epoch=0))
            )
        elif not is_open and self.random.random() < 0.2:
            self.log.stage_trusted(bytearray(produced(1)))
        else:
            sequence = self.sequences.get(producer_id, 0)
            count = self.random.randint(1, 3)
            fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
            self.log.stage_trusted(bytearray(produced(count, **fields, is_transactional=True)))
            self.sequences[producer_id] = sequence + count
        if self.random.random() < 0.2:
            self.log.append_all(T)
            self.log.roll(T)


@pytest.mark.parametrize(("version", "seed"), [(4, 0), (12, 1), (18, 2)])
def test_whatever_transactions_there_are_both_ways_give_the_same(
    broker: InProcessBroker, topics: dict[str, bytes], fast_path: FastPath, version: int, seed: int
) -> None:
    """From every offset, for both kinds of readers; on new connections, and on one where requests are repetitions."""
    log = Transactions(broker, seed).log
    assert log.last_stable_offset < log.high_watermark, "a transaction is open"
    assert log.aborted_transactions(0, log.read(0, max_bytes=1 << 20, upper_bound_offset=99, at_least_one_batch=True))
    answered = {0: 0, 1: 0}
    for isolation_level in answered:
        client = broker.connect()
        for offset in range(log.log_end_offset + 2):
            request = several(topics, isolation_level=isolation_level, max_wait_ms=0)
            orders = request.topics[0]
            assert orders.partitions[0].partition == 2
            orders.partitions[0].fetch_offset = offset
            orders.partitions[0].partition_max_bytes = 150 * (1 + offset % 4)
            frame = encode_request(7, "test", request, version)[4:]
            from_bytes, decoded = both_ways(broker, fast_path, frame)
            fast_path.is_open = True
            before = fast_path.taken
            repeated = payload(client, frame)
            answered[isolation_level] += fast_path.taken - before
            assert from_bytes == decoded
            assert repeated == decoded
        client.close()
    assert answered[1] < answered[0], "only readers of committed records are told of aborted transactions"
    assert answered[1], "and not in every answer"


def body_at(version: int) -> int:
    """Where the body of a request of the client `test` begins."""
    return 14 + (version >= 12)


def waits_and_sessions(version: int) -> set[int]:
    """Bytes of a request that are left as they are: nobody moves the clock for one that waits, and sessions have ids of
    their own."""
    wait = body_at(version) + (4 if version < 15 else 0)
    session = wait + 13
    return {*range(wait, wait + 4), *(range(session, session + 8) if version >= 7 else ())}


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 3),
    tail=st.binary(max_size=3),
    version=st.sampled_from(VERSIONS),
    isolation_level=st.sampled_from([0, 1]),
)
def test_whatever_is_changed_in_a_request_is_answered_as_by_the_slow_path(
    broker: InProcessBroker,
    topics: dict[str, bytes],
    fast_path: FastPath,
    changes: list[tuple[int, int]],
    cut: int,
    tail: bytes,
    version: int,
    isolation_level: int,
) -> None:
    request = several(topics, isolation_level=isolation_level)
    frame = bytearray(encode_request(7, "test", request, version)[4:])
    body = body_at(version)
    kept = waits_and_sessions(version)
    for position, byte in changes:
        at = body + position % (len(frame) - body)
        if at not in kept:
            frame[at] = byte
    sent = bytes(frame[: len(frame) - cut] + tail)
    from_bytes, decoded = both_ways(broker, fast_path, sent)
    assert from_bytes == decoded


# The same again, from other offsets


@pytest.fixture
def recognised(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each request that came behind one that is remembered: whether it was answered as its repetition."""
    outcomes: list[bool] = []
    take = RepeatedFetch.take

    def remembering(repeated: RepeatedFetch, slot: ResponseSlot) -> bool:
        outcomes.append(take(repeated, slot))
        return outcomes[-1]

    monkeypatch.setattr(RepeatedFetch, "take", remembering)
    return outcomes


@every_version(FetchRequest)
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_a_repeated_request_is_answered_from_its_own_offsets(
    broker: InProcessBroker,
    topics: dict[str, bytes],
    fast_path: FastPath,
    recognised: list[bool],
    version: int,
    isolation_level: int,
) -> None:
    client = broker.connect()
    request = several(topics, isolation_level=isolation_level)
    for number, offsets in enumerate([(0, 0, 0, 0), (0, 3, 1, 1), (0, 5, 0, 2), (0, 4, 1, 0)]):
        for asked, offset in zip((one for topic in request.topics for one in topic.partitions), offsets, strict=True):
            asked.fetch_offset = offset
        frame = encode_request(1000 + number, "test", request, version)[4:]
        repeated = payload(client, frame)
        _, decoded = both_ways(broker, fast_path, frame)
        fast_path.is_open = True
        assert repeated == decoded
    assert recognised == [True, True, True]


def test_a_repeated_request_waits_where_it_has_to(
    broker: InProcessBroker, topics: dict[str, bytes], fast_path: FastPath, recognised: list[bool]
) -> None:
    client = broker.connect()
    client.ask(fetch_request(max_wait_ms=500), 12)
    client.send(fetch_request(offset=5, max_wait_ms=500), 12)
    assert client.has_no_answer()
    broker.produce("orders", b"late")
    assert b"late" in bytes(client.receive().responses[0].partitions[0].records)
    client.ask(fetch_request(offset=5, max_wait_ms=500), 12)
    assert recognised == [True, True]
    assert fast_path.taken == 3


def test_a_repeated_request_finds_the_topic_that_is_there_now(
    broker: InProcessBroker, topics: dict[str, bytes], recognised: list[bool]
) -> None:
    client = broker.connect()
    client.ask(fetch_request(), 12)
    broker.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), 5)
    assert client.ask(fetch_request(), 12).responses[0].partitions[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    broker.create_topic("orders")
    broker.produce("orders", b"anew")
    assert b"anew" in bytes(client.ask(fetch_request(), 12).responses[0].partitions[0].records)
    assert recognised == [False, True]


def test_a_request_of_many_partitions_is_not_remembered_as_a_whole(
    broker: InProcessBroker, recognised: list[bool]
) -> None:
    broker.create_topic("many", partitions=MOST_REMEMBERED + 1)
    broker.produce("many", b"one")
    client = broker.connect()
    for count in (MOST_REMEMBERED + 1, MOST_REMEMBERED, MOST_REMEMBERED):
        request = fetch_request("many")
        request.topics[0].partitions = [
            Partition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in range(count)
        ]
        client.ask(request, 12)
    assert recognised == [False, True]


def test_a_consumer_that_asks_otherwise_each_time_is_not_remembered_for_ever(
    broker: InProcessBroker, topics: dict[str, bytes], recognised: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    learned: list[int] = []
    monkeypatch.setattr(RepeatedFetch, "learn", _noting(RepeatedFetch.learn, learned))
    client = broker.connect()
    for number in range(MOST_MISSES + 5):
        client.ask(fetch_request(partition_max_bytes=1000 + number), 12)
    assert not any(recognised)
    assert len(learned) == 1 + MOST_MISSES
    # The last one that was remembered is recognised still, and then others are, too.
    client.ask(fetch_request(partition_max_bytes=1000 + MOST_MISSES), 12)
    assert recognised[-1]
    client.ask(fetch_request(partition_max_bytes=1), 12)
    assert len(learned) == 2 + MOST_MISSES


def _noting(learn: Callable[..., None], learned: list[int]) -> Callable[..., None]:
    def noting(*arguments: object) -> None:
        learned.append(1)
        learn(*arguments)

    return noting


def test_a_producers_requests_stay_remembered_where_it_fetches_too(
    broker: InProcessBroker, topics: dict[str, bytes], recognised: list[bool]
) -> None:
    client = broker.connect()
    stream = client.connection.stream
    client.ask(produce_request("orders", produced(1), topic_id=topics["orders"]), 12)
    known = stream.repeats
    assert known is not None
    client.ask(fetch_request(), 12)
    client.ask(fetch_request(), 12)
    assert stream.repeats is known
    assert not recognised


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 2),
    tail=st.binary(max_size=2),
    version=st.sampled_from(VERSIONS),
)
def test_whatever_is_changed_in_a_repetition_is_answered_as_on_a_new_connection(
    broker: InProcessBroker,
    topics: dict[str, bytes],
    changes: list[tuple[int, int]],
    cut: int,
    tail: bytes,
    version: int,
) -> None:
    first = encode_request(7, "test", several(topics), version)[4:]
    frame = bytearray(first)
    kept = {*range(8), *waits_and_sessions(version)}
    for position, byte in changes:
        at = position % len(frame)
        if at not in kept:
            frame[at] = byte
    sent = bytes(frame[: len(frame) - cut] + tail)
    repeating, fresh = broker.connect(), broker.connect()
    assert payload(repeating, first) is not None
    assert payload(repeating, sent) == payload(fresh, sent)
    repeating.close()
    fresh.close()
