"""A broker that registers with controllers elsewhere, and what it tells them until it may stop."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from broker.membership.features import UnsupportedFeatures, check_features
from broker.membership.member import BrokerMember
from broker.membership.remote_channel import RemoteChannel
from broker.metadata.registration import SUPPORTED_FEATURES, Registration, RegistrationRefused
from broker.peers.endpoint import PeerEndpoint
from broker.peers.errors import PeerUnreachable
from broker.peers.peer import Peer
from broker.raft.remote_quorum import RemoteQuorum
from broker.runtime.manual_clock import ManualClock
from config.listeners import Listener
from protocol.errors import ErrorCode
from protocol.messages.broker_lifecycle import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

LEADER = PeerEndpoint(100, "kafka-100", 9093)
DIRECTORIES = [bytes([9] * 16), bytes([7] * 16)]
REGISTRATION = Registration(
    node_id=7,
    incarnation_id=bytes(range(16)),
    endpoints=[Listener("PLAINTEXT", "ottla-7", 9092), Listener("INTERNAL", "ottla-7", 9094)],
    controller_endpoint=Listener("CONTROLLER", "ottla-7", 9093),
    rack="r1",
    metadata_directory_id=DIRECTORIES[0],
    directories=DIRECTORIES,
)


class Controllers:
    """The controllers as the member meets them: they register it in epoch 50, until the test says otherwise."""

    def __init__(self) -> None:
        self.leader: PeerEndpoint | None = LEADER
        self.asked: list[Any] = []
        self.answers: deque[Any] = deque()
        """Answers and errors that come before the usual ones."""
        self.finalized = {"metadata.version": 25, "group.version": 0}
        self.fences = False
        self.open: list[PeerEndpoint] = []

    async def leading(self) -> PeerEndpoint:
        while self.leader is None:  # noqa: ASYNC110 - each turn of the loop wakes those who wait
            await asyncio.sleep(0)
        return self.leader

    @property
    def registrations(self) -> list[BrokerRegistrationRequest]:
        return [one for one in self.asked if isinstance(one, BrokerRegistrationRequest)]

    @property
    def heartbeats(self) -> list[BrokerHeartbeatRequest]:
        return [one for one in self.asked if isinstance(one, BrokerHeartbeatRequest)]

    def answer(self, request: Any) -> Any:
        self.asked.append(request)
        if self.answers:
            found = self.answers.popleft()
            if isinstance(found, Exception):
                raise found
            return found
        if isinstance(request, BrokerRegistrationRequest):
            return BrokerRegistrationResponse(broker_epoch=50)
        return BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= 50,
            is_fenced=request.want_fence or self.fences,
            should_shut_down=request.want_shut_down,
        )


class _Peer:
    def __init__(self, controllers: Controllers, endpoint: PeerEndpoint) -> None:
        self._controllers = controllers
        self.endpoint = endpoint
        controllers.open.append(endpoint)

    async def versions(self, *, timeout_ms: int) -> Any:
        await asyncio.sleep(0)
        return type("Versions", (), {"finalized_features": self._controllers.finalized})

    async def ask(self, request: Any, answer: type, *, timeout_ms: int) -> Any:
        await asyncio.sleep(0)
        return self._controllers.answer(request)

    def close(self) -> None:
        self._controllers.open.remove(self.endpoint)


class Joining:
    """A member on a clock that the test moves. It has applied the metadata log up to `applied`."""

    def __init__(self, controllers: Controllers, *, previous_broker_epoch: int = -1) -> None:
        self.controllers = controllers
        self.clock = ManualClock()
        self.applied = 100
        self.metadata_version = 25
        self.known_directories: list[bytes] | None = DIRECTORIES
        """The log directories in its registration, by the metadata log."""
        quorum = type("Quorum", (), {"leader": lambda _: controllers.leading()})()
        self.member = BrokerMember(
            REGISTRATION,
            cluster_id="QT2GTK3kRjSc1VXmyAl4iw",
            previous_broker_epoch=previous_broker_epoch,
            channel=RemoteChannel(
                cast(RemoteQuorum, quorum),
                lambda endpoint: cast(Peer, _Peer(controllers, endpoint)),
                self.clock,
                timeout_ms=4_500,
            ),
            applied_offset=lambda: self.applied,
            metadata_version=lambda: self.metadata_version,
            known_directories=lambda: self.known_directories,
            clock=self.clock,
            chance=random.Random(30).random,
        )
        self.task = asyncio.get_running_loop().create_task(self.member.run())

    async def until(self, condition: Callable[[], bool]) -> int:
        """Let it run, and time pass, until the condition holds. Returns how many milliseconds have passed."""
        began_ms = self.clock.monotonic_ms()
        for _ in range(200_000):
            if condition():
                return self.clock.monotonic_ms() - began_ms
            for _ in range(4):
                await asyncio.sleep(0)
            self.clock.advance(1)
        raise AssertionError("it has not come to pass")


def joining(test: Callable[[Joining, Controllers], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        controllers = Controllers()
        one = Joining(controllers, **options)
        try:
            await test(one, controllers)
        finally:
            one.task.cancel()
            await asyncio.gather(one.task, return_exceptions=True)
        assert controllers.open == [], "its connections are closed"

    asyncio.run(run())


def test_it_registers_with_what_it_is_and_is_fenced_until_it_is_ready() -> None:
    async def test(one: Joining, controllers: Controllers) -> None:
        await one.until(one.member.caught_up.is_set)
        (request,) = controllers.registrations
        assert (request.broker_id, request.cluster_id, request.rack) == (7, "QT2GTK3kRjSc1VXmyAl4iw", "r1")
        assert (request.incarnation_id, request.previous_broker_epoch) == (bytes(range(16)), 31)
        assert [(each.name, each.host, each.port, each.security_protocol) for each in request.listeners] == [
            ("PLAINTEXT", "ottla-7", 9092, 0),
            ("INTERNAL", "ottla-7", 9094, 0),
        ]
        assert request.log_dirs == DIRECTORIES
        features = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features}
        assert features == SUPPORTED_FEATURES
        assert one.member.broker_epoch == 50
        await one.until(lambda: len(controllers.heartbeats) == 3)
        assert not one.member.unfenced.is_set()

        one.member.ready()
        assert await one.until(one.member.unfenced.is_set) < 50, "the controllers are told at once"
        assert [each.want_fence for each in controllers.heartbeats] == [True, True, True, False]

    joining(test, previous_broker_epoch=31)


def test_heartbeats_come_every_two_seconds_with_the_offset_that_is_applied() -> None:
    async def test(one: Joining, controllers: Controllers) -> None:
        one.member.ready()
        await one.until(one.member.unfenced.is_set)
        count = len(controllers.heartbeats)
        one.applied = 123
        waited_ms = await one.until(lambda: len(controllers.heartbeats) == count + 3)
        assert 5_900 <= waited_ms <= 6_100
        assert controllers.heartbeats[-1].current_metadata_offset == 123

    joining(test)


def test_once_its_registration_is_applied_it_says_so_at_once() -> None:
    async def test(one: Joining, controllers: Controllers) -> None:
        one.applied = 20
        await one.until(lambda: len(controllers.heartbeats) == 2)
        assert not one.member.caught_up.is_set()
        one.applied = 50
        assert await one.until(one.member.caught_up.is_set) < 50

    joining(test)


def test_a_stop_is_answered_when_nothing_depends_on_the_broker_any_more() -> None:
    async def test(one: Joining, controllers: Controllers) -> None:
        one.member.ready()
        await one.until(one.member.unfenced.is_set)
        busy = BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)
        controllers.answers += [busy, busy, busy]
        one.member.shut_down()
        assert await one.until(one.member.may_stop.is_set) < 250
        await one.until(one.task.done)
        assert [each.want_shut_down for each in controllers.heartbeats[-4:]] == [True] * 4

    joining(test)


def test_a_directory_that_fails_is_reported_at_once_and_with_each_heartbeat() -> None:
    async def test(one: Joining, controllers: Controllers) -> None:
        await one.until(one.member.caught_up.is_set)
        count = len(controllers.heartbeats)
        one.member.directory_failed(DIRECTORIES[0])
        assert await one.until(lambda: len(controllers.heartbeats) > count) < 50
        await one.until(lambda: len(controllers.heartbeats) == count + 2)
        assert [each.offline_log_dirs for each in controllers.heartbeats[-2:]] == [DIRECTORIES[:1]] * 2

    joining(test)


def test_cordoned_directories_are_told_at_once_where_the_cluster_has_them() -> None:
    async def test(one: Joining, controllers: Controllers) -> None:
        one.member.ready()
        one.member.cordon([REGISTRATION.directories[0]])
        await one.until(one.member.unfenced.is_set)
        one.metadata_version = 29
        await one.until(lambda: len(controllers.heartbeats) == 4)
        assert {heartbeat.cordoned_log_dirs for heartbeat in controllers.heartbeats} == {None}

        one.metadata_version = 30
        await one.until(lambda: len(controllers.heartbeats) == 5)
        assert controllers.heartbeats[-1].cordoned_log_dirs == [REGISTRATION.directories[0]]

        one.member.cordon([])
        assert await one.until(lambda: len(controllers.heartbeats) == 6) < 100
        assert controllers.heartbeats[-1].cordoned_log_dirs == []

    joining(test)


def test_nothing_is_told_of_directories_before_the_settings_are_known() -> None:
    async def test(one: Joining, controllers: Controllers) -> None:
        one.metadata_version = 30
        one.member.ready()
        await one.until(one.member.unfenced.is_set)
        assert {heartbeat.cordoned_log_dirs for heartbeat in controllers.heartbeats} == {None}

    joining(test)


def test_the_session_of_its_last_run_is_waited_for_in_even_steps(caplog: pytest.LogCaptureFixture) -> None:
    async def test(one: Joining, controllers: Controllers) -> None:
        taken = BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        controllers.answers += [taken] * 18
        waited_ms = await one.until(one.member.registered.is_set)
        assert 9_000 <= waited_ms <= 9_200

    joining(test)
    assert sum("trying again every 500 ms" in text for text in caplog.messages) == 1


def test_a_broker_whose_id_another_process_keeps_is_refused_after_a_minute() -> None:
    async def test(one: Joining, controllers: Controllers) -> None:
        taken = BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        controllers.answers += [taken] * 200
        await one.until(one.task.done)
        refusal = one.task.exception()
        assert isinstance(refusal, RegistrationRefused)
        assert str(refusal) == "broker 7 could not be registered within 60000 ms: another process is this broker"

    joining(test)


def test_a_registration_that_is_not_known_any_more_is_made_anew() -> None:
    async def test(one: Joining, controllers: Controllers) -> None:
        one.member.ready()
        await one.until(one.member.unfenced.is_set)
        controllers.answers += [
            BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
            BrokerRegistrationResponse(broker_epoch=77),
        ]
        await one.until(lambda: one.member.broker_epoch == 77)
        await one.until(lambda: not one.member.is_fenced)
        assert controllers.heartbeats[-1].broker_epoch == 77
        assert controllers.registrations[1].incarnation_id == controllers.registrations[0].incarnation_id

    joining(test)


def test_it_registers_again_once_the_clusters_level_has_log_directories() -> None:
    async def test(one: Joining, controllers: Controllers) -> None:
        one.known_directories = None
        one.member.ready()
        await one.until(one.member.unfenced.is_set)
        assert len(controllers.registrations) == 1

        one.known_directories = []  # metadata.version 17
        await one.until(lambda: len(controllers.registrations) == 2)
        first, again = controllers.registrations
        assert (again.incarnation_id, again.log_dirs) == (first.incarnation_id, DIRECTORIES)
        assert again.previous_broker_epoch == 50
        assert not one.member.is_fenced, "it is the same run: the controllers leave it unfenced"

        heartbeats = len(controllers.heartbeats)
        await one.until(lambda: len(controllers.heartbeats) == heartbeats + 3)
        assert len(controllers.registrations) == 2, "the record of it is on its way"
        one.known_directories = DIRECTORIES
        await one.until(lambda: len(controllers.heartbeats) == heartbeats + 6)
        assert len(controllers.registrations) == 2

    joining(test)


def test_a_registration_of_the_last_run_without_directories_is_no_reason_to_register_again() -> None:
    async def test(one: Joining, controllers: Controllers) -> None:
        one.applied, one.known_directories = 40, []
        await one.until(lambda: len(controllers.heartbeats) == 3)
        one.applied, one.known_directories = 60, DIRECTORIES
        await one.until(one.member.caught_up.is_set)
        assert len(controllers.registrations) == 1

    joining(test)


@pytest.mark.parametrize(
    "problem",
    [
        PeerUnreachable("closed"),
        BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER),
        BrokerHeartbeatResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_heartbeat_that_fails_is_sent_again_soon(problem: Any) -> None:
    async def test(one: Joining, controllers: Controllers) -> None:
        await one.until(one.member.caught_up.is_set)
        controllers.answers += [problem, problem]
        one.member.ready()
        assert 250 <= await one.until(one.member.unfenced.is_set) <= 400

    joining(test)


def test_the_next_leader_is_asked_on_another_connection() -> None:
    async def test(one: Joining, controllers: Controllers) -> None:
        await one.until(one.member.caught_up.is_set)
        controllers.leader = None
        one.member.ready()
        await one.until(lambda: one.clock.alarms > 0)
        controllers.leader = PeerEndpoint(101, "kafka-101", 9093)
        await one.until(one.member.unfenced.is_set)
        assert controllers.open == [controllers.leader]

    joining(test)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (ErrorCode.INCONSISTENT_CLUSTER_ID, "do not register broker 7: they belong to another cluster"),
        (ErrorCode.INVALID_REGISTRATION, "do not register broker 7: they do not accept its log directories"),
        (ErrorCode.UNSUPPORTED_VERSION, "do not register broker 7: it does not support a feature"),
    ],
)
def test_a_refusal_for_good_ends_it(code: ErrorCode, reason: str) -> None:
    async def test(one: Joining, controllers: Controllers) -> None:
        controllers.answers.append(BrokerRegistrationResponse(error_code=code))
        await one.until(one.task.done)
        with pytest.raises(RegistrationRefused, match=reason):
            one.task.result()

    joining(test)


@pytest.mark.parametrize("has_leader", [True, False])
def test_it_gives_up_when_nobody_answers_for_a_minute(has_leader: bool) -> None:
    async def test(one: Joining, controllers: Controllers) -> None:
        if has_leader:
            controllers.answers += [PeerUnreachable("refused")] * 1_000
        else:
            controllers.leader = None
        waited_ms = await one.until(one.task.done)
        assert 50_000 < waited_ms <= 65_000
        with pytest.raises(RegistrationRefused, match="not be registered within 60000 ms: no controller has answered"):
            one.task.result()

    joining(test)


def test_levels_that_it_does_not_support_keep_it_from_joining() -> None:
    async def test(one: Joining, controllers: Controllers) -> None:
        controllers.finalized = {"metadata.version": 25, "unheard.of.version": 1, "transaction.version": 9}
        await one.until(one.task.done)
        with pytest.raises(UnsupportedFeatures) as refused:
            one.task.result()
        assert str(refused.value).startswith(
            "the cluster has finalised transaction.version at 9, of which this broker supports 0 to 2; "
            "unheard.of.version at 1, which this broker does not know. `kafka-features downgrade`"
        )
        assert controllers.registrations == []

    joining(test)


def test_a_feature_at_level_0_needs_no_support() -> None:
    check_features({"metadata.version": 33, "unheard.of.version": 0})
