"""AddRaftVoter and RemoveRaftVoter through the codec: this node is the only voter, and stays it."""

from typing import Any

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.cluster import DescribeClusterRequest
from protocol.messages.quorum import AddRaftVoterRequest, DescribeQuorumRequest, RemoveRaftVoterRequest
from tests.support.broker import InProcessBroker

Listener = AddRaftVoterRequest.Listener

DIRECTORY = bytes(range(16))


def cluster_id(broker: InProcessBroker) -> str:
    return str(broker.ask(DescribeClusterRequest(), 0).cluster_id)


def own_directory(broker: InProcessBroker) -> bytes:
    topic = DescribeQuorumRequest.Topic
    asked = topic(topic_name="__cluster_metadata", partitions=[topic.Partition(partition_index=0)])
    (found,) = broker.ask(DescribeQuorumRequest(topics=[asked]), 2).topics
    return bytes(found.partitions[0].current_voters[0].replica_directory_id)


@serves(
    AddRaftVoterRequest,
    E.INCONSISTENT_CLUSTER_ID,
    E.INVALID_REQUEST,
    E.DUPLICATE_VOTER,
    E.REQUEST_TIMED_OUT,
)
@every_version(AddRaftVoterRequest)
def test_no_other_controller_can_vote(broker: InProcessBroker, version: int) -> None:
    def code(**fields: Any) -> int:
        asked: dict[str, Any] = {
            "cluster_id": cluster_id(broker),
            "timeout_ms": 1000,
            "voter_id": 5,
            "voter_directory_id": DIRECTORY,
            "listeners": [Listener(name="CONTROLLER", host="127.0.0.1", port=9093)],
        }
        return int(broker.ask(AddRaftVoterRequest(**{**asked, **fields}), version).error_code)

    assert code(cluster_id="another") == E.INCONSISTENT_CLUSTER_ID
    assert code(voter_id=-1) == E.INVALID_REQUEST
    assert code(voter_directory_id=bytes(16)) == E.INVALID_REQUEST
    assert code(listeners=[]) == E.INVALID_REQUEST
    assert code(voter_id=1) == E.DUPLICATE_VOTER
    assert code() == E.REQUEST_TIMED_OUT
    assert code(cluster_id=None) == E.REQUEST_TIMED_OUT


@serves(RemoveRaftVoterRequest, E.INCONSISTENT_CLUSTER_ID, E.INVALID_REQUEST, E.VOTER_NOT_FOUND, versions=[0])
def test_the_only_voter_is_not_removed(broker: InProcessBroker) -> None:
    def code(**fields: Any) -> int:
        asked: dict[str, Any] = {"cluster_id": None, "voter_id": 1, "voter_directory_id": own_directory(broker)}
        return int(broker.ask(RemoveRaftVoterRequest(**{**asked, **fields}), 0).error_code)

    assert code(cluster_id="another") == E.INCONSISTENT_CLUSTER_ID
    assert code(voter_id=-1) == E.INVALID_REQUEST
    assert code(voter_id=5) == E.VOTER_NOT_FOUND
    assert code(voter_directory_id=DIRECTORY) == E.VOTER_NOT_FOUND
    assert code() == E.VOTER_NOT_FOUND
    assert own_directory(broker) != DIRECTORY
