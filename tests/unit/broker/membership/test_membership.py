"""A broker and its controller, whose answers the test gives: the stop, and a controller that cannot write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.membership.member import FULL_DISK_RETRY_MS
from broker.membership.membership import Membership
from broker.metadata.cache import MetadataCache
from broker.metadata.registration import Registration
from broker.runtime.manual_clock import ManualClock
from broker.runtime.shutdown import CONTROLLED_SHUTDOWN_MS, Shutdown
from config.broker_settings import BrokerSettings
from config.listeners import Listener
from protocol.messages.broker_lifecycle import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from storage.errors import DiskFull, LogDirFailed
from tests.unit.broker.membership.turns import until

FAILED, CORDONED = bytes([7] * 16), bytes([8] * 16)
HERE = Listener(name="PLAINTEXT", host="127.0.0.1", port=9092)
REGISTRATION = Registration(
    node_id=1,
    incarnation_id=bytes([5] * 16),
    endpoints=[HERE],
    controller_endpoint=HERE,
    rack=None,
    metadata_directory_id=CORDONED,
    directories=[CORDONED],
)


class Controller:
    """The controller in the broker's process, its channels and its metadata log."""

    def __init__(self) -> None:
        self.heartbeats: list[BrokerHeartbeatRequest] = []
        self.has_room = True
        self.lets_stop = True

    def feature_channel(self, purpose: str) -> Controller:
        return self

    def channel(self, purpose: str) -> Controller:
        return self

    async def ask(self, request: Any, answer: type) -> Any:
        await asyncio.sleep(0)
        if not self.has_room:
            raise DiskFull("no space left")
        if isinstance(request, BrokerRegistrationRequest):
            return BrokerRegistrationResponse(broker_epoch=-1)
        assert isinstance(request, BrokerHeartbeatRequest)
        self.heartbeats.append(request)
        may_stop = request.want_shut_down and self.lets_stop
        return BrokerHeartbeatResponse(
            is_caught_up=True, is_fenced=request.want_fence or may_stop, should_shut_down=may_stop
        )

    async def finalized_features(self) -> dict[str, int]:
        return {}

    @property
    def known_versions(self) -> dict[int, Any]:
        return {}

    def close(self) -> None:
        pass


class Life:
    """A membership on a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.controller = Controller()
        self.shutdown = Shutdown()
        self.membership = Membership(BrokerSettings(), clock=self.clock, chance=lambda: 0.5, shutdown=self.shutdown)

    def begin(self) -> None:
        self.membership.begin(
            REGISTRATION,
            cluster_id="cluster",
            previous_broker_epoch=-1,
            channels=self.controller,
            metadata=MetadataCache(),
            heartbeat_interval_ms=None,
        )
        self.membership.member.ready()

    async def start(self) -> None:
        self.begin()
        await self.until(self.membership.member.unfenced.is_set)
        self.membership.member.broker_epoch = 7

    async def until(self, condition: Callable[[], bool], step_ms: int = 0) -> None:
        await until(condition, self.clock, step_ms)


def living(test: Callable[[Life], Awaitable[None]]) -> None:
    """Run a test, and close the membership."""

    async def run() -> None:
        life = Life()
        try:
            await test(life)
        finally:
            await life.membership.close()

    asyncio.run(run())


def test_a_broker_beside_its_controller_sends_a_heartbeat_when_something_has_changed() -> None:
    async def test(life: Life) -> None:
        await life.start()
        life.clock.advance(60_000)
        await life.until(lambda: True)
        assert [request.want_fence for request in life.controller.heartbeats] == [False]

        life.membership.directory_failed(FAILED)
        await life.until(lambda: len(life.controller.heartbeats) == 2)
        assert life.controller.heartbeats[-1].offline_log_dirs == [FAILED]

    living(test)


def test_what_is_reported_of_directories_before_the_registration_is_told_with_the_first_heartbeat() -> None:
    async def test(life: Life) -> None:
        life.membership.directory_failed(FAILED)
        await life.start()
        assert life.controller.heartbeats[0].offline_log_dirs == [FAILED]

    living(test)


def test_a_start_that_finds_no_room_in_the_metadata_log_fails() -> None:
    async def test(life: Life) -> None:
        life.controller.has_room = False
        life.begin()
        await life.until(life.shutdown.failed.is_set)
        with pytest.raises(DiskFull):
            await life.membership.registered()

    living(test)


def test_a_report_that_finds_no_room_is_made_again() -> None:
    async def test(life: Life) -> None:
        await life.start()
        life.controller.has_room = False
        life.membership.directory_failed(FAILED)
        began_ms = life.clock.monotonic_ms()
        await life.until(lambda: life.membership.member.stats.heartbeats == 2)
        life.controller.has_room = True
        await life.until(lambda: len(life.controller.heartbeats) == 2, step_ms=10)
        assert life.clock.monotonic_ms() - began_ms >= FULL_DISK_RETRY_MS - 10
        assert life.shutdown.failure is None

    living(test)


def test_a_stop_that_finds_no_room_in_the_metadata_log_is_a_clean_stop(caplog: pytest.LogCaptureFixture) -> None:
    async def test(life: Life) -> None:
        await life.start()
        life.controller.has_room = False
        await asyncio.wait_for(life.membership.leave(), 1)
        assert "could not be written to the metadata log: no space left" in caplog.text
        assert life.shutdown.failure is None

    living(test)


def test_a_stop_waits_five_minutes_for_brokers_that_do_not_apply_who_leads_now(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(life: Life) -> None:
        await life.start()
        life.controller.lets_stop = False
        began_ms = life.clock.monotonic_ms()
        leaving = asyncio.ensure_future(life.membership.leave())
        await life.until(leaving.done, step_ms=50)
        took_ms = life.clock.monotonic_ms() - began_ms
        assert CONTROLLED_SHUTDOWN_MS <= took_ms <= CONTROLLED_SHUTDOWN_MS + 1_000
        assert "not every other broker has the new leaders" in caplog.text

        await asyncio.wait_for(life.membership.leave(), 1)  # it does not wait again
        assert life.shutdown.failure is None

    living(test)


def test_a_node_that_cannot_go_on_waits_for_nobody() -> None:
    async def test(life: Life) -> None:
        await life.start()
        life.controller.lets_stop = False
        life.shutdown.fail(LogDirFailed("the metadata is gone"))
        await asyncio.wait_for(life.membership.leave(), 1)

    living(test)
