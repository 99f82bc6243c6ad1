"""BrokerUnderTest: a broker with its control listener, and the brokers that have been forked from it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

from broker.control.broker_host import BrokerHost, Prepare
from broker.control.calls import CHANGES, Answer, Call, Nothing
from broker.control.clients import Clients
from broker.control.conditions import Conditions
from broker.control.control_server import ControlServer
from broker.control.copies import Copies
from broker.control.faults.fault_calls import FaultCalls
from broker.control.faults.fault_gate import FaultGate
from broker.control.faults.rule import NewRule
from broker.control.groups import Groups
from broker.control.jobs import Jobs
from broker.control.movable_time import MovableTime
from broker.control.own_client import OwnClient
from broker.control.records import Records
from broker.control.seen_requests import SeenRequests
from broker.control.snapshots import copy_snapshot
from broker.network.acceptor import CannotListen
from config.broker_settings import BrokerSettings
from config.listen_address import CONTROL_LISTENER
from config.listeners import is_every_interface


class BrokerUnderTest:
    """Everything below one directory: the broker's data, its snapshots, its forks."""

    def __init__(self, settings: BrokerSettings, directory: Path, rules: Sequence[NewRule]) -> None:
        """``directory`` exists and is empty; ``rules`` are the fault rules that each broker begins with."""
        self._settings = settings
        self._rules = rules
        self._forks = directory / "forks"
        snapshots = directory / "snapshots"
        for path in (self._forks, snapshots):
            path.mkdir()
        self._host = BrokerHost(settings, directory, wall_seconds=time.time)
        self._calls = self._all_calls(snapshots)
        self._control: ControlServer | None = None
        self._forked: list[BrokerUnderTest] = []

    async def start(self, prepare: Prepare = Path.mkdir) -> None:
        """Start the broker on what ``prepare`` makes. Raises `CannotStart`, `CannotListen`."""
        await self._host.start(prepare)
        address = self._settings.ottla_control_listener
        if address is None:
            return
        try:
            self._control = ControlServer(
                address.host,
                address.port,
                self._calls,
                loop=asyncio.get_running_loop(),
                names={one.host for one in self._settings.advertised_listeners if not one.binds_every_interface},
            )
        except OSError as error:
            await self._host.stop()
            raise CannotListen(f"{CONTROL_LISTENER}={address} cannot be opened: {error.strerror}") from error
        self._control.start()

    async def stop(self) -> None:
        """Stop the broker and its forks, and end their control listeners."""
        await self._stop_brokers()
        if self._control is not None:
            await asyncio.to_thread(self._control.close)

    async def _stop_brokers(self) -> None:
        for fork in self._forked:
            await fork.stop()
        await self._host.stop()

    @property
    def description(self) -> Answer:
        """Where the broker is, for who has started it."""
        server = self._host.server
        bound = server.socket_server.listeners
        advertised = {one.name: one for one in self._settings.advertised_on({one.name: one.port for one in bound})}
        reached = [advertised[one.name] if is_every_interface(one.host) else one for one in bound]
        listeners = {one.name: f"{one.host}:{one.port}" for one in reached}
        node = server.components.node
        return {
            "bootstrap": next(iter(listeners.values())),
            "listeners": listeners,
            "control": None if self._control is None else self._control_url(reached[0].host),
            "node_id": node.node_id,
            "cluster_id": node.cluster_id,
            "pid": os.getpid(),
        }

    def _control_url(self, host_of_clients: str) -> str:
        assert self._control is not None
        host, port = self._control.address
        return f"http://{host_of_clients if is_every_interface(host) else host}:{port}"

    def _all_calls(self, snapshots: Path) -> list[Call]:
        host = self._host
        seen = SeenRequests(host)
        host.around_requests.append(seen.handling)
        client = OwnClient(host)
        gate = FaultGate(host)
        host.around_requests.insert(0, gate.handling)
        host.goes_wrong = gate.fails_on_disk
        faults = FaultCalls(gate, self._rules)
        host.on_change += (seen.forget, client.forget, faults.begin_anew)
        return [
            Call(
                CHANGES,
                "/reset",
                "Begin anew: no topic, no group, no connection, as at the start.",
                Nothing,
                self._reset,
            ),
            *MovableTime(host).calls(),
            *Jobs(host).calls(),
            *Conditions(host, host.happenings).calls(),
            *Records(host, client).calls(),
            *Groups(host).calls(),
            *Clients(host).calls(),
            *seen.calls(),
            *faults.calls(),
            *Copies(host, snapshots, self._fork).calls(),
            Call(CHANGES, "/close", "Stop the broker, if it is a fork, and the calls about it.", Nothing, self._close),
        ]

    async def _reset(self, _: Nothing) -> Answer:
        await self._host.reset()
        return {}

    async def _close(self, _: Nothing) -> Answer:
        await self._stop_brokers()
        if self._control is not None:
            # The answer goes out over it first.
            loop = asyncio.get_running_loop()
            loop.call_later(1, loop.run_in_executor, None, self._control.close)
        return {}

    async def _fork(self, snapshot: Path) -> Answer:
        directory = self._forks / str(len(self._forked) + 1)
        directory.mkdir()
        fork = BrokerUnderTest(_on_free_ports(self._settings), directory, self._rules)
        self._forked.append(fork)
        await fork.start(lambda data: copy_snapshot(snapshot, data))
        return fork.description


def _on_free_ports(settings: BrokerSettings) -> BrokerSettings:
    """The same settings, with ports that the system chooses."""
    control, metrics = settings.ottla_control_listener, settings.ottla_prometheus_listener
    return settings.replace(
        listeners=tuple(listener._replace(port=0) for listener in settings.listeners),
        advertised_listeners=tuple(listener._replace(port=0) for listener in settings.advertised_listeners),
        ottla_control_listener=None if control is None else control._replace(port=0),
        ottla_prometheus_listener=None if metrics is None else metrics._replace(port=0),
    )
