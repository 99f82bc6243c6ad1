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
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from broker.control.broker_host import MANUAL
from broker.control.broker_under_test import BrokerUnderTest
from broker.control.calls import CannotDo
from broker.control.faults.fault_calls import read_rules
from broker.control.faults.rule import NewRule
from broker.control.parent import when_parent_ends
from broker.network.acceptor import CannotListen
from broker.server.broker_server import CannotStart
from broker.server.command_line import (
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
from config.container import UNDER_A_TEST
from config.errors import SettingsError
from config.listen_address import require_loopback
from config.settings_options import add_settings_options, settings_of

log = logging.getLogger("broker")

OPTION: Final = "--test"

_DEFAULTS: Final = {
    "ottla.replication.factor.clamp": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
}
"""What a broker for tests has where its settings say nothing."""

_DEFAULTS_OF_STANDING_TIME: Final = {"connections.max.idle.ms": "-1"}
"""The same where the clock is moved by hand: clients neither send nor receive while it is."""

_BESIDE_THE_TEST: Final = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "ottla.control.listener": "127.0.0.1:0",
    "ottla.prometheus.listener": "",
}
"""The listeners of a broker that has been started by the test."""


_NOT_COUNTED: Final = ("log.dirs", "log.dir", "metadata.log.dir")
"""Settings that say where the data is, which a broker for tests decides itself."""


def run(arguments: Sequence[str], *, parent: int | None = None) -> int:
    """Run a broker for tests until a signal stops it or its parent ends; return the exit code. ``parent`` is the number
    of the process that has started this one, where that may have ended already."""
    if parent is None:
        parent = os.getppid()
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
            return runner.run(_serve(settings, directory, signals, rules, parent))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _settings(options: argparse.Namespace) -> BrokerSettings:
    """The settings of the options, above the defaults of a broker for tests. Raises `SettingsError`."""
    settings = settings_of(options).settings
    defaults = {
        **_DEFAULTS,
        **(UNDER_A_TEST if options.container else _BESIDE_THE_TEST),
        **(_DEFAULTS_OF_STANDING_TIME if settings.ottla_clock == MANUAL else {}),
    }
    missing = [f"{key}={value}" for key, value in defaults.items() if key not in settings.given]
    for key in () if options.container else _NOT_COUNTED:
        if key in settings.given:
            log.warning("%s=%s does not count: a broker for tests has temporary data", key, settings.given[key])
    options.override = [*missing, *options.override]
    settings = settings_of(options).settings
    if not options.container:
        require_loopback(settings.ottla_control_listener)
    if settings.is_member:
        raise SettingsError(f"{OPTION} is for nodes with a controller of their own, and process.roles is broker")
    return settings


async def _serve(
    settings: BrokerSettings, directory: Path, signals: Signals, rules: Sequence[NewRule], parent: int
) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals.stop_by(loop, stop.set)
    when_parent_ends(loop, parent, stop.set)
    broker = BrokerUnderTest(settings, directory, rules)
    try:
        await broker.start()
    except (CannotStart, CannotListen) as error:
        return failed(error)
    announce(json.dumps(broker.description) + "\n")
    gc.freeze()
    gc.enable()
    try:
        await stop.wait()
    finally:
        await broker.stop()
    return STOPPED


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
