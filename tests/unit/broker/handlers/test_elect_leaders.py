"""ElectLeaders through the codec; what is expected was seen on Kafka 4.4.0."""

import pytest

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.elections import ElectLeadersRequest, ElectLeadersResponse
from protocol.records.cluster_metadata import PartitionChangeRecord
from tests.support.broker import InProcessBroker
from tests.support.metadata import pretend

PREFERRED, UNCLEAN = 0, 1


def elect(
    broker: InProcessBroker,
    topics: dict[str, list[int]] | None,
    *,
    election_type: int = PREFERRED,
    version: int = 2,
    timeout_ms: int = 5000,
) -> ElectLeadersResponse:
    """Ask for elections."""
    asked = ElectLeadersRequest.TopicPartitions
    request = ElectLeadersRequest(
        election_type=election_type,
        topic_partitions=None
        if topics is None
        else [asked(topic=name, partitions=indexes) for name, indexes in topics.items()],
        timeout_ms=timeout_ms,
    )
    answer: ElectLeadersResponse = broker.ask(request, version)
    return answer


def codes(answer: ElectLeadersResponse) -> dict[str, list[tuple[int, int]]]:
    """Partition and error code, by topic."""
    return {
        topic.topic: [(one.partition_id, one.error_code) for one in topic.partition_result]
        for topic in answer.replica_election_results
    }


@pytest.fixture(autouse=True)
def orders(broker: InProcessBroker) -> bytes:
    return broker.create_topic("orders", partitions=2)


@serves(ElectLeadersRequest, E.ELECTION_NOT_NEEDED)
@every_version(ElectLeadersRequest)
def test_this_node_leads_already(broker: InProcessBroker, version: int) -> None:
    answer = elect(broker, {"orders": [0, 1]}, version=version)
    assert answer.error_code == E.NONE
    assert codes(answer) == {"orders": [(0, E.ELECTION_NOT_NEEDED), (1, E.ELECTION_NOT_NEEDED)]}


@serves(ElectLeadersRequest)
@every_version(ElectLeadersRequest)
def test_of_all_partitions_those_that_need_no_election_are_left_out(broker: InProcessBroker, version: int) -> None:
    assert codes(elect(broker, None, version=version)) == {"orders": []}
    assert codes(elect(broker, {}, version=version)) == {}


@serves(ElectLeadersRequest, E.UNKNOWN_TOPIC_OR_PARTITION, versions=[2])
def test_unknown_partitions_are_named_so(broker: InProcessBroker) -> None:
    answer = elect(broker, {"orders": [9, -1], "nowhere": [0], "a/b": [0], "__cluster_metadata": [0]})
    assert {code for results in codes(answer).values() for _, code in results} == {E.UNKNOWN_TOPIC_OR_PARTITION}


@serves(ElectLeadersRequest, E.INVALID_REQUEST, versions=[2])
def test_an_unknown_kind_of_election_is_refused_as_a_whole(broker: InProcessBroker) -> None:
    answer = elect(broker, {"orders": [0]}, election_type=5)
    assert (answer.error_code, codes(answer)) == (E.INVALID_REQUEST, {"orders": [(0, E.INVALID_REQUEST)]})


@serves(ElectLeadersRequest, E.REQUEST_TIMED_OUT, versions=[2])
@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_request_without_time_elects_nobody(broker: InProcessBroker, timeout_ms: int) -> None:
    answer = elect(broker, {"orders": [0]}, timeout_ms=timeout_ms)
    assert (answer.error_code, codes(answer)) == (E.REQUEST_TIMED_OUT, {"orders": [(0, E.REQUEST_TIMED_OUT)]})


@serves(ElectLeadersRequest, E.PREFERRED_LEADER_NOT_AVAILABLE, E.ELIGIBLE_LEADERS_NOT_AVAILABLE, versions=[2])
def test_an_adopted_partition_may_belong_to_brokers_that_are_not_there(broker: InProcessBroker, orders: bytes) -> None:
    moved = PartitionChangeRecord(partition_id=1, topic_id=orders, replicas=[7], isr=[], leader=-1)
    pretend(broker.server.metadata, moved)
    assert codes(elect(broker, None)) == {"orders": [(1, E.PREFERRED_LEADER_NOT_AVAILABLE)]}
    assert codes(elect(broker, None, election_type=UNCLEAN)) == {"orders": [(1, E.ELIGIBLE_LEADERS_NOT_AVAILABLE)]}
