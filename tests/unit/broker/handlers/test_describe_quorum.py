"""DescribeQuorum through the codec."""

import pytest

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.quorum import DescribeQuorumRequest, DescribeQuorumResponse
from tests.support.broker import InProcessBroker

Topic = DescribeQuorumRequest.Topic


def describe(broker: InProcessBroker, version: int, **partitions: list[int]) -> DescribeQuorumResponse:
    """Ask for the quorums of partitions."""
    topics = [
        Topic(topic_name=name, partitions=[Topic.Partition(partition_index=index) for index in indexes])
        for name, indexes in partitions.items()
    ]
    answer: DescribeQuorumResponse = broker.ask(DescribeQuorumRequest(topics=topics), version)
    return answer


@serves(DescribeQuorumRequest)
@every_version(DescribeQuorumRequest)
def test_this_node_is_the_only_voter_and_leads(broker: InProcessBroker, version: int) -> None:
    before = describe(broker, version, __cluster_metadata=[0]).topics[0].partitions[0]
    broker.create_topic("orders")

    answer = describe(broker, version, __cluster_metadata=[0])

    (partition,) = answer.topics[0].partitions
    assert (answer.error_code, partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 0, 1, 1)
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset, partition.observers) == (1, partition.high_watermark, [])
    assert partition.high_watermark > before.high_watermark
    if version >= 1:
        assert voter.last_caught_up_timestamp == voter.last_fetch_timestamp == broker.clock.now_ms()
    if version >= 2:
        assert any(voter.replica_directory_id)
        (node,) = answer.nodes
        assert (node.node_id, [listener.name for listener in node.listeners]) == (1, ["CONTROLLER"])


def test_each_start_is_a_new_epoch(broker: InProcessBroker) -> None:
    broker.restart()
    assert describe(broker, 2, __cluster_metadata=[0]).topics[0].partitions[0].leader_epoch == 2


@serves(DescribeQuorumRequest, E.UNKNOWN_TOPIC_OR_PARTITION, versions=[2])
@pytest.mark.parametrize(
    "partitions",
    [
        {"orders": [0]},
        {"__cluster_metadata": [1]},
        {"__cluster_metadata": [0, 0]},
        {"__cluster_metadata": [0], "orders": [0]},
    ],
)
def test_nothing_else_has_a_quorum_and_whoever_asks_for_it_learns_nothing(
    broker: InProcessBroker, partitions: dict[str, list[int]]
) -> None:
    answer = describe(broker, 2, **partitions)
    found = [partition for topic in answer.topics for partition in topic.partitions]
    assert {partition.error_code for partition in found} == {E.UNKNOWN_TOPIC_OR_PARTITION}
    assert [partition.current_voters for partition in found] == [[]] * len(found)
    assert (answer.error_code, answer.nodes) == (E.NONE, [])


def test_nothing_is_told_to_who_asks_for_nothing(broker: InProcessBroker) -> None:
    assert describe(broker, 2).topics == []
    assert describe(broker, 2).nodes == []
