"""What every API of groups answers while nobody coordinates the group. What is expected was seen on Kafka 4.3.1."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.coordinators.loading import PartitionLoading
from dev.serving import serves
from protocol.errors import ErrorCode as E
from protocol.messages.committed_offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from protocol.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from protocol.schema import describe
from tests.support.broker import InProcessBroker
from tests.support.groups import (
    commit_request,
    create_offsets_topic,
    fetch_offsets_request,
    join_request,
    leave_request,
)


def offset_delete(_: int) -> OffsetDeleteRequest:
    topic = OffsetDeleteRequest.Topic(
        name="orders", partitions=[OffsetDeleteRequest.Topic.Partition(partition_index=0)]
    )
    return OffsetDeleteRequest(group_id="readers", topics=[topic])


MEMBER: dict[str, Any] = {"group_id": "readers", "member_id": "m", "generation_id": 1}

REQUESTS: dict[type[Any], Callable[[int], Any]] = {
    JoinGroupRequest: lambda version: join_request(),
    SyncGroupRequest: lambda version: SyncGroupRequest(
        **MEMBER, protocol_type="consumer", protocol_name="range", assignments=[]
    ),
    HeartbeatRequest: lambda version: HeartbeatRequest(**MEMBER),
    LeaveGroupRequest: lambda version: leave_request("m"),
    OffsetCommitRequest: lambda version: commit_request({("orders", 0): 5}),
    OffsetFetchRequest: lambda version: fetch_offsets_request(version, ("orders", [0])),
    OffsetDeleteRequest: offset_delete,
    DescribeGroupsRequest: lambda version: DescribeGroupsRequest(groups=["readers"]),
    ListGroupsRequest: lambda version: ListGroupsRequest(),
    DeleteGroupsRequest: lambda version: DeleteGroupsRequest(groups_names=["readers"]),
}
"""A good request of each API, in the layout of a version."""


def in_every_version(error: E, *, but: tuple[type[Any], ...] = ()) -> pytest.MarkDecorator:
    """Parametrize by class and version, each marked with the error that it is answered."""
    parameters = []
    for request_class in REQUESTS:
        first, last = describe(request_class).versions
        if request_class is OffsetCommitRequest:
            last = 9  # where topics go by id, this one has none
        for version in range(first, last + 1):
            told = E.NONE if request_class in but else error
            parameters.append(pytest.param(request_class, version, told, marks=serves(request_class, told)))
    return pytest.mark.parametrize(("request_class", "version", "error"), parameters)


def error_of(answer: Any) -> int:
    """The first error there is in an answer: for all, for a group, or for a partition."""

    def errors(part: Any) -> Iterator[int]:
        for name in type(part).__slots__:
            value = getattr(part, name)
            if name == "error_code":
                yield value
            elif isinstance(value, list):
                for one in value:
                    if hasattr(type(one), "__slots__"):
                        yield from errors(one)

    return next((code for code in errors(answer) if code), E.NONE)


@pytest.fixture(autouse=True)
def orders(broker: InProcessBroker) -> None:
    broker.create_topic("orders")


@in_every_version(E.NOT_COORDINATOR, but=(ListGroupsRequest,))
def test_before_anybody_has_looked_for_it(
    broker: InProcessBroker, request_class: type[Any], version: int, error: E
) -> None:
    answer = broker.ask(REQUESTS[request_class](version), version)
    assert error_of(answer) == error
    if request_class is JoinGroupRequest:
        assert (answer.member_id, answer.protocol_name) == ("", None if version >= 7 else "")


@in_every_version(E.COORDINATOR_LOAD_IN_PROGRESS, but=(HeartbeatRequest,))
def test_while_its_log_is_read(
    broker: InProcessBroker, request_class: type[Any], version: int, error: E, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_offsets_topic(broker)
    broker.ask(commit_request({("orders", 0): 5}), 9)
    monkeypatch.setattr(PartitionLoading, "begin", lambda self, slices: None)
    broker.restart()
    assert error_of(broker.ask(REQUESTS[request_class](version), version)) == error


@in_every_version(E.COORDINATOR_NOT_AVAILABLE)
def test_while_the_broker_stops(broker: InProcessBroker, request_class: type[Any], version: int, error: E) -> None:
    create_offsets_topic(broker)

    async def stop() -> None:
        broker.server.components.group_coordinator.stop()

    broker.run(stop())
    assert error_of(broker.ask(REQUESTS[request_class](version), version)) == error
