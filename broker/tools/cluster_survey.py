"""What controllers elsewhere say of their cluster: who leads, its features, its brokers, the time. Only reads.

every address that was given, and every address that an answer names     ApiVersions, DescribeCluster
the leader                                                               DescribeQuorum, the metadata log
"""

import asyncio
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.metadata.cache import MetadataCache
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.records import InconsistentMetadata, Record
from broker.metadata.loader import CommittedBatch, MetadataLoader
from broker.metadata.registration import RegistrationRefused
from broker.peers.connector import TcpConnector
from broker.peers.endpoint import PeerEndpoint
from broker.peers.errors import PeerError
from broker.peers.peer import Peer
from broker.peers.stats import PeerStats
from broker.raft.observer import QuorumObserver
from broker.raft.remote_quorum import RemoteQuorum
from broker.raft.single_voter_log import METADATA_PARTITION
from broker.request.node import NO_NODE
from broker.runtime.backoff import Backoff
from broker.runtime.clock import Clock, LoopClock
from protocol.api_keys import Versions
from protocol.errors import ErrorCode, described
from protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.quorum import DescribeQuorumRequest, DescribeQuorumResponse
from protocol.primitives import Malformed
from protocol.schema import NO_UUID

REQUEST_TIMEOUT_MS: Final = 5_000
METADATA_TIMEOUT_S: Final = 60.0
"""Seconds within which the metadata log must have been read."""

CONTROLLERS: Final = 2
"""The endpoint type of controllers in DescribeCluster (KIP-919)."""

_CLIENT_ID: Final = "ottla-cluster-check"


class AskedController(NamedTuple):
    """One address that was asked, and its answer to DescribeCluster."""

    endpoint: PeerEndpoint
    problem: str
    """Why there is no answer; empty where there is."""
    cluster_id: str = ""
    leader_id: int = NO_NODE
    controllers: tuple[PeerEndpoint, ...] = ()
    """The controllers at the addresses by which they are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadersAnswers:
    """What the controllers' leader says of itself and of the cluster."""

    epoch: int
    high_watermark: int
    """Records of the metadata log below this offset are committed."""
    voters: frozenset[int]
    clock_ahead_ms: int | None
    """By how much the leader's clock is ahead of this machine's; negative where it is behind, None if not known."""
    clock_doubt_ms: int
    """The difference is right to so many milliseconds: half the time that the answer took."""
    apis: Mapping[int, Versions]
    """The versions of its APIs by key."""
    finalized_features: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSurvey:
    """All answers. What could not be asked is None, with the reason in ``problems``."""

    asked: tuple[AskedController, ...]
    leader: PeerEndpoint | None = None
    answers: LeadersAnswers | None = None
    image: MetadataImage | None = None
    problems: tuple[str, ...] = ()

    @property
    def answered(self) -> Sequence[AskedController]:
        """The addresses that have answered as controllers."""
        return [one for one in self.asked if not one.problem]

    @property
    def cluster_id(self) -> str:
        """The cluster's id by the first answer, empty without one."""
        return next((one.cluster_id for one in self.answered), "")

    @property
    def controllers(self) -> dict[int, PeerEndpoint]:
        """The controllers that any answer names, by id."""
        return {endpoint.node_id: endpoint for one in self.answered for endpoint in one.controllers}


async def survey_cluster(addresses: Iterable[PeerEndpoint]) -> ClusterSurvey:
    """Ask the controllers at ``addresses``, and those whom they name."""
    return await _Survey(LoopClock(asyncio.get_running_loop(), time.time)).run(addresses)


class _Survey:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._connector = TcpConnector(clock, timeout_ms=REQUEST_TIMEOUT_MS)
        self._stats = PeerStats()

    async def run(self, addresses: Iterable[PeerEndpoint]) -> ClusterSurvey:
        given = list(dict.fromkeys(addresses))
        asked = list(await asyncio.gather(*map(self._describe, given)))
        known = {(one.host, one.port) for one in given}
        named = dict.fromkeys(endpoint for one in asked for endpoint in one.controllers)
        others = [endpoint for endpoint in named if (endpoint.host, endpoint.port) not in known]
        asked += await asyncio.gather(*map(self._describe, others))
        survey = ClusterSurvey(asked=tuple(asked))
        leader = _leader(survey)
        if leader is None:
            return survey
        peer = self._peer(leader)
        try:
            answers = await self._ask_leader(peer)
            image = await self._image(leader, survey.cluster_id, answers.high_watermark)
        except _Unanswered as problem:
            return ClusterSurvey(asked=survey.asked, leader=leader, problems=(str(problem),))
        finally:
            peer.close()
        if isinstance(image, str):
            return ClusterSurvey(asked=survey.asked, leader=leader, answers=answers, problems=(image,))
        return ClusterSurvey(asked=survey.asked, leader=leader, answers=answers, image=image)

    def _peer(self, endpoint: PeerEndpoint) -> Peer:
        return Peer(
            endpoint,
            client_id=_CLIENT_ID,
            connector=self._connector,
            clock=self._clock,
            backoff=Backoff(random.random),
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            stats=self._stats,
        )

    async def _describe(self, endpoint: PeerEndpoint) -> AskedController:
        peer = self._peer(endpoint)
        try:
            answer = await peer.ask(DescribeClusterRequest(endpoint_type=CONTROLLERS), DescribeClusterResponse)
        except PeerError as problem:
            return AskedController(endpoint, str(problem))
        finally:
            peer.close()
        if answer.error_code != ErrorCode.NONE:
            return AskedController(
                endpoint, f"{endpoint} is no controller: it has answered with error {described(answer.error_code)}"
            )
        controllers = tuple(PeerEndpoint(one.broker_id, one.host, one.port) for one in answer.brokers)
        return AskedController(endpoint, "", answer.cluster_id, answer.controller_id, controllers)

    async def _ask_leader(self, peer: Peer) -> LeadersAnswers:
        """Raises _Unanswered."""
        topic = DescribeQuorumRequest.Topic(
            topic_name=METADATA_PARTITION.topic,
            partitions=[DescribeQuorumRequest.Topic.Partition(partition_index=METADATA_PARTITION.partition)],
        )
        try:
            versions = await peer.versions()
            began_ms = self._clock.now_ms()
            answer = await peer.ask(DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse)
            ended_ms = self._clock.now_ms()
        except PeerError as problem:
            raise _Unanswered(str(problem)) from None
        partitions = [partition for one in answer.topics for partition in one.partitions]
        error_code = answer.error_code or (partitions[0].error_code if partitions else ErrorCode.UNKNOWN_SERVER_ERROR)
        if error_code != ErrorCode.NONE:
            raise _Unanswered(f"{peer.endpoint} does not describe the quorum: error {described(error_code)}")
        quorum = partitions[0]
        # The leader has caught up with itself at the moment of its answer (KIP-836).
        now_there_ms = max(
            (one.last_caught_up_timestamp for one in quorum.current_voters if one.replica_id == quorum.leader_id),
            default=-1,
        )
        ours_ms = (began_ms + ended_ms) // 2
        return LeadersAnswers(
            epoch=quorum.leader_epoch,
            high_watermark=quorum.high_watermark,
            voters=frozenset(one.replica_id for one in quorum.current_voters),
            clock_ahead_ms=now_there_ms - ours_ms if now_there_ms > 0 else None,
            clock_doubt_ms=(ended_ms - began_ms + 1) // 2,
            apis=versions,
            finalized_features=versions.finalized_features,
        )

    async def _image(self, leader: PeerEndpoint, cluster_id: str, end_offset: int) -> MetadataImage | str:
        """The image of all records of the metadata log below ``end_offset`` at least, or why there is none."""
        replay = _Replay()
        # An observer without an id of its own: no node is mistaken for it.
        observer = QuorumObserver(replay, node_id=NO_NODE, directory_id=NO_UUID, cluster_id=cluster_id)
        quorum = RemoteQuorum(
            observer, bootstrap=[leader], make_peer=self._peer, clock=self._clock, chance=random.random
        )
        following = asyncio.ensure_future(quorum.run())
        waiting = asyncio.ensure_future(replay.wait_until(end_offset))
        try:
            done, _ = await asyncio.wait(
                (following, waiting), timeout=METADATA_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for task in (following, waiting):
                task.cancel()
            ended = await asyncio.gather(following, waiting, return_exceptions=True)
        if waiting in done:
            return replay.image
        if isinstance(ended[0], (InconsistentMetadata, RegistrationRefused, Malformed)):
            return f"the metadata log cannot be read here: {ended[0]}"
        if following in done and isinstance(ended[0], Exception):
            raise ended[0]
        return f"{leader} has not given its metadata log within {METADATA_TIMEOUT_S:.0f} s"


class _Unanswered(Exception):
    """The leader has not answered a request."""


class _Replay:
    """Replays the metadata log: a `broker.raft.client.RaftListener`."""

    def __init__(self) -> None:
        self._loader = MetadataLoader(MetadataCache())
        self._news = asyncio.Event()

    @property
    def image(self) -> MetadataImage:
        return self._loader.image

    @property
    def is_in_transaction(self) -> bool:
        return self._loader.is_in_transaction

    def handle_commit(self, batches: Iterable[CommittedBatch]) -> None:
        self._loader.handle_commit(batches)
        self._news.set()

    def handle_snapshot(self, records: Iterable[Record], end_offset: int) -> None:
        self._loader.handle_snapshot(records, end_offset)
        self._news.set()

    async def wait_until(self, end_offset: int) -> None:
        """Return once all records below ``end_offset`` are replayed."""
        while self.image.end_offset < end_offset or self.is_in_transaction:
            self._news.clear()
            await self._news.wait()


def _leader(survey: ClusterSurvey) -> PeerEndpoint | None:
    """The leader at the address by which the controllers know it."""
    controllers = survey.controllers
    for one in survey.answered:
        if one.leader_id in controllers:
            return controllers[one.leader_id]
    return None
