"""`ottla --test`: a broker for tests. Its data is temporary, its ports are free ones, and it ends with its parent.

Once it accepts requests it prints one line of JSON: `bootstrap` for Kafka's clients, `control` for calls.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from broker.control.broker_host import BrokerHost
from broker.control.calls import CHANGES, Answer, Call, CannotDo, Nothing
from broker.control.clients import Clients
from broker.control.conditions import Conditions
from broker.control.control_server import ControlServer
from broker.control.faults.fault_calls import FaultCalls, read_rules
from broker.control.faults.fault_gate import FaultGate
from broker.control.faults.rule import NewRule
from broker.control.groups import Groups
from broker.control.jobs import Jobs
from broker.control.movable_time import MovableTime
from broker.control.own_client import OwnClient
from broker.control.parent import when_parent_ends
from broker.control.records import Records
from broker.control.seen_requests import SeenRequests
from broker.server.broker_server import CannotStart
from broker.server.command_line import (
    FAILED,
    HELP_COLUMNS,
    STOPPED,
    announce,
    failed,
    keep_standard_descriptors,
    log_to_stderr,
    loop_factory,
    raise_descriptor_limit,
)
from broker.server.signals import Signals
from config.broker_settings import BrokerSettings
from config.errors import SettingsError
from config.settings_options import add_settings_options, settings_of

log = logging.getLogger("broker")

OPTION: Final = "--test"

_DEFAULTS: Final = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "ottla.control.listener": "127.0.0.1:0",
    "ottla.prometheus.listener": "",
    "ottla.replication.factor.clamp": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
"""What a broker for tests has where its settings say nothing."""


def run(arguments: Sequence[str]) -> int:
    """Run a broker for tests until a signal stops it or its parent ends; return the exit code."""
    keep_standard_descriptors()
    signals = Signals()
    options = _parser().parse_args(arguments)
    log_to_stderr(options.log_level)
    try:
        settings = _settings(options)
        rules = [] if options.faults is None else read_rules(options.faults)
    except (SettingsError, CannotDo) as error:
        return failed(error)
    raise_descriptor_limit()
    directory = Path(tempfile.mkdtemp(prefix="ottla-test-"))
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_serve(settings, directory, signals, rules))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _settings(options: argparse.Namespace) -> BrokerSettings:
    """The settings of the options, above the defaults of a broker for tests. Raises `SettingsError`."""
    given = settings_of(options).settings.given
    missing = [f"{key}={value}" for key, value in _DEFAULTS.items() if key not in given]
    options.override = [*missing, *options.override]
    settings = settings_of(options).settings
    if settings.is_member:
        raise SettingsError(f"{OPTION} is for nodes with a controller of their own, and process.roles is broker")
    return settings


async def _serve(settings: BrokerSettings, directory: Path, signals: Signals, rules: Sequence[NewRule]) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals.stop_by(loop, stop.set)
    when_parent_ends(loop, stop.set)
    host = BrokerHost(settings, directory, wall_seconds=time.time)
    calls = _calls(host, rules)
    try:
        await host.start()
    except CannotStart as error:
        return failed(error)
    try:
        control = _open(settings, calls, loop)
    except OSError as error:
        await host.stop()
        return failed(f"ottla.control.listener={settings.ottla_control_listener} cannot be opened: {error.strerror}")
    announce(json.dumps(_description(host, control)) + "\n")
    gc.freeze()
    gc.enable()
    await stop.wait()
    # The control listener ends with the process: to be closed, it would have to notice first, in its own time.
    await host.stop()
    return FAILED if host.failure is not None else STOPPED


def _calls(host: BrokerHost, rules: Sequence[NewRule]) -> list[Call]:
    """All calls of the control listener."""
    seen = SeenRequests(host)
    host.around_requests.append(seen.handling)
    client = OwnClient(host)
    gate = FaultGate(host)
    host.around_requests.insert(0, gate.handling)
    host.goes_wrong = gate.fails_on_disk
    faults = FaultCalls(gate, rules)
    host.on_change += (seen.forget, client.forget, faults.begin_anew)

    async def reset(_: Nothing) -> Answer:
        await host.reset()
        return {}

    return [
        Call(CHANGES, "/reset", "Begin anew: no topic, no group, no connection, as at the start.", Nothing, reset),
        *MovableTime(host).calls(),
        *Jobs(host).calls(),
        *Conditions(host, host.happenings).calls(),
        *Records(host, client).calls(),
        *Groups(host).calls(),
        *Clients(host).calls(),
        *seen.calls(),
        *faults.calls(),
    ]


def _open(settings: BrokerSettings, calls: Sequence[Call], loop: asyncio.AbstractEventLoop) -> ControlServer | None:
    address = settings.ottla_control_listener
    if address is None:
        return None
    control = ControlServer(address.host, address.port, calls, loop=loop)
    control.start()
    return control


def _description(host: BrokerHost, control: ControlServer | None) -> Answer:
    """What the line says that tells a parent that the broker accepts requests."""
    server = host.server
    listeners = {one.name: f"{one.host}:{one.port}" for one in server.socket_server.listeners}
    node = server.components.node
    return {
        "bootstrap": next(iter(listeners.values())),
        "listeners": listeners,
        "control": None if control is None else "http://{}:{}".format(*control.address),
        "node_id": node.node_id,
        "cluster_id": node.cluster_id,
        "pid": os.getpid(),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"ottla {OPTION}",
        description="A broker for tests: temporary data, free ports, calls by HTTP. It ends with its parent.",
        formatter_class=partial(argparse.HelpFormatter, width=HELP_COLUMNS),
    )
    parser.add_argument(OPTION, action="store_true", help="this help, and a broker for tests")
    add_settings_options(parser)
    parser.add_argument("--faults", metavar="FILE", type=Path, help="fault rules to begin with: a list in YAML")
    parser.add_argument(
        "--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"], help="what goes to stderr"
    )
    return parser
