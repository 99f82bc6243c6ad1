"""The lifecycle: registered, unfenced, shut down, and what happens where the controller does not agree at once."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.controller.client import Heartbeat, HeartbeatAnswer
from broker.metadata.cache import MetadataCache
from broker.metadata.registration import Registration
from broker.runtime.manual_clock import ManualClock
from broker.runtime.scheduler import Scheduler
from broker.runtime.shutdown import Shutdown
from broker.runtime.timing_wheel import TimingWheel
from broker.server.lifecycle import HEARTBEAT_MS, RETRY_MS, BrokerLifecycle
from broker.server.log_dirs import LogDirs
from config.broker_settings import BrokerSettings
from storage.errors import DiskFull, LogDirFailed
from storage.files import FileSystem
from storage.topic_partition import TopicPartition

FENCED = HeartbeatAnswer(is_caught_up=True, is_fenced=True, should_shut_down=False)
UNFENCED = FENCED._replace(is_fenced=False)
MAY_STOP = FENCED._replace(should_shut_down=True)
ORDERS = TopicPartition("orders", 0)


class Controller:
    """Answers when the test says so."""

    broker_epoch = 7
    has_other_brokers = False

    def __init__(self) -> None:
        self.registered: list[Callable[[], None]] = []
        self.heartbeats: list[tuple[Heartbeat, Callable[[HeartbeatAnswer], None]]] = []
        self.failed_directories: list[Any] = []
        self.has_room = True

    def register(self, registration: Registration, *, then: Callable[[], None], **_: Any) -> None:
        self.registered.append(then)

    def heartbeat(self, heartbeat: Heartbeat, then: Callable[[HeartbeatAnswer], None]) -> None:
        if heartbeat.wants_shutdown and not self.has_room:
            raise DiskFull("no space left")
        self.heartbeats.append((heartbeat, then))

    def directory_failed(self, directory: bytes | None, partitions: Any) -> None:
        if not self.has_room:
            raise DiskFull("no space left")
        self.failed_directories.append((directory, set(partitions)))

    def answer(self, answer: HeartbeatAnswer) -> Heartbeat:
        heartbeat, then = self.heartbeats.pop(0)
        then(answer)
        return heartbeat


class Life:
    """A lifecycle over two data directories, its time and its controller."""

    def __init__(self, tmp_path: Path) -> None:
        self.clock = ManualClock()
        self.controller = Controller()
        self.shutdown = Shutdown()
        settings = BrokerSettings(log_dirs=(str(tmp_path / "a"), str(tmp_path / "b")))
        self.log_dirs = LogDirs(FileSystem(), settings)
        self.log_dirs.lock()
        self.lifecycle = BrokerLifecycle(
            log_dirs=self.log_dirs,
            metadata=MetadataCache(),
            clock=self.clock,  # type: ignore[arg-type]
            scheduler=Scheduler(TimingWheel(self.clock)),  # type: ignore[arg-type]
            shutdown=self.shutdown,
            call_soon=lambda call: call(),
        )

    def begin_registration(self) -> asyncio.Task[None]:
        registration: Any = object()
        return asyncio.ensure_future(
            self.lifecycle.register(
                self.controller,
                registration,
                bootstrap=tuple,
                was_clean=True,
                found={},  # type: ignore[arg-type]
            )
        )

    async def register(self) -> None:
        registering = self.begin_registration()
        await settle()
        self.controller.registered.pop()()
        await settle()
        self.controller.answer(UNFENCED)
        await registering

    def fail(self, number: int) -> None:
        directory = self.log_dirs.for_logs[number]
        directory.has_failed = True
        self.lifecycle.directory_failed(directory, LogDirFailed("the disk is gone"), {ORDERS})


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def life(tmp_path: Path) -> Any:
    made: list[Life] = []

    async def make() -> Life:
        made.append(Life(tmp_path))
        return made[0]

    yield make
    for life in made:
        life.log_dirs.release(broker_epoch=-1, is_clean=False)


def test_a_broker_is_registered_when_the_controller_has_unfenced_it(life: Any) -> None:
    async def run() -> None:
        it = await life()
        registering = it.begin_registration()
        await settle()
        assert not it.controller.heartbeats, "a heartbeat before the registration stands would be refused"
        it.controller.registered.pop()()
        await settle()

        it.controller.answer(FENCED)
        it.clock.advance(HEARTBEAT_MS)
        await settle()
        assert not registering.done()
        it.controller.answer(UNFENCED)
        await registering
        assert it.lifecycle.broker_epoch == 7

    asyncio.run(run())


def test_a_broker_stops_when_the_controller_lets_it(life: Any) -> None:
    async def run() -> None:
        it = await life()
        await it.register()
        stopping = asyncio.ensure_future(it.lifecycle.shut_down())
        await settle()

        assert it.controller.answer(UNFENCED).wants_shutdown
        it.clock.advance(HEARTBEAT_MS)
        await settle()
        assert not stopping.done()
        assert it.controller.answer(MAY_STOP).wants_shutdown
        await stopping

    asyncio.run(run())


def test_a_stop_waits_five_minutes_for_brokers_that_do_not_apply_who_leads_now(
    life: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        it = await life()
        await it.register()
        it.controller.has_other_brokers = True
        leaving = asyncio.ensure_future(it.lifecycle.leave())
        await settle()
        began_ms = it.clock.monotonic_ms()
        while not leaving.done():
            if it.controller.heartbeats:
                it.controller.answer(UNFENCED)
            it.clock.advance(1_000)
            await settle()
            assert it.clock.monotonic_ms() - began_ms <= 301_000
        assert it.clock.monotonic_ms() - began_ms >= 300_000
        assert "not every other broker has the new leaders" in caplog.text

        await asyncio.wait_for(it.lifecycle.shut_down(), 1)  # it does not wait again
        it.controller.heartbeats.clear()
        it.clock.advance(HEARTBEAT_MS)
        assert not it.controller.heartbeats, "it asks no more: its log may be closed"
        assert it.shutdown.failure is None

    asyncio.run(run())


@pytest.mark.parametrize("beat", [1, 2])
def test_a_stop_that_finds_no_room_in_the_metadata_log_is_a_clean_stop(
    life: Any, caplog: pytest.LogCaptureFixture, beat: int
) -> None:
    async def run() -> None:
        it = await life()
        await it.register()
        if beat == 1:
            it.controller.has_room = False
        stopping = asyncio.ensure_future(it.lifecycle.shut_down())
        await settle()
        if beat == 2:
            it.controller.answer(UNFENCED)
            it.controller.has_room = False
            it.clock.advance(HEARTBEAT_MS)
        await asyncio.wait_for(stopping, 1)
        assert "could not be written to the metadata log: no space left" in caplog.text
        assert it.shutdown.failure is None

    asyncio.run(run())


def test_a_failure_ends_the_wait_for_the_controller(life: Any) -> None:
    async def run() -> None:
        it = await life()
        registering = it.begin_registration()
        await settle()
        it.shutdown.fail(LogDirFailed("the metadata is gone"))
        with pytest.raises(LogDirFailed):
            await registering

    asyncio.run(run())


def test_a_failed_directory_is_reported_with_its_partitions(life: Any) -> None:
    async def run() -> None:
        it = await life()
        await it.register()
        it.fail(1)
        assert it.controller.failed_directories == [(None, {ORDERS})]
        assert it.shutdown.failure is None

    asyncio.run(run())


def test_a_directory_that_fails_before_the_registration_is_reported_behind_it(life: Any) -> None:
    async def run() -> None:
        it = await life()
        it.fail(1)
        assert it.controller.failed_directories == []
        await it.register()
        assert it.controller.failed_directories == [(None, {ORDERS})]

    asyncio.run(run())


def test_a_report_that_finds_no_room_is_made_again(life: Any) -> None:
    async def run() -> None:
        it = await life()
        await it.register()
        it.controller.has_room = False
        it.fail(1)
        it.controller.has_room = True
        it.clock.advance(RETRY_MS)
        assert it.controller.failed_directories == [(None, {ORDERS})]

    asyncio.run(run())


def test_without_the_directory_of_the_metadata_the_broker_ends(life: Any) -> None:
    async def run() -> None:
        it = await life()
        await it.register()
        it.fail(0)
        assert isinstance(it.shutdown.failure, LogDirFailed)
        assert it.controller.failed_directories == []

    asyncio.run(run())
