"""What brokers ask on a controller listener, in the words of the tests."""

from __future__ import annotations

from typing import Any

from broker.metadata.registration import SUPPORTED_FEATURES
from protocol.codec import encode
from protocol.headers import decode_response, encode_request
from protocol.messages.broker_lifecycle import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from protocol.messages.fetch import FetchRequest
from protocol.messages.quorum import DescribeQuorumRequest
from protocol.records.principal import DefaultPrincipalData, encode_principal
from tests.support.broker import Client, InProcessBroker

LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller_listener_names": "CONTROLLER",
}
DIRECTORY = bytes(range(100, 116))
ALICE = DefaultPrincipalData(type="User", name="alice")
LOCALHOST = bytes([127, 0, 0, 1])


class Member:
    """Broker 2, as its controller sees it."""

    def __init__(self, broker: InProcessBroker, node_id: int = 2) -> None:
        self.broker = broker
        self.node_id = node_id
        self.client: Client = broker.connect("CONTROLLER")
        self.epoch = -1

    def register(self, version: int = 4, *, incarnation: int = 1, **fields: Any) -> BrokerRegistrationResponse:
        """Register a run of the broker."""
        request = BrokerRegistrationRequest(
            **{
                "broker_id": self.node_id,
                "cluster_id": self.broker.server.components.node.cluster_id,
                "incarnation_id": incarnation.to_bytes(16, "big"),
                "listeners": [
                    BrokerRegistrationRequest.Listener(
                        name="PLAINTEXT", host="10.0.0.2", port=9092, security_protocol=0
                    )
                ],
                "features": [
                    BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                    for name, (low, high) in SUPPORTED_FEATURES.items()
                ],
                "rack": None,
                "log_dirs": [DIRECTORY],
                **fields,
            }
        )  # fmt: skip
        answer: BrokerRegistrationResponse = self.client.ask(request, version)
        self.epoch = answer.broker_epoch
        return answer

    def heartbeat(self, version: int = 2, **fields: Any) -> BrokerHeartbeatResponse:
        """Send a heartbeat of a broker that has applied everything, and wants to be unfenced."""
        request = BrokerHeartbeatRequest(
            **{
                "broker_id": self.node_id,
                "broker_epoch": self.epoch,
                "current_metadata_offset": self.broker.server.components.raft.end_offset,
                "want_fence": False,
                "want_shut_down": False,
                **fields,
            }
        )
        answer: BrokerHeartbeatResponse = self.client.ask(request, version)
        return answer

    @property
    def is_fenced(self) -> bool:
        """What the metadata log says."""
        return self.broker.server.components.metadata.image.cluster.brokers[self.node_id].fenced


def metadata_fetch(broker: InProcessBroker, *, node_id: int = 2, waits: bool = False) -> FetchRequest:
    """A fetch behind the last record, which is answered when there is another, or at once."""
    raft = broker.server.components.raft
    partition = FetchRequest.Topic.Partition(
        partition=0,
        current_leader_epoch=raft.leader_epoch,
        fetch_offset=raft.end_offset,
        last_fetched_epoch=raft.leader_epoch,
        partition_max_bytes=0,
        replica_directory_id=DIRECTORY,
        high_watermark=raft.high_watermark,
    )
    return FetchRequest(
        replica_state=FetchRequest.ReplicaState(replica_id=node_id),
        max_wait_ms=500 if waits else 0,
        min_bytes=0,
        topics=[FetchRequest.Topic(topic_id=bytes(15) + b"\1", partitions=[partition])],
    )


def metadata_quorum() -> DescribeQuorumRequest:
    """The request of a tool that describes the quorum."""
    partition = DescribeQuorumRequest.Topic.Partition(partition_index=0)
    return DescribeQuorumRequest(
        topics=[DescribeQuorumRequest.Topic(topic_name="__cluster_metadata", partitions=[partition])]
    )


def envelope(request: object, version: int, *, address: bytes = LOCALHOST, **fields: Any) -> EnvelopeRequest:
    """The request of a client, handed on by a broker."""
    return EnvelopeRequest(
        **{
            "request_data": encode_request(4711, "a client", request, version)[4:],
            "request_principal": encode_principal(ALICE),
            "client_host_address": address,
            **fields,
        }
    )


def unpacked(answer: EnvelopeResponse, cls: type[Any], version: int) -> Any:
    """The answer to the client's request."""
    assert answer.response_data is not None, answer
    correlation_id, inside = decode_response(cls, version, answer.response_data)
    assert correlation_id == 4711
    assert encode(inside, version)
    return inside
