"""CoordinatedPersister: asks the share coordinators, on this node and on others, until they answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.coordinators.partitioning import partition_of
from broker.coordinators.share.persister import SharePartitionKey, ShareState
from broker.coordinators.share.requests import (
    Delete,
    Initialize,
    Read,
    StateAnswer,
    StateReply,
    StateRequest,
    Summarize,
    Write,
)
from broker.coordinators.share_coordinator import ShareCoordinator, coordinator_key
from broker.metadata.cache import MetadataCache
from broker.metadata.image.metadata_image import MetadataDelta, MetadataImage
from broker.metadata.topic_rules import SHARE_GROUP_STATE
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.coordinators.remote_share_states import RemoteShareStates

MOST_ATTEMPTS: Final = 5
FIRST_PAUSE_MS: Final = 2_000
LONGEST_PAUSE_MS: Final = 30_000
JITTER: Final = 0.2
"""Kafka's persister pauses for that long, twice as long after each attempt."""

RETRIED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""What may pass: the coordinator is loading or moves, or its metadata lag behind."""


class _Question:
    """A request, and how often it has been asked in vain."""

    __slots__ = ("attempts", "reply", "request")

    def __init__(self, request: StateRequest, reply: StateReply) -> None:
        self.request = request
        self.reply = reply
        self.attempts = 0


class CoordinatedPersister:
    """The `SharePersister` of a broker. The topic of the states is created with the first request."""

    def __init__(
        self,
        coordinator: ShareCoordinator,
        *,
        node_id: int,
        metadata: MetadataCache,
        create_topic: Callable[[], None],
        later: Callable[[int, Callable[[], None]], object],
        chance: Callable[[], float],
        remote: RemoteShareStates | None,
    ) -> None:
        """
        Args:
            coordinator: the coordinator on this node.
            node_id: this node.
            metadata: says who leads the partitions of ``__share_group_state``.
            create_topic: has that topic created.
            later: calls after so many milliseconds.
            chance: returns a number from 0 to 1.
            remote: asks the coordinators on other nodes; None where there are none.
        """
        self._coordinator = coordinator
        self._node_id = node_id
        self._metadata = metadata
        self._create_topic = create_topic
        self._later = later
        self._chance = chance
        self._remote = remote
        self._waiting: dict[_Question, None] = {}
        """The questions that are asked again later, in their order."""
        self._is_stopped = False

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, then: Callable[[ErrorCode], None]
    ) -> None:
        """Part of `SharePersister`."""
        self._ask(_Question(Initialize(key, state_epoch, start_offset), lambda answer: then(answer.code)))

    def read(
        self, key: SharePartitionKey, leader_epoch: int, then: Callable[[ErrorCode, ShareState | None], None]
    ) -> None:
        """Part of `SharePersister`."""
        self._ask(_Question(Read(key, leader_epoch), lambda answer: then(answer.code, answer.state)))

    def write(self, key: SharePartitionKey, state: ShareState, then: Callable[[ErrorCode], None]) -> None:
        """Part of `SharePersister`."""
        self._ask(_Question(Write(key, state), lambda answer: then(answer.code)))

    def delete(self, key: SharePartitionKey, then: Callable[[ErrorCode], None]) -> None:
        """Part of `SharePersister`."""
        self._ask(_Question(Delete(key), lambda answer: then(answer.code)))

    def summarize(
        self, key: SharePartitionKey, leader_epoch: int, then: Callable[[ErrorCode, ShareState | None], None]
    ) -> None:
        """Part of `SharePersister`."""
        self._ask(_Question(Summarize(key, leader_epoch), lambda answer: then(answer.code, answer.state)))

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Part of `MetadataSubscriber`: what waits is asked again where coordinators may have moved."""
        topics = delta.topics
        has_moved = SHARE_GROUP_STATE in topics.created or any(
            changed.topic == SHARE_GROUP_STATE for changed in topics.changed_partitions
        )
        if self._waiting and has_moved:
            waiting, self._waiting = self._waiting, {}
            for question in waiting:
                self._ask(question)

    def stop(self) -> None:
        """Ask nothing any more: what waits, and what comes, is answered COORDINATOR_NOT_AVAILABLE."""
        self._is_stopped = True
        waiting, self._waiting = self._waiting, {}
        for question in waiting:
            question.reply(_NOT_AVAILABLE)

    def _ask(self, question: _Question) -> None:
        if self._is_stopped:
            question.reply(_NOT_AVAILABLE)
            return
        topic = self._metadata.image.topics.by_name.get(SHARE_GROUP_STATE)
        answered = partial(self._answered, question)
        if topic is None:
            self._create_topic()
            answered(_NOT_AVAILABLE)
            return
        partition = topic.partition(partition_of(coordinator_key(question.request.key), len(topic.partitions)))
        if partition is not None and partition.leader == self._node_id:
            self._coordinator.ask(question.request, answered)
        elif partition is None or partition.leader < 0 or self._remote is None:
            answered(_NOT_AVAILABLE)
        else:
            self._remote.ask(partition.leader, question.request, answered)

    def _answered(self, question: _Question, answer: StateAnswer) -> None:
        question.attempts += 1
        if answer.code not in RETRIED or question.attempts >= MOST_ATTEMPTS or self._is_stopped:
            question.reply(answer)
            return
        pause_ms = min(FIRST_PAUSE_MS << (question.attempts - 1), LONGEST_PAUSE_MS)
        self._waiting[question] = None
        self._later(int(pause_ms * (1 + JITTER * (2 * self._chance() - 1))), partial(self._ask_again, question))

    def _ask_again(self, question: _Question) -> None:
        if question in self._waiting:  # else it has been asked since
            del self._waiting[question]
            self._ask(question)


_NOT_AVAILABLE: Final = StateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no share coordinator is available")
