"""A broker takes the place of another on the same ports; time is moved, and what is due happens in its order."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from broker.control.broker_host import BrokerHost
from broker.control.calls import CannotDo
from broker.control.movable_time import MovableTime
from config.parse import load_settings

T = TypeVar("T")

NOON_S = 1_700_000_000.0
LISTENERS = "A://127.0.0.1:0,B://127.0.0.1:0"


async def started(directory: Path, **given: str) -> BrokerHost:
    settings = {
        "listeners": LISTENERS,
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        "inter.broker.listener.name": "A",
        "ottla.prometheus.listener": "",
        **given,
    }
    host = BrokerHost(load_settings(None, list(settings.items())).settings, directory, wall_seconds=lambda: NOON_S)
    await host.start()
    return host


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


def test_another_broker_has_the_same_ports_and_nothing_else(tmp_path: Path) -> None:
    async def scenario() -> None:
        host = await started(tmp_path)
        before = host.server
        ports = [listener.port for listener in before.socket_server.listeners]
        assert len(set(ports)) == 2
        cluster_id = before.components.node.cluster_id
        for _ in range(3):
            await host.reset()
            assert [listener.port for listener in host.server.socket_server.listeners] == ports
        assert host.server is not before
        assert host.server.components.node.cluster_id != cluster_id
        await host.stop()

    run(scenario())
    left = [directory.name for directory in tmp_path.iterdir()]
    assert left in (["4"], [])


def test_a_client_that_connects_meanwhile_is_served_by_the_new_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        host = await started(tmp_path)
        port = host.server.socket_server.listeners[0].port
        _, old = await asyncio.open_connection("127.0.0.1", port)
        resetting = asyncio.create_task(host.reset())
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await resetting
        writer.write(bytes.fromhex("0000000b 0012 0000 00000007 0001 61".replace(" ", "")))  # ApiVersions, version 0
        assert (await reader.readexactly(8))[4:] == (7).to_bytes(4, "big")
        old.close()
        writer.close()
        await host.stop()

    run(scenario())


def test_what_is_due_happens_in_order_and_has_ended_before_the_clock_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        host = await started(tmp_path, **{"ottla.clock": "manual"})
        clock, services = host.clock, host.server.services
        seen: list[tuple[str, int]] = []
        began_ms = clock.now_ms()
        assert began_ms == NOON_S * 1000

        def note(what: str) -> None:
            seen.append((what, clock.now_ms() - began_ms))

        def work() -> None:
            services.housekeeper.submit(lambda: None, lambda _: note("worked"), lambda _: None)

        services.scheduler.once(2_000, lambda: note("later"))
        services.scheduler.once(1_000, work)
        await MovableTime(host).advance(5_000)
        assert seen == [("worked", 1_000), ("later", 2_000)]
        assert clock.now_ms() - began_ms == 5_000
        await host.stop()

    run(scenario())


def test_centuries_are_moved_in_a_hundred_runs_of_each_job(tmp_path: Path) -> None:
    async def scenario() -> None:
        host = await started(tmp_path, **{"ottla.clock": "manual"})
        runs: list[int] = []
        host.server.services.scheduler.every(1_000, lambda: runs.append(host.clock.now_ms()))
        await MovableTime(host).advance(300 * 365 * 86_400_000)
        assert 90 < len(runs) <= 101
        before = len(runs)
        await MovableTime(host).advance(300 * 365 * 864_000)  # the next run may be that far away
        await MovableTime(host).advance(10_000)
        assert len(runs) >= before + 10
        await host.stop()

    run(scenario())


def test_a_clock_that_goes_by_itself_is_not_moved(tmp_path: Path) -> None:
    async def scenario() -> None:
        host = await started(tmp_path)
        with pytest.raises(CannotDo, match="goes by itself"):
            await MovableTime(host).advance(1)
        await host.stop()

    run(scenario())
