"""Leaders: lets partitions have another leader epoch, or no leader for a while, as the cluster's controller does.

What follows is the broker's own: clients with the former epoch are fenced, requests that wait are answered,
coordinators are unloaded, and loaded again from their partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.controller.local_controller import LocalController
from broker.coordinators.partitioning import partition_of
from protocol.records.cluster_metadata import NO_LEADER, PartitionChangeRecord
from storage.errors import StorageError
from storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from broker.control.faults.rule import Asked, NewRule
    from broker.server.broker_server import BrokerServer

log = logging.getLogger(__name__)


class Leaders:
    """What a rule lets become of the partitions that this broker leads."""

    def __init__(self, server: BrokerServer, given: NewRule, asked: Asked) -> None:
        """``asked`` is the request that the rule ``given`` applies to."""
        controller = server.components.controller
        assert isinstance(controller, LocalController), "a broker for tests has a controller of its own"
        self._server = server
        self._controller = controller
        self._away_ms = given.away_ms
        self._has_pause = given.move_coordinator or given.away_ms > 0
        self._partitions = self._coordinating(given, asked) if given.move_coordinator else self._named(given, asked)

    def change(self, then: Callable[[], None]) -> None:
        """Let the partitions have a new leader epoch, or no leader, and call ``then`` once all of the broker knows.
        Partitions without leader get it back after the pause, and not before ``then`` has returned."""
        if not self._has_pause:
            self._lead(self._controller.node_id, then)
            return

        def gone() -> None:
            then()
            if self._away_ms:
                self._server.services.scheduler.once(self._away_ms, come_back)
            else:
                come_back()  # also by a clock that stands

        def come_back() -> None:
            self._lead(self._controller.node_id, _nothing)

        self._lead(NO_LEADER, gone)

    def _lead(self, leader: int, then: Callable[[], None]) -> None:
        topics = self._controller.image.topics.by_name
        changes = [
            PartitionChangeRecord(topic_id=topics[topic].topic_id, partition_id=index, leader=leader)
            for topic, index in self._partitions
            if topic in topics and topics[topic].partition(index) is not None  # not deleted meanwhile
        ]
        try:
            self._controller.append(changes, then)
        except StorageError as error:
            log.warning("no leader changes: %s", error)
            then()

    def _named(self, given: NewRule, asked: Asked) -> Sequence[TopicPartition]:
        """The partitions of the rule's topic that the request names; all where it names none."""
        assert given.topic is not None, "a rule about a leader epoch has a topic"
        topic = self._controller.image.topics.by_name.get(given.topic)
        every = [] if topic is None else [one.index for one in topic.partitions]
        named = asked.places[given.topic] or every
        return [TopicPartition(given.topic, index) for index in named if given.partition in (None, index)]

    def _coordinating(self, given: NewRule, asked: Asked) -> Sequence[TopicPartition]:
        """The partition whose leader is the coordinator; none while the topic of such partitions does not exist."""
        found = next(one for one in asked.coordinated if given.group in (None, one.key))
        topic = self._controller.image.topics.by_name.get(found.topic)
        if topic is None:
            return []
        return [TopicPartition(found.topic, partition_of(found.key, len(topic.partitions)))]


def _nothing() -> None:
    """Nobody waits for the leader."""
