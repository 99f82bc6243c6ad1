"""RemoteQuorum: finds the leader of the controllers elsewhere, and asks it for the metadata log without a pause."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Final

from broker.peers.endpoint import UNKNOWN_ID, PeerEndpoint
from broker.peers.errors import PeerError
from broker.peers.peer import Peer
from broker.raft.observer import MAX_BYTES, AnswerRefused, Next, QuorumObserver
from broker.request.node import NO_NODE
from broker.runtime.backoff import Backoff
from broker.runtime.clock import Clock
from broker.runtime.histogram import RecentHistogram
from broker.runtime.waiting import pause_until
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotResponse

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS: Final = 2_000
"""Kafka's default for `controller.quorum.request.timeout.ms`; a leader without new records answers after 500 ms."""

RETRY_FIRST_MS: Final = 20
"""Kafka's default for `controller.quorum.retry.backoff.ms`."""

RETRY_LONGEST_MS: Final = 1_000

LARGEST_ANSWER_BYTES: Final = 8 * MAX_BYTES
"""A leader sends a whole batch, even if the batch is larger than what was asked for."""


class RemoteQuorum:
    """Keeps a `QuorumObserver` going. `run` is a task of the broker."""

    def __init__(
        self,
        observer: QuorumObserver,
        *,
        bootstrap: Sequence[PeerEndpoint],
        make_peer: Callable[[PeerEndpoint], Peer],
        clock: Clock,
        chance: Callable[[], float],
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        retry_first_ms: int = RETRY_FIRST_MS,
    ) -> None:
        """
        Args:
            bootstrap: addresses of controllers, at least one of them (`controller.quorum.bootstrap.servers`).
            make_peer: makes the connection to a controller.
            chance: returns a number from 0 to 1.
            request_timeout_ms: how long a controller may take to answer (`controller.quorum.request.timeout.ms`).
            retry_first_ms: the first pause before the controllers are asked again; the pauses grow up to
                `RETRY_LONGEST_MS`, unless the first one is longer (`controller.quorum.retry.backoff.ms`).
        """
        self._observer = observer
        self._bootstrap = tuple(bootstrap)
        self._make_peer = make_peer
        self._clock = clock
        # A pause of nothing would never let the loop turn.
        first_ms = max(retry_first_ms, 1)
        self._backoff = Backoff(chance, first_ms=first_ms, longest_ms=max(first_ms, RETRY_LONGEST_MS))
        self._request_timeout_ms = request_timeout_ms
        self._peers: dict[tuple[str, int], Peer] = {}
        self._next_candidate = 0
        self._last_problem = ""
        self._waiting: list[asyncio.Future[PeerEndpoint]] = []
        self._leader: PeerEndpoint | None = None
        self.publications = RecentHistogram()
        """Microseconds of taking an answer that commits records, until all subscribers have them."""
        self.published = RecentHistogram()
        """Number of records that were handed over together."""

    @property
    def known_leader(self) -> PeerEndpoint | None:
        """The leader that has answered the last request as such; None while one is searched for."""
        return self._leader

    async def leader(self) -> PeerEndpoint:
        """Wait until there is a leader that answers, and return its address."""
        if self._leader is not None:
            return self._leader
        waiting: asyncio.Future[PeerEndpoint] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        return await waiting

    async def run(self) -> None:
        """Follow the metadata log until the task is cancelled.

        Raises:
            WrongCluster: the controllers belong to another cluster.
            NodeIdTaken: a controller has the id of this broker.
            InconsistentMetadata: committed records cannot be replayed.
        """
        peer = self._next_peer()
        try:
            while True:
                step = await self._exchange(peer)
                self._note_leader(peer, step)
                if step is Next.ASK_LATER:
                    await pause_until(self._clock, self._clock.monotonic_ms() + self._backoff.next_ms())
                    peer = self._next_peer()
                elif step is Next.ASK_LEADER:
                    peer = self._peer_of_leader()
        finally:
            for known in self._peers.values():
                known.close()

    async def _exchange(self, peer: Peer) -> Next:
        """Send the observer's next request, and give the observer the answer."""
        observer = self._observer
        request = observer.request()
        answer_type: type[FetchResponse | FetchSnapshotResponse] = (
            FetchResponse if isinstance(request, FetchRequest) else FetchSnapshotResponse
        )
        try:
            answer = await peer.ask(
                request, answer_type, timeout_ms=self._request_timeout_ms, largest_answer_bytes=LARGEST_ANSWER_BYTES
            )
            step = self._take(answer)
        except PeerError:  # which the peer has logged
            observer.forget_leader()
            return Next.ASK_LATER
        except AnswerRefused as problem:
            observer.stats.answers_refused += 1
            if str(problem) != self._last_problem:
                self._last_problem = str(problem)
                log.error("the metadata log is not followed, trying again: %s (%s)", problem, peer.endpoint)
            observer.forget_leader()
            return Next.ASK_LATER
        if step is Next.ASK_AGAIN:
            self._backoff.reset()
            self._last_problem = ""
        return step

    def _take(self, answer: FetchResponse | FetchSnapshotResponse) -> Next:
        stats, began_ns = self._observer.stats, monotonic_ns()
        commits, records = stats.commits, stats.records_committed
        step = self._observer.answered(answer)
        if stats.commits > commits:
            self.publications.record((monotonic_ns() - began_ns) // 1000)
            self.published.record(stats.records_committed - records)
        return step

    def rotate(self) -> None:
        """A period is over: forget recent values of the period before it."""
        self.publications.rotate()
        self.published.rotate()

    def _note_leader(self, peer: Peer, step: Next) -> None:
        if step is not Next.ASK_AGAIN:
            self._leader = None
            return
        if self._observer.leader_id == NO_NODE:
            # No node has named this one: it was asked in its turn, and leads.
            self._observer.leader_id = self._id_of(peer.endpoint)
        leader = PeerEndpoint(self._observer.leader_id, peer.endpoint.host, peer.endpoint.port)
        if leader != self._leader:
            self._leader = leader
            log.info("the controllers' leader is %s, in epoch %d", leader, self._observer.leader_epoch)
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(leader)
        self._waiting.clear()

    # Nodes to ask

    def _peer_of_leader(self) -> Peer:
        """The leader that another node has named, if its address is known; else the next node that is known."""
        observer = self._observer
        if observer.leader_endpoint is not None:
            return self._peer(PeerEndpoint(observer.leader_id, *observer.leader_endpoint))
        for candidate in self._voters():
            if candidate.node_id == observer.leader_id:
                return self._peer(candidate)
        return self._next_peer()

    def _next_peer(self) -> Peer:
        """The bootstrap servers and the voters in turn, each address once."""
        candidates = {(one.host, one.port): one for one in (*self._bootstrap, *self._voters())}
        address = list(candidates)[self._next_candidate % len(candidates)]
        self._next_candidate += 1
        return self._peer(candidates[address])

    def _voters(self) -> list[PeerEndpoint]:
        """The controllers' addresses by the metadata log. A controller has one listener for other nodes, or more."""
        voters = self._observer.quorum.voters
        if voters is None:
            return []
        return [
            PeerEndpoint(voter.voter_id, endpoint.host, endpoint.port)
            for voter in voters.voters
            for endpoint in voter.endpoints[:1]
        ]

    def _id_of(self, endpoint: PeerEndpoint) -> int:
        """The id of the voter with this address; `NO_NODE` if there is none."""
        if endpoint.node_id != UNKNOWN_ID:
            return endpoint.node_id
        same = (voter.node_id for voter in self._voters() if (voter.host, voter.port) == (endpoint.host, endpoint.port))
        return next(same, NO_NODE)

    def _peer(self, endpoint: PeerEndpoint) -> Peer:
        address = endpoint.host, endpoint.port
        peer = self._peers.get(address)
        if peer is None or peer.endpoint.node_id not in (endpoint.node_id, UNKNOWN_ID):
            if peer is not None:
                peer.close()
            peer = self._peers[address] = self._make_peer(endpoint)
        return peer
