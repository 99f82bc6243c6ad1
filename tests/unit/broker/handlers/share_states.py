"""Requests of the share coordinator's APIs, and what its tests ask."""

from typing import Any

from broker.coordinators.partitioning import partition_of
from broker.coordinators.share.persister import SharePartitionKey
from broker.coordinators.share_coordinator import coordinator_key
from protocol.errors import ErrorCode as E
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.share_group_state import (
    DeleteShareGroupStateRequest,
    InitializeShareGroupStateRequest,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    WriteShareGroupStateRequest,
)
from tests.support.broker import InProcessBroker

STATE = "__share_group_state"
NO_TOPIC = bytes(15) + b"\1"
PRUNE_MS = 300_000


def request_of(cls: type[Any], topic_id: bytes, *indexes: int, group_id: str = "workers", **fields: Any) -> Any:
    partitions = [cls.Topic.Partition(partition=index, **fields) for index in indexes or (0,)]
    return cls(group_id=group_id, topics=[cls.Topic(topic_id=topic_id, partitions=partitions)])


def initialize(topic_id: bytes, *indexes: int, state_epoch: int = 1, start_offset: int = 0, **fields: Any) -> Any:
    return request_of(
        InitializeShareGroupStateRequest,
        topic_id,
        *indexes,
        state_epoch=state_epoch,
        start_offset=start_offset,
        **fields,
    )


def read(topic_id: bytes, *indexes: int, leader_epoch: int = 0, **fields: Any) -> Any:
    return request_of(ReadShareGroupStateRequest, topic_id, *indexes, leader_epoch=leader_epoch, **fields)


def summarize(topic_id: bytes, *indexes: int, **fields: Any) -> Any:
    return request_of(ReadShareGroupStateSummaryRequest, topic_id, *indexes, leader_epoch=0, **fields)


def write(topic_id: bytes, *indexes: int, batches: list[tuple[int, int, int, int]] = [], **fields: Any) -> Any:  # noqa: B006
    of_batch = WriteShareGroupStateRequest.Topic.Partition.StateBatch
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    usual = {"state_epoch": 1, "leader_epoch": 0, "start_offset": 0, "delivery_complete_count": -1}
    found = [of_batch(**dict(zip(names, one, strict=True))) for one in batches]
    return request_of(WriteShareGroupStateRequest, topic_id, *indexes, **{**usual, **fields}, state_batches=found)


def delete(topic_id: bytes, *indexes: int, **fields: Any) -> Any:
    return request_of(DeleteShareGroupStateRequest, topic_id, *indexes, **fields)


def find(broker: InProcessBroker, key: str) -> int:
    asked = FindCoordinatorRequest(key="", key_type=2, coordinator_keys=[key])
    (found,) = broker.ask(asked, 6).coordinators
    return int(found.error_code)


def codes(broker: InProcessBroker, request: Any, version: int = 0) -> list[tuple[int, int]]:
    return [
        (partition.partition, partition.error_code)
        for result in broker.ask(request, version).results
        for partition in result.partitions
    ]


def code(broker: InProcessBroker, request: Any, version: int = 0) -> int:
    (found,) = codes(broker, request, version)
    return found[1]


def orders_and_states(broker: InProcessBroker) -> bytes:
    """Make a topic with three partitions, and the topic of the states; return the id of the first."""
    topic_id = broker.create_topic("orders", partitions=3)
    key = coordinator_key(SharePartitionKey("workers", topic_id, 0))
    assert find(broker, key) == E.COORDINATOR_NOT_AVAILABLE
    broker.wait_until(lambda: find(broker, key) == E.NONE)
    return topic_id


def state_partition(topic_id: bytes) -> int:
    """Which partition of the states' topic has the state of the group in partition 0."""
    return partition_of(coordinator_key(SharePartitionKey("workers", topic_id, 0)), 50)
