"""AlterPartitionReassignments through the codec; what is expected was seen on Kafka 4.4.0."""

import pytest

from broker.metadata.directories import UNASSIGNED
from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.reassignments import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
from protocol.records.cluster_metadata import PartitionChangeRecord
from tests.support.broker import InProcessBroker

Topic = AlterPartitionReassignmentsRequest.Topic


def reassign(
    broker: InProcessBroker,
    partitions: dict[int, list[int] | None],
    *,
    topic: str = "orders",
    version: int = 1,
    timeout_ms: int = 5000,
) -> AlterPartitionReassignmentsResponse:
    """Ask for other replicas of partitions."""
    asked = [Topic.Partition(partition_index=index, replicas=replicas) for index, replicas in partitions.items()]
    answer: AlterPartitionReassignmentsResponse = broker.ask(
        AlterPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=[Topic(name=topic, partitions=asked)]), version
    )
    return answer


def codes(answer: AlterPartitionReassignmentsResponse) -> dict[int, int]:
    """Error code by partition."""
    (topic,) = answer.responses
    return {one.partition_index: one.error_code for one in topic.partitions}


@pytest.fixture(autouse=True)
def orders(broker: InProcessBroker) -> bytes:
    return broker.create_topic("orders", partitions=2)


@serves(AlterPartitionReassignmentsRequest)
@every_version(AlterPartitionReassignmentsRequest)
def test_a_partition_may_stay_where_it_is(broker: InProcessBroker, version: int) -> None:
    answer = reassign(broker, {0: [1]}, version=version)
    assert (answer.error_code, answer.error_message, codes(answer)) == (E.NONE, None, {0: E.NONE})


@serves(AlterPartitionReassignmentsRequest, E.NO_REASSIGNMENT_IN_PROGRESS, versions=[1])
def test_what_does_not_move_cannot_be_called_off(broker: InProcessBroker) -> None:
    assert codes(reassign(broker, {0: None})) == {0: E.NO_REASSIGNMENT_IN_PROGRESS}


@serves(AlterPartitionReassignmentsRequest, E.INVALID_REPLICA_ASSIGNMENT, versions=[1])
@pytest.mark.parametrize("replicas", [[2], [1, 1], [], [-1], [1, 2]])
def test_there_is_no_other_broker(broker: InProcessBroker, replicas: list[int]) -> None:
    assert codes(reassign(broker, {0: replicas})) == {0: E.INVALID_REPLICA_ASSIGNMENT}


@serves(AlterPartitionReassignmentsRequest, E.UNKNOWN_TOPIC_OR_PARTITION, E.NONE, versions=[1])
def test_unknown_partitions_do_not_keep_others_from_it(broker: InProcessBroker) -> None:
    assert codes(reassign(broker, {9: [1], 0: [1], -1: None})) == {
        9: E.UNKNOWN_TOPIC_OR_PARTITION,
        0: E.NONE,
        -1: E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert codes(reassign(broker, {0: [1]}, topic="nowhere")) == {0: E.UNKNOWN_TOPIC_OR_PARTITION}


@serves(AlterPartitionReassignmentsRequest, E.REQUEST_TIMED_OUT, versions=[1])
@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_request_without_time_moves_nothing(broker: InProcessBroker, timeout_ms: int) -> None:
    answer = reassign(broker, {0: [1]}, timeout_ms=timeout_ms)
    assert (answer.error_code, codes(answer)) == (E.REQUEST_TIMED_OUT, {0: E.REQUEST_TIMED_OUT})


@pytest.mark.parametrize("wanted", [[1], None])
def test_a_partition_that_an_adopted_directory_was_moving_is_taken_back(
    broker: InProcessBroker, orders: bytes, wanted: list[int] | None
) -> None:
    moving = PartitionChangeRecord(
        partition_id=1,
        topic_id=orders,
        replicas=[1, 2],
        adding_replicas=[2],
        directories=[*broker.server.log_dirs.online_ids, UNASSIGNED],
    )
    controller = broker.server.components.controller
    assert controller is not None
    controller.append([moving])
    broker.settle()

    assert codes(reassign(broker, {1: wanted})) == {1: E.NONE}

    partition = broker.server.components.metadata.image.topics.by_name["orders"].partitions[1]
    assert (partition.replicas, partition.isr, partition.adding_replicas) == ((1,), (1,), ())
    assert broker.produce("orders", b"x", partition=1) == 0
