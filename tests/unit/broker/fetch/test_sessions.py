"""Incremental fetch sessions through the codec (KIP-227); what is expected is what Kafka 4.4.0 answered."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from broker.fetch.round import PartitionFetch
from broker.fetch.sessions import HIGHEST_EPOCH, FetchSession, FetchTerms, next_epoch
from broker.replication.follower import FollowerId
from broker.replication.in_sync_replicas import FollowerFetch
from broker.replication.isolation import FetchIsolation
from broker.replication.partition import LeaderAndIsr
from broker.runtime.purgatory import Purgatory
from broker.runtime.timing_wheel import TimingWheel
from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.topics import DeleteTopicsRequest
from tests.support.broker import InProcessBroker
from tests.support.leadership import OTHER, replicate

Row = tuple[str, int, int, int, int]


class Consumer:
    """A client with a session, which names topics as its version does."""

    def __init__(self, broker: InProcessBroker, version: int) -> None:
        self.broker = broker
        self.version = version
        self.session_id = 0
        self.epoch = 0
        self.ids: dict[str, bytes] = {}

    def topic(self, name: str) -> dict[str, Any]:
        """How this version names a topic."""
        known = self.broker.server.components.metadata.image.topics.by_name.get(name)
        topic_id = self.ids.setdefault(name, known.topic_id if known else name.encode().ljust(16, b"?"))
        return {"topic_id": topic_id} if self.version >= 13 else {"topic": name}

    def request(
        self,
        asked: dict[tuple[str, int], int] | None = None,
        *,
        forget: tuple[tuple[str, int], ...] = (),
        partition_fields: dict[str, Any] | None = None,
        **fields: Any,
    ) -> FetchRequest:
        """Ask for offsets of partitions anew, and forget others."""
        return FetchRequest(
            **{"max_wait_ms": 0, "min_bytes": 1, "session_id": self.session_id, "session_epoch": self.epoch, **fields},
            topics=[
                FetchRequest.Topic(
                    **self.topic(name),
                    partitions=[
                        FetchRequest.Topic.Partition(
                            partition=index,
                            fetch_offset=offset,
                            **{"partition_max_bytes": 1 << 20, **(partition_fields or {})},
                        )
                    ],
                )
                for (name, index), offset in (asked or {}).items()
            ],
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(**self.topic(name), partitions=[index]) for name, index in forget
            ],
        )

    def answer(self, asked: dict[tuple[str, int], int] | None = None, **how: Any) -> FetchResponse:
        """Ask, and count the session on."""
        answer: FetchResponse = self.broker.ask(self.request(asked, **how), self.version)
        if answer.error_code == E.NONE:
            self.session_id = answer.session_id
            self.epoch = next_epoch(self.epoch) if answer.session_id else 0
        return answer

    def fetch(self, asked: dict[tuple[str, int], int] | None = None, **how: Any) -> list[Row]:
        """Ask, and return what is answered: topic, partition, error, high watermark, whether there are records."""
        answer = self.answer(asked, **how)
        assert answer.error_code == E.NONE
        return self.rows(answer)

    def rows(self, answer: FetchResponse) -> list[Row]:
        """What an answer tells."""
        names = {topic_id: name for name, topic_id in self.ids.items()}
        return [
            (
                topic.topic or names[topic.topic_id],
                one.partition_index,
                one.error_code,
                one.high_watermark,
                len(one.records or b"") > 0,
            )
            for topic in answer.responses
            for one in topic.partitions
        ]


@pytest.fixture
def topics(broker: InProcessBroker) -> None:
    """`a` and `b` with three partitions each, one record in the first ones."""
    for name in ("a", "b"):
        broker.create_topic(name, partitions=3)
        broker.produce(name, b"v")


@pytest.fixture
def consumer(broker: InProcessBroker, topics: None) -> Consumer:
    """With a session over all of `a` and `b`, at their ends."""
    consumer = Consumer(broker, 12)
    consumer.fetch({(name, index): int(index == 0) for name in ("a", "b") for index in range(3)})
    return consumer


@pytest.fixture
def consumer_by_id(broker: InProcessBroker, topics: None) -> Consumer:
    """The same with topic ids."""
    consumer = Consumer(broker, 13)
    consumer.fetch({(name, index): int(index == 0) for name in ("a", "b") for index in range(3)})
    return consumer


def delete(broker: InProcessBroker, name: str) -> None:
    broker.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 5)


# The life of a session ------------------------------------------------------------------------------------------------


@serves(FetchRequest)
@every_version(FetchRequest, since=7)
def test_a_session_tells_everything_once_and_then_only_what_is_new(
    broker: InProcessBroker, topics: None, version: int
) -> None:
    consumer = Consumer(broker, version)
    assert consumer.fetch({("a", 0): 0, ("a", 1): 0}) == [("a", 0, 0, 1, True), ("a", 1, 0, 0, False)]
    assert consumer.session_id > 0
    assert consumer.fetch() == [("a", 0, 0, 1, True)], "the client has not said that it has the record"
    assert consumer.fetch({("a", 0): 1}) == []
    broker.produce("a", b"w", partition=1)
    assert consumer.fetch() == [("a", 1, 0, 1, True)]
    assert consumer.fetch({("a", 1): 1}) == []


@every_version(FetchRequest, until=6)
def test_versions_without_sessions_get_none(broker: InProcessBroker, topics: None, version: int) -> None:
    assert Consumer(broker, version).answer({("a", 0): 0}).session_id == 0
    assert broker.server.components.fetch_sessions.stats.sessions == 0


@serves(FetchRequest, E.FETCH_SESSION_ID_NOT_FOUND)
@every_version(FetchRequest, since=7)
def test_a_session_that_is_not_there_can_not_go_on(broker: InProcessBroker, topics: None, version: int) -> None:
    consumer = Consumer(broker, version)
    for session_id in (0, 77):
        answer = consumer.answer({("a", 0): 0}, session_id=session_id, session_epoch=5)
        assert (answer.error_code, answer.session_id) == (E.FETCH_SESSION_ID_NOT_FOUND, 0)
        assert answer.responses == []


@serves(FetchRequest, E.INVALID_FETCH_SESSION_EPOCH)
@every_version(FetchRequest, since=7)
def test_a_wrong_epoch_is_refused_and_the_session_goes_on(broker: InProcessBroker, topics: None, version: int) -> None:
    consumer = Consumer(broker, version)
    consumer.fetch({("a", 0): 1})
    for epoch in (2, 77):
        answer = consumer.answer({("a", 1): 0}, session_epoch=epoch)
        assert (answer.error_code, answer.session_id) == (E.INVALID_FETCH_SESSION_EPOCH, 0)
        assert answer.responses == []
    assert consumer.fetch() == [], "it took nothing of the refused requests"


@serves(FetchRequest, E.FETCH_SESSION_TOPIC_ID_ERROR)
@every_version(FetchRequest, since=7)
def test_names_and_ids_do_not_mix(broker: InProcessBroker, topics: None, version: int) -> None:
    consumer = Consumer(broker, 12 if version >= 13 else 13)
    consumer.fetch({("a", 0): 1})
    own_version, consumer.version = consumer.version, version
    answer = consumer.answer()
    assert (answer.error_code, answer.session_id) == (E.FETCH_SESSION_TOPIC_ID_ERROR, 0)
    assert answer.responses == []
    consumer.version = own_version
    assert consumer.fetch() == [], "its epoch is as it was"


@serves(FetchRequest, E.INVALID_FETCH_SESSION_EPOCH, versions=[13])
def test_the_epoch_is_looked_at_before_names_and_ids(consumer: Consumer) -> None:
    consumer.version = 13
    assert consumer.answer(session_epoch=9).error_code == E.INVALID_FETCH_SESSION_EPOCH


def test_an_id_with_epoch_0_begins_anew(consumer: Consumer) -> None:
    old = consumer.session_id
    consumer.epoch = 0
    assert consumer.fetch({("a", 0): 1}) == [("a", 0, 0, 1, False)], "everything is answered"
    assert consumer.session_id not in (0, old)
    assert consumer.answer(session_id=old).error_code == E.FETCH_SESSION_ID_NOT_FOUND


def test_an_id_with_epoch_minus_1_ends_the_session(consumer: Consumer) -> None:
    old = consumer.session_id
    answer = consumer.answer({("a", 0): 0}, session_epoch=-1)
    assert answer.session_id == 0
    assert consumer.rows(answer) == [("a", 0, 0, 1, True)]
    assert consumer.answer(session_id=old, session_epoch=1).error_code == E.FETCH_SESSION_ID_NOT_FOUND


def test_an_unknown_id_with_epoch_0_begins_a_session(broker: InProcessBroker, topics: None) -> None:
    consumer = Consumer(broker, 12)
    consumer.session_id = 77
    consumer.fetch({("a", 0): 0})
    assert consumer.session_id not in (0, 77)


def test_a_session_survives_its_connection(broker: InProcessBroker, consumer: Consumer) -> None:
    broker.produce("b", b"w", partition=2)
    other = broker.connect()
    answer = other.ask(consumer.request(), 12)
    assert consumer.rows(answer) == [("b", 2, 0, 1, True)]


def test_behind_the_highest_epoch_comes_1(broker: InProcessBroker, consumer: Consumer) -> None:
    session = broker.server.components.fetch_sessions._cache.get(consumer.session_id)
    assert session is not None
    session.epoch = consumer.epoch = HIGHEST_EPOCH
    assert consumer.fetch() == []
    assert consumer.epoch == 1
    assert consumer.fetch() == []


@pytest.mark.settings(max_incremental_fetch_session_cache_slots=1)
def test_without_room_there_is_an_answer_but_no_session(broker: InProcessBroker, consumer: Consumer) -> None:
    late = Consumer(broker, 12)
    assert late.fetch({("a", 0): 0}) == [("a", 0, 0, 1, True)]
    assert late.session_id == 0


@serves(FetchRequest, E.FETCH_SESSION_ID_NOT_FOUND, versions=[12])
@pytest.mark.settings(max_incremental_fetch_session_cache_slots=1)
def test_an_evicted_session_can_not_go_on_and_hears_nothing_more(broker: InProcessBroker, consumer: Consumer) -> None:
    broker.advance(120_001)
    late = Consumer(broker, 12)
    late.fetch({("a", 0): 0})
    assert late.session_id > 0
    assert consumer.answer().error_code == E.FETCH_SESSION_ID_NOT_FOUND
    stats = broker.server.components.fetch_sessions.stats
    assert (stats.sessions, stats.partitions, stats.evictions) == (1, 1, 1)
    assert broker.server.components.replicas.partition("b", 0).watchers is None


# Its partitions -------------------------------------------------------------------------------------------------------


def test_forgotten_partitions_are_told_no_more_until_they_are_asked_for_again(
    broker: InProcessBroker, consumer: Consumer
) -> None:
    assert consumer.fetch(forget=(("a", 1), ("b", 1), ("never", 3))) == []
    broker.produce("a", b"w", partition=1)
    assert consumer.fetch() == []
    assert consumer.fetch({("a", 1): 0}) == [("a", 1, 0, 1, True)]


def test_what_is_asked_for_and_forgotten_at_once_is_forgotten(consumer: Consumer) -> None:
    assert consumer.fetch({("a", 0): 0}, forget=(("a", 0),)) == []
    assert consumer.fetch() == []


def test_when_the_last_partition_is_forgotten_the_session_is_gone(broker: InProcessBroker, consumer: Consumer) -> None:
    everything = tuple((name, index) for name in ("a", "b") for index in range(3))
    old, epoch = consumer.session_id, consumer.epoch
    assert consumer.fetch(forget=everything) == []
    assert consumer.session_id == 0
    assert consumer.answer(session_id=old, session_epoch=epoch + 1).error_code == E.FETCH_SESSION_ID_NOT_FOUND
    assert broker.server.components.fetch_sessions.stats.sessions == 0


def test_a_session_of_nothing_is_granted_and_ends_with_its_first_request(broker: InProcessBroker, topics: None) -> None:
    consumer = Consumer(broker, 12)
    assert consumer.fetch(max_wait_ms=10_000) == []
    assert consumer.session_id > 0
    assert consumer.fetch(max_wait_ms=10_000) == []
    assert consumer.session_id == 0


def test_a_partition_added_and_forgotten_by_an_empty_session_is_read_once(
    broker: InProcessBroker, topics: None
) -> None:
    consumer = Consumer(broker, 12)
    consumer.fetch()
    assert consumer.fetch({("a", 0): 0}, forget=(("a", 0),)) == [("a", 0, 0, 1, True)]
    assert consumer.session_id == 0


def test_partitions_that_had_records_go_to_the_end_so_that_all_get_their_turn(
    broker: InProcessBroker, consumer: Consumer
) -> None:
    for index in range(3):
        broker.produce("a", b"w", partition=index)
    turns = [consumer.fetch({("a", 0): 0} if turn == 0 else None, max_bytes=1)[0][:2] for turn in range(4)]
    assert turns == [("a", 0), ("a", 1), ("a", 2), ("a", 0)]


def test_a_moved_log_start_is_told(broker: InProcessBroker, consumer: Consumer) -> None:
    broker.log("a").start_offset_to(1)
    broker.server.components.replicas.changed(broker.server.components.replicas.partition("a", 0))
    (answered,) = consumer.answer().responses[0].partitions
    assert (answered.partition_index, answered.log_start_offset, bytes(answered.records)) == (0, 1, b"")
    assert consumer.fetch() == []


@pytest.mark.settings(log_retention_check_interval_ms=1000, log_initial_task_delay_ms=0)
def test_a_log_start_that_retention_has_moved_is_told(broker: InProcessBroker) -> None:
    broker.create_topic("short", retention_ms=1, segment_ms=1000)
    broker.produce("short", b"v")
    consumer = Consumer(broker, 12)
    consumer.fetch({("short", 0): 1})
    broker.advance(100_000)
    assert broker.log("short").log_start_offset == 1
    (answered,) = consumer.answer().responses[0].partitions
    assert (answered.partition_index, answered.log_start_offset) == (0, 1)


@serves(FetchRequest, E.OFFSET_OUT_OF_RANGE, versions=[12])
def test_an_error_is_told_each_time_and_when_it_is_over_the_high_watermark(consumer: Consumer) -> None:
    assert consumer.fetch({("a", 1): 99}) == [("a", 1, E.OFFSET_OUT_OF_RANGE, -1, False)]
    assert consumer.fetch(max_wait_ms=10_000) == [("a", 1, E.OFFSET_OUT_OF_RANGE, -1, False)]
    assert consumer.fetch({("a", 1): 0}) == [("a", 1, 0, 0, False)]
    assert consumer.fetch() == []


def test_where_the_logs_part_is_told_each_time(broker: InProcessBroker, consumer: Consumer) -> None:
    broker.log("a").leader_epochs.assign(4, 1)
    for asked in ({("a", 0): 1}, None):
        (answered,) = consumer.answer(asked, partition_fields={"last_fetched_epoch": 2}).responses[0].partitions
        assert (answered.diverging_epoch.epoch, answered.diverging_epoch.end_offset) == (0, 1)


@serves(FetchRequest, E.FENCED_LEADER_EPOCH, versions=[12])
def test_a_new_leader_epoch_is_noticed(broker: InProcessBroker, consumer: Consumer) -> None:
    assert consumer.fetch({("a", 0): 1}, partition_fields={"current_leader_epoch": 0}) == []
    partition = broker.server.components.replicas.partition("a", 0)
    partition.apply(LeaderAndIsr(1, 1, (1,), frozenset((1,))))
    broker.server.components.replicas.changed(partition)
    assert consumer.fetch() == [("a", 0, E.FENCED_LEADER_EPOCH, -1, False)]


@pytest.mark.parametrize(
    "follower", [FollowerId(OTHER, 7), FollowerId(OTHER, 6), None], ids=["the follower", "its former run", "a consumer"]
)
def test_a_follower_that_forgets_a_partition_has_stopped_fetching_it(
    broker: InProcessBroker, topics: None, follower: FollowerId | None
) -> None:
    """What a former run of the follower forgets says nothing of the present run; a consumer says nothing of it."""
    partition = replicate(broker, "a")
    assert partition.followers is not None
    partition.followers.fetched(OTHER, FollowerFetch(1, 0, 7), leaders_end_offset=1, now_ms=0)
    terms = FetchTerms("User:ANONYMOUS", 0, True, follower, FetchIsolation.LOG_END)
    session = FetchSession(1, terms, Purgatory(TimingWheel(broker.clock)))
    asked = PartitionFetch(
        topic="a", topic_id=partition.topic_id, index=0, fetch_offset=1, max_bytes=1, current_leader_epoch=1,
        last_fetched_epoch=1,
    )  # fmt: skip
    asked.partition = partition
    session.add(asked)

    session.update({}, [asked.key])

    assert partition.followers.followers[OTHER].has_stopped == (follower == FollowerId(OTHER, 7))


def test_a_request_on_other_terms_looks_at_everything_again(broker: InProcessBroker) -> None:
    broker.create_topic("empty")
    consumer = Consumer(broker, 12)
    assert consumer.fetch({("empty", 0): 0}) == [("empty", 0, 0, 0, False)]
    assert consumer.fetch(replica_id=1) == [("empty", 0, E.NOT_LEADER_OR_FOLLOWER, -1, False)]
    assert consumer.fetch() == [("empty", 0, 0, 0, False)]
    assert consumer.fetch(isolation_level=1) == []


def test_the_same_topic_stands_together_only_where_it_does_in_the_order(broker: InProcessBroker, topics: None) -> None:
    consumer = Consumer(broker, 12)
    answer = consumer.answer({("a", 0): 0, ("a", 1): 0, ("b", 0): 0, ("a", 2): 0})
    assert [(topic.topic, len(topic.partitions)) for topic in answer.responses] == [("a", 2), ("b", 1), ("a", 1)]


# Topics that come and go ----------------------------------------------------------------------------------------------


@serves(FetchRequest, E.UNKNOWN_TOPIC_OR_PARTITION, versions=[12])
def test_by_name_a_topic_made_again_is_the_same(broker: InProcessBroker, consumer: Consumer) -> None:
    delete(broker, "b")
    gone = [("b", index, E.UNKNOWN_TOPIC_OR_PARTITION, -1, False) for index in range(3)]
    assert consumer.fetch() == gone
    assert consumer.fetch() == gone
    broker.create_topic("b", partitions=3)
    assert consumer.fetch() == [
        ("b", 0, E.OFFSET_OUT_OF_RANGE, -1, False),
        ("b", 1, 0, 0, False),
        ("b", 2, 0, 0, False),
    ]
    broker.produce("b", b"w", partition=1)
    assert consumer.fetch({("b", 0): 0}) == [("b", 0, 0, 0, False), ("b", 1, 0, 1, True)]


@serves(FetchRequest, E.UNKNOWN_TOPIC_OR_PARTITION, E.INCONSISTENT_TOPIC_ID, versions=[13])
def test_by_id_a_topic_made_again_is_another(broker: InProcessBroker, consumer_by_id: Consumer) -> None:
    consumer = consumer_by_id
    consumer.fetch(forget=(("b", 1), ("b", 2)))
    delete(broker, "b")
    assert consumer.fetch() == [("b", 0, E.UNKNOWN_TOPIC_OR_PARTITION, -1, False)], "its name is still known here"
    broker.create_topic("b")
    assert consumer.fetch(max_wait_ms=10_000) == [("b", 0, E.INCONSISTENT_TOPIC_ID, -1, False)]
    consumer.fetch(forget=(("b", 0),))
    del consumer.ids["b"]
    assert consumer.fetch({("b", 0): 0}) == [("b", 0, 0, 0, False)]
    broker.produce("b", b"w")
    assert consumer.fetch() == [("b", 0, 0, 1, True)]


@serves(FetchRequest, E.UNKNOWN_TOPIC_ID)
@every_version(FetchRequest, since=13)
def test_an_unknown_id_stays_in_the_session_until_it_is_known(
    broker: InProcessBroker, topics: None, version: int
) -> None:
    consumer = Consumer(broker, version)
    unknown = ("soon", 0, E.UNKNOWN_TOPIC_ID, -1, False)
    assert consumer.fetch({("soon", 0): 0, ("a", 0): 1}) == [("a", 0, 0, 1, False), unknown]
    assert consumer.fetch() == [unknown]
    # No client can choose an id: the image gets one as if the metadata log had.
    image = broker.server.components.metadata.image
    image.topics.by_id[consumer.ids["soon"]] = image.topics.by_name["b"]
    assert consumer.fetch() == [("soon", 0, E.INCONSISTENT_TOPIC_ID, -1, False)]


def test_a_name_is_found_when_its_topic_is_made(broker: InProcessBroker, topics: None) -> None:
    consumer = Consumer(broker, 12)
    unknown = ("soon", 0, E.UNKNOWN_TOPIC_OR_PARTITION, -1, False)
    assert consumer.fetch({("soon", 0): 0}) == [unknown]
    assert consumer.fetch(max_wait_ms=10_000) == [unknown], "there is nothing else to wait for"
    broker.create_topic("soon")
    assert consumer.fetch() == [("soon", 0, 0, 0, False)]
    broker.produce("soon", b"v")
    assert consumer.fetch() == [("soon", 0, 0, 1, True)]


# Waiting --------------------------------------------------------------------------------------------------------------


def test_a_waiting_fetch_is_woken_by_a_partition_that_was_quiet(broker: InProcessBroker, consumer: Consumer) -> None:
    client = broker.connect()
    client.send(consumer.request(max_wait_ms=10_000), 12)
    assert client.has_no_answer()
    broker.produce("b", b"w", partition=2)
    assert consumer.rows(client.receive()) == [("b", 2, 0, 1, True)]


def test_a_waiting_fetch_tells_what_there_is_when_its_time_is_up(broker: InProcessBroker, consumer: Consumer) -> None:
    client = broker.connect()
    client.send(consumer.request(max_wait_ms=500, min_bytes=1 << 20), 12)
    broker.produce("b", b"w", partition=2)
    broker.produce("a", b"w", partition=1)
    assert client.has_no_answer()
    broker.advance(500)
    assert consumer.rows(client.receive()) == [("a", 1, 0, 1, True), ("b", 2, 0, 1, True)]


def test_the_quiet_partitions_count_when_it_is_to_be_enough(broker: InProcessBroker, consumer: Consumer) -> None:
    client = broker.connect()
    client.send(consumer.request(max_wait_ms=10_000, min_bytes=200), 12)
    broker.produce("a", b"v" * 60)
    assert client.has_no_answer()
    broker.produce("b", b"v" * 60)
    assert len(consumer.rows(client.receive())) == 2


def test_a_partition_in_error_does_not_end_the_wait_of_the_others(broker: InProcessBroker, consumer: Consumer) -> None:
    delete(broker, "b")
    consumer.fetch()
    client = broker.connect()
    client.send(consumer.request(max_wait_ms=500), 12)
    assert client.has_no_answer()
    broker.produce("a", b"w", partition=2)
    rows = consumer.rows(client.receive())
    assert rows[0] == ("a", 2, 0, 1, True)
    assert [row[2] for row in rows[1:]] == [E.UNKNOWN_TOPIC_OR_PARTITION] * 3


def test_a_deleted_topic_ends_the_wait(broker: InProcessBroker, consumer: Consumer) -> None:
    client = broker.connect()
    client.send(consumer.request(max_wait_ms=10_000), 12)
    delete(broker, "b")
    assert ("b", 0, E.UNKNOWN_TOPIC_OR_PARTITION, -1, False) in consumer.rows(client.receive())


@serves(FetchRequest, E.INVALID_FETCH_SESSION_EPOCH, versions=[12])
def test_a_second_request_of_the_session_ends_the_first_ones_wait(broker: InProcessBroker, consumer: Consumer) -> None:
    first, second = broker.connect(), broker.connect()
    first.send(consumer.request(max_wait_ms=10_000), 12)
    assert first.has_no_answer()
    consumer.epoch += 1
    assert second.ask(consumer.request(), 12).error_code == E.NONE
    answer = first.receive()
    assert (answer.error_code, answer.session_id) == (E.INVALID_FETCH_SESSION_EPOCH, consumer.session_id)


def test_the_end_of_a_session_ends_the_wait_of_its_last_fetch(broker: InProcessBroker, consumer: Consumer) -> None:
    waiting = broker.connect()
    waiting.send(consumer.request(max_wait_ms=10_000), 12)
    assert waiting.has_no_answer()
    consumer.epoch = -1
    assert broker.connect().ask(consumer.request(), 12).session_id == 0
    assert waiting.receive().responses == []


def test_a_session_that_nobody_uses_is_told_of_a_change_once(broker: InProcessBroker, consumer: Consumer) -> None:
    partition = broker.server.components.replicas.partition("a", 2)
    assert partition.watchers
    broker.produce("a", b"w", partition=2)
    assert partition.watchers is None
    assert consumer.fetch() == [("a", 2, 0, 1, True)]
    assert partition.watchers
    assert consumer.fetch({("a", 2): 1}) == []
    broker.produce("a", b"w", partition=2)
    assert consumer.fetch() == [("a", 2, 0, 2, True)]


# What it costs --------------------------------------------------------------------------------------------------------


def lines_run(action: Callable[[], object]) -> int:
    """How many lines of the rooms below the handlers run: a cost that no other load of the machine changes."""
    count = 0

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal count
        if "/broker/replication/" not in frame.f_code.co_filename and "/purgatory" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(None)
    return count


def test_a_fetch_costs_what_has_changed_however_many_partitions_are_watched(broker: InProcessBroker) -> None:
    broker.create_topic("wide", partitions=300)
    costs = []
    for partitions in (3, 300):
        consumer = Consumer(broker, 12)
        ends = {("wide", index): broker.log("wide", index).log_end_offset for index in range(partitions)}
        consumer.fetch(ends)
        client = broker.connect()
        client.send(consumer.request(max_wait_ms=10_000), 12)
        assert client.has_no_answer()
        assert broker.server.components.replicas.fetch_purgatory.stats.watched <= 2, "it waits under its session"
        broker.produce("wide", b"v", partition=1)
        assert len(consumer.rows(client.receive())) == 1
        consumer.epoch += 1

        def asks(consumer: Consumer = consumer) -> None:
            consumer.fetch()

        costs.append(lines_run(asks))
    assert costs[0] == costs[1]
    assert 0 < costs[0] < 300
