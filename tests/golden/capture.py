"""Capture what stock clients send to Apache Kafka, what it answers, and how its own parser reads both.

    python tests/golden/capture.py LIBS [CLIENT ...]

LIBS is a directory with the jars of Apache Kafka (server and tools); Java must be on the path. Every client does the
same small job through a proxy that records the frames. Kept are, for each client, API and version, the first exchange
and those with the longest request and the longest answer, as

    CLIENT/API-vVERSION-NUMBER.request.hex    the frame without its size, as hexadecimal digits
    CLIENT/API-vVERSION-NUMBER.response.hex
    CLIENT/API-vVERSION-NUMBER.json           both frames as Apache Kafka's parser reads them
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from dev.apache_kafka import ApacheKafka  # noqa: E402
from dev.broker_process import port_below_client_ports  # noqa: E402
from tests.parity.exchange import Exchange as ParityExchange  # noqa: E402
from tests.parity.members import await_coordinator  # noqa: E402
from tests.parity.normalised import Normaliser  # noqa: E402
from tests.support.clients import CLIENTS, Client, Committed, Place, Record, connect  # noqa: E402
from tests.support.clients.members import (  # noqa: E402
    Membership,
    SeenMember,
    places,
    wait_for,
    wait_until_shared,
)
from tests.support.proxy import Exchange, FrameProxy  # noqa: E402

APIS = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    8: "OffsetCommit",
    9: "OffsetFetch",
    10: "FindCoordinator",
    11: "JoinGroup",
    12: "Heartbeat",
    13: "LeaveGroup",
    14: "SyncGroup",
    15: "DescribeGroups",
    16: "ListGroups",
    18: "ApiVersions",
    19: "CreateTopics",
    20: "DeleteTopics",
    22: "InitProducerId",
    32: "DescribeConfigs",
    42: "DeleteGroups",
    47: "OffsetDelete",
    60: "DescribeCluster",
}


def python_client_job(name: str, bootstrap: str) -> None:
    """A topic's life, from its creation to its end, and a group's in it, as the end-to-end tests lead them."""
    client = connect(name, bootstrap)
    client.cluster()
    client.create_topic("golden", partitions=2, configs={"max.message.bytes": "2000000"})
    client.topic_configs("golden")
    records = [
        Record(key=b"key", value=b"value", headers=(("header", b"\x00\xff"),), partition=0, timestamp_ms=1700000000000),
        Record(key=b"key", value=None, partition=0, timestamp_ms=1700000000001),
    ]
    client.produce("golden", records)
    client.produce("golden", [Record(value=b"idempotent", partition=1)], idempotent=True)
    client.produce("made-by-producing", [Record(value=b"compressed")], codec="zstd")
    client.offset_for_time("golden", 0, 1700000000001)
    client.consume_all("golden")
    group_life(client)
    client.delete_topic("golden")


def group_life(client: Client) -> None:
    """A group of a dynamic and a static member, and a simple consumer's commits."""
    membership = Membership(group="golden-group", topics=("golden",), commits="after each poll")
    partitions = places("golden", 2)
    with SeenMember(client, membership) as first:
        wait_for("a commit of all partitions", lambda: first.seen.committed.keys() == partitions, [first])
        with SeenMember(client, replace(membership, instance_id="one")) as second:
            wait_until_shared(client, "golden-group", partitions, [first, second])
    client.commit("simple-group", {Place("golden", 0): Committed(1, "so far")})
    client.committed("simple-group", partitions)


def java_job(libraries: str, bootstrap: str) -> None:
    """The same with the tools that come with Apache Kafka."""

    def tool(name: str, *arguments: str, given: bytes = b"") -> None:
        command = ["java", "-Xmx256M", "-Dlog4j2.level=ERROR", "-cp", f"{libraries}/*", name]
        subprocess.run([*command, *arguments], input=given, check=True, stdout=subprocess.DEVNULL, timeout=60)

    tools = "org.apache.kafka.tools"
    to = ("--bootstrap-server", bootstrap)
    tool(f"{tools}.ClusterTool", "list-endpoints", *to)
    config = ("--config", "max.message.bytes=2000000")
    tool(f"{tools}.TopicCommand", *to, "--create", "--topic", "golden", "--partitions", "2", *config)
    tool(f"{tools}.TopicCommand", *to, "--describe", "--topic", "golden")
    tool(f"{tools}.ConfigCommand", *to, "--describe", "--all", "--topic", "golden")
    tool(f"{tools}.ConsoleProducer", *to, "--topic", "golden", given=b"first\nsecond\n")
    produce = (*to, "--topic", "made-by-producing", "--compression-codec", "zstd")
    tool(f"{tools}.ConsoleProducer", *produce, given=b"compressed\n")
    tool(f"{tools}.GetOffsetShell", *to, "--topic", "golden", "--time", "earliest")
    consume = ("--topic", "made-by-producing", "--partition", "0", "--offset", "earliest", "--max-messages", "1")
    tool(f"{tools}.consumer.ConsoleConsumer", *to, *consume)
    groups = (f"{tools}.consumer.group.ConsumerGroupCommand", *to)
    tool(*groups, "--reset-offsets", "--to-earliest", "--group", "golden-group", "--topic", "golden", "--execute")
    in_group = ("--group", "golden-group", "--max-messages", "2")
    tool(f"{tools}.consumer.ConsoleConsumer", *to, "--topic", "golden", *in_group)
    static = ("--command-property", "group.instance.id=one", "--timeout-ms", "5000")
    tool(f"{tools}.consumer.ConsoleConsumer", *to, "--topic", "golden", "--group", "static-group", *static)
    tool(*groups, "--list", "--state")
    tool(*groups, "--describe", "--group", "golden-group")
    tool(*groups, "--describe", "--group", "static-group", "--members", "--verbose")
    tool(*groups, "--delete-offsets", "--group", "golden-group", "--topic", "golden")
    tool(*groups, "--delete", "--group", "golden-group")
    tool(f"{tools}.TopicCommand", *to, "--delete", "--topic", "golden")


class Meaning:
    """Apache Kafka's parser, asked line by line."""

    def __init__(self, libraries: str) -> None:
        command = ["java", "-Xmx256M", "-Dlog4j2.level=ERROR", "-cp", f"{libraries}/*", str(HERE / "KafkaMeaning.java")]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def of(self, *words: object) -> dict[str, object]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        meaning: dict[str, object] = json.loads(self._process.stdout.readline())
        return meaning

    def close(self) -> None:
        self._process.communicate()


def chosen(exchanges: Iterable[Exchange]) -> dict[tuple[int, int], list[Exchange]]:
    """The first exchange and those with the longest request and answer, for each API and version."""
    found: dict[tuple[int, int], list[Exchange]] = {}
    for exchange in exchanges:
        if exchange.api_key in APIS:
            found.setdefault((exchange.api_key, exchange.api_version), []).append(exchange)
    for kept in found.values():
        asks_most = max(kept, key=lambda exchange: len(exchange.request))
        says_most = max(kept, key=lambda exchange: len(exchange.answer))
        kept[:] = {id(exchange): exchange for exchange in (kept[0], asks_most, says_most)}.values()
    return found


def write(client: str, exchanges: Iterable[Exchange], meaning: Meaning) -> None:
    directory = HERE / client
    directory.mkdir(exist_ok=True)
    for old in directory.iterdir():
        old.unlink()
    for (key, version), kept in sorted(chosen(exchanges).items()):
        for number, exchange in enumerate(kept, 1):
            stem = f"{APIS[key]}-v{version}-{number}"
            (directory / f"{stem}.request.hex").write_text(_hex(exchange.request))
            says = {"request": meaning.of("request", exchange.request.hex())}
            if exchange.answer:
                (directory / f"{stem}.response.hex").write_text(_hex(exchange.answer))
                says["response"] = meaning.of("response", key, version, exchange.answer.hex())
            (directory / f"{stem}.json").write_text(json.dumps(says, indent=1, ensure_ascii=False) + "\n")
            sys.stdout.write(f"{client}: {stem} {len(exchange.request)} -> {len(exchange.answer)} bytes\n")


def _hex(frame: bytes) -> str:
    return "\n".join(textwrap.wrap(frame.hex(), 100)) + "\n"


def capture(name: str, libraries: str, meaning: Meaning) -> None:
    exchanges: list[Exchange] = []

    def keep(exchange: Exchange) -> bool:
        exchanges.append(exchange)
        return True

    job: Callable[[str], None] = (
        (lambda bootstrap: java_job(libraries, bootstrap))
        if name == "java"
        else (lambda bootstrap: python_client_job(name, bootstrap))
    )
    port = port_below_client_ports()
    with tempfile.TemporaryDirectory() as directory, FrameProxy(("127.0.0.1", port), on_answer=keep) as proxy:
        settings = {
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}",
            "group.initial.rebalance.delay.ms": "0",
        }
        with ApacheKafka(Path(directory), settings=settings, port=port, libraries=libraries) as kafka:
            await_coordinator(ParityExchange("golden", kafka, Normaliser()))
            job(f"127.0.0.1:{proxy.port}")
    write(name, exchanges, meaning)


def main(libraries: str, *names: str) -> None:
    libraries = os.path.abspath(libraries)
    meaning = Meaning(libraries)
    try:
        for name in names or ("java", *CLIENTS):
            capture(name, libraries, meaning)
    finally:
        meaning.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
