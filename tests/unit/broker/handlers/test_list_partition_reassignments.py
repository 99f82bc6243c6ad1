"""ListPartitionReassignments through the codec."""

import pytest

from broker.metadata.directories import UNASSIGNED
from dev.serving import serves
from protocol.errors import ErrorCode as E
from protocol.messages.reassignments import ListPartitionReassignmentsRequest
from protocol.records.cluster_metadata import PartitionChangeRecord
from tests.support.broker import InProcessBroker
from tests.support.metadata import pretend

Topic = ListPartitionReassignmentsRequest.Topic

ORDERS = [Topic(name="orders", partition_indexes=[0, 1, 9])]


@serves(ListPartitionReassignmentsRequest, versions=[0])
@pytest.mark.parametrize("topics", [None, [], ORDERS, [Topic(name="nowhere", partition_indexes=[0])]])
def test_one_node_moves_nothing(broker: InProcessBroker, topics: list[Topic] | None) -> None:
    broker.create_topic("orders", partitions=2)
    answer = broker.ask(ListPartitionReassignmentsRequest(topics=topics), 0)
    assert (answer.error_code, answer.error_message, answer.topics) == (E.NONE, None, [])


@pytest.mark.parametrize("topics", [None, ORDERS])
def test_what_an_adopted_directory_was_moving_is_told(broker: InProcessBroker, topics: list[Topic] | None) -> None:
    topic_id = broker.create_topic("orders", partitions=2)
    pretend(
        broker.server.metadata,
        PartitionChangeRecord(
            partition_id=1,
            topic_id=topic_id,
            replicas=[1, 2],
            adding_replicas=[2],
            directories=[UNASSIGNED, UNASSIGNED],
        ),
    )
    (topic,) = broker.ask(ListPartitionReassignmentsRequest(topics=topics), 0).topics
    (moving,) = topic.partitions
    assert (topic.name, moving.partition_index) == ("orders", 1)
    assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ([1, 2], [2], [])
