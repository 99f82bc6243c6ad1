"""Two brokers between which the coordinator of transactions moves. What the metadata says, what is replicated, and
which of their requests to each other arrive: all that is up to the test."""

import asyncio
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from broker.coordinators.remote_markers import RemoteMarkers
from broker.coordinators.remote_verification import RemoteVerification
from broker.coordinators.transaction_markers import TransactionMarkers
from broker.coordinators.verification_router import VerificationRouter
from broker.metadata.image.metadata_image import MetadataDelta
from broker.peers.endpoint import PeerEndpoint
from broker.peers.nodes import Nodes
from broker.peers.peer import Peer
from broker.peers.stats import PeerStats
from broker.replication.in_sync_replicas import FollowerFetch
from broker.replication.partition import LeaderAndIsr, Partition
from broker.runtime.backoff import Backoff
from protocol.api_keys import ApiKey
from protocol.records.cluster_metadata import PartitionChangeRecord
from storage.log import Log
from storage.topic_partition import TopicPartition
from tests.support.broker import Client, InProcessBroker
from tests.unit.broker.coordinators.brokers import KNOWN
from tests.unit.broker.handlers.transactional_client import STATE, with_coordinators
from tests.unit.broker.peers.harness import Wire, versions

ORDERS = "orders"
BROKERS = (1, 2)
DATA_LEADERS = {TopicPartition(ORDERS, 0): 1, TopicPartition(ORDERS, 1): 2}
"""The partitions that transactions write to, and who leads them."""
FIRST_PRODUCER_ID = {1: 0, 2: 100_000}


class Link(Wire):
    """A connection from one broker to the other. A request stays on it until the test delivers it."""

    def __init__(self, receiver: asyncio.BufferedProtocol, source: "Member", target: "Member") -> None:
        super().__init__(receiver)
        self._source = source
        self._target = target
        self._client: Client | None = None
        self._undelivered: deque[int] = deque()
        self._unanswered: deque[int] = deque()

    def write(self, data: bytes) -> None:
        """Part of `PeerTransport`."""
        super().write(data)
        index = len(self.requests) - 1
        if self.requests[index][0].api_key == ApiKey.API_VERSIONS:
            answer = self.answer_bytes(index, versions(**KNOWN))
            asyncio.get_running_loop().call_soon(self.send, answer)
        else:
            self._undelivered.append(index)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to be delivered."""
        return self.is_closed or not (self._undelivered or self._unanswered)

    def deliver(self) -> None:
        """Let the request arrive, and the answer where the other broker has it by now."""
        if self.is_closed:
            return
        if self._undelivered:
            index = self._undelivered.popleft()
            header, message = self.requests[index]
            if self._client is None:
                self._client = self._target.broker.connect()
            self._client.send(message, header.api_version)
            self._unanswered.append(index)
        if self._unanswered and self._client is not None and not self._client.has_no_answer():
            answer = self._client.receive()
            index = self._unanswered.popleft()
            self._source.call(lambda: self.answer(index, answer))

    def lose_from_both(self) -> None:
        """Close the connection: what was delivered is worked on, its answer comes to nobody."""
        if not self.is_closed:
            self.is_closed = True
            self._source.call(self.lose)


@dataclass
class Leadership:
    """Who leads ``__transaction_state-0``, as one version of the metadata has it."""

    leader: int
    epoch: int


class Member:
    """One of the brokers."""

    def __init__(self, directory: Path, node_id: int) -> None:
        self.node_id = node_id
        self.broker = InProcessBroker(directory, node_id=node_id)
        with_coordinators(self.broker)
        self.broker.create_topic(ORDERS, partitions=2)
        self.components = self.broker.server.components
        self.components.producer_ids._blocks = deque([range(FIRST_PRODUCER_ID[node_id], 1_000_000)])
        self.links: list[Link] = []
        self.known = Leadership(node_id, 0)
        """The version of the metadata that this broker has."""
        self.failures: list[BaseException] = []

    def join(self, other: "Member") -> None:
        """Let this broker ask the other, as the start of a member would have it."""
        coordinator = self.components.transaction_coordinator
        markers = cast(TransactionMarkers, coordinator.markers)
        self._markers = markers._remote = RemoteMarkers(self._nodes(other), on_failure=self.failures.append)
        self._verification = RemoteVerification(self._nodes(other), on_failure=self.failures.append)
        router = VerificationRouter(
            cast(Any, SimpleNamespace(verify=coordinator.verify, add=coordinator.add)),
            self._verification,
            node_id=self.node_id,
            metadata=self.components.metadata,
            clock=self.broker.clock,
            later=lambda after_ms, job: self.broker.clock.call_at(self.broker.clock.monotonic_ms() + after_ms, job),
            stats=coordinator.stats.verification,
            retry_max_ms=100,
        )
        vars(coordinator).update(verify=router.verify, add=router.add)
        for place, leader in DATA_LEADERS.items():
            self._apply(place, LeaderAndIsr(leader, 1, (leader,), frozenset({leader})))

    def _nodes(self, other: "Member") -> Nodes:
        async def connect(endpoint: PeerEndpoint, receiver: asyncio.BufferedProtocol) -> Link:
            self.links.append(Link(receiver, self, other))
            return self.links[-1]

        def make_peer(endpoint: PeerEndpoint) -> Peer:
            return Peer(
                endpoint,
                client_id="test",
                connector=cast(Any, SimpleNamespace(connect=connect)),
                clock=self.broker.clock,
                backoff=Backoff(lambda: 0.5),
                request_timeout_ms=30_000,
                stats=PeerStats(),
            )

        return Nodes({other.node_id: PeerEndpoint(other.node_id, "other", 9092)}.get, make_peer)

    def call(self, what: Any) -> None:
        """Call something on the broker's loop, and let everything happen that follows at once."""

        async def call() -> None:
            what()

        self.broker.run(call())
        self.broker.settle()

    def _apply(self, place: TopicPartition, state: LeaderAndIsr) -> None:
        def apply() -> None:
            metadata = self.components.metadata
            delta = MetadataDelta(metadata.image)
            topic_id = metadata.image.topics.by_name[place.topic].topic_id
            delta.replay(PartitionChangeRecord(partition_id=place.partition, topic_id=topic_id, leader=state.leader))
            metadata.image = delta.apply(metadata.image.end_offset + 1)
            self.components.replicas.apply(self.components.replicas.partition(*place), state)
            cast(TransactionMarkers, self.components.transaction_coordinator.markers).apply(delta, metadata.image)

        self.call(apply)

    def learn(self, news: Leadership, leaders_log: Log) -> None:
        """This broker hears who leads; a follower removes what the leader does not have."""
        self.known = news
        state = LeaderAndIsr(news.leader, news.epoch, BROKERS, frozenset(BROKERS), partition_epoch=news.epoch)
        self._apply(TopicPartition(STATE, 0), state)
        if news.leader != self.node_id:
            self.state.log.truncate_to(common_end(self.state.log, leaders_log), self.broker.clock.now_ms())

    @property
    def state(self) -> Partition:
        """Its replica of ``__transaction_state-0``."""
        return self.components.replicas.partition(STATE, 0)

    def close(self) -> None:
        async def close() -> None:
            await self._markers.close()
            await self._verification.close()

        self.broker.run(close())
        self.broker.close()


def common_end(log: Log, other: Log) -> int:
    """The offset up to which two logs are the same."""
    end = 0
    for (header, data), (_, others_data) in zip(log.batches(), other.batches(), strict=False):
        if bytes(data) != bytes(others_data):
            break
        end = header.next_offset
    return end


class TwoBrokers:
    """Both brokers, and the controller that names the leader of ``__transaction_state-0``."""

    def __init__(self, directory: Path) -> None:
        self.members = {node_id: Member(directory / str(node_id), node_id) for node_id in BROKERS}
        first, second = self.members.values()
        first.join(second)
        second.join(first)
        self.leadership = Leadership(1, 10)
        self.publish_to_all()

    @property
    def coordinator(self) -> Member:
        """The broker that the newest metadata names."""
        return self.members[self.leadership.leader]

    @property
    def is_published(self) -> bool:
        """Whether both brokers have the newest metadata."""
        return all(member.known == self.leadership for member in self.members.values())

    def elect(self, leader: int) -> None:
        """The controller names a leader, in a new epoch; the brokers hear of it later."""
        self.publish_to_all()
        self.leadership = Leadership(leader, self.leadership.epoch + 1)

    def publish(self, node_id: int) -> None:
        """A broker hears of the newest leader."""
        member = self.members[node_id]
        if member.known != self.leadership:
            member.learn(self.leadership, self.coordinator.state.log)

    def publish_to_all(self) -> None:
        for node_id in BROKERS:
            self.publish(node_id)

    def replicate(self, batches: int) -> None:
        """The follower fetches: so many batches at most, and the leader's high watermark."""
        if not self.is_published:
            return
        leader = self.coordinator
        follower = self.members[3 - leader.node_id]
        ours, theirs = leader.state, follower.state
        for header, data in list(ours.log.batches(theirs.log.log_end_offset))[:batches]:
            if header.base_offset >= theirs.log.log_end_offset:
                theirs.log.stage_trusted(bytearray(data), keep_offsets=True)
                theirs.log.append_all(follower.broker.clock.now_ms())
        has, end_offset = theirs.log.log_end_offset, ours.log.log_end_offset

        def fetched() -> None:
            assert ours.followers is not None
            fetch = FollowerFetch(has, 0, 1)
            ours.followers.fetched(
                follower.node_id, fetch, leaders_end_offset=end_offset, now_ms=leader.broker.clock.monotonic_ms()
            )
            if ours.advance_high_watermark():
                leader.components.replicas.watermark_moved(ours)

        leader.call(fetched)
        theirs.log.advance_high_watermark(min(ours.log.high_watermark, has))

    @property
    def links(self) -> list[Link]:
        """The connections on which something is to be delivered."""
        return [link for member in self.members.values() for link in member.links if not link.is_idle]

    def deliver_one(self, chance: Random) -> None:
        links = self.links
        if links:
            chance.choice(links).deliver()

    def lose_one(self, chance: Random) -> None:
        links = self.links
        if links:
            link = chance.choice(links)
            if chance.random() < 0.5:
                link.deliver()
            link.lose_from_both()

    def advance(self, by_ms: int) -> None:
        for member in self.members.values():
            member.broker.advance(by_ms)

    def log(self, place: TopicPartition) -> Log:
        """The log of a data partition, at its leader."""
        leader = self.members[DATA_LEADERS[place]]
        return leader.components.replicas.partition(*place).log

    def close(self) -> None:
        for member in self.members.values():
            member.close()
        assert [member.failures for member in self.members.values()] == [[], []]
