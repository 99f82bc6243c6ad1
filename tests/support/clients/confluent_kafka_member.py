"""confluent-kafka's consumer in a group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.support.clients import Place, Received, RequestFailed
from tests.support.clients.confluent_kafka_client import received
from tests.support.clients.members import (
    NO_OFFSET,
    POLL_MS,
    RECONNECT_MS,
    Assigned,
    CommitAnswered,
    CommitRefused,
    Membership,
    NotCommitted,
    Revoked,
    Tell,
)

MOST_RECORDS = 500

GROUP_HAS_MOVED_ON = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._ASSIGNMENT_LOST,
}
GOES_ON = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._MAX_POLL_EXCEEDED}
"""Errors that librdkafka reports and recovers from by itself."""


class GroupConsumer:
    """A member with confluent-kafka. Callbacks of rebalances are called in `poll`."""

    def __init__(self, address: dict[str, Any], membership: Membership, tell: Tell) -> None:
        options: dict[str, Any] = {
            **address,
            "group.id": membership.group,
            "auto.offset.reset": "earliest" if membership.without_offset == "earliest" else "error",
            "reconnect.backoff.max.ms": RECONNECT_MS,
            "enable.auto.commit": membership.commits == "by itself",
        }
        if membership.instance_id is not None:
            options["group.instance.id"] = membership.instance_id
        if membership.protocol == "consumer":
            membership = replace(membership, assignor=None, session_timeout_ms=None, heartbeat_ms=None)
            options["group.protocol"] = "consumer"
        if membership.assignor is not None:
            options["partition.assignment.strategy"] = membership.assignor
        if membership.rebalance_timeout_ms is not None:
            options["max.poll.interval.ms"] = membership.rebalance_timeout_ms
        if membership.session_timeout_ms is not None:
            options["session.timeout.ms"] = membership.session_timeout_ms
        if membership.heartbeat_ms is not None:
            options["heartbeat.interval.ms"] = membership.heartbeat_ms
        self._tell = tell
        self._commits_after_polls = membership.commits == "after each poll"
        self._behind: dict[Place, int] = {}
        self._consumer = Consumer(options)
        self._consumer.subscribe(
            list(membership.topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def poll(self) -> list[Received]:
        # One by one: what `consume` has gathered may belong to others by the time it returns.
        records: list[Received] = []
        message = self._consumer.poll(POLL_MS / 1000)
        while message is not None:
            if (error := message.error()) is not None:
                if error.code() not in GOES_ON:
                    raise RequestFailed(_code(error), str(error))
            else:
                records.append(received(message))
                self._behind[Place(str(message.topic()), records[-1].partition)] = records[-1].offset + 1
            if len(records) == MOST_RECORDS:
                break
            message = self._consumer.poll(0)
        return records

    def commit(self) -> dict[Place, int]:
        offsets, self._behind = self._behind, {}
        return self._commit(offsets) if offsets else {}

    def _commit(self, offsets: dict[Place, int]) -> dict[Place, int]:
        try:
            answers = self._consumer.commit(
                offsets=[TopicPartition(*place, offset) for place, offset in offsets.items()], asynchronous=False
            )
        except KafkaException as refused:
            _raise(refused.args[0])
        for answer in answers or ():
            if answer.error is not None:
                _raise(answer.error)
        return offsets

    def pause(self, places: Iterable[Place]) -> None:
        self._consumer.pause([TopicPartition(*place) for place in places])

    def resume(self, places: Iterable[Place]) -> None:
        self._consumer.resume([TopicPartition(*place) for place in places])

    def close(self) -> None:
        self._consumer.close()

    def _assigned(self, _: Consumer, assigned: list[TopicPartition]) -> None:
        self._tell(Assigned(_places(assigned)))

    def _revoked(self, consumer: Consumer, revoked: list[TopicPartition]) -> None:
        # A rebalance may come among the records of a poll: what was read of these partitions is not committed later.
        offsets = {place: self._behind[place] for place in _places(revoked) & self._behind.keys()}
        if offsets and self._commits_after_polls:
            try:
                self._tell(CommitAnswered(self._commit(offsets)))
            except NotCommitted as error:
                self._tell(CommitRefused(str(error)))
        self._lost(consumer, revoked)

    def _lost(self, _: Consumer, lost: list[TopicPartition]) -> None:
        places = _places(lost)
        self._behind = {place: offset for place, offset in self._behind.items() if place not in places}
        self._tell(Revoked(places))


def _places(partitions: Iterable[TopicPartition]) -> frozenset[Place]:
    return frozenset(Place(one.topic, one.partition) for one in partitions)


def _raise(error: KafkaError) -> None:
    if error.code() in GROUP_HAS_MOVED_ON:
        raise NotCommitted(str(error))
    raise RequestFailed(_code(error), str(error))


def _code(error: KafkaError) -> int:
    """The broker's error code. librdkafka has it only in the text of an error if it takes the error for the consumer's
    end."""
    fenced = KafkaError.FENCED_INSTANCE_ID
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        return NO_OFFSET
    return fenced if error.code() == KafkaError._FATAL and KafkaError(fenced).str() in error.str() else error.code()
