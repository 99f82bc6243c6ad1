"""Partitions with nothing for a consumer are answered as before, without being read, until they change; a request waits
for all of them together."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.dispatch.dispatcher import Dispatcher
from broker.fetch import unchanged_fetch
from broker.fetch.fast_path import MOST_REMEMBERED, RepeatedFetch
from broker.fetch.fast_read import Find, read_partitions
from broker.fetch.unchanged_partitions import MOST_FOR_EACH_NAMED
from broker.network.departed import Departed
from broker.replication.partition import LeaderAndIsr
from broker.request.response import ResponseSlot
from protocol.errors import ErrorCode as E
from protocol.fetch_layout import Entry, FetchLayout
from protocol.headers import encode_request
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.topics import DeleteTopicsRequest
from tests.support.batches import produced, record
from tests.support.broker import Client, InProcessBroker
from tests.support.requests import produce_request

COUNT = 3 * MOST_REMEMBERED
Topic, Asked = FetchRequest.Topic, FetchRequest.Topic.Partition
OLD, NEW = 12, 16
"""Versions with names, and with ids."""
LEADERS_ONLY = 10
"""The last version that followers do not answer."""


@pytest.fixture
def ids(broker: InProcessBroker) -> dict[str, bytes]:
    """Two topics, `many` with more partitions than are remembered as a whole, `few` with two."""
    return {"many": broker.create_topic("many", partitions=COUNT), "few": broker.create_topic("few", partitions=2)}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The partitions that the fast path has read."""
    found: list[tuple[str, int]] = []

    def noting(find: Find, topic: str, entries: Sequence[Entry], *rest: Any) -> int:
        found.extend((topic, entry[0]) for entry in entries)
        return read_partitions(find, topic, entries, *rest)

    monkeypatch.setattr(unchanged_fetch, "read_partitions", noting)
    return found


class Consumer:
    """Asks for all partitions of both topics in each request, beginning with another one, as librdkafka does."""

    def __init__(self, broker: InProcessBroker, ids: dict[str, bytes], *, begins_at: int = 0) -> None:
        self.client = broker.connect()
        self.offsets = {(name, index): 0 for name, count in (("many", COUNT), ("few", 2)) for index in range(count)}
        self._ids = ids
        self._begin = begins_at

    def request(self, **fields: object) -> FetchRequest:
        """The next one."""
        order = [*self.offsets]
        order = order[self._begin :] + order[: self._begin]
        self._begin = (self._begin + 1) % len(order)
        request = FetchRequest(**{"max_wait_ms": 0, "min_bytes": 1, "topics": [], **fields})  # type: ignore[arg-type]
        for name, index in order:
            if not request.topics or request.topics[-1].topic != name:
                request.topics.append(Topic(topic=name, topic_id=self._ids[name], partitions=[]))
            asked = Asked(partition=index, fetch_offset=self.offsets[name, index], partition_max_bytes=1000)
            request.topics[-1].partitions.append(asked)
        return request

    def ask(self, version: int = NEW, **fields: object) -> FetchResponse:
        """Its answer."""
        self.client.send(self.request(**fields), version)
        return self.receive()

    def receive(self) -> FetchResponse:
        """An answer; goes on behind what it brings."""
        answer: FetchResponse = self.client.receive()
        names = {topic_id: name for name, topic_id in self._ids.items()}
        for topic in answer.responses:
            for one in topic.partitions:
                if one.records:
                    self.offsets[topic.topic or names[topic.topic_id], one.partition_index] = one.high_watermark
        return answer


def asked(client: Client, request: FetchRequest, version: int) -> bytes:
    """An answer as it comes, behind its correlation id."""
    client.send_bytes(encode_request(7, "test", request, version))
    return client.receive_payload()[4:]


def by_slow_path(broker: InProcessBroker, request: FetchRequest, version: int) -> bytes:
    """What the slow path answers."""
    client = broker.connect()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FetchLayout, "read", lambda *_: None)
        answer = asked(client, request, version)
    client.close()
    return answer


def watchers(broker: InProcessBroker) -> int:
    return sum(len(one.watchers or ()) for one in broker.server.components.replicas.partitions())


def memory_of(client: Client) -> RepeatedFetch:
    repeats = client.connection.stream.repeats
    assert isinstance(repeats, RepeatedFetch)
    return repeats


def records(answer: FetchResponse) -> list[tuple[int, int]]:
    """Index and high watermark of what has records."""
    with_records = [one for topic in answer.responses for one in topic.partitions if one.records]
    return [(one.partition_index, one.high_watermark) for one in with_records]


def test_a_waiting_request_is_not_tried_again_for_changes_that_bring_nothing(
    broker: InProcessBroker, ids: dict[str, bytes], reads: list[tuple[str, int]]
) -> None:
    consumer = Consumer(broker, ids)
    consumer.ask()
    consumer.client.send(consumer.request(max_wait_ms=60_000), NEW)
    assert consumer.client.has_no_answer()
    reads.clear()

    async def change_all() -> None:
        for partition in list(broker.server.components.replicas.partitions()):
            broker.server.components.replicas.changed(partition)

    broker.run(change_all())
    assert reads == []
    assert consumer.client.has_no_answer()
    broker.produce("many", b"new", partition=7)
    assert records(consumer.receive()) == [(7, 1)]
    assert sorted(reads) == sorted(consumer.offsets), "what has changed has other offsets, perhaps"


@pytest.mark.parametrize("version", [OLD, NEW])
def test_only_what_has_changed_is_read(
    broker: InProcessBroker, ids: dict[str, bytes], reads: list[tuple[str, int]], version: int
) -> None:
    consumer = Consumer(broker, ids)
    consumer.ask(version)
    assert len(reads) == COUNT + 2
    reads.clear()
    consumer.ask(version)
    assert reads == []

    broker.produce("many", b"new", partition=7)
    assert records(consumer.ask(version)) == [(7, 1)]
    assert reads == [("many", 7)]
    reads.clear()
    assert records(consumer.ask(version)) == []
    assert reads == [("many", 7)], "from its new offset it has not been asked yet"
    reads.clear()
    consumer.ask(version)
    assert reads == []


def test_an_answer_of_unchanged_partitions_says_how_long_its_client_is_throttled(
    broker: InProcessBroker, ids: dict[str, bytes]
) -> None:
    consumer = Consumer(broker, ids)
    for throttle_time_ms in (0, 125, 0):
        consumer.client.connection.session.throttle_time_ms = throttle_time_ms
        assert consumer.ask().throttle_time_ms == throttle_time_ms


class Events:
    """Things that change what a fetch says."""

    def __init__(self, broker: InProcessBroker, ids: dict[str, bytes]) -> None:
        self._broker = broker
        self._ids = ids

    def produce(self, name: str, index: int) -> None:
        if self._broker.server.components.replicas.partition(name, index).is_leader:
            self._broker.produce(name, b"value", partition=index)

    def delete_records(self, name: str, index: int) -> None:
        asked = DeleteRecordsRequest.Topic.Partition(partition_index=index, offset=-1)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsRequest.Topic(name=name, partitions=[asked])], timeout_ms=1000
        )
        self._broker.ask(request, 2)

    def recreate(self, name: str, index: int) -> None:
        self._broker.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 5)
        self._ids[name] = self._broker.create_topic(name, partitions=COUNT if name == "many" else 2)

    def lead(self, name: str, index: int) -> None:
        partition = self._broker.server.components.replicas.partition(name, index)
        leader = -1 if partition.is_leader else partition.node_id
        state = LeaderAndIsr(leader, partition.leader_epoch + 1, partition.replicas, partition.in_sync_replicas)
        self._broker.server.components.replicas.apply(partition, state)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(
                ["produce", "produce", "produce", "delete_records", "lead", "recreate", "rewind", "nothing"]
            ),
            st.sampled_from([("many", 0), ("many", 1), ("many", COUNT - 1), ("few", 0), ("few", 1)]),
            st.sampled_from([OLD, OLD, OLD, NEW]),
            st.sampled_from([0, 0, 0, 1]),
        ),
        max_size=12,
    ),
    begins_at=st.integers(0, COUNT + 1),
)
def test_whatever_happens_is_answered_as_by_the_slow_path(
    broker: InProcessBroker,
    ids: dict[str, bytes],
    steps: Sequence[tuple[str, tuple[str, int], int, int]],
    begins_at: int,
) -> None:
    events = Events(broker, ids)
    consumer = Consumer(broker, ids, begins_at=begins_at)
    for event, (name, index), version, isolation_level in steps:
        if event == "rewind":
            consumer.offsets[name, index] = 0
        elif event != "nothing":
            getattr(events, event)(name, index)
        for max_bytes in (1000, 60):
            request = consumer.request(isolation_level=isolation_level, max_bytes=max_bytes)
            assert asked(consumer.client, request, version) == by_slow_path(broker, request, version)
        consumer.ask(version, isolation_level=isolation_level)
    consumer.client.close()
    for name in ("many", "few"):  # as the next example expects them
        events.recreate(name, 0)
    assert watchers(broker) == 0


def test_what_is_counted_is_what_the_slow_path_counts(broker: InProcessBroker, ids: dict[str, bytes]) -> None:
    def counted() -> Counter[str]:
        counts = Counter(errors=broker.server.registry.stats.errors["Fetch"][E.NONE])
        for one in broker.server.components.replicas.partitions():
            counts[one.topic_partition.topic] += one.stats.fetches
            counts["bytes"] += one.stats.fetched_bytes
        return counts

    consumer = Consumer(broker, ids, begins_at=3)
    consumer.ask()
    for _ in range(2):  # with nothing to get, and with something
        request = consumer.request()
        before = counted()
        asked(consumer.client, request, NEW)
        between = counted()
        by_slow_path(broker, request, NEW)
        assert between - before == counted() - between
        assert (between - before)["many"] == COUNT
        broker.produce("few", b"x")


@pytest.mark.parametrize("begins_at", [0, 2])
@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("other_offset", [0, 1])
@pytest.mark.parametrize("most_bytes", [77, 1000])
def test_a_partition_that_is_named_again_otherwise_is_decoded(
    broker: InProcessBroker, ids: dict[str, bytes], begins_at: int, offset: int, other_offset: int, most_bytes: int
) -> None:
    broker.produce("many", b"one")
    consumer = Consumer(broker, ids)
    consumer.ask()
    consumer.ask()
    consumer.offsets["many", 0] = offset
    consumer._begin = begins_at
    request = consumer.request()
    request.topics[0].partitions.append(Asked(partition=0, fetch_offset=other_offset, partition_max_bytes=most_bytes))
    assert asked(consumer.client, request, NEW) == by_slow_path(broker, request, NEW)


def test_a_partition_that_is_asked_otherwise_is_remembered_so(
    broker: InProcessBroker, ids: dict[str, bytes], reads: list[tuple[str, int]]
) -> None:
    consumer = Consumer(broker, ids)
    request = consumer.request()
    for most_bytes in (1000, 77, 77):
        reads.clear()
        request.topics[0].partitions[3].partition_max_bytes = most_bytes
        consumer.client.ask(request, NEW)
        assert watchers(broker) == COUNT + 2
    assert reads == []
    broker.produce("many", b"new", partition=3)
    assert records(consumer.client.ask(request, NEW)) == [(3, 1)]


# Waiting


def test_all_of_them_are_waited_for(
    broker: InProcessBroker, ids: dict[str, bytes], reads: list[tuple[str, int]]
) -> None:
    consumer = Consumer(broker, ids)
    for number in range(3):
        reads.clear()
        consumer.client.send(consumer.request(max_wait_ms=500), NEW)
        assert consumer.client.has_no_answer()
        assert consumer.client.connection.holds_buffer is False, "who waits holds no buffer"
        broker.produce("few", b"new", partition=1)
        assert records(consumer.receive()) == [(1, number + 1)]
    assert reads == [("few", 1)] * 2, "once before it waited, and once behind"


def test_what_concerns_none_of_them_leaves_it_waiting(broker: InProcessBroker, ids: dict[str, bytes]) -> None:
    broker.create_topic("other")
    consumer = Consumer(broker, ids)
    consumer.client.send(consumer.request(max_wait_ms=500), NEW)
    broker.produce("other", b"new")
    Events(broker, ids).delete_records("few", 0)  # it begins where it began
    assert consumer.client.has_no_answer()


@pytest.mark.parametrize("version", [OLD, NEW])
def test_when_its_time_is_up_the_answer_is_that_there_is_nothing(
    broker: InProcessBroker, ids: dict[str, bytes], version: int
) -> None:
    consumer = Consumer(broker, ids)
    request = consumer.request(max_wait_ms=500)
    consumer.client.send(request, version)
    broker.advance(499)
    assert consumer.client.has_no_answer()
    broker.advance(1)
    answered = consumer.client.receive_payload()[4:]
    request.max_wait_ms = 0
    assert answered == by_slow_path(broker, request, version)


def test_a_partition_that_goes_is_answered_at_once(broker: InProcessBroker, ids: dict[str, bytes]) -> None:
    consumer = Consumer(broker, ids)
    consumer.client.send(consumer.request(max_wait_ms=10_000), LEADERS_ONLY)
    Events(broker, ids).lead("many", 3)
    codes = {one.partition_index: one.error_code for topic in consumer.receive().responses for one in topic.partitions}
    assert codes[3] == E.NOT_LEADER_OR_FOLLOWER

    Events(broker, ids).lead("many", 3)
    ids["one"] = broker.create_topic("one")
    consumer.offsets["one", 0] = 0
    consumer.client.send(consumer.request(max_wait_ms=10_000), LEADERS_ONLY)
    assert consumer.client.has_no_answer()
    broker.ask(DeleteTopicsRequest(topic_names=["one"], timeout_ms=1000), 5)
    answer = consumer.client.receive()
    assert {topic.topic: {one.error_code for one in topic.partitions} for topic in answer.responses} == {
        "many": {E.NONE},
        "few": {E.NONE},
        "one": {E.UNKNOWN_TOPIC_OR_PARTITION},
    }


def test_two_that_wait_are_both_answered(broker: InProcessBroker, ids: dict[str, bytes]) -> None:
    consumer = Consumer(broker, ids)
    for _ in range(2):
        consumer.client.send(consumer.request(max_wait_ms=10_000), NEW)
    assert consumer.client.has_no_answer()
    broker.produce("many", b"new")
    assert records(consumer.client.receive()) == records(consumer.client.receive()) == [(0, 1)]


@pytest.mark.parametrize(("version", "isolation_level", "begins_at"), [(OLD, 0, 0), (NEW, 1, 0), (NEW, 0, COUNT)])
def test_one_that_waits_is_not_forgotten_over_one_of_another_kind_behind_it(
    broker: InProcessBroker, ids: dict[str, bytes], version: int, isolation_level: int, begins_at: int
) -> None:
    ids["other"] = broker.create_topic("other", partitions=COUNT)
    consumer = Consumer(broker, ids)
    consumer.client.send(consumer.request(max_wait_ms=10_000), NEW)
    consumer.offsets = {("other", index): 0 for index in range(COUNT)} if begins_at else consumer.offsets
    for _ in range(2):
        consumer.client.send(consumer.request(max_wait_ms=10_000, isolation_level=isolation_level), version)
    assert consumer.client.has_no_answer()
    broker.produce("many", b"new")
    assert records(consumer.client.receive()) == [(0, 1)], "without the time having moved"


# What is remembered


def test_a_connection_that_is_gone_watches_nothing(broker: InProcessBroker, ids: dict[str, bytes]) -> None:
    idle, waiting = Consumer(broker, ids), Consumer(broker, ids)
    idle.ask()
    waiting.client.send(waiting.request(max_wait_ms=500), NEW)
    broker.settle()
    assert watchers(broker) == 2 * (COUNT + 2)
    idle.client.close()
    assert watchers(broker) == COUNT + 2
    waiting.client.connection.close()  # as where the network is lost; who only hangs up is still answered
    assert watchers(broker) == 0
    broker.produce("many", b"new")
    broker.advance(500)
    assert watchers(broker) == 0, "nor does its request, whose time is up"
    assert broker.server.components.replicas.fetch_purgatory.stats.pending == 0


def test_a_consumers_connection_that_produces_too_watches_nothing_when_it_is_gone(
    broker: InProcessBroker, ids: dict[str, bytes]
) -> None:
    consumer = Consumer(broker, ids)
    consumer.client.send(consumer.request(max_wait_ms=500), NEW)
    consumer.client.send(produce_request("few", produced([record(b"x")])), OLD)
    broker.advance(500)
    assert records(consumer.receive()) == []
    consumer.client.receive()
    consumer.client.close()
    assert watchers(broker) == 0


def test_a_request_that_outlives_its_connection_watches_nothing(broker: InProcessBroker, ids: dict[str, bytes]) -> None:
    consumer = Consumer(broker, ids)
    stream = consumer.client.connection.stream
    consumer.client.close()
    for wait_ms in (0, 500):
        frame = encode_request(7, "test", consumer.request(max_wait_ms=wait_ms), NEW)[4:]
        slot = ResponseSlot(Departed(), stream, memoryview(frame), 0)
        Dispatcher(broker.server.registry).handle(slot)
        assert watchers(broker) == 0
    broker.produce("many", b"new")
    assert slot.is_filled


def test_another_version_or_isolation_begins_anew(
    broker: InProcessBroker, ids: dict[str, bytes], reads: list[tuple[str, int]]
) -> None:
    consumer = Consumer(broker, ids)
    for version, isolation_level in ((NEW, 0), (NEW, 1), (OLD, 1)):
        reads.clear()
        consumer.ask(version, isolation_level=isolation_level)
        assert len(reads) == COUNT + 2
        assert watchers(broker) == COUNT + 2


def test_a_consumer_that_names_others_each_time_is_remembered_up_to_a_bound(
    broker: InProcessBroker, ids: dict[str, bytes]
) -> None:
    for number in range(8):
        ids[f"more-{number}"] = broker.create_topic(f"more-{number}", partitions=COUNT)
    consumer = Consumer(broker, ids)
    for name in ids:
        count = 2 if name == "few" else COUNT
        consumer.offsets = {(name, index): 0 for index in range(count)}
        consumer._begin = 0
        consumer.ask(max_wait_ms=0)
        assert len(memory_of(consumer.client).unchanged) <= MOST_FOR_EACH_NAMED * COUNT
    assert watchers(broker) == len(memory_of(consumer.client).unchanged)


def test_without_memory_left_it_waits_in_the_slow_path(
    broker: InProcessBroker, ids: dict[str, bytes], reads: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Consumer(broker, ids)
    consumer.ask()
    memory = memory_of(consumer.client).unchanged._memory
    monkeypatch.setattr(memory, "left", 5)
    other = Consumer(broker, ids, begins_at=11)
    for number in range(2):
        other.client.send(other.request(max_wait_ms=500), NEW)
        assert other.client.has_no_answer()
        broker.produce("many", b"new", partition=COUNT - 1)
        assert records(other.receive()) == [(COUNT - 1, number + 1)]
    assert len(memory_of(other.client).unchanged) <= 6  # what the first consumer has given back is among them
    assert memory.left + watchers(broker) == 5 + COUNT + 2
    consumer.client.close()
    other.client.close()
    assert memory.left == 5 + COUNT + 2
