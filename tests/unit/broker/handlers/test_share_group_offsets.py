"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets through the codec."""

from typing import Any

import pytest

from broker.metadata.image.metadata_image import MetadataDelta
from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
)
from protocol.records.cluster_metadata import PartitionChangeRecord
from protocol.schema import NO_UUID
from tests.support.broker import InProcessBroker
from tests.unit.broker.handlers.share_groups import G, joined, left, with_share_groups
from tests.unit.broker.handlers.share_states import write


@pytest.fixture
def orders(broker: InProcessBroker) -> bytes:
    return with_share_groups(broker)


def describe(
    broker: InProcessBroker,
    *topics: tuple[str, list[int]],
    version: int = 1,
    group_id: str = G,
    all_topics: bool = False,
) -> Any:
    of = DescribeShareGroupOffsetsRequest.Group
    asked = None if all_topics else [of.Topic(topic_name=name, partitions=indexes) for name, indexes in topics]
    (found,) = broker.ask(
        DescribeShareGroupOffsetsRequest(groups=[of(group_id=group_id, topics=asked)]), version
    ).groups
    return found


def alter(broker: InProcessBroker, *topics: tuple[str, dict[int, int]], group_id: str = G) -> Any:
    of = AlterShareGroupOffsetsRequest.Topic
    asked = [
        of(
            topic_name=name,
            partitions=[of.Partition(partition_index=index, start_offset=offset) for index, offset in offsets.items()],
        )
        for name, offsets in topics
    ]
    return broker.ask(AlterShareGroupOffsetsRequest(group_id=group_id, topics=asked), 0)


def delete(broker: InProcessBroker, *names: str, group_id: str = G) -> Any:
    topics = [DeleteShareGroupOffsetsRequest.Topic(topic_name=name) for name in names]
    return broker.ask(DeleteShareGroupOffsetsRequest(group_id=group_id, topics=topics), 0)


@serves(DescribeShareGroupOffsetsRequest)
@every_version(DescribeShareGroupOffsetsRequest)
def test_offsets_and_lag_are_described(broker: InProcessBroker, orders: bytes, version: int) -> None:
    broker.produce("orders", b"a", b"b", b"c", b"d")
    joined(broker)
    unknown = describe(broker, ("orders", [0]), version=version)
    assert [(one.start_offset, one.lag) for one in unknown.topics[0].partitions] == [(-1, -1)]
    written = write(orders, batches=[(1, 1, 2, 1)], state_epoch=9, start_offset=1, delivery_complete_count=1)
    broker.ask(written, 1)
    for found in (
        describe(broker, ("orders", [0]), version=version),
        describe(broker, version=version, all_topics=True),
    ):
        (topic,) = found.topics
        assert (found.error_code, topic.topic_name, topic.topic_id) == (E.NONE, "orders", orders)
        partition = topic.partitions[0]
        assert (partition.partition_index, partition.start_offset, partition.error_code) == (0, 1, E.NONE)
        assert partition.lag == (2 if version else -1)


@serves(DescribeShareGroupOffsetsRequest, E.LEADER_NOT_AVAILABLE, versions=[1])
def test_a_partition_whose_leader_does_not_tell_its_end_is_described_without_an_offset(
    broker: InProcessBroker, orders: bytes
) -> None:
    joined(broker)
    broker.ask(write(orders, state_epoch=9, start_offset=1, delivery_complete_count=1), 1)
    metadata = broker.server.components.metadata
    delta = MetadataDelta(metadata.image)
    delta.replay(PartitionChangeRecord(partition_id=0, topic_id=orders, leader=-1))
    metadata.image = delta.apply(metadata.image.end_offset + 1)
    (topic,) = describe(broker, ("orders", [0])).topics
    (partition,) = topic.partitions
    assert (partition.error_code, partition.start_offset, partition.lag) == (E.LEADER_NOT_AVAILABLE, 0, -1)


def test_what_is_not_there_is_described_without_an_offset(broker: InProcessBroker, orders: bytes) -> None:
    found = describe(broker, ("nothing", [0]), ("orders", [0, 7]))
    assert [(topic.topic_name, topic.topic_id) for topic in found.topics] == [("orders", orders), ("nothing", NO_UUID)]
    assert {one.start_offset for topic in found.topics for one in topic.partitions} == {-1}
    assert describe(broker, group_id="nobody", all_topics=True).topics == []
    assert describe(broker).topics == []


@serves(DescribeShareGroupOffsetsRequest, E.NOT_COORDINATOR, versions=[0, 1])
@serves(AlterShareGroupOffsetsRequest, E.NOT_COORDINATOR, versions=[0])
@serves(DeleteShareGroupOffsetsRequest, E.NOT_COORDINATOR, versions=[0])
def test_without_a_coordinator_there_are_no_offsets(broker: InProcessBroker) -> None:
    for version in (0, 1):
        assert describe(broker, version=version, all_topics=True).error_code == E.NOT_COORDINATOR
    assert alter(broker).error_code == E.NOT_COORDINATOR
    assert delete(broker).error_code == E.NOT_COORDINATOR


@serves(AlterShareGroupOffsetsRequest, E.NONE, E.NON_EMPTY_GROUP, E.UNKNOWN_TOPIC_OR_PARTITION, versions=[0])
def test_offsets_are_altered_while_nobody_is_there(broker: InProcessBroker, orders: bytes) -> None:
    joined(broker)
    assert alter(broker, ("orders", {0: 3})).error_code == E.NON_EMPTY_GROUP
    left(broker)
    answer = alter(broker, ("orders", {0: 3, 9: 1}), ("nothing", {0: 1}))
    assert answer.error_code == E.NONE
    assert [
        (topic.topic_name, one.partition_index, one.error_code)
        for topic in answer.responses
        for one in topic.partitions
    ] == [
        ("orders", 0, E.NONE),
        ("orders", 9, E.UNKNOWN_TOPIC_OR_PARTITION),
        ("nothing", 0, E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    (topic,) = describe(broker, ("orders", [0])).topics
    assert topic.partitions[0].start_offset == 3


@serves(AlterShareGroupOffsetsRequest, E.INVALID_GROUP_ID, versions=[0])
@serves(DeleteShareGroupOffsetsRequest, E.INVALID_GROUP_ID, E.GROUP_ID_NOT_FOUND, versions=[0])
def test_groups_that_have_no_offsets(broker: InProcessBroker, orders: bytes) -> None:
    assert alter(broker, ("orders", {0: 3}), group_id="").error_code == E.INVALID_GROUP_ID
    assert delete(broker, "orders", group_id="").error_code == E.INVALID_GROUP_ID
    assert delete(broker, "orders").error_code == E.GROUP_ID_NOT_FOUND


@serves(DeleteShareGroupOffsetsRequest, E.NONE, E.NON_EMPTY_GROUP, E.UNKNOWN_TOPIC_OR_PARTITION, versions=[0])
def test_offsets_of_topics_are_deleted(broker: InProcessBroker, orders: bytes) -> None:
    joined(broker)
    assert delete(broker, "orders").error_code == E.NON_EMPTY_GROUP
    left(broker)
    answer = delete(broker, "nothing", "orders")
    assert [(one.topic_name, one.topic_id, one.error_code) for one in answer.responses] == [
        ("orders", orders, E.NONE),
        ("nothing", NO_UUID, E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert describe(broker, all_topics=True).topics == []
    assert not any(one.shard.image.by_key for one in broker.server.components.share_coordinator.shares.all())
