"""kafka-python's consumer in a group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import (
    BrokerResponseError,
    CommitFailedError,
    KafkaConnectionError,
    NoOffsetForPartitionError,
    RebalanceInProgressError,
)

from tests.support.clients import Place, Received, RequestFailed
from tests.support.clients.kafka_python_client import received
from tests.support.clients.members import (
    NO_OFFSET,
    POLL_MS,
    RECONNECT_MS,
    Assigned,
    Membership,
    NotCommitted,
    Revoked,
    Tell,
)

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class GroupConsumer(ConsumerRebalanceListener):  # type: ignore[misc]
    """A member with kafka-python. It rejoins in `poll` only; heartbeats come from a thread of its own."""

    def __init__(self, address: dict[str, Any], membership: Membership, tell: Tell) -> None:
        options: dict[str, Any] = {
            **address,
            "group_id": membership.group,
            "group_instance_id": membership.instance_id,
            "auto_offset_reset": "earliest" if membership.without_offset == "earliest" else "none",
            "reconnect_backoff_max_ms": RECONNECT_MS,
            "enable_auto_commit": membership.commits == "by itself",
        }
        if membership.assignor is not None:
            options["partition_assignment_strategy"] = [ASSIGNORS[membership.assignor]]
        if membership.rebalance_timeout_ms is not None:
            options["max_poll_interval_ms"] = membership.rebalance_timeout_ms
        if membership.session_timeout_ms is not None:
            options["session_timeout_ms"] = membership.session_timeout_ms
        if membership.heartbeat_ms is not None:
            options["heartbeat_interval_ms"] = membership.heartbeat_ms
        self._tell = tell
        self._behind: dict[Place, int] = {}
        self._consumer = KafkaConsumer(**options)
        self._consumer.subscribe(list(membership.topics), listener=self)
        # A leader that does not know its topic yet assigns nothing, and joins again when it does. If a poll's time is
        # over in the middle of that, no later poll sees a reason to join, and the member is stuck with its new
        # assignment never applied (3.0.12). So it joins with the topic known.
        for topic in membership.topics:
            self._consumer.partitions_for_topic(topic)

    def poll(self) -> list[Received]:
        try:
            batches = self._consumer.poll(timeout_ms=POLL_MS)
        except BrokerResponseError as error:
            raise RequestFailed(error.errno, str(error)) from error
        except KafkaConnectionError:
            return []  # no broker at the moment: a program polls again
        except NoOffsetForPartitionError as error:
            raise RequestFailed(NO_OFFSET, str(error)) from error
        for place, records in batches.items():
            self._behind[Place(*place)] = records[-1].offset + 1
        return [received(record) for records in batches.values() for record in records]

    def commit(self) -> dict[Place, int]:
        offsets, self._behind = self._behind, {}
        try:
            self._consumer.commit(
                {TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()}
            )
        except (CommitFailedError, RebalanceInProgressError) as error:
            raise NotCommitted(str(error)) from error
        except BrokerResponseError as error:
            raise RequestFailed(error.errno, str(error)) from error
        return offsets

    def pause(self, places: Iterable[Place]) -> None:
        self._consumer.pause(*(TopicPartition(*place) for place in places))

    def resume(self, places: Iterable[Place]) -> None:
        self._consumer.resume(*(TopicPartition(*place) for place in places))

    def close(self) -> None:
        self._consumer.close()

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._tell(Assigned(frozenset(Place(*place) for place in assigned)))

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        places = frozenset(Place(*place) for place in revoked)
        self._behind = {place: offset for place, offset in self._behind.items() if place not in places}
        self._tell(Revoked(places))
