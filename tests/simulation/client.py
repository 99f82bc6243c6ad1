"""SimulatedClient: a process on a machine of its own that asks brokers, finds leaders, and tries again."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeVar

from broker.peers.endpoint import UNKNOWN_ID, PeerEndpoint
from broker.peers.errors import PeerError
from broker.peers.peer import Peer
from broker.peers.stats import PeerStats
from broker.runtime.backoff import Backoff
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from tests.simulation.clock import MS_PER_HOUR, SimulatedClock
from tests.simulation.network import SimulatedConnector
from tests.simulation.process import SimulatedProcess
from tests.simulation.simulation import Broken, Simulation

Answer = TypeVar("Answer")
Address = tuple[str, int]

REQUEST_TIMEOUT_MS: Final = 3_000
PAUSE_S: Final = (0.01, 0.3)
GROUP: Final = 0
TRANSACTION: Final = 1


@dataclass(slots=True)
class TopicView:
    """What a client knows of a topic."""

    topic_id: bytes
    leaders: dict[int, Address | None] = field(default_factory=dict)
    """The address of each partition's leader; None where there is none."""
    leader_epochs: dict[int, int] = field(default_factory=dict)
    replicas: dict[int, Sequence[Address]] = field(default_factory=dict)
    """The addresses of each partition's replicas, as far as their brokers run."""


class SimulatedClient:
    """One client with its connections."""

    def __init__(self, simulation: Simulation, name: str, bootstrap: Sequence[Address]) -> None:
        self.name = name
        self.simulation = simulation
        self.process = SimulatedProcess(name)
        self.random: Random = simulation.chance.of(f"client {name}")
        self.clock = SimulatedClock(simulation.loop, self.random.randint(-3, 3) * MS_PER_HOUR)
        self._bootstrap = bootstrap
        self._connector = SimulatedConnector(simulation.network)
        self._peers: dict[tuple[Address, str], Peer] = {}
        self._topics: dict[str, TopicView] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}

    def peer(self, address: Address, purpose: str = "") -> Peer:
        """The connection to a broker for a purpose; what waits long has one of its own."""
        peer = self._peers.get((address, purpose))
        if peer is None:
            peer = self._peers[address, purpose] = Peer(
                PeerEndpoint(UNKNOWN_ID, *address),
                client_id=self.name,
                connector=self._connector,
                clock=self.clock,
                backoff=Backoff(self.random.random),
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                stats=PeerStats(),
            )
        return peer

    async def ask(
        self,
        address: Address,
        request: object,
        answer: type[Answer],
        *,
        version: int | None = None,
        purpose: str = "",
    ) -> Answer | None:
        """The broker's answer; None where it gives none."""
        try:
            return await self.peer(address, purpose).ask(request, answer, version=version)
        except PeerError:
            return None

    async def pause(self) -> None:
        """Wait a little before trying again."""
        await asyncio.sleep(self.random.uniform(*PAUSE_S))

    @property
    def any_broker(self) -> Address:
        return self.random.choice(self._bootstrap)

    # Finding brokers

    def forget(self, topic: str) -> None:
        """What is known of the topic is wrong or old."""
        self._topics.pop(topic, None)

    async def topic(self, name: str) -> TopicView:
        """A topic, asked for until a broker knows it."""
        while (view := self._topics.get(name)) is None:
            answer = await self.ask(
                self.any_broker,
                MetadataRequest(topics=[MetadataRequest.Topic(name=name)], allow_auto_topic_creation=False),
                MetadataResponse,
                version=12,
            )
            if answer is not None and answer.topics[0].error_code == ErrorCode.NONE:
                addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
                found = answer.topics[0]
                leaders = {one.partition_index: addresses.get(one.leader_id) for one in found.partitions}
                self._topics[name] = TopicView(
                    found.topic_id,
                    leaders,
                    {one.partition_index: one.leader_epoch for one in found.partitions},
                    {
                        one.partition_index: [addresses[node] for node in one.replica_nodes if node in addresses]
                        for one in found.partitions
                    },
                )
            else:
                await self.pause()
        return view

    async def leader(self, topic: str, partition: int) -> Address:
        """The leader of a partition, asked for until there is one."""
        while (address := (await self.topic(topic)).leaders.get(partition)) is None:
            self.forget(topic)
            await self.pause()
        return address

    async def coordinator(self, key_type: int, key: str) -> Address:
        """The coordinator of a group or transactional id, asked for until there is one."""
        while (address := self._coordinators.get((key_type, key))) is None:
            answer = await self.ask(
                self.any_broker,
                FindCoordinatorRequest(key=key, key_type=key_type),
                FindCoordinatorResponse,
                version=3,
            )
            if answer is not None and answer.error_code == ErrorCode.NONE:
                self._coordinators[key_type, key] = answer.host, answer.port
            else:
                await self.pause()
        return address

    async def ask_leader(
        self, topic: str, partition: int, request: object, answer: type[Answer], *, version: int, purpose: str = ""
    ) -> Answer | None:
        """What the leader of a partition answers; None, and the topic forgotten, where it gives no answer."""
        address = await self.leader(topic, partition)
        return await self._ask_about(topic, address, request, answer, version=version, purpose=purpose)

    async def ask_replica(
        self, topic: str, partition: int, request: object, answer: type[Answer], *, version: int, purpose: str = ""
    ) -> Answer | None:
        """What any replica of a partition answers, the leader or a follower; None as `ask_leader`."""
        replicas = (await self.topic(topic)).replicas.get(partition)
        address = self.random.choice(replicas) if replicas else await self.leader(topic, partition)
        return await self._ask_about(topic, address, request, answer, version=version, purpose=purpose)

    async def _ask_about(
        self, topic: str, address: Address, request: object, answer: type[Answer], *, version: int, purpose: str
    ) -> Answer | None:
        given = await self.ask(address, request, answer, version=version, purpose=purpose)
        if given is None:
            self.forget(topic)
        return given

    async def ask_coordinator(
        self,
        key_type: int,
        key: str,
        request: object,
        answer: type[Answer],
        error_of: Callable[[Any], int],
        *,
        version: int,
    ) -> Answer | None:
        """What the coordinator of a key answers; None, and the coordinator forgotten, where it gives none, or is no
        coordinator (yet, or any more)."""
        address = await self.coordinator(key_type, key)
        given = await self.ask(address, request, answer, version=version)
        if given is not None and error_of(given) not in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_COORDINATOR,
        ):
            return given
        self._coordinators.pop((key_type, key), None)
        return None

    # Topics

    async def create_topic(
        self, name: str, partitions: int, *, replicas: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic, trying until a broker says that it is there."""
        topic = CreateTopicsRequest.Topic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=[],
            configs=[CreateTopicsRequest.Topic.Config(name=key, value=value) for key, value in (configs or {}).items()],
        )
        while True:
            answer = await self.ask(
                self.any_broker, CreateTopicsRequest(topics=[topic], timeout_ms=2_000), CreateTopicsResponse, version=7
            )
            error = None if answer is None else answer.topics[0].error_code
            if error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            if error == ErrorCode.UNKNOWN_SERVER_ERROR:
                raise Broken(f"creating {name} was answered with UNKNOWN_SERVER_ERROR")
            await self.pause()
