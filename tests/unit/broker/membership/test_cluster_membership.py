"""The requests of a member to its controllers, each kind over a connection of its own."""

from __future__ import annotations

import asyncio
import random
from unittest.mock import Mock

import pytest

from broker.membership.cluster_membership import ClusterMembership
from broker.metadata.cache import MetadataCache
from broker.metadata.loader import MetadataLoader
from broker.metadata.registration import Registration
from broker.peers.endpoint import PeerEndpoint
from broker.raft.client import RaftListener
from broker.raft.remote_quorum import RemoteQuorum
from broker.replication.isr_alteration import WantedIsr
from broker.runtime.manual_clock import ManualClock
from broker.runtime.shutdown import Shutdown
from config.broker_settings import BrokerSettings
from config.listeners import Listener
from tests.unit.broker.peers.harness import Wire, by_hand, versions

LEADER = PeerEndpoint(100, "kafka-100", 9093)
CLUSTER_ID = "QT2GTK3kRjSc1VXmyAl4iw"
REGISTRATION = Registration(
    node_id=7,
    incarnation_id=bytes(range(16)),
    endpoints=[],
    controller_endpoint=Listener("CONTROLLER", "ottla-7", 9093),
    rack=None,
    metadata_directory_id=bytes([9] * 16),
    directories=[bytes([9] * 16)],
)


class Network:
    """The network below a member, in which the test is the controllers."""

    def __init__(self) -> None:
        self.wires: list[Wire] = []

    async def connect(self, endpoint: PeerEndpoint, receiver: asyncio.BufferedProtocol) -> Wire:
        self.wires.append(Wire(receiver))
        return self.wires[-1]

    def asked(self, what: str) -> list[Wire]:
        """The connections on which that was asked."""
        return [wire for wire in self.wires if what in wire.asked]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@by_hand
async def test_a_change_of_an_isr_is_asked_for_again_when_the_controllers_leader_has_lost_its_power_over_it() -> None:
    clock, network = ManualClock(), Network()
    membership = ClusterMembership(
        BrokerSettings().replace(node_id=7, controller_quorum_bootstrap_servers=(f"{LEADER.host}:{LEADER.port}",)),
        connector=network,
        clock=clock,
        chance=random.Random(1).random,
        shutdown=Shutdown(),
    )

    async def leader(quorum: RemoteQuorum) -> PeerEndpoint:
        return LEADER

    async def ask_for_versions() -> None:
        """Answer what each connection asks first."""
        await settle()
        for wire in network.wires:
            if not wire.is_closed and len(wire.requests) == 1 and wire.asked[0].startswith("ApiVersions"):
                wire.answer(0, versions(alter_partition=(2, 3)))
        await settle()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RemoteQuorum, "leader", leader)
        membership.join(
            REGISTRATION,
            cluster_id=CLUSTER_ID,
            previous_broker_epoch=-1,
            listener=Mock(spec=RaftListener),
        )
        wanted = WantedIsr(bytes([1] * 16), 0, leader_epoch=3, partition_epoch=4, isr={7: 50})
        assert membership.alter_isrs().submit(wanted, lambda outcome: None)
        await ask_for_versions()
        (silent,) = network.asked("AlterPartition 3")

        for _ in range(40):  # a machine without power closes no connection
            clock.advance(1_000)
            await ask_for_versions()

        assert silent.is_closed, "after 30 s, `controller.socket.timeout.ms`"
        assert len(network.asked("AlterPartition 3")) == 2
        await membership.close()


@by_hand
async def test_the_metadata_log_is_asked_for_as_long_and_as_often_as_the_settings_say() -> None:
    clock, network = ManualClock(), Network()
    membership = ClusterMembership(
        BrokerSettings().replace(
            node_id=7,
            controller_quorum_bootstrap_servers=(f"{LEADER.host}:{LEADER.port}",),
            controller_quorum_request_timeout_ms=700,
            controller_quorum_retry_backoff_ms=5_000,
        ),
        connector=network,
        clock=clock,
        chance=lambda: 0.5,
        shutdown=Shutdown(),
    )
    membership.join(
        REGISTRATION,
        cluster_id=CLUSTER_ID,
        previous_broker_epoch=-1,
        listener=MetadataLoader(MetadataCache()),
    )

    async def pass_time(ms: int) -> None:
        for _ in range(ms // 10):
            clock.advance(10)
            await settle()

    await settle()
    (first,) = network.wires
    await pass_time(690)
    assert not first.is_closed
    await pass_time(20)
    assert first.is_closed, "after `controller.quorum.request.timeout.ms`"
    await pass_time(4_900)
    assert len(network.wires) == 1
    await pass_time(200)
    assert len(network.wires) == 2, "after `controller.quorum.retry.backoff.ms`"
    await membership.close()
