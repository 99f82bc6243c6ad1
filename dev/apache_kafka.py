"""Apache Kafka as the broker under test, so that the tests can be run against the original."""

from __future__ import annotations

import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from dev.broker_process import BrokerDidNotStart, BrokerProcess, port_below_client_ports
from dev.class_archive import with_archive

SASL_ABOVE = 2
OPEN_CONTROLLER_ABOVE = 3
"""How far the ports of further listeners are above the first one (`ApacheKafka.users`)."""


class ApacheKafka(BrokerProcess):
    """An Apache Kafka with one combined node (broker and controller), run from a directory with its jars. Java must be
    on the PATH."""

    heap = "1G"
    """The JVM's heap, in Java's notation; small jobs need less."""

    log_level = "WARN"

    features: Mapping[str, int] = {}
    """The feature levels with which the directory is formatted; others get Kafka's newest level."""

    release_version: str | None = None
    """The release whose feature levels the directory gets; by default the Kafka's own."""

    users: Mapping[str, str] = {}
    """Passwords of users, `broker` among them. Where there are some, clients have another listener, SASL, controllers
    have another one without authentication, and the node's own connections authenticate as `broker`."""

    quick_start = False
    """Start with an archive of Kafka's classes and without the JVM's second compiler, which takes half of the start's
    time and pays only under a long load."""

    def __init__(self, directory: Path, *, settings: Mapping[str, str] | None, port: int, libraries: str) -> None:
        super().__init__(directory, settings=settings, port=port or port_below_client_ports())
        self.libraries = libraries

    def _java(self, *words: str) -> list[str]:
        return [
            "java",
            "-Xms256M",
            f"-Xmx{self.heap}",
            "-XX:+UseG1GC",
            *(["-XX:TieredStopAtLevel=1", *self._archived_classes()] if self.quick_start else []),
            f"-Dlog4j2.level={self.log_level}",
            "-cp",
            f"{self.libraries}/*",
            *words,
        ]

    def _archived_classes(self) -> Sequence[str]:
        return with_archive("kafka", self.libraries, _archive_classes)

    def command(self) -> list[str]:
        return self._java("kafka.Kafka", str(self.directory / "server.properties"))

    def _write_properties(self) -> None:
        controller = f"127.0.0.1:{self.port + 1}"
        listener = f"PLAINTEXT://127.0.0.1:{self.port}"
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "advertised.listeners": listener,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers": controller,
            "log.dirs": str(self.data_directory),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            # By default it waits 3 s for more members of an empty group. We do not.
            "group.initial.rebalance.delay.ms": "0",
            **self.settings,
            "listeners": f"{listener},CONTROLLER://{controller}",
        }
        if self.users:
            properties |= self._with_users(listener, controller)
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        (self.directory / "server.properties").write_text(text)

    def _with_users(self, listener: str, controller: str) -> dict[str, str]:
        known = " ".join(f'user_{name}="{password}"' for name, password in self.users.items())
        login = f'username="broker" password="{self.users["broker"]}"'
        jaas = f"org.apache.kafka.common.security.plain.PlainLoginModule required {login} {known};"
        sasl = f"SASL://127.0.0.1:{self.port + SASL_ABOVE}"
        controllers = f"CONTROLLER://{controller},OPEN://127.0.0.1:{self.port + OPEN_CONTROLLER_ABOVE}"
        return {
            "listeners": f"{listener},{sasl},{controllers}",
            "advertised.listeners": f"{listener},{sasl}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT,OPEN:PLAINTEXT"
            ),
            "controller.listener.names": "CONTROLLER,OPEN",
            "inter.broker.listener.name": "SASL",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": jaas,
            "listener.name.controller.plain.sasl.jaas.config": jaas,
        }

    def format(self) -> None:
        """Write the settings, and format the directory if it is new."""
        self._write_properties()
        if (self.data_directory / "meta.properties").exists():
            return
        format_directory = self._java(
            "kafka.tools.StorageTool",
            *("format", "--standalone", "-t", "b3R0bGEtdGVzdC1jbHVzdA"),
            *("-c", str(self.directory / "server.properties")),
            *(() if self.release_version is None else ("--release-version", self.release_version)),
            *(word for name, level in self.features.items() for word in ("--feature", f"{name}={level}")),
        )
        with self.log_path.open("ab") as log:
            subprocess.run(format_directory, check=True, stdout=log, stderr=log)

    def launch(self) -> None:
        """Start the process on its formatted directory. Does not wait."""
        assert not self.is_running, f"the broker on port {self.port} runs already"
        assert not _is_open(self.port), f"another process listens on port {self.port}"
        with self.log_path.open("ab") as log:
            # Its log goes to stdout: an unread pipe would fill, and stop the broker in the middle of an answer.
            self._process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start(self, *, timeout_s: float = 180.0) -> BrokerProcess:
        self.format()
        self.launch()
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            # Kafka opens its listeners one after the other.
            if all(_is_open(port) for port in self._ports_of_clients()):
                return self
            try:
                code = self.process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            raise BrokerDidNotStart(f"Apache Kafka ended with exit code {code}\n{self.log_text()}")
        self.kill()
        ports = self._ports_of_clients()
        raise BrokerDidNotStart(f"ports {ports} did not open within {timeout_s} s\n{self.log_text()}")

    def _ports_of_clients(self) -> tuple[int, ...]:
        return (self.port, self.port + SASL_ABOVE) if self.users else (self.port,)

    def stop(self, signal_number: int = signal.SIGTERM, *, timeout_s: float = 60.0) -> str:
        """Stop the process with a signal. A JVM's exit code is 128 + the signal, not 0."""
        self.process.send_signal(signal_number)
        code = self.process.wait(timeout_s)
        assert code in (0, 128 + signal_number), f"exit code {code} after signal {signal_number}\n{self.log_text()}"
        return ""

    def _finish(self) -> tuple[str, int]:
        return "", self.process.wait()


class _Archiving(ApacheKafka):
    """A Kafka that archives its classes when it ends."""

    quick_start = True
    options: Sequence[str] = ()
    at_its_end: Sequence[str] = ()

    def _archived_classes(self) -> Sequence[str]:
        return self.options

    def launch(self) -> None:
        # Not before: the format tool would archive its own.
        self.options = self.at_its_end
        super().launch()


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _archive_classes(libraries: str, options: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        kafka = _Archiving(Path(directory), settings=None, port=0, libraries=libraries)
        kafka.at_its_end = options
        with closing(kafka):
            kafka.start()
            kafka.stop(timeout_s=180.0)
