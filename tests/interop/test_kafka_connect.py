"""Kafka Connect, distributed: what it keeps in its three compacted topics is there after kills, however often
these are cleaned."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from dev.broker_process import BrokerProcess, port_below_client_ports
from dev.brokers import broker_for_tests
from dev.waiting import until
from tests.interop import programs
from tests.interop.compaction import committed
from tests.interop.conftest import installed
from tests.interop.programs import Running
from tests.support.clients import connect

CONNECTOR: Final = Path(__file__).with_name("NumbersConnector.java")
NUMBERS: Final = "numbers"
NOT_NOW: Final = (404, 409, 500, 503)
"""What a worker answers that starts, or whose group is being rebalanced."""
INTERNAL: Final = {"config": "connect-configs", "offset": "connect-offsets", "status": "connect-status"}

SETTINGS: Final = {"group.min.session.timeout.ms": "1000", "log.cleaner.backoff.ms": "100"}

WORKER: Final = {
    "group.id": "connect",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "plugin.discovery": "service_load",
    "exactly.once.source.support": "enabled",
    # A worker that was killed is soon given up, and its tasks are started again at once.
    "session.timeout.ms": "2000",
    "heartbeat.interval.ms": "300",
    "scheduled.rebalance.max.delay.ms": "0",
    # The topics get a segment whenever they are written to after half of a second, and each is cleaned soon.
    **{
        f"{what}.storage.{setting}": value
        for what in INTERNAL
        for setting, value in (
            ("replication.factor", "1"),
            ("segment.ms", "500"),
            ("min.cleanable.dirty.ratio", "0.01"),
            ("file.delete.delay.ms", "0"),
        )
    },
    **{f"{what}.storage.topic": topic for what, topic in INTERNAL.items()},
    "offset.storage.partitions": "1",
    "status.storage.partitions": "1",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker_for_tests(tmp_path, settings=SETTINGS) as process:
        connect("confluent-kafka", process.bootstrap).create_topic(NUMBERS)
        yield process


class Connect:
    """Kafka Connect as its workers' REST API shows it. A worker is started by `worker`."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        jars = installed(programs.kafka_libraries)
        self._address = f"http://127.0.0.1:{port_below_client_ports(above=25_000)}"
        classes = directory / "connector"
        programs.run(["javac", "-cp", f"{jars}/*", "-d", str(classes), str(CONNECTOR)]).done()
        service = classes / "META-INF" / "services" / "org.apache.kafka.connect.source.SourceConnector"
        service.parent.mkdir(parents=True)
        service.write_text(CONNECTOR.stem)
        settings = directory / "worker.properties"
        content = {
            **WORKER,
            "bootstrap.servers": bootstrap,
            "listeners": self._address,
            "plugin.path": str(classes.parent),
        }
        settings.write_text("".join(f"{name}={value}\n" for name, value in content.items()))
        *words, _ = programs.java(jars)
        self._command = [
            *words, f"{jars}/*:{classes}", "org.apache.kafka.connect.cli.ConnectDistributed", str(settings),
        ]  # fmt: skip

    def worker(self) -> Running:
        return Running(self._command)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The answer, None if the worker cannot answer now."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self._address}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as refusal:
            if refusal.code not in NOT_NOW:
                raise
        except OSError:
            pass  # it listens at the end of its start
        return None

    def configure(self, *, up_to: int) -> None:
        """Create the connector, or change its config."""
        config = {"connector.class": CONNECTOR.stem, "tasks.max": "1", "topic": NUMBERS, "up.to": str(up_to)}
        until(lambda: self.ask("PUT", "/connectors/numbers/config", config), f"the config up to {up_to}")

    def make(self, action: str, state: str) -> None:
        """Pause or resume connector and task, and wait until they are."""
        until(lambda: self.ask("PUT", f"/connectors/numbers/{action}") is not None, f"a worker takes {action}")
        until(lambda: self.states() == [state, state], f"connector and task are {state}")

    def states(self) -> list[str]:
        """The states of the connector and of its tasks; empty if they are not known."""
        status = self.ask("GET", "/connectors/numbers/status")
        return [] if status is None else [one["state"] for one in (status["connector"], *status["tasks"])]


def numbers(broker: BrokerProcess) -> list[bytes]:
    """The numbers that are committed."""
    return [one.value for one in committed(broker.bootstrap, NUMBERS) if one.value is not None]


def await_numbers(broker: BrokerProcess, worker: Running, count: int) -> None:
    """Wait until there are as many numbers."""

    def are_there() -> bool:
        worker.check()
        return len(numbers(broker)) >= count

    until(are_there, f"{count} numbers")


def cleaned(broker: BrokerProcess, since: int) -> set[str]:
    """The topics of which the cleaner has taken records away, by the broker's log from this position on."""
    found = re.finditer(r"cleaned (\S+)-\d+ from offset .*: (\d+) of (\d+) records", broker.log_text()[since:])
    return {line[1] for line in found if int(line[2]) < int(line[3])}


@pytest.mark.timeout(300)
def test_connectors_offsets_and_states_are_those_before_though_workers_and_the_broker_are_killed(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    connect_cluster = Connect(broker.bootstrap, tmp_path)
    count = 0
    for kill_broker in (False, True, False):
        since = len(broker.log_text())
        with connect_cluster.worker() as worker:
            if count:
                until(lambda: connect_cluster.states() == ["PAUSED", "PAUSED"], "it is paused, as before")
                config = connect_cluster.ask("GET", "/connectors/numbers/config")
                assert config is not None
                assert config["up.to"] == str(count)
                connect_cluster.make("resume", "RUNNING")
            for _ in range(6):
                count += 25
                connect_cluster.configure(up_to=count)
                await_numbers(broker, worker, count)
                connect_cluster.make("pause", "PAUSED")
                connect_cluster.make("resume", "RUNNING")
            connect_cluster.make("pause", "PAUSED")
            until(lambda since=since: cleaned(broker, since) >= set(INTERNAL.values()), "all three topics are cleaned")
            if kill_broker:
                broker.kill()
                broker.start()
    assert numbers(broker) == [b"%d" % number for number in range(count)]
