"""ReplicaFetcher: fetches from one leader all partitions that it leads and this broker follows, a request at a time.

The requests belong to a fetch session (`broker.replication.fetch_session`): a request names those partitions of which
something has changed. What follows from an answer is decided by each partition's `ReplicaFetch`, and carried out by a
`StepPerformer`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from broker.peers.errors import PeerError
from broker.peers.peer import Peer
from broker.replication.fetch_session import LOST, FollowerSession, Place
from broker.replication.replica_fetch import (
    Append,
    AskOffset,
    AwaitMetadata,
    BackOff,
    BeginAnew,
    ReplicaFetch,
    Truncate,
)
from broker.replication.throttles import ReplicationThrottle
from broker.runtime.clock import Clock
from broker.runtime.waiting import set_by
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from storage.errors import StorageError
from storage.topic_partition import TopicPartition

log = logging.getLogger(__name__)

WRITE_ENDS_MS: Final = 5
"""How often it is looked whether a write of the time as a leader has ended, which is in a thread."""

LONGEST_PAUSE_MS: Final = 1_000
"""After so long it is asked again whether replication is too fast: the rate may have been changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherSettings:
    """The settings of replication, with Kafka's defaults."""

    max_wait_ms: int = 500
    """`replica.fetch.wait.max.ms`"""
    min_bytes: int = 1
    """`replica.fetch.min.bytes`"""
    response_max_bytes: int = 10_485_760
    """`replica.fetch.response.max.bytes`"""
    partition_max_bytes: int = 1_048_576
    """`replica.fetch.max.bytes`"""
    backoff_ms: int = 1_000
    """`replica.fetch.backoff.ms`"""
    timeout_ms: int = 30_000
    """`replica.socket.timeout.ms`"""


class FetcherStats:
    """What the fetches from one leader count."""

    __slots__ = ("bytes", "requests")

    def __init__(self) -> None:
        self.requests = 0
        """Fetches that the leader has answered."""
        self.bytes = 0
        """Bytes of batches in these answers."""


class FollowedPartition:
    """A partition that is fetched, in one leader epoch."""

    __slots__ = ("fetch", "lag", "leader_epoch", "not_before_ms", "topic_id", "topic_partition")

    def __init__(
        self, topic_partition: TopicPartition, *, topic_id: bytes, leader_epoch: int, fetch: ReplicaFetch
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.fetch = fetch
        self.not_before_ms = 0
        """It is not fetched before this time, by the monotonic clock."""
        self.lag: int | None = None
        """How many offsets the log's end was behind the leader's high watermark at the last answer; None before."""

    @property
    def place(self) -> Place:
        """Topic id and index."""
        return self.topic_id, self.topic_partition.partition


class StepPerformer(Protocol):
    """Carries decisions out on the log of a partition."""

    async def perform(self, followed: FollowedPartition, step: Append | Truncate | BeginAnew) -> None:
        """Change the log. Raises StorageError: the partition is fetched again later, if it is still followed."""

    def is_log_start_saved(self, followed: FollowedPartition) -> bool:
        """Whether the log would begin after a power cut where it begins now."""

    async def save_log_starts(self, unsaved: Sequence[FollowedPartition]) -> Mapping[TopicPartition, StorageError]:
        """Save the starts of these logs. Returns the error of each that could not be saved."""

    async def flush(self, due: Sequence[FollowedPartition]) -> None:
        """Do the flushes of these logs that are due, as far as the disk lets them be done."""


class ReplicaFetcher:
    """The fetches from one leader. `run` is a task of the broker."""

    def __init__(
        self,
        peer: Peer,
        performer: StepPerformer,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        clock: Clock,
        settings: FetcherSettings = FetcherSettings(),
        throttle: ReplicationThrottle | None = None,
    ) -> None:
        """
        Args:
            peer: the leader, over a connection of the fetcher's own.
            performer: changes the logs.
            node_id: this broker.
            broker_epoch: that of this broker's registration.
            clock: the time.
            settings: those of replication.
            throttle: how fast replicas that lag may catch up; None: without a limit.
        """
        self._throttle = throttle
        self._peer = peer
        self._performer = performer
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._settings = settings
        self._followed: dict[TopicPartition, FollowedPartition] = {}
        """In the order in which a full request asks for them: who was answered with records goes to the end."""
        self._resting: dict[TopicPartition, FollowedPartition] = {}
        """Those of them that are not fetched before a later time."""
        self._session: FollowerSession[FollowedPartition] = FollowerSession()
        self._session_epoch = -1
        """The epoch of the broker's registration in which the session has begun."""
        self._news: dict[TopicPartition, FollowedPartition] = {}
        """Of which the leader may have to be told something else than before."""
        self._unwanted: set[Place] = set()
        """What the leader was told of and is not to be fetched at present."""
        self._changed = asyncio.Event()
        self.stats = FetcherStats()
        self._problems: dict[TopicPartition, str] = {}
        """The last problem of each partition that has one, which is logged once."""

    def follow(self, followed: FollowedPartition) -> None:
        """Fetch a partition from now on; a new leader epoch replaces the old one."""
        self.leave(followed.topic_partition)
        self._followed[followed.topic_partition] = self._news[followed.topic_partition] = followed
        self._changed.set()

    def leave(self, topic_partition: TopicPartition) -> None:
        """Fetch a partition no more: an answer that is under way changes its log no more."""
        followed = self._followed.pop(topic_partition, None)
        if followed is not None:
            self._unwanted.add(followed.place)
        for those in (self._resting, self._news, self._problems):
            those.pop(topic_partition, None)

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that are fetched, or will be when they have waited."""
        return list(self._followed)

    @property
    def failed(self) -> int:
        """How many of the partitions cannot be fetched, for a reason that was logged."""
        return len(self._problems)

    def followed(self, topic_partition: TopicPartition) -> FollowedPartition | None:
        """A partition that is fetched, by its name."""
        return self._followed.get(topic_partition)

    @property
    def max_lag(self) -> int:
        """The largest lag of a partition."""
        return max((one.lag or 0 for one in self._followed.values()), default=0)

    async def run(self) -> None:
        """Fetch until the task is cancelled."""
        try:
            while True:
                self._wake()
                self._hold_back()
                await self._persist()
                self._pass_over_written()
                if len(self._resting) < len(self._followed):
                    await self._fetch()
                else:
                    await self._wait()
        finally:
            self._peer.close()

    def _wake(self) -> None:
        """Fetch again what has rested long enough."""
        if not self._resting:
            return
        now_ms = self._clock.monotonic_ms()
        for one in [one for one in self._resting.values() if one.not_before_ms <= now_ms]:
            del self._resting[one.topic_partition]
            self._news[one.topic_partition] = one

    def _hold_back(self) -> None:
        """Fetch replicas that lag later, if replication is too fast (KIP-73)."""
        throttle = self._throttle
        if throttle is None or not throttle.partitions:
            return
        pause_ms = throttle.pause_ms()
        if pause_ms:
            lagging = [
                one
                for one in self._followed.values()
                if one.lag != 0 and one.topic_partition not in self._resting and throttle.holds_for(one.topic_partition)
            ]
            self._rest(lagging, min(pause_ms, LONGEST_PAUSE_MS))

    async def _persist(self) -> None:
        """Bring to the disk what the leader may hear of only then: records whose flush `flush.messages` demands, and
        the starts of logs, for which the leader's answer to DeleteRecords waits. A log rests where that fails."""
        performer = self._performer
        while True:
            wanted = self._wanted
            if due := [one for one in wanted if one.fetch.is_flush_due]:
                await performer.flush(due)
                self._rest([one for one in due if one.fetch.is_flush_due])
            elif moved := [one for one in wanted if not performer.is_log_start_saved(one)]:
                errors = await performer.save_log_starts(moved)
                for one in moved:
                    if (error := errors.get(one.topic_partition)) is not None:
                        self._rest([one])
                        self._log_once(one, str(error))
            else:
                return

    def _pass_over_written(self) -> None:
        """Fetch later what is being written since this broker led: an answer would be taken for another end."""
        self._rest([one for one in self._wanted if one.fetch.is_being_written], WRITE_ENDS_MS)

    async def _wait(self) -> None:
        """Wait until a partition is due, or another one is to be followed."""
        self._changed.clear()
        if self._resting:
            await set_by(self._clock, min(one.not_before_ms for one in self._resting.values()), self._changed)
        else:
            await self._changed.wait()

    async def _fetch(self) -> None:
        request = self._request()
        is_full = self._session.is_full
        settings = self._settings
        try:
            answer = await self._peer.ask(
                request, FetchResponse, timeout_ms=settings.timeout_ms,
                largest_answer_bytes=2 * settings.response_max_bytes,
            )  # fmt: skip
        except PeerError:  # which the peer has logged
            self._session.lose(may_be_there=True)
            self._rest(self._followed.values())
            return
        self.stats.requests += 1
        if answer.error_code != ErrorCode.NONE:
            is_lost = answer.error_code in LOST
            self._session.lose(may_be_there=not is_lost)
            if is_full or not is_lost:
                self._rest(self._followed.values())
            return
        self._session.answered(answer.session_id)
        await self._take_all(answer, is_full=is_full)

    def _request(self) -> FetchRequest:
        settings = self._settings
        broker_epoch = self._broker_epoch()
        if broker_epoch != self._session_epoch:
            self._session_epoch = broker_epoch
            self._session.lose(may_be_there=True)
        request = FetchRequest(
            replica_state=FetchRequest.ReplicaState(replica_id=self._node_id, replica_epoch=broker_epoch),
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            topics=[],
        )
        most = settings.partition_max_bytes
        self._session.fill(
            request,
            [(one.topic_id, one, one.fetch.request(one.topic_partition.partition, most)) for one in self._wanted],
            self._unwanted,
        )
        self._news.clear()
        self._unwanted.clear()
        return request

    async def _take_all(self, answer: FetchResponse, *, is_full: bool) -> None:
        missing = {one.place: one for one, _ in self._session.told()} if is_full else {}
        has_records = False
        for topic in answer.responses:
            for partition in topic.partitions:
                place = bytes(topic.topic_id), partition.partition_index
                missing.pop(place, None)
                found = self._session.of(place)
                if found is None:
                    continue
                if self._is_followed(found):
                    has_records = has_records or bool(partition.records)
                    await self._take(found, partition)
                if found.topic_partition in self._followed and not self._is_followed(found):
                    # The leader epoch has changed meanwhile, and the leader's high watermark in the answer may not have
                    # been taken: within the session it would not be told again until it moves.
                    self._session.lose(may_be_there=True)
        self._rest(missing.values())
        if not has_records:
            self._note_log_starts()

    def _note_log_starts(self) -> None:
        """Retention on this broker moves the start of a log, which the leader has to know. There is time to look for
        that when nothing is written."""
        for one, told in self._session.told():
            if one.fetch.log_start_offset != told.log_start_offset and self._is_followed(one):
                self._news[one.topic_partition] = one

    async def _take(self, one: FollowedPartition, answer: FetchResponse.Response.Partition) -> None:
        """Carry out what follows from an answer."""
        self._news[one.topic_partition] = one
        step = one.fetch.answered(answer)
        while isinstance(step, AskOffset):
            offset = await self._offset(one, step)
            if not self._is_followed(one):
                return
            step = BackOff() if offset is None else one.fetch.offset_answered(step, offset)
        match step:
            case AwaitMetadata():
                self.leave(one.topic_partition)
            case BackOff(problem):
                self._rest([one])
                self._log_once(one, problem)
            case _:
                try:
                    await self._performer.perform(one, step)
                except StorageError as error:
                    self._rest([one])
                    self._log_once(one, str(error))
                    return
                if isinstance(step, Truncate):
                    # With the diverging epoch the leader has told its high watermark, which could not be taken: within
                    # the session it would not be told again until it moves.
                    self._session.lose(may_be_there=True)
                self._problems.pop(one.topic_partition, None)
                if isinstance(step, Append):
                    self._count(one, step)
                    if step.batches and self._is_followed(one):
                        # So that each has its turn, where an answer has no room for all.
                        self._followed[one.topic_partition] = self._followed.pop(one.topic_partition)

    def _count(self, one: FollowedPartition, step: Append) -> None:
        size = sum(len(batch) for batch in step.batches)
        self.stats.bytes += size
        if self._throttle is not None:
            self._throttle.count(one.topic_partition, size)
        one.lag = max(step.high_watermark - one.fetch.log_end_offset, 0)

    async def _offset(self, one: FollowedPartition, step: AskOffset) -> int | None:
        """The leader's answer to ListOffsets; None if there is none."""
        of_topic = ListOffsetsRequest.Topic
        topic, partition = one.topic_partition
        wanted = of_topic.Partition(
            partition_index=partition, current_leader_epoch=one.leader_epoch, timestamp=step.timestamp
        )
        request = ListOffsetsRequest(replica_id=self._node_id, topics=[of_topic(name=topic, partitions=[wanted])])
        try:
            answer = await self._peer.ask(request, ListOffsetsResponse, timeout_ms=self._settings.timeout_ms)
            ((found,),) = (each.partitions for each in answer.topics)
        except (PeerError, ValueError):
            return None
        return found.offset if found.error_code == ErrorCode.NONE else None

    # ------------------------------------------------------------------------------------------------------------------

    @property
    def _wanted(self) -> list[FollowedPartition]:
        """The partitions of which the next request tells the leader something."""
        those = self._followed if self._session.is_full else self._news
        return [one for one in those.values() if one.topic_partition not in self._resting]

    def _is_followed(self, one: FollowedPartition) -> bool:
        """Whether the partition is still followed in the leader epoch of the request."""
        return self._followed.get(one.topic_partition) is one

    def _rest(self, ones: Iterable[FollowedPartition], time_ms: int | None = None) -> None:
        """Fetch partitions later: after ``time_ms``, or after the usual time."""
        until_ms = self._clock.monotonic_ms() + (self._settings.backoff_ms if time_ms is None else time_ms)
        for one in ones:
            if self._is_followed(one):
                one.not_before_ms = until_ms
                self._resting[one.topic_partition] = one
                self._news.pop(one.topic_partition, None)
                self._unwanted.add(one.place)

    def _log_once(self, one: FollowedPartition, problem: str | None) -> None:
        if problem is not None and self._problems.get(one.topic_partition) != problem:
            self._problems[one.topic_partition] = problem
            log.error("%s is not replicated, trying again: %s", one.topic_partition, problem)
