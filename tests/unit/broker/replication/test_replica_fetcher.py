"""Fetching many partitions from one leader, over a connection in which the test is the leader."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from broker.peers.errors import PeerUnreachable
from broker.peers.peer import Peer
from broker.replication.replica_fetch import Append, BeginAnew, ReplicaFetch, Truncate, append
from broker.replication.replica_fetcher import FetcherSettings, FollowedPartition, ReplicaFetcher
from broker.replication.throttles import ReplicationThrottle
from broker.runtime.manual_clock import ManualClock
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from storage.errors import DiskFull, StorageError
from storage.topic_partition import TopicPartition
from tests.support.logs import T, batch_of
from tests.unit.broker.replication.test_replica_fetch import Replica, refusal

TOPIC_IDS = {"orders": bytes([1] * 16), "payments": bytes([2] * 16)}


class Leader:
    """Node 1 with its replicas, and what it is asked."""

    def __init__(self) -> None:
        self.replicas: dict[tuple[bytes, int], Replica] = {}
        self.asked: list[Any] = []
        self.problem: Exception | None = None
        self.error_code = 0
        self.closed = False
        self.before_answer: Callable[[], None] = lambda: None
        self.behind_answer: Callable[[], None] = lambda: None
        """Called once an answer within a session is on its way."""
        self.gives_sessions = False
        self.session: dict[tuple[bytes, int], FetchRequest.Topic.Partition] = {}
        """What is wanted in the one session that there is."""
        self.watermarks: dict[tuple[bytes, int], int] = {}
        """The high watermarks that were told in the session."""
        self.session_id = 0
        self.damaged: set[tuple[bytes, int]] = set()
        """Partitions whose records come with a changed byte."""
        self.repeats = False
        """Each partition comes twice, and beside it others that nobody has asked for."""

    async def ask(self, request: Any, kind: type, *, timeout_ms: int, largest_answer_bytes: int = 0) -> Any:
        self.asked.append(request)
        await asyncio.sleep(0)
        if self.problem is not None:
            raise self.problem
        self.before_answer()
        if isinstance(request, ListOffsetsRequest):
            return self._offsets(request)
        if self.gives_sessions and not self.error_code:
            answer = self._in_session(request)
            self.behind_answer()
            return answer
        responses = []
        for topic in request.topics:
            found = []
            for wanted in topic.partitions:
                replica = self.replicas.get((bytes(topic.topic_id), wanted.partition))
                one = refusal(ErrorCode.UNKNOWN_TOPIC_ID) if replica is None else replica.answer(wanted)
                one.partition_index = wanted.partition
                if (bytes(topic.topic_id), wanted.partition) in self.damaged and one.records:
                    one.records = memoryview(bytes(one.records[:-1]) + b"\xee")
                found.append(one)
                if self.repeats:
                    found += [one, replace(one, partition_index=9), replace(one, partition_index=-1)]
            responses.append(FetchResponse.Response(topic_id=topic.topic_id, partitions=found))
        return FetchResponse(error_code=self.error_code, responses=[] if self.error_code else responses)

    def _in_session(self, request: FetchRequest) -> FetchResponse:
        """The answer by KIP-227: of an incremental fetch only what has records, an error or another high watermark."""
        is_full = request.session_epoch == 0
        if is_full:
            self.session_id += 1
            self.session.clear()
            self.watermarks.clear()
        elif request.session_id != self.session_id:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
        for topic in request.topics:
            for wanted in topic.partitions:
                self.session[bytes(topic.topic_id), wanted.partition] = wanted
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                del self.session[bytes(forgotten.topic_id), index]
                self.watermarks.pop((bytes(forgotten.topic_id), index), None)
        responses = []
        for (topic_id, index), wanted in self.session.items():
            replica = self.replicas.get((topic_id, index))
            one = refusal(ErrorCode.UNKNOWN_TOPIC_ID) if replica is None else replica.answer(wanted)
            one.partition_index = index
            is_news = self.watermarks.get((topic_id, index), -1) != one.high_watermark
            self.watermarks[topic_id, index] = one.high_watermark
            if is_full or is_news or one.records or one.error_code or one.diverging_epoch.epoch >= 0:
                responses.append(FetchResponse.Response(topic_id=topic_id, partitions=[one]))
        return FetchResponse(session_id=self.session_id, responses=responses)

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        ((wanted,),) = (topic.partitions for topic in request.topics)
        log = self.replicas[TOPIC_IDS[request.topics[0].name], wanted.partition_index].log
        offset = log.log_end_offset if wanted.timestamp == -1 else log.log_start_offset
        found = ListOffsetsResponse.Topic.Partition(partition_index=wanted.partition_index, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsResponse.Topic(name=request.topics[0].name, partitions=[found])])

    def close(self) -> None:
        self.closed = True

    @property
    def fetches(self) -> list[FetchRequest]:
        return [one for one in self.asked if isinstance(one, FetchRequest)]


class Following:
    """Node 2, which follows partitions of the leader."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.leader = Leader()
        self.replicas: dict[TopicPartition, Replica] = {}
        self.failure: DiskFull | None = None
        self.may_save = asyncio.Event()
        self.may_save.set()
        self.may_flush = asyncio.Event()
        self.may_flush.set()
        self.disk_is_full = False
        self.saved: dict[TopicPartition, int] = {}
        """Log starts that were saved, by partition."""
        self.throttle = ReplicationThrottle(self.clock, windows=11, window_ms=1_000)
        self.fetcher = ReplicaFetcher(
            cast(Peer, self.leader), self, node_id=2, broker_epoch=lambda: 52, clock=self.clock,
            settings=FetcherSettings(), throttle=self.throttle,
        )  # fmt: skip

    def add(self, topic: str, partition: int, *, epoch: int = 3, on_leader: bool = True) -> tuple[Replica, Replica]:
        """Follow a partition. Returns the leader's replica and the follower's."""
        place = TopicPartition(topic, partition)
        theirs = Replica(self.path / f"leader-{place}", 1)
        theirs.lead(epoch)
        if on_leader:
            self.leader.replicas[TOPIC_IDS[topic], partition] = theirs
        ours = self.replicas[place] = Replica(self.path / f"follower-{place}", 2)
        self.follow(place, epoch)
        return theirs, ours

    def follow(self, place: TopicPartition, epoch: int) -> None:
        fetch = ReplicaFetch(self.replicas[place].log, leader_id=1, leader_epoch=epoch)
        self.fetcher.follow(FollowedPartition(place, topic_id=TOPIC_IDS[place.topic], leader_epoch=epoch, fetch=fetch))

    async def perform(self, followed: FollowedPartition, step: Append | Truncate | BeginAnew) -> None:
        if self.failure is not None:
            raise self.failure
        log = self.replicas[followed.topic_partition].log
        match step:
            case Append():
                append(log, step, T)
            case Truncate(offset):
                log.expect_truncation_to(offset)
                log.truncate_to(offset, T)
            case BeginAnew(offset):
                log.truncate_fully_to(offset, T)

    async def flush(self, due: Sequence[FollowedPartition]) -> None:
        await self.may_flush.wait()
        if not self.disk_is_full:
            for one in due:
                self.replicas[one.topic_partition].log.flush(T)

    def is_log_start_saved(self, followed: FollowedPartition) -> bool:
        return self.saved.get(followed.topic_partition, 0) == followed.fetch.log_start_offset

    async def save_log_starts(self, unsaved: Sequence[FollowedPartition]) -> Mapping[TopicPartition, StorageError]:
        await self.may_save.wait()
        if self.disk_is_full:
            return {one.topic_partition: DiskFull("the disk is full") for one in unsaved}
        self.saved.update({one.topic_partition: one.fetch.log_start_offset for one in unsaved})
        return {}

    async def until(self, condition: Callable[[], bool]) -> int:
        """Let it run, and time pass, until the condition holds. Returns how many milliseconds have passed."""
        began_ms = self.clock.monotonic_ms()
        for _ in range(20_000):
            if condition():
                return self.clock.monotonic_ms() - began_ms
            for _ in range(4):
                await asyncio.sleep(0)
            self.clock.advance(1)
        raise AssertionError("it has not come to pass")


def following(path: Path, test: Callable[[Following], Awaitable[None]]) -> None:
    async def run() -> None:
        one = Following(path)
        task = asyncio.get_running_loop().create_task(one.fetcher.run())
        try:
            await test(one)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert one.leader.closed

    asyncio.run(run())


def test_all_partitions_are_asked_for_in_one_request_with_who_asks(tmp_path: Path) -> None:
    async def test(one: Following) -> None:
        pairs = [one.add("orders", 0), one.add("orders", 1), one.add("payments", 0)]
        for theirs, _ in pairs:
            theirs.write(b"a")
        await one.until(lambda: all(ours.content == theirs.content for theirs, ours in pairs))
        request = one.leader.fetches[0]
        assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (2, 52)
        assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10_485_760)
        assert (request.session_id, request.session_epoch) == (0, 0)
        asked = {topic.topic_id: [each.partition for each in topic.partitions] for topic in request.topics}
        assert asked == {TOPIC_IDS["orders"]: [0, 1], TOPIC_IDS["payments"]: [0]}

    following(tmp_path, test)


def test_a_partition_that_is_not_there_yet_waits_and_the_others_do_not(tmp_path: Path) -> None:
    async def test(one: Following) -> None:
        theirs, ours = one.add("orders", 0)
        _, late = one.add("orders", 1, on_leader=False)
        await one.until(lambda: len(one.leader.fetches) >= 50)
        count = sum(len(topic.partitions) > 1 for request in one.leader.fetches for topic in request.topics)
        assert count == 1
        theirs.write(b"a")
        one.leader.replicas[TOPIC_IDS["orders"], 1] = theirs
        await one.until(lambda: ours.content == theirs.content)
        assert 500 < await one.until(lambda: late.content == theirs.content) <= 1_000

    following(tmp_path, test)


def test_a_partition_that_lags_is_held_to_a_rate_and_the_others_are_not(tmp_path: Path) -> None:
    async def test(one: Following) -> None:
        theirs, ours = one.add("orders", 0)
        for _ in range(20):
            theirs.write(bytes(100))
        theirs.log.advance_high_watermark(theirs.log.log_end_offset)
        others, same = one.add("payments", 0)
        size = sum(map(len, theirs.content))
        one.throttle.update(500, {"orders": None})
        await one.until(lambda: bool(ours.content))
        others.write(b"a")
        assert await one.until(lambda: same.content == others.content) < 100
        took_ms = await one.until(lambda: ours.content == theirs.content)
        assert took_ms == pytest.approx(size / 500 * 1_000, rel=0.4)

    following(tmp_path, test)


def test_without_partitions_nothing_is_asked(tmp_path: Path) -> None:
    async def test(one: Following) -> None:
        for _ in range(100):
            await asyncio.sleep(0)
            one.clock.advance(100)
        assert one.leader.asked == []

    following(tmp_path, test)


@pytest.mark.parametrize("problem", ["no answer", "an error"])
def test_a_leader_without_an_answer_is_asked_again_after_the_backoff(tmp_path: Path, problem: str) -> None:
    async def test(one: Following) -> None:
        theirs, ours = one.add("orders", 0)
        if problem == "no answer":
            one.leader.problem = PeerUnreachable("refused")
        else:
            one.leader.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
        theirs.write(b"a")
        await one.until(lambda: len(one.leader.fetches) == 3)
        one.leader.problem, one.leader.error_code = None, 0
        assert 900 <= await one.until(lambda: ours.content == theirs.content) <= 1_000

    following(tmp_path, test)


def test_a_fenced_epoch_is_not_fetched_until_the_next_one_is_known(tmp_path: Path) -> None:
    async def test(one: Following) -> None:
        theirs, ours = one.add("orders", 0)
        theirs.lead(4)
        theirs.write(b"a")
        await one.until(lambda: one.fetcher.partitions == [])
        count = len(one.leader.fetches)
        one.clock.advance(60_000)
        await asyncio.sleep(0)
        assert len(one.leader.fetches) == count
        one.follow(TopicPartition("orders", 0), 4)
        await one.until(lambda: ours.content == theirs.content)

    following(tmp_path, test)


@pytest.mark.parametrize("becomes", ["left", "of another epoch"])
def test_an_answer_that_comes_too_late_changes_nothing(tmp_path: Path, becomes: str) -> None:
    async def test(one: Following) -> None:
        theirs, ours = one.add("orders", 0)
        place = TopicPartition("orders", 0)
        theirs.write(b"a")

        def change() -> None:
            one.leader.before_answer = lambda: None
            if becomes == "left":
                one.fetcher.leave(place)
            else:
                one.follow(place, 9)

        one.leader.before_answer = change
        await one.until(lambda: len(one.leader.fetches) >= 1)
        await one.until(lambda: becomes == "left" or len(one.leader.fetches) >= 2)
        assert ours.content == []

    following(tmp_path, test)


def test_the_leader_hears_of_records_that_are_to_be_flushed_once_they_are(tmp_path: Path) -> None:
    async def test(one: Following) -> None:
        theirs, ours = one.add("orders", 0)
        ours.log.config = ours.log.config.replace(flush_messages=1)
        one.may_flush.clear()
        theirs.write(b"a")
        await one.until(lambda: ours.content == theirs.content)
        count = len(one.leader.fetches)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(one.leader.fetches) == count
        one.may_flush.set()
        await one.until(lambda: len(one.leader.fetches) > count)
        assert ours.log.recovery_point == 1

    following(tmp_path, test)


def test_nothing_is_fetched_below_a_write_of_the_time_as_a_leader(tmp_path: Path) -> None:
    """The records came for the end before the write; they replaced the whole log once that had ended."""

    async def test(one: Following) -> None:
        theirs, ours = one.add("orders", 0, epoch=4)
        busy, known = one.add("payments", 0)
        busy.write(b"one")
        theirs.write(b"new")
        ours.lead(3)
        ours.log.stage(batch_of(b"mine"), leader_epoch=3)
        write = ours.log.begin_write(T)
        assert write is not None
        await one.until(lambda: known.content == busy.content)
        assert all(named(fetch) == [("payments", 0)] for fetch in one.leader.fetches)

        write.perform()
        ours.log.complete_write(write)

        await one.until(lambda: ours.content == theirs.content)

    following(tmp_path, test)


def test_a_log_that_cannot_be_flushed_rests_and_the_others_do_not(tmp_path: Path) -> None:
    async def test(one: Following) -> None:
        theirs, ours = one.add("orders", 0)
        ours.log.config = ours.log.config.replace(flush_messages=1)
        others, same = one.add("payments", 0)
        one.disk_is_full = True
        theirs.write(b"a")
        await one.until(lambda: ours.content == theirs.content)
        for value in (b"a", b"b", b"c"):
            others.write(value)
            assert await one.until(lambda: same.content == others.content) < 100
        count = len(one.leader.fetches)
        await one.until(lambda: len(one.leader.fetches) > count + 2_000)
        assert not told_positions(one.leader.fetches[count:], TOPIC_IDS["orders"])
        one.disk_is_full = False
        await one.until(lambda: told_positions(one.leader.fetches[count:], TOPIC_IDS["orders"]) == {1})

    following(tmp_path, test)


def told_positions(fetches: Sequence[FetchRequest], topic_id: bytes) -> set[int]:
    """From where a topic's partitions were fetched."""
    return {
        each.fetch_offset
        for request in fetches
        for topic in request.topics
        if topic.topic_id == topic_id
        for each in topic.partitions
    }


def test_an_offset_out_of_range_is_settled_with_the_leaders_offsets(tmp_path: Path) -> None:
    async def test(one: Following) -> None:
        theirs, ours = one.add("orders", 0)
        for value in (b"a" * 400, b"b" * 400, b"c" * 400):
            theirs.write(value)
        theirs.log.advance_high_watermark(3)
        theirs.log.start_offset_to(2)
        await one.until(lambda: ours.content == theirs.content)
        assert ours.log.log_start_offset == 2
        asked = [each for each in one.leader.asked if isinstance(each, ListOffsetsRequest)]
        wanted = [topic.partitions[0] for each in asked for topic in each.topics]
        assert [(each.timestamp, each.current_leader_epoch) for each in wanted] == [(-1, 3), (-4, 3)]
        assert {each.replica_id for each in asked} == {2}

    following(tmp_path, test)


def test_a_full_disk_is_logged_once_and_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(one: Following) -> None:
        theirs, ours = one.add("orders", 0)
        theirs.write(b"a")
        one.failure = DiskFull("no space in the directory")
        await one.until(lambda: len(one.leader.fetches) == 4)
        one.failure = None
        await one.until(lambda: ours.content == theirs.content)

    following(tmp_path, test)
    lines = [text for text in caplog.messages if "is not replicated" in text]
    assert lines == ["orders-0 is not replicated, trying again: no space in the directory"]


def test_a_partition_whose_answers_are_damaged_holds_no_other_one_up_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(one: Following) -> None:
        bad, behind = one.add("orders", 0)
        good, follower = one.add("orders", 1)
        bad.write(b"a")
        one.leader.damaged.add((TOPIC_IDS["orders"], 0))
        for number in range(1, 40):
            good.write(b"%d" % number)
            await one.until(lambda number=number: len(follower.content) == number)  # type: ignore[misc]
        await one.until(lambda: one.clock.monotonic_ms() > 10_000)
        assert behind.content == []
        assert one.fetcher.failed == 1
        fetches = sum(
            any(wanted.partition == 0 for wanted in topic.partitions)
            for request in one.leader.fetches
            for topic in request.topics
        )
        assert fetches <= 12  # one in a back-off of a second
        one.leader.damaged.clear()
        await one.until(lambda: behind.content == bad.content)
        assert one.fetcher.failed == 0

    following(tmp_path, test)
    (line,) = [text for text in caplog.messages if "is not replicated" in text]
    assert line.startswith("orders-0 is not replicated, trying again: node 1 has sent position 0: ")


def test_partitions_that_were_not_asked_for_or_come_twice_are_passed_over(tmp_path: Path) -> None:
    async def test(one: Following) -> None:
        theirs, ours = one.add("orders", 0)
        theirs.write(b"a")
        one.leader.repeats = True
        await one.until(lambda: ours.content == theirs.content)
        theirs.write(b"b")
        await one.until(lambda: ours.content == theirs.content)

    following(tmp_path, test)


def test_who_has_got_records_is_asked_for_last(tmp_path: Path) -> None:
    async def test(one: Following) -> None:
        theirs, _ = one.add("orders", 0)
        one.add("orders", 1)
        theirs.write(b"a")
        await one.until(lambda: len(one.leader.fetches) >= 2)
        orders = [[each.partition for each in request.topics[0].partitions] for request in one.leader.fetches[:2]]
        assert orders == [[0, 1], [1, 0]]

    following(tmp_path, test)


def named(request: FetchRequest) -> list[tuple[str, int]]:
    topics = {topic_id: name for name, topic_id in TOPIC_IDS.items()}
    return [(topics[bytes(topic.topic_id)], each.partition) for topic in request.topics for each in topic.partitions]


def test_in_a_session_only_what_has_changed_is_named(tmp_path: Path) -> None:
    async def test(one: Following) -> None:
        one.leader.gives_sessions = True
        pairs = [one.add("orders", 0), one.add("orders", 1), one.add("payments", 0)]
        await one.until(lambda: len(one.leader.fetches) >= 3)
        pairs[1][0].write(b"a")
        await one.until(lambda: pairs[1][1].content == pairs[1][0].content)
        count = len(one.leader.fetches)
        await one.until(lambda: len(one.leader.fetches) >= count + 3)
        first, *others = one.leader.fetches
        assert (first.session_id, first.session_epoch, len(named(first))) == (0, 0, 3)
        assert [(each.session_id, each.session_epoch) for each in others] == [(1, n + 1) for n in range(len(others))]
        assert [names for each in others if (names := named(each))] == [[("orders", 1)]]

    following(tmp_path, test)


def test_what_is_followed_no_more_is_forgotten_and_what_comes_later_is_named(tmp_path: Path) -> None:
    async def test(one: Following) -> None:
        one.leader.gives_sessions = True
        one.add("orders", 0)
        one.add("orders", 1)
        await one.until(lambda: len(one.leader.fetches) >= 2)
        one.fetcher.leave(TopicPartition("orders", 0))
        theirs, ours = one.add("payments", 0)
        theirs.write(b"a")
        await one.until(lambda: ours.content == theirs.content)
        assert set(one.leader.session) == {(TOPIC_IDS["orders"], 1), (TOPIC_IDS["payments"], 0)}
        one.follow(TopicPartition("orders", 1), 3)
        await one.until(lambda: named(one.leader.fetches[-1]) == [])
        assert set(one.leader.session) == {(TOPIC_IDS["orders"], 1), (TOPIC_IDS["payments"], 0)}

    following(tmp_path, test)


def test_a_partition_that_is_refused_leaves_the_session_until_its_time_has_come(tmp_path: Path) -> None:
    async def test(one: Following) -> None:
        one.leader.gives_sessions = True
        one.add("orders", 0)
        _, late = one.add("orders", 1, on_leader=False)
        await one.until(lambda: set(one.leader.session) == {(TOPIC_IDS["orders"], 0)})
        theirs = one.leader.replicas[TOPIC_IDS["orders"], 1] = one.leader.replicas[TOPIC_IDS["orders"], 0]
        theirs.write(b"a")
        assert 900 <= await one.until(lambda: late.content == theirs.content) <= 1_000
        assert [each.session_epoch for each in one.leader.fetches].count(0) == 1

    following(tmp_path, test)


def test_a_session_that_the_leader_has_lost_is_begun_anew_at_once(tmp_path: Path) -> None:
    async def test(one: Following) -> None:
        one.leader.gives_sessions = True
        theirs, ours = one.add("orders", 0)
        await one.until(lambda: len(one.leader.fetches) >= 2)
        one.leader.session_id = 7
        theirs.write(b"a")
        assert await one.until(lambda: ours.content == theirs.content) < 100
        assert [each.session_id for each in one.leader.fetches if each.session_epoch == 0] == [0, 0]

    following(tmp_path, test)


def test_after_a_lost_connection_the_session_is_ended_by_the_next_one(tmp_path: Path) -> None:
    async def test(one: Following) -> None:
        one.leader.gives_sessions = True
        theirs, ours = one.add("orders", 0)
        await one.until(lambda: len(one.leader.fetches) >= 2)
        one.leader.problem = PeerUnreachable("reset")
        count = len(one.leader.fetches)
        await one.until(lambda: len(one.leader.fetches) > count)
        one.leader.problem = None
        theirs.write(b"a")
        await one.until(lambda: ours.content == theirs.content)
        first, *later = [each.session_id for each in one.leader.fetches if each.session_epoch == 0]
        assert (first, set(later)) == (0, {1})

    following(tmp_path, test)


def test_the_leader_hears_of_a_log_start_that_retention_has_moved(tmp_path: Path) -> None:
    async def test(one: Following) -> None:
        one.leader.gives_sessions = True
        theirs, ours = one.add("orders", 0)
        theirs.write(b"a")
        theirs.log.advance_high_watermark(1)
        await one.until(lambda: ours.log.high_watermark == 1)
        ours.log.start_offset_to(1)
        wanted = one.leader.session[TOPIC_IDS["orders"], 0]
        await one.until(lambda: one.leader.session[TOPIC_IDS["orders"], 0].log_start_offset == 1)
        assert wanted.log_start_offset == 0

    following(tmp_path, test)


def test_the_leader_is_told_of_a_log_start_once_it_is_saved(tmp_path: Path) -> None:
    async def test(one: Following) -> None:
        theirs, ours = one.add("orders", 0)
        theirs.write(b"a")
        theirs.write(b"b")
        theirs.log.advance_high_watermark(2)
        await one.until(lambda: ours.content == theirs.content)
        one.may_save.clear()
        theirs.log.start_offset_to(1)
        theirs.write(b"c")

        await one.until(lambda: ours.log.log_start_offset == 1)
        asked = len(one.leader.fetches)
        for _ in range(20):
            await asyncio.sleep(0)
            one.clock.advance(1_000)
        assert len(one.leader.fetches) == asked, "what it says would be lost in a crash"

        one.may_save.set()
        await one.until(lambda: len(one.leader.fetches) > asked)
        assert one.saved == {TopicPartition("orders", 0): 1}
        assert one.leader.fetches[-1].topics[0].partitions[0].log_start_offset == 1

    following(tmp_path, test)


def test_the_leader_is_told_of_no_log_start_that_a_full_disk_does_not_take(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """DeleteRecords was answered with success, and a power cut brought the records back (replicated seed 230002670)."""

    async def test(one: Following) -> None:
        theirs, ours = one.add("orders", 0)
        others, same = one.add("payments", 0)
        theirs.write(b"a")
        theirs.log.advance_high_watermark(1)
        await one.until(lambda: ours.content == theirs.content)
        one.disk_is_full = True
        theirs.log.start_offset_to(1)
        theirs.write(b"b")

        await one.until(lambda: ours.log.log_start_offset == 1)
        others.write(b"c")
        await one.until(lambda: same.content == others.content)
        starts = [each.log_start_offset for request in one.leader.fetches for each in of_orders(request)]
        assert set(starts) == {0}

        one.disk_is_full = False
        await one.until(lambda: [each.log_start_offset for each in of_orders(one.leader.fetches[-1])] == [1])
        assert one.saved == {TopicPartition("orders", 0): 1}

    following(tmp_path, test)
    assert caplog.text.count("orders-0 is not replicated, trying again: the disk is full") == 1


def of_orders(request: FetchRequest) -> list[FetchRequest.Topic.Partition]:
    return [each for topic in request.topics if topic.topic_id == TOPIC_IDS["orders"] for each in topic.partitions]


def test_the_high_watermark_of_an_answer_that_came_too_late_is_told_again(tmp_path: Path) -> None:
    async def test(one: Following) -> None:
        one.leader.gives_sessions = True
        place = TopicPartition("orders", 0)
        theirs, ours = one.add("orders", 0)
        theirs.write(b"a")
        await one.until(lambda: ours.content == theirs.content)

        def change() -> None:
            if one.leader.watermarks[TOPIC_IDS["orders"], 0] == 1:
                one.leader.behind_answer = lambda: None
                theirs.lead(4)
                one.follow(place, 4)

        one.leader.behind_answer = change
        theirs.log.advance_high_watermark(1)
        await one.until(lambda: ours.log.high_watermark == 1)

    following(tmp_path, test)


def test_the_high_watermark_that_came_with_a_diverging_epoch_is_told_again(tmp_path: Path) -> None:
    async def test(one: Following) -> None:
        one.leader.gives_sessions = True
        place = TopicPartition("orders", 0)
        theirs, ours = one.add("orders", 0, epoch=1)
        other_theirs, other_ours = one.add("payments", 0)
        other_theirs.write(b"a")
        theirs.write(b"a")
        await one.until(lambda: ours.content == theirs.content and other_ours.content == other_theirs.content)
        one.fetcher.leave(place)
        await one.until(lambda: len(one.leader.session) == 1)
        theirs.log.advance_high_watermark(1)
        ours.lead(2)  # and writes nothing in its epoch
        theirs.lead(3)
        one.follow(place, 3)

        await one.until(lambda: ours.log.high_watermark == 1)

        assert ours.log.leader_epochs.latest == 1

    following(tmp_path, test)
