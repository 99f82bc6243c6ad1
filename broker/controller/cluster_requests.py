"""ClusterRequests: what the brokers of a cluster ask of the controller in this process (KIP-631).

Each method takes the decoded request, and calls ``then`` with the response once everything that it rests on is durable:
on the loop, perhaps before the method returns. An error goes into the response, as Kafka's controller has it. Each
method raises StorageError where the metadata log cannot be written; nothing has changed then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.controller.local_controller import LocalController
from broker.runtime.clock import Clock
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from protocol.messages.broker_lifecycle import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from protocol.messages.elections import ElectLeadersRequest, ElectLeadersResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The settings of a controller, with Kafka's defaults."""

    session_timeout_ms: int = 9_000
    """`broker.session.timeout.ms`"""
    rebalances_leaders: bool = True
    """`auto.leader.rebalance.enable`"""
    rebalance_interval_ms: int = 300_000
    """`leader.imbalance.check.interval.seconds`"""


class ClusterRequests:
    """Answers the brokers of the cluster. All methods belong to the loop's thread."""

    def __init__(
        self,
        controller: LocalController,
        *,
        cluster_id: str,
        clock: Clock,
        settings: ClusterSettings = ClusterSettings(),
    ) -> None:
        """``controller`` has registered its own broker. A broker that is unfenced has a session from now on."""
        raise NotImplementedError

    def broker_registration(
        self, request: BrokerRegistrationRequest, then: Callable[[BrokerRegistrationResponse], None]
    ) -> None:
        """Register a run of a broker, which is fenced at first (KIP-631)."""
        raise NotImplementedError

    def broker_heartbeat(
        self, request: BrokerHeartbeatRequest, then: Callable[[BrokerHeartbeatResponse], None]
    ) -> None:
        """Keep a broker's session, and fence, unfence or stop the broker as it asks (KIP-631, KIP-858)."""
        raise NotImplementedError

    def alter_partition(self, request: AlterPartitionRequest, then: Callable[[AlterPartitionResponse], None]) -> None:
        """Change the replicas in sync as the leaders of partitions ask (KIP-497), each with its own success or error.

        A request of version 2 has the field ``new_isr`` only, later versions ``new_isr_with_epochs`` only.
        """
        raise NotImplementedError

    def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest, then: Callable[[AllocateProducerIdsResponse], None]
    ) -> None:
        """Give a broker the next block of producer ids (KIP-730)."""
        raise NotImplementedError

    def assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest, then: Callable[[AssignReplicasToDirsResponse], None]
    ) -> None:
        """Take over in which log directories a broker's replicas are (KIP-858), each with its own success or error."""
        raise NotImplementedError

    def elect_leaders(self, request: ElectLeadersRequest, then: Callable[[ElectLeadersResponse], None]) -> None:
        """Elect the preferred leaders of partitions, or any leaders (KIP-183, KIP-460).

        A request without partitions means all; those that need no election are left out of the response then.
        """
        raise NotImplementedError

    def session_check(self, now_ms: int) -> int:
        """Fence brokers whose sessions are over, and balance leaders when that is due. Call it periodically.

        Args:
            now_ms: milliseconds of the monotonic clock.

        Returns: when to call again at the latest, in milliseconds of the monotonic clock.
        """
        raise NotImplementedError
