"""Finding the controllers' leader, and following it, over a network in which the test is the controllers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from broker.peers.endpoint import UNKNOWN_ID, PeerEndpoint
from broker.peers.errors import PeerTimedOut, PeerUnreachable
from broker.peers.peer import Peer
from broker.raft.observer import QuorumObserver, WrongCluster
from broker.raft.remote_quorum import RemoteQuorum
from broker.runtime.manual_clock import ManualClock
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponse
from protocol.records.control_records import KRaftVoters
from tests.unit.broker.raft.controllers import Controller, Listener, corrupted, observer

BOOTSTRAP = [PeerEndpoint(UNKNOWN_ID, "127.0.0.1", port) for port in (9100, 9101)]


class Network:
    """Controllers by the port that each listens on. Who is asked is written down."""

    def __init__(self, *controllers: Controller) -> None:
        self.by_port = {9000 + one.node_id: one for one in controllers}
        self.asked: list[int] = []
        self.timeouts_ms: set[int] = set()
        self.open: set[int] = set()
        self.instead: list[Any] = []
        """Answers and errors that come before the controllers' own."""

    def make_peer(self, endpoint: PeerEndpoint) -> Peer:
        return cast(Peer, _Peer(self, endpoint))


class _Peer:
    def __init__(self, network: Network, endpoint: PeerEndpoint) -> None:
        self._network = network
        self.endpoint = endpoint
        network.open.add(endpoint.port)

    async def ask(self, request: Any, answer: type, *, timeout_ms: int, largest_answer_bytes: int) -> Any:
        network = self._network
        network.asked.append(self.endpoint.port)
        network.timeouts_ms.add(timeout_ms)
        await asyncio.sleep(0)
        if network.instead:
            found = network.instead.pop(0)
            if isinstance(found, Exception):
                raise found
            return found
        controller = network.by_port.get(self.endpoint.port)
        if controller is None:
            raise PeerUnreachable(f"{self.endpoint} cannot be reached")
        found = controller.answer(request)
        assert isinstance(found, answer)
        return found

    def close(self) -> None:
        self._network.open.discard(self.endpoint.port)


def leading(node_id: int, epoch: int = 3, *names: str) -> Controller:
    controller = Controller(node_id)
    controller.lead(epoch)
    for name in names:
        controller.append(name)
    controller.commit(controller.end_offset)
    return controller


class Following:
    """A quorum that is followed, on a clock that the test moves."""

    def __init__(self, network: Network, **options: int) -> None:
        self.network = network
        self.clock = ManualClock()
        self.listener = Listener()
        self.observer: QuorumObserver = observer(self.listener)
        self.quorum = RemoteQuorum(
            self.observer,
            bootstrap=BOOTSTRAP,
            make_peer=network.make_peer,
            clock=self.clock,
            chance=random.Random(30).random,
            **options,
        )
        self.task = asyncio.get_running_loop().create_task(self.quorum.run())

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let it run, and time pass, until the condition holds."""
        for _ in range(10_000):
            if condition():
                return
            await asyncio.sleep(0)
            self.clock.advance(1)
        raise AssertionError("it has not come to pass")

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def following(network: Network, test: Callable[[Following], Awaitable[None]], **options: int) -> None:
    async def run() -> None:
        one = Following(network, **options)
        try:
            await test(one)
        finally:
            await one.end()
        assert network.open == set(), "its connections are closed"

    asyncio.run(run())


def test_the_leader_that_another_controller_names_is_followed() -> None:
    leader = leading(102, 3, "a")
    network = Network(leader, Controller(100, epoch=3, leader_id=102))

    async def test(one: Following) -> None:
        await one.until(lambda: one.listener.names == ["a"])
        assert network.asked[:2] == [9100, 9102]
        assert await one.quorum.leader() == PeerEndpoint(102, "127.0.0.1", 9102)
        leader.append("b")
        leader.commit(3)
        await one.until(lambda: one.listener.names == ["a", "b"])

    following(network, test)


def test_who_waits_for_a_leader_gets_the_next_one() -> None:
    old, new = leading(100, 3, "a"), Controller(101)
    network = Network(old, new)

    async def test(one: Following) -> None:
        await one.until(lambda: one.quorum.known_leader is not None)
        del network.by_port[9100]
        await one.until(lambda: one.quorum.known_leader is None)
        waiting = asyncio.get_running_loop().create_task(one.quorum.leader())
        new.follow(old)
        new.lead(4)
        await one.until(waiting.done)
        assert waiting.result() == PeerEndpoint(101, "127.0.0.1", 9101)

    following(network, test)


def test_all_bootstrap_servers_are_asked_in_turn_until_one_answers() -> None:
    network = Network()

    async def test(one: Following) -> None:
        await one.until(lambda: len(network.asked) == 6)
        assert network.asked == [9100, 9101] * 3
        network.by_port[9101] = leading(101, 1, "a")
        await one.until(lambda: one.listener.names == ["a"])

    following(network, test)


@pytest.mark.parametrize("is_epoch_known", [False, True])
def test_a_controller_that_is_no_bootstrap_server_is_found_in_the_log(is_epoch_known: bool) -> None:
    gone, left = leading(100, 3, "a"), Controller(102)
    network = Network(gone)

    async def test(one: Following) -> None:
        await one.until(lambda: one.listener.names == ["a"])
        feature = KRaftVoters.Voter.KRaftVersionFeature(min_supported_version=0, max_supported_version=1)
        endpoint = KRaftVoters.Voter.Endpoint(name="CONTROLLER", host="127.0.0.1", port=9102)
        voter = KRaftVoters.Voter(
            voter_id=102, voter_directory_id=bytes(16), endpoints=[endpoint], kraft_version_feature=feature
        )
        one.observer.quorum.replay(KRaftVoters(voters=[voter]))
        left.follow(gone)
        left.lead(4)
        left.append("b")
        left.commit(left.end_offset)
        del network.by_port[9100]
        network.by_port[9102] = left
        if is_epoch_known:  # then nobody has to name the leader
            one.observer.leader_epoch = 4
        await one.until(lambda: one.listener.names == ["a", "b"])
        assert await one.quorum.leader() == PeerEndpoint(102, "127.0.0.1", 9102)

    following(network, test)


def test_it_waits_longer_each_time_that_no_leader_is_known() -> None:
    network = Network(Controller(100, epoch=1), Controller(101, epoch=1))

    async def test(one: Following) -> None:
        await one.until(lambda: len(network.asked) == 12)
        began_ms = one.clock.monotonic_ms()
        await one.until(lambda: len(network.asked) == 13)
        assert one.clock.monotonic_ms() - began_ms >= 700

    following(network, test)


@pytest.mark.parametrize(("first_ms", "at_least_ms", "at_most_ms"), [(300, 240, 361), (5_000, 4_000, 5_001), (0, 1, 2)])
def test_the_first_pause_is_as_long_as_the_settings_say(first_ms: int, at_least_ms: int, at_most_ms: int) -> None:
    network = Network(Controller(100, epoch=1), Controller(101, epoch=1))

    async def test(one: Following) -> None:
        await one.until(lambda: len(network.asked) == 1)
        began_ms = one.clock.monotonic_ms()
        await one.until(lambda: len(network.asked) == 2)
        assert at_least_ms <= one.clock.monotonic_ms() - began_ms <= at_most_ms + 10  # a few turns of the loop
        assert network.timeouts_ms == {700}

    following(network, test, retry_first_ms=first_ms, request_timeout_ms=700)


@pytest.mark.parametrize("problem", [PeerTimedOut("late"), PeerUnreachable("closed")])
def test_after_an_answer_that_does_not_come_the_log_goes_on_where_it_was(problem: Exception) -> None:
    leader = leading(100, 3, "a")
    network = Network(leader)

    async def test(one: Following) -> None:
        await one.until(lambda: one.listener.names == ["a"])
        network.instead.append(problem)
        leader.append("b")
        leader.commit(3)
        await one.until(lambda: one.listener.names == ["a", "b"])

    following(network, test)


def test_damaged_records_are_asked_for_again_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    leader = leading(100, 3, "a")
    network = Network(leader)

    async def test(one: Following) -> None:
        await one.until(lambda: one.quorum.known_leader is not None)
        leader.append("b")
        damaged = corrupted(leader.answer(one.observer.request()))
        leader.commit(3)
        refusal = leader.answer(observer(Listener()).request())  # it names the leader again
        network.instead += [damaged, refusal, damaged, refusal, damaged]
        await one.until(lambda: one.listener.names == ["a", "b"])

    following(network, test)
    assert (
        sum("is not followed, trying again: node 100 has sent damaged records" in text for text in caplog.messages) == 1
    )


def test_another_cluster_ends_it() -> None:
    network = Network()
    network.instead.append(FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, responses=[]))

    async def test(one: Following) -> None:
        await one.until(one.task.done)
        assert isinstance(one.task.exception(), WrongCluster)

    following(network, test)
