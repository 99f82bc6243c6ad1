"""Runs a script against a fresh broker: ours, or Apache Kafka with the same settings."""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dev.apache_kafka import OPEN_CONTROLLER_ABOVE, SASL_ABOVE, ApacheKafka
from dev.broker_process import BrokerProcess, port_below_client_ports
from tests.parity.exchange import Answered, Exchange
from tests.parity.normalised import Normaliser
from tests.parity.rules import Rule
from tests.support.held_time import HeldTimeBroker

SCRIPTS = tuple(
    sorted(path.stem for path in (Path(__file__).parent / "scripts").glob("*.py") if not path.stem.startswith("_"))
)

SETTINGS = {
    "node.id": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.initial.task.delay.ms": "3600000",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
"""Both brokers have these, beside those that `SETTINGS` of a script adds. They have the feature levels of its
`RELEASE_VERSION`, by default the newest."""


class Run(NamedTuple):
    """What a broker answered to a script, and which rules had a value to replace."""

    answered: list[Answered]
    rules_used: Counter[Rule]


def ask_ours(script: str) -> Run:
    """Run a script against a fresh broker of ours."""
    users: Mapping[str, str] = getattr(_module(script), "USERS", {})

    release_version: str | None = getattr(_module(script), "RELEASE_VERSION", None)

    def make(directory: Path, settings: dict[str, str]) -> BrokerProcess:
        if release_version is not None:
            settings["ottla.release.version"] = release_version
        if not users:
            return HeldTimeBroker(directory, settings=settings)
        port = port_below_client_ports()
        return HeldTimeBroker(directory, settings={**settings, **_with_users(users, port)}, port=port)

    return _run(script, make)


def _with_users(users: Mapping[str, str], port: int) -> dict[str, str]:
    """The listeners of `ApacheKafka.users`."""
    known = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    of_clients = f"PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{port + SASL_ABOVE}"
    return {
        "process.roles": "broker,controller",
        "listeners": f"{of_clients},OPEN://127.0.0.1:{port + OPEN_CONTROLLER_ABOVE}",
        "advertised.listeners": of_clients,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,OPEN:PLAINTEXT",
        "controller.listener.names": "OPEN",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{port + OPEN_CONTROLLER_ABOVE}",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {known};"
        ),
    }


def ask_kafka(script: str, libraries: str) -> Run:
    """Run a script against a fresh node of Apache Kafka, from the directory with its jars."""

    def make(directory: Path, settings: dict[str, str]) -> BrokerProcess:
        port = int(os.environ.get("OTTLA_TEST_KAFKA_PORT", "0")) or port_below_client_ports()
        node = ApacheKafka(directory, settings=settings, port=port, libraries=libraries)
        node.heap = "512M"
        node.release_version = getattr(_module(script), "RELEASE_VERSION", None)
        node.users = getattr(_module(script), "USERS", {})
        node.quick_start = True
        return node

    return _run(script, make)


def _module(script: str) -> Any:
    return importlib.import_module(f"tests.parity.scripts.{script}")


def _run(script: str, make: Callable[[Path, dict[str, str]], BrokerProcess]) -> Run:
    module = _module(script)
    directory = Path(tempfile.mkdtemp(prefix=f"parity-{script}-"))
    settings = {**SETTINGS, **getattr(module, "SETTINGS", {})}
    if others := getattr(module, "MORE_LOG_DIRS", ()):
        settings["log.dirs"] = ",".join(str(directory / name) for name in ("data", *others))
    broker = make(directory, settings)
    normaliser = Normaliser()
    try:
        broker.start(timeout_s=180.0)
        exchange = Exchange(script, broker, normaliser)
        try:
            module.run(exchange)
        finally:
            exchange.hang_up()
    except BaseException as error:
        error.add_note(f"log of the broker:\n{broker.log_text(last_lines=40)}")
        raise
    finally:
        broker.close()
        shutil.rmtree(directory)
    return Run(exchange.answered, normaliser.used)
