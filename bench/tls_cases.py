"""Case: librdkafka produces and consumes over TLS, with the broker and with Apache Kafka."""

from __future__ import annotations

import contextlib
import io
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from bench.client_cases import FLUSH_S
from bench.conversation import Conversation
from bench.limits import MEGABYTE
from bench.load import LoadFailed
from bench.processes import OwnBroker, cpu_seconds, wait_until_answering
from bench.rival import SETTINGS
from broker.tools import cert
from dev.apache_kafka import ApacheKafka
from dev.broker_process import port_below_client_ports
from dev.kafka_jars import NoKafka, libraries

RECORDS: Final = 300_000
VALUE: Final = b"v" * 1_000
ROUNDS: Final = 5
WARM_UP_S: Final = 25.0
"""Seconds of the load before its measurement: a JVM compiles the code that is used."""


class TlsKafka(ApacheKafka):
    """An Apache Kafka with a listener with TLS beside the plain one."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        super().__init__(directory, settings={**SETTINGS, **settings}, port=0, libraries=str(libraries()))
        self.tls_port = port_below_client_ports(above=self.port + 1)

    def _write_properties(self) -> None:
        super()._write_properties()
        clients = f"PLAINTEXT://127.0.0.1:{self.port},SSL://127.0.0.1:{self.tls_port}"
        with (self.directory / "server.properties").open("a") as properties:
            properties.write(f"listeners={clients},CONTROLLER://127.0.0.1:{self.port + 1}\n")
            properties.write(f"advertised.listeners={clients}\n")
            properties.write("listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT\n")


def tls(directory: Path, scale: float) -> dict[str, float]:
    """MB/s and the broker's CPU seconds a GB; `kafka_`: Apache Kafka's, with the same certificate, which is warmed up
    first. The median of several rounds, in which the two take turns."""
    count = max(1_000, int(RECORDS * scale))
    keys = directory / "keys"
    with contextlib.redirect_stdout(io.StringIO()):
        assert cert.main([str(keys), "localhost", "127.0.0.1"]) == 0
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keys / "broker.pem")}
    client = {"security.protocol": "SSL", "ssl.ca.location": str(keys / "authority.pem")}
    with contextlib.ExitStack() as stack:
        ours = OwnBroker(
            directory / "ours", settings={"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", **settings}
        )
        stack.callback(ours.close)
        loads: dict[str, Callable[[], dict[str, float]]] = {
            "": lambda: _once(ours.listeners["PLAINTEXT"], ours.listeners["SSL"], ours.pid, client, count)
        }
        with contextlib.suppress(NoKafka):
            kafka = TlsKafka(directory / "kafka", settings)
            kafka.start()
            stack.callback(kafka.kill)
            wait_until_answering(kafka.bootstrap)
            secure = f"127.0.0.1:{kafka.tls_port}"
            loads["kafka_"] = lambda: _once(kafka.bootstrap, secure, kafka.process.pid, client, count)
            end = time.monotonic() + WARM_UP_S
            while time.monotonic() < end:
                loads["kafka_"]()
        loads[""]()
        rounds = [{name: load() for name, load in loads.items()} for _ in range(ROUNDS)]
    figures = {
        f"{name}{figure}": sorted(one[name][figure] for one in rounds)[ROUNDS // 2]
        for name in loads
        for figure in rounds[0][name]
    }
    for way in ("produce", "consume"):
        if f"kafka_{way}_mb_s" in figures:
            figures[f"{way}_ratio"] = figures[f"{way}_mb_s"] / figures[f"kafka_{way}_mb_s"]
            figures[f"{way}_cpu_ratio"] = figures[f"kafka_{way}_cpu_s_gb"] / figures[f"{way}_cpu_s_gb"]
    return figures


def _once(plain: str, secure: str, pid: int, client: Mapping[str, str], count: int) -> dict[str, float]:
    """Produce and consume over TLS the records of a new topic, which is made and removed over the plain listener."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    address = {"bootstrap.servers": secure, **client}
    topic = f"bench-{uuid.uuid4().hex[:12]}"
    with Conversation(plain) as conversation:
        conversation.create_topic(topic, partitions=1, configs={"file.delete.delay.ms": "0"})
        try:
            producer = Producer({**address, "linger.ms": 5})
            producer.list_topics(topic, timeout=FLUSH_S)

            def send() -> None:
                for _ in range(count):
                    while True:
                        try:
                            producer.produce(topic, VALUE)
                            break
                        except BufferError:
                            producer.poll(0.01)
                if left := producer.flush(FLUSH_S):
                    raise LoadFailed(f"{left} records without an answer after {FLUSH_S} s")

            produced = _timed(pid, send)
            consumer = Consumer(
                {
                    **address,
                    "group.id": "bench",
                    "enable.auto.commit": False,
                    "queued.min.messages": 1_000_000,
                    "queued.max.messages.kbytes": 1_000_000,
                    "fetch.queue.backoff.ms": 1,
                }
            )
            consumer.assign([TopicPartition(topic, 0, 0)])

            def receive() -> None:
                left = count
                while left:
                    messages = consumer.consume(min(left, 10_000), timeout=FLUSH_S)
                    if not messages:
                        raise LoadFailed(f"{left} records did not come within {FLUSH_S} s")
                    left -= len(messages)

            consumed = _timed(pid, receive)
            consumer.close()
        finally:
            conversation.delete_topic(topic)
    megabytes = count * len(VALUE) / MEGABYTE
    return {
        "produce_mb_s": megabytes / produced[0],
        "produce_cpu_s_gb": produced[1] / megabytes * 1024,
        "consume_mb_s": megabytes / consumed[0],
        "consume_cpu_s_gb": consumed[1] / megabytes * 1024,
    }


def _timed(pid: int, work: Callable[[], None]) -> tuple[float, float]:
    """Seconds, and the CPU seconds of the broker."""
    cpu, started = cpu_seconds(pid), time.perf_counter()
    work()
    return time.perf_counter() - started, cpu_seconds(pid) - cpu
