"""Case: members of a share group work a topic off, with the broker and with Apache Kafka."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from bench.client_cases import FLUSH_S
from bench.conversation import Conversation
from bench.load import LoadFailed
from bench.processes import OwnBroker, cpu_seconds, wait_until_answering
from bench.rival import SETTINGS
from config.resources import ConfigResource
from dev.apache_kafka import ApacheKafka
from dev.kafka_jars import NoKafka, libraries
from protocol.messages.configs import IncrementalAlterConfigsRequest
from tests.support.raw_client import RawClient

RECORDS: Final = 500_000
VALUE: Final = b"v" * 100
MEMBERS: Final = 3
PARTITIONS: Final = 3
ROUNDS: Final = 3
SMALL: Final = 0.1
"""Below this scale there is one round only, in which all is cold: the case runs, and its figures mean nothing."""
EACH: Final = "each_"
PATIENCE_S: Final = 300.0


def share_groups(directory: Path, scale: float) -> dict[str, float]:
    """Records that three members acquire and accept a second, and the broker's CPU seconds for a million; ``kafka_``:
    Apache Kafka's; ``each_``: where the members accept every record by itself. The median of several rounds, in which
    the two take turns; the first of each is not counted."""
    count = max(2_000, int(RECORDS * scale))
    with contextlib.ExitStack() as stack:
        ours = OwnBroker(directory / "ours")
        stack.callback(ours.close)
        wait_until_answering(ours.bootstrap)
        loads: dict[str, Callable[[], dict[str, float]]] = {"": lambda: _both(ours.bootstrap, ours.pid, count)}
        with contextlib.suppress(NoKafka):
            settings = {
                **SETTINGS,
                "share.coordinator.state.topic.replication.factor": "1",
                "share.coordinator.state.topic.min.isr": "1",
                "offsets.topic.replication.factor": "1",
            }
            kafka = ApacheKafka(directory / "kafka", settings=settings, port=0, libraries=str(libraries()))
            kafka.start()
            stack.callback(kafka.kill)
            wait_until_answering(kafka.bootstrap)
            loads["kafka_"] = lambda: _both(kafka.bootstrap, kafka.process.pid, count)
        rounds = [{name: load() for name, load in loads.items()} for _ in range(1 if scale < SMALL else 1 + ROUNDS)]
    rounds = rounds[1:] or rounds
    figures = {
        f"{name}{figure}": sorted(one[name][figure] for one in rounds)[len(rounds) // 2]
        for name in loads
        for figure in rounds[0][name]
    }
    if "kafka_records_s" in figures:
        for way in ("", EACH):
            figures[f"{way}ratio"] = figures[f"{way}records_s"] / figures[f"kafka_{way}records_s"]
            figures[f"{way}cpu_ratio"] = figures[f"kafka_{way}cpu_s_million"] / figures[f"{way}cpu_s_million"]
    return figures


def _both(bootstrap: str, pid: int, count: int) -> dict[str, float]:
    """Members that accept all that they got with the next fetch, and those that accept every record by itself."""
    each = _once(bootstrap, pid, count, accepts_each=True)
    return {
        **_once(bootstrap, pid, count, accepts_each=False),
        **{f"{EACH}{figure}": value for figure, value in each.items()},
    }


def _once(bootstrap: str, pid: int, count: int, *, accepts_each: bool) -> dict[str, float]:
    """A new topic and a new group, which reads it from the beginning."""
    from confluent_kafka import Producer, ShareConsumer

    name = f"bench-{uuid.uuid4().hex[:12]}"
    with Conversation(bootstrap) as conversation, RawClient(bootstrap) as client:
        of_request = IncrementalAlterConfigsRequest.Resource
        change = of_request.Config(name="share.auto.offset.reset", config_operation=0, value="earliest")
        resource = of_request(resource_type=ConfigResource.GROUP, resource_name=name, configs=[change])
        client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        conversation.create_topic(name, partitions=PARTITIONS, configs={"file.delete.delay.ms": "0"})
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        for _ in range(count):
            while True:
                try:
                    producer.produce(name, VALUE)
                    break
                except BufferError:
                    producer.poll(0.01)
        if left := producer.flush(FLUSH_S):
            raise LoadFailed(f"{left} records without an answer after {FLUSH_S} s")
        with contextlib.ExitStack() as stack:
            options = {"bootstrap.servers": bootstrap, "group.id": name, "log_level": 0}
            if accepts_each:
                options["share.acknowledgement.mode"] = "explicit"
            consumers = [stack.enter_context(ShareConsumer(options)) for _ in range(MEMBERS)]
            for consumer in consumers:
                consumer.subscribe([name])
            # Each in a thread of its own: a member that waits for records would hold up the others.
            work = _Work(pid, count)
            with ThreadPoolExecutor(MEMBERS) as pool:
                running = [pool.submit(work.poll, consumer, accepts_each=accepts_each) for consumer in consumers]
            for one in running:
                one.result()
        conversation.delete_topic(name)
    return work.figures


class _Work:
    """What the members of a group have seen together."""

    def __init__(self, pid: int, count: int) -> None:
        """``pid``: the broker's process; ``count``: records to be seen."""
        self._pid = pid
        self._left = count
        self._measured = 0
        self._began = 0.0
        self._cpu_began = 0.0
        self._deadline = time.monotonic() + PATIENCE_S
        self._lock = threading.Lock()
        self.figures: dict[str, float] = {}

    def poll(self, consumer: Any, *, accepts_each: bool) -> None:
        """Poll until the members have seen all records."""
        while self._left > 0:
            messages = [message for message in consumer.poll(0.05) if message.error() is None]
            if accepts_each:
                for message in messages:
                    consumer.acknowledge(message)
            if messages:
                self._saw(len(messages))
            if time.monotonic() > self._deadline:
                raise LoadFailed(f"{self._left} records are left after {PATIENCE_S} s")

    def _saw(self, count: int) -> None:
        with self._lock:
            self._left -= count
            if not self._began:
                # The group is assigned, and the states are made.
                self._began, self._cpu_began, self._measured = time.perf_counter(), cpu_seconds(self._pid), self._left
            elif self._left <= 0 and not self.figures:
                took, cpu = time.perf_counter() - self._began, cpu_seconds(self._pid) - self._cpu_began
                self.figures = {
                    "records_s": self._measured / took,
                    "cpu_s_million": cpu * 1_000_000 / self._measured,
                }
