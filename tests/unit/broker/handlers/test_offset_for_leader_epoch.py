"""OffsetForLeaderEpoch through the codec."""

from typing import Any

import pytest

from broker.replication.partition import LeaderAndIsr
from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from tests.support.broker import InProcessBroker

Topic = OffsetForLeaderEpochRequest.Topic


def end_of(
    broker: InProcessBroker, epoch: int, *, version: int = 4, topic: str = "orders", partition: int = 0, **fields: Any
) -> OffsetForLeaderEpochResponse.Topic.Partition:
    """Where an epoch of one partition ends."""
    replica_id = fields.pop("replica_id", -2)
    asked = Topic(topic=topic, partitions=[Topic.Partition(partition=partition, leader_epoch=epoch, **fields)])
    answer: OffsetForLeaderEpochResponse = broker.ask(
        OffsetForLeaderEpochRequest(replica_id=replica_id, topics=[asked]), version
    )
    return answer.topics[0].partitions[0]


@pytest.fixture(autouse=True)
def orders(broker: InProcessBroker) -> None:
    """Two records of epoch 0, one of epoch 3."""
    broker.create_topic("orders")
    broker.produce("orders", b"a", b"b")
    partition = broker.server.components.replicas.partition("orders", 0)
    partition.apply(LeaderAndIsr(1, 3, (1,), frozenset((1,))))
    broker.produce("orders", b"c")


@serves(OffsetForLeaderEpochRequest)
@every_version(OffsetForLeaderEpochRequest)
def test_an_epoch_ends_where_the_next_begins_and_the_last_at_the_logs_end(
    broker: InProcessBroker, version: int
) -> None:
    for epoch, found in ((0, (0, 2)), (1, (0, 2)), (2, (0, 2)), (3, (3, 3))):
        end = end_of(broker, epoch, version=version)
        assert (end.error_code, end.leader_epoch, end.end_offset) == (E.NONE, *found)


@pytest.mark.parametrize(("epoch", "found"), [(4, (-1, -1)), (-1, (-1, -1)), (-5, (-5, 0))])
def test_epochs_that_never_were_are_answered_as_kafka_does(
    broker: InProcessBroker, epoch: int, found: tuple[int, int]
) -> None:
    end = end_of(broker, epoch)
    assert (end.error_code, end.leader_epoch, end.end_offset) == (E.NONE, *found)


@pytest.mark.parametrize("replica_id", [-1, 1, 7])
def test_it_makes_no_difference_who_asks(broker: InProcessBroker, replica_id: int) -> None:
    assert end_of(broker, 0, replica_id=replica_id).end_offset == 2


@serves(OffsetForLeaderEpochRequest, E.FENCED_LEADER_EPOCH, E.UNKNOWN_LEADER_EPOCH, versions=[4])
def test_a_client_that_knows_another_epoch_is_told(broker: InProcessBroker) -> None:
    for epoch, code in ((2, E.FENCED_LEADER_EPOCH), (-3, E.FENCED_LEADER_EPOCH), (4, E.UNKNOWN_LEADER_EPOCH)):
        refused = end_of(broker, 0, current_leader_epoch=epoch)
        assert (refused.error_code, refused.leader_epoch, refused.end_offset) == (code, -1, -1)
    assert end_of(broker, 0, current_leader_epoch=3).error_code == E.NONE


@serves(OffsetForLeaderEpochRequest, E.UNKNOWN_TOPIC_OR_PARTITION, versions=[4])
@pytest.mark.parametrize("where", [{"topic": "nowhere"}, {"topic": ""}, {"partition": 1}, {"partition": -1}])
def test_an_unknown_partition_is_named_so(broker: InProcessBroker, where: dict[str, Any]) -> None:
    assert end_of(broker, 0, **where).error_code == E.UNKNOWN_TOPIC_OR_PARTITION


@serves(OffsetForLeaderEpochRequest, E.NOT_LEADER_OR_FOLLOWER, versions=[4])
def test_who_does_not_lead_does_not_know(broker: InProcessBroker) -> None:
    broker.server.components.replicas.partition("orders", 0).leader = 2
    assert end_of(broker, 0).error_code == E.NOT_LEADER_OR_FOLLOWER
