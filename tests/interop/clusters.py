"""Clusters of Apache Kafka's nodes and this broker's."""

from __future__ import annotations

import socket
import subprocess
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from dev.apache_kafka import ApacheKafka
from dev.broker_process import port_below_client_ports
from tests.support.clusters import PATIENCE_S
from tests.support.clusters import Cluster as ClusterOfOurs

CLUSTER: Final = "b3R0bGEtdGVzdC1jbHVzdA"


class KafkaNode(ApacheKafka):
    """A node of Kafka with one role: a controller, or a broker."""

    def __init__(
        self,
        directory: Path,
        *,
        role: str,
        node_id: int,
        controllers: Sequence[int],
        libraries: str,
        settings: Mapping[str, str] | None = None,
        port: int = 0,
    ) -> None:
        """``controllers``: the ports of the controllers."""
        super().__init__(directory, settings=settings, port=port or port_below_client_ports(), libraries=libraries)
        self.role = role
        self.id = node_id
        self.controllers = controllers
        self.quorum = ""
        """The first controllers as Kafka's format tool takes them, where there are several."""
        self.heap, self.quick_start = "384M", True

    def _write_properties(self) -> None:
        name = "CONTROLLER" if self.role == "controller" else "PLAINTEXT"
        listener = f"{name}://127.0.0.1:{self.port}"
        properties = {
            "process.roles": self.role,
            "node.id": str(self.id),
            "listeners": listener,
            "advertised.listeners": listener,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in self.controllers),
            "log.dirs": str(self.data_directory),
            "offsets.topic.replication.factor": "2",
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.replication.factor": "2",
            "transaction.state.log.num.partitions": "3",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.settings,
        }
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        (self.directory / "server.properties").write_text(text)

    def format(self) -> None:
        """Format the directory if it is new."""
        self._write_properties()
        if (self.data_directory / "meta.properties").exists():
            return
        first = ["--initial-controllers", self.quorum] if self.quorum else ["--standalone"]
        features = [word for name, level in self.features.items() for word in ("--feature", f"{name}={level}")]
        with self.log_path.open("ab") as log:
            subprocess.run(
                self._java(
                    "kafka.tools.StorageTool",
                    *("format", "-t", CLUSTER, "-c", str(self.directory / "server.properties")),
                    *((*first, *features) if self.role == "controller" else ()),
                ),
                check=True,
                stdout=log,
                stderr=log,
            )

    def await_port(self) -> None:
        """Wait until the node accepts connections."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self.is_running, self.log_text()
            assert time.monotonic() < deadline, f"port {self.port} did not open\n{self.log_text()}"
            time.sleep(0.05)


def directory_id(node_id: int) -> str:
    """The id of a controller's log directory, which the other controllers of its quorum know."""
    return urlsafe_b64encode(bytes([node_id] * 16)).decode().rstrip("=")


class Cluster(ClusterOfOurs):
    """Nodes of Kafka and of ours."""

    def __init__(self, directory: Path, libraries: str, *, features: Mapping[str, int] | None = None) -> None:
        """``features``: levels of features other than Kafka's newest."""
        super().__init__(directory)
        self.libraries = libraries
        self.features = features or {}

    def add_controller(self, node_id: int = 100, settings: Mapping[str, str] | None = None) -> KafkaNode:
        """Start a controller of Kafka, the only one."""
        port = port_below_client_ports()
        self.controllers.append(port)
        node = self._controller(node_id, port, settings)
        node.start()
        return node

    def _controller(self, node_id: int, port: int, settings: Mapping[str, str] | None = None) -> KafkaNode:
        node = self.nodes[node_id] = KafkaNode(
            self.directory / f"controller-{node_id}",
            role="controller",
            node_id=node_id,
            controllers=self.controllers,
            libraries=self.libraries,
            settings=settings,
            port=port,
        )
        node.features = self.features
        return node

    def add_quorum(self, *node_ids: int) -> list[KafkaNode]:
        """Start controllers of Kafka that vote together."""
        nodes: list[KafkaNode] = []
        for node_id in node_ids:
            port = port_below_client_ports()
            self.controllers.append(port)
            nodes.append(self._controller(node_id, port))
        quorum = ",".join(f"{node.id}@127.0.0.1:{node.port}:{directory_id(node.id)}" for node in nodes)
        for node in nodes:
            node.quorum = quorum
            node.format()
            node.launch()
        self.await_ports()
        return nodes

    def await_ports(self) -> None:
        """Wait until the nodes of Kafka accept connections."""
        for node in self.nodes.values():
            if isinstance(node, KafkaNode):
                node.await_port()

    def add_kafka(self, node_id: int, settings: Mapping[str, str] | None = None) -> KafkaNode:
        """Start a broker of Kafka."""
        node = KafkaNode(
            self.directory / f"kafka-{node_id}",
            role="broker",
            node_id=node_id,
            controllers=self.controllers,
            libraries=self.libraries,
            settings=settings,
        )
        self.nodes[node_id] = node
        node.start()
        return node

    @property
    def bootstrap(self) -> str:
        """The brokers, for clients."""
        return ",".join(
            node.bootstrap
            for node in self.nodes.values()
            if not (isinstance(node, KafkaNode) and node.role != "broker")
        )
