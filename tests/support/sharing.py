"""Share groups of a running broker, seen from outside: configs of groups, and members."""

from __future__ import annotations

from types import TracebackType
from typing import Any, NamedTuple, Self

from config.resources import ConfigResource
from dev.waiting import until
from protocol.errors import ErrorCode
from protocol.messages.configs import IncrementalAlterConfigsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.share_groups import ShareGroupHeartbeatRequest
from tests.support.raw_client import RawClient
from tests.support.share_groups import ShareMember

QUICK = {
    "group.share.min.heartbeat.interval.ms": "200",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.session.timeout.ms": "2000",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.assignment.interval.ms": "0",
}
"""Settings of a broker whose share groups notice soon what has changed."""


def configure_group(bootstrap: str, group_id: str, **configs: str) -> None:
    """Set configs of a share group: ``record_lock_duration_ms="1000"`` for share.record.lock.duration.ms."""
    of_request = IncrementalAlterConfigsRequest.Resource
    resource = of_request(
        resource_type=ConfigResource.GROUP,
        resource_name=group_id,
        configs=[
            of_request.Config(name=f"share.{name.replace('_', '.')}", config_operation=0, value=value)
            for name, value in configs.items()
        ],
    )
    with RawClient(bootstrap) as client:
        answer = client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert answer.responses[0].error_code == ErrorCode.NONE, answer


def from_the_beginning(bootstrap: str, group_id: str) -> None:
    """Let a group begin with the first record of each partition."""
    configure_group(bootstrap, group_id, auto_offset_reset="earliest")


def topic_id_of(bootstrap: str, topic: str) -> bytes:
    """The id of a topic that exists."""
    asked = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)], allow_auto_topic_creation=False)
    with RawClient(bootstrap) as client:
        [found] = client.ask(asked, 12).topics
    assert found.error_code == ErrorCode.NONE, found
    return bytes(found.topic_id)


class Taken(NamedTuple):
    """A record that a share consumer has got."""

    value: bytes
    delivery_count: int
    message: Any
    """What the consumer acknowledges the record by."""


class ShareTaker:
    """A share consumer of librdkafka that works in the test's own thread."""

    def __init__(self, bootstrap: str, group_id: str, *topics: str, mode: str = "explicit", **settings: Any) -> None:
        """``mode``: whether each record is acknowledged by itself (explicit), or all by the next poll (implicit)."""
        from confluent_kafka import ShareConsumer

        self._consumer = ShareConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group_id,
                "share.acknowledgement.mode": mode,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self._consumer.subscribe(list(topics))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def poll(self, timeout_s: float = 0.2) -> list[Taken]:
        """Take what comes next."""
        messages = self._consumer.poll(timeout_s)
        return [Taken(one.value(), one.delivery_count(), one) for one in messages if one.error() is None]

    def take(self) -> list[Taken]:
        """Take what comes next, which is waited for."""
        found: list[Taken] = []

        def has_some() -> bool:
            found.extend(self.poll())
            return bool(found)

        until(has_some, "records for a share consumer")
        return found

    def acknowledge(self, taken: list[Taken], what: str = "ACCEPT") -> None:
        """Say of records that they are done, or are to be delivered to others (RELEASE) or to nobody (REJECT)."""
        from confluent_kafka import AcknowledgeType

        for one in taken:
            self._consumer.acknowledge(one.message, AcknowledgeType[what])

    def commit(self) -> None:
        """Send the acknowledgements; all must be taken."""
        refused = {str(place): error for place, error in self._consumer.commit_sync(30.0).items() if error is not None}
        assert not refused, refused

    def work_off(self, count: int) -> dict[bytes, int]:
        """Accept so many different records. Returns the delivery count of each."""
        done: dict[bytes, int] = {}

        def is_done() -> bool:
            taken = self.poll()
            self.acknowledge(taken)
            if taken:
                self.commit()
            done.update((one.value, one.delivery_count) for one in taken)
            return len(done) >= count

        until(is_done, f"{count} records are worked off")
        return done

    def close(self) -> None:
        """Leave the group. What is not acknowledged is released."""
        self._consumer.close()


class WireMember(ShareMember):
    """A member that speaks the protocol itself: it says of each range of offsets what it wants, and never leaves."""

    def __init__(self, bootstrap: str, group_id: str, topic: str, *, member_id: str = "anna", version: int = 1) -> None:
        self.connection = RawClient(bootstrap)
        self.member_epoch = 0
        self._is_assigned = False
        self.topic = topic
        topic_id = topic_id_of(bootstrap, topic)
        super().__init__(
            None, topic_id, group_id=group_id, member_id=member_id, version=version, client=self.connection
        )
        self.topic_id = topic_id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.connection.close()

    def join(self) -> None:
        """Be a member that has been assigned the topic's partitions; or go on as a member, if it was one before.

        As a client does, it looks for the coordinator first: that makes the groups' topic on a fresh broker.
        """
        self.connection.ask(FindCoordinatorRequest(coordinator_keys=[self.group_id]), 4)
        until(self._beat, f"partitions of {self.topic} for {self.member_id}")

    def take(self, count: int) -> list[tuple[int, int, int]]:
        """Acquire so many records, which are waited for: first offset, last offset, delivery count."""
        found: list[tuple[int, int, int]] = []

        def is_taken() -> bool:
            found.extend(self.acquire())
            return sum(last - first + 1 for first, last, _ in found) >= count

        until(is_taken, f"{count} records for {self.member_id}")
        return found

    def meet(self, bootstrap: str) -> None:
        """Go on at another broker, with a new session for fetches."""
        self.connection.close()
        self.client = self.connection = RawClient(bootstrap)
        self.epoch = 0
        self.add(self.topic_id)

    def said(self, *ranges: tuple[int, ...]) -> dict[tuple[bytes, int], list[tuple[int, ...]]]:
        """Acknowledgements in partition 0: first offset, last offset, types."""
        return {(self.topic_id, 0): list(ranges)}

    def _beat(self) -> bool:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.member_epoch,
            subscribed_topic_names=None if self.member_epoch else [self.topic],
        )
        answer = self.connection.ask(request, 1)
        if answer.error_code in _NOT_YET:
            return False
        assert answer.error_code == ErrorCode.NONE, answer
        self.member_epoch = answer.member_epoch
        if answer.assignment is not None:
            self._is_assigned = bool(answer.assignment.topic_partitions)
        return self._is_assigned


_NOT_YET = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
