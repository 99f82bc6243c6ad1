"""Clusters of two brokers, ours and Apache Kafka's, that the cases of replication put under the same load."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from bench.conversation import BrokerRefused, Conversation
from bench.load import LoadFailed
from bench.processes import PACKAGES, cpu_seconds, users_environment
from broker.metadata.registration import SUPPORTED_FEATURES
from dev.broker_process import BrokerProcess, port_below_client_ports
from dev.kafka_jars import NoKafka, libraries
from protocol.messages.broker_lifecycle import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from tests.interop.clusters import KafkaNode
from tests.support.clusters import Member, Primary

CONTROLLER: Final = 100
"""Node id of Kafka's controller."""
SOON_S: Final = 300.0
POLL_S: Final = 0.005
HEARTBEAT_S: Final = 1.0
BEYOND_EVERY_OFFSET: Final = 1 << 40
MOST_LEVELS: Final = 100


class Nodes:
    """Processes of one cluster by their node ids, closed together; a context."""

    def __init__(self) -> None:
        self.nodes: dict[int, BrokerProcess] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for node in self.nodes.values():
            node.close()

    def cpu_seconds(self, node_id: int) -> float:
        """CPU seconds of a node's current process."""
        return cpu_seconds(self.nodes[node_id].process.pid)


class Pair(Nodes):
    """Two brokers with the ids 1 and 2 and their controller: ours within broker 1, Kafka's a node of its own.

    So broker 1 is never killed where the cluster is to go on.
    """

    @property
    def bootstrap(self) -> str:
        """Both brokers, for clients."""
        return f"{self.nodes[1].bootstrap},{self.nodes[2].bootstrap}"

    def create(self, topic: str, replicas: Sequence[int], configs: Mapping[str, str]) -> None:
        """Create a topic of one partition with these replicas, the first of which leads, and wait until all are in
        sync."""
        with Conversation(self.nodes[1].bootstrap) as client:
            create_assigned(client, topic, [replicas], configs)
        until(lambda: self.in_sync(topic, replicas[0]) == set(replicas), f"{topic} has all replicas in sync")
        # In Kafka the metadata may name a leader that has not made the log yet.
        with Conversation(self.nodes[replicas[0]].bootstrap) as leader:
            until(lambda: leader.leads_all(topic, 1), f"node {replicas[0]} leads {topic}")

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        with Conversation(self.nodes[1].bootstrap) as client:
            client.delete_topic(topic)

    def in_sync(self, topic: str, asked: int) -> set[int]:
        """The ISR of a topic's partition as a broker knows it; empty where it does not know the topic yet."""
        with Conversation(self.nodes[asked].bootstrap) as client:
            (found,) = client.ask(
                MetadataRequest(topics=[MetadataRequest.Topic(name=topic)], allow_auto_topic_creation=False),
                MetadataResponse,
            ).topics
        return set() if found.error_code or not found.partitions else set(found.partitions[0].isr_nodes)

    def log_bytes(self, topic: str, node_id: int) -> int:
        """The size of the segments that a broker has of a topic's partition."""
        return sum(path.stat().st_size for path in (self.nodes[node_id].data_directory / f"{topic}-0").glob("*.log"))


def our_primary(directory: Path, settings: Mapping[str, str]) -> Primary:
    """Our broker with its controller as node 1, started."""
    node = Primary(directory / "1", settings=settings)
    _as_users_run_it(node)
    node.start()
    return node


def our_member(directory: Path, node_id: int, controllers: Sequence[int], settings: Mapping[str, str]) -> Member:
    """Our broker as a member, not started."""
    node = Member(directory / str(node_id), node_id=node_id, controllers=controllers, settings=settings)
    _as_users_run_it(node)
    return node


def _as_users_run_it(node: BrokerProcess) -> None:
    node.packages, node.environment = PACKAGES, users_environment()


def kafkas_controller(directory: Path, settings: Mapping[str, str]) -> KafkaNode:
    """Kafka's controller, started. Raises `NoKafka`."""
    port = port_below_client_ports()
    node = _kafka(directory, "controller", CONTROLLER, [port], settings, port)
    node.start()
    return node


def kafkas_broker(directory: Path, node_id: int, controllers: Sequence[int], settings: Mapping[str, str]) -> KafkaNode:
    """Kafka's broker with its directory formatted, not started. Raises `NoKafka`."""
    node = _kafka(directory, "broker", node_id, controllers, settings, 0)
    node.format()
    return node


def _kafka(
    directory: Path, role: str, node_id: int, controllers: Sequence[int], settings: Mapping[str, str], port: int
) -> KafkaNode:
    node = KafkaNode(
        directory / str(node_id),
        role=role,
        node_id=node_id,
        controllers=controllers,
        libraries=str(libraries()),
        settings=settings,
        port=port,
    )
    node.heap, node.quick_start = "1G", False
    return node


def started_pair_of_ours(directory: Path, settings: Mapping[str, str]) -> Pair:
    """Two brokers of ours."""
    pair = Pair()
    primary = pair.nodes[1] = our_primary(directory, settings)
    pair.nodes[2] = our_member(directory, 2, [primary.controller_port], settings).start()
    return pair


def started_pair_of_kafka(directory: Path, settings: Mapping[str, str]) -> Pair:
    """Two brokers of Kafka and their controller. Raises `NoKafka`."""
    pair = Pair()
    controller = pair.nodes[CONTROLLER] = kafkas_controller(directory, settings)
    for node_id in (1, 2):
        pair.nodes[node_id] = kafkas_broker(directory, node_id, [controller.port], settings).start()
    return pair


@contextlib.contextmanager
def pairs(
    directory: Path, settings: Mapping[str, str], *, warm_up: Callable[[Pair, float], None], warm_up_s: float
) -> Iterator[dict[str, Pair]]:
    """A pair of ours and, where Kafka can be had, a pair of Kafka's, by the prefix of their figures.

    Kafka's pair has been under the load of ``warm_up`` for ``warm_up_s`` seconds: a JVM compiles the code that is used.
    """
    with contextlib.ExitStack() as stack:
        found = {"": stack.enter_context(started_pair_of_ours(directory / "ours", settings))}
        try:
            kafkas = found["kafka_"] = stack.enter_context(started_pair_of_kafka(directory / "kafka", settings))
        except NoKafka as reason:
            sys.stderr.write(f"not compared with Apache Kafka: {reason}\n")
        else:
            warm_up(kafkas, warm_up_s)
        yield found


def until(condition: Callable[[], bool], what: str) -> float:
    """Wait until a condition holds. Returns the time by `time.perf_counter`; raises `LoadFailed`."""
    deadline = time.monotonic() + SOON_S
    while not condition():
        if time.monotonic() > deadline:
            raise LoadFailed(f"not within {SOON_S:.0f} s: {what}")
        time.sleep(POLL_S)
    return time.perf_counter()


def create_assigned(
    client: Conversation, topic: str, assignment: Sequence[Sequence[int]], configs: Mapping[str, str]
) -> None:
    """Create a topic whose partitions have these replicas. Does not wait for its leaders."""
    of_topic = CreateTopicsRequest.Topic
    wanted = of_topic(
        name=topic,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            of_topic.Assignment(partition_index=number, broker_ids=list(replicas))
            for number, replicas in enumerate(assignment)
        ],
        configs=[of_topic.Config(name=name, value=value) for name, value in configs.items()],
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=60_000)
    (created,) = client.ask(request, CreateTopicsResponse).topics
    if created.error_code:
        raise BrokerRefused(f"creating {topic} failed with error {created.error_code} ({created.error_message})")


class RegisteredOnly:
    """A broker that is nothing but its registration and its heartbeats: partitions can be placed on it, and no process
    opens their logs. A context."""

    def __init__(self, controller: str, node_id: int) -> None:
        """``controller``: the address of the controller's listener."""
        self._client = Conversation(controller)
        self._node_id = node_id
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._heartbeats)
        self._epoch = self._register()
        until(self._is_unfenced, f"broker {node_id} is unfenced")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ends.set()
        self._thread.join()
        self._client.close()

    def _register(self) -> int:
        about = self._client.ask(DescribeClusterRequest(endpoint_type=2), DescribeClusterResponse)
        of_broker = BrokerRegistrationRequest
        request = of_broker(
            broker_id=self._node_id,
            cluster_id=about.cluster_id,
            incarnation_id=bytes([self._node_id] * 16),
            listeners=[of_broker.Listener(name="PLAINTEXT", host="127.0.0.1", port=1, security_protocol=0)],
            features=[
                of_broker.Feature(name=name, min_supported_version=0, max_supported_version=MOST_LEVELS)
                for name in SUPPORTED_FEATURES
            ],
            rack=None,
            log_dirs=[bytes([self._node_id] * 16)],
            previous_broker_epoch=-1,
        )
        answer = self._client.ask(request, BrokerRegistrationResponse)
        if answer.error_code:
            raise BrokerRefused(f"the registration of broker {self._node_id} failed with error {answer.error_code}")
        return answer.broker_epoch

    def _heartbeat(self) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=self._node_id,
            broker_epoch=self._epoch,
            current_metadata_offset=BEYOND_EVERY_OFFSET,
            want_fence=False,
            want_shut_down=False,
        )
        return self._client.ask(request, BrokerHeartbeatResponse)

    def _is_unfenced(self) -> bool:
        answer = self._heartbeat()
        return answer.error_code == 0 and not answer.is_fenced

    def _heartbeats(self) -> None:
        while not self._ends.wait(HEARTBEAT_S):
            self._heartbeat()
