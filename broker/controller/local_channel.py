"""LocalChannel: this node's own broker asks the controller in the same process what other brokers ask over the wire."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from broker.controller.cluster_requests import ClusterRequests
from protocol.api_keys import Versions
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from protocol.messages.broker_lifecycle import BrokerHeartbeatRequest, BrokerRegistrationRequest

Answer = TypeVar("Answer")

_Method = Callable[[ClusterRequests, Any, Callable[[Any], None]], None]

_METHODS: Final[Mapping[type[Any], _Method]] = {
    BrokerRegistrationRequest: ClusterRequests.own_registration,
    BrokerHeartbeatRequest: ClusterRequests.broker_heartbeat,
    AlterPartitionRequest: ClusterRequests.alter_partition,
    AllocateProducerIdsRequest: ClusterRequests.allocate_producer_ids,
    AssignReplicasToDirsRequest: ClusterRequests.assign_replicas_to_dirs,
}
"""What a broker asks, by the class of the request."""


class LocalChannel:
    """The channel for all purposes of a broker whose controller is in its process: no frame, no socket."""

    def __init__(self, requests: ClusterRequests) -> None:
        self._requests = requests

    def feature_channel(self, purpose: str) -> "LocalChannel":
        """Part of `broker.membership.membership.Channels`."""
        return self

    def channel(self, purpose: str) -> "LocalChannel":
        """Part of `broker.membership.membership.Channels`."""
        return self

    async def ask(self, request: object, answer: type[Answer]) -> Answer | None:
        """Ask the controller; return its answer once it is durable. Raises StorageError."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def then(found: Answer) -> None:
            if not answered.done():  # who asked may be cancelled
                answered.set_result(found)

        _METHODS[type(request)](self._requests, request, then)
        return await answered

    async def finalized_features(self) -> Mapping[str, int]:
        """None that would have to be checked: the levels were when the metadata log was opened."""
        return {}

    @property
    def known_versions(self) -> Mapping[int, Versions]:
        """None: what is asked is not encoded."""
        return {}

    def close(self) -> None:
        """There is nothing to close."""
