"""Cases: two brokers, one of which follows the other, beside two brokers of Apache Kafka in the same run."""

from __future__ import annotations

import contextlib
import shutil
import statistics
import sys
import time
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

from bench import librdkafka
from bench.clusters import (
    Nodes,
    Pair,
    RegisteredOnly,
    create_assigned,
    kafkas_broker,
    kafkas_controller,
    our_member,
    our_primary,
    pairs,
    until,
)
from bench.conversation import PRODUCE_VERSION, Conversation, produce_frame
from bench.limits import MEGABYTE
from bench.load import LoadFailed
from bench.processes import cpu_seconds, memory_mb
from dev.broker_process import BrokerProcess
from dev.kafka_jars import NoKafka
from protocol.headers import decode_response
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.produce import ProduceResponse
from tests.support.clusters import Load

WARM_UP_S: Final = 30.0
LEADER: Final = 1
FOLLOWER: Final = 2
BOTH_IN_SYNC: Final = {"min.insync.replicas": "2"}
VALUE_BYTES: Final = 1_000
RECORDS: Final = 300_000
REQUESTS: Final = 2_000
SAMPLES: Final = 4
UNCOUNTED: Final = 2
"""Samples that are taken before those that count. Half a minute of load does not warm three JVMs where processors are
shared: in the samples after it Kafka's throughput still grew fourfold, and its p50 halved."""
SMALL_BATCHES: Final = {"acks": "all", "batch.size": "16384"}
WARM_UP_RECORDS: Final = 20_000
WARM_UP_REQUESTS: Final = 500

MISSED_RECORDS: Final = 1_000_000
SESSION_S: Final = 9.0
"""`broker.session.timeout.ms` by default: a broker that was stopped is not registered again before that is over."""

SHORT_SESSION: Final = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
QUICK_CLIENT: Final = {
    # So that the pauses are the brokers' more than the client's.
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 50,
}
RECORDS_AROUND: Final = 500
"""Acknowledgements before a leader goes, and after another one leads."""

REPLICATED_PARTITIONS: Final = 2_000
IDLE_S: Final = 5.0

PARTITIONS: Final = 100_000
PARTITIONS_OF_TOPIC: Final = 5_000
PLACED_ON: Final = 50
JOINING: Final = 2


# Produce --------------------------------------------------------------------------------------------------------------


def produce(directory: Path, scale: float) -> dict[str, float]:
    """Produce with acks=all where both replicas have to be in sync: throughput and CPU of librdkafka's batches of 16
    KB, latency of requests of one record, one after the other. The pairs of brokers are measured in turns."""
    taken: dict[str, list[dict[str, float]]] = {}
    with pairs(directory, {}, warm_up=_warm_up, warm_up_s=_warm_up_s(scale)) as found:
        for number in range(UNCOUNTED + SAMPLES):
            for prefix, pair in found.items():
                sample = _produce_sample(pair, f"sample-{number}", scale)
                if number >= UNCOUNTED:
                    taken.setdefault(prefix, []).append(sample)
    shutil.rmtree(directory)
    figures = {
        f"{prefix}{name}": statistics.median(sample[name] for sample in samples)
        for prefix, samples in taken.items()
        for name in samples[0]
    }
    if "kafka_" in taken:
        turns = list(zip(taken[""], taken["kafka_"], strict=True))
        figures["mb_s_ratio"] = statistics.median(ours["mb_s"] / kafkas["mb_s"] for ours, kafkas in turns)
        for name in ("leader_cpu_s_100mb", "follower_cpu_s_100mb", "p50_us", "p99_us"):
            figures[f"{name}_ratio"] = statistics.median(kafkas[name] / ours[name] for ours, kafkas in turns)
    return figures


def partitions(directory: Path, scale: float) -> dict[str, float]:
    """Two brokers that hold 2,000 partitions: latency of requests of one record with acks=all, one after the other, and
    processor time of each broker without load, in percent of one processor."""
    count = max(100, int(REPLICATED_PARTITIONS * scale))
    figures: dict[str, float] = {}
    with pairs(directory, {}, warm_up=_warm_up, warm_up_s=_warm_up_s(scale)) as found:
        for prefix, pair in found.items():
            with Conversation(pair.nodes[LEADER].bootstrap) as client:
                create_assigned(client, "many", [[LEADER, FOLLOWER]] * count, BOTH_IN_SYNC)
                until(partial(client.leads_all, "many", count), f"node {LEADER} leads {count} partitions")
            requests = max(100, int(REQUESTS * scale))
            _one_by_one(pair, "many", requests, count)  # the first of them wait until the follower has all its logs
            waits_us = sorted(1e6 * wait_s for wait_s in _one_by_one(pair, "many", requests, count))
            of_pair = {"p50_us": waits_us[len(waits_us) // 2], "p99_us": waits_us[len(waits_us) * 99 // 100]}
            before = {node_id: pair.cpu_seconds(node_id) for node_id in (LEADER, FOLLOWER)}
            time.sleep(IDLE_S)
            for name, node_id in (("leader", LEADER), ("follower", FOLLOWER)):
                of_pair[f"{name}_idle_percent"] = 100 * (pair.cpu_seconds(node_id) - before[node_id]) / IDLE_S
            figures |= {f"{prefix}{name}": value for name, value in of_pair.items()}
            if prefix:
                for name in ("p50_us", "p99_us"):
                    figures[f"{name}_ratio"] = of_pair[name] / figures[name]
    shutil.rmtree(directory)
    return figures


def _produce_sample(pair: Pair, topic: str, scale: float) -> dict[str, float]:
    pair.create(topic, [LEADER, FOLLOWER], BOTH_IN_SYNC)
    count = max(1_000, int(RECORDS * scale))
    megabytes = count * VALUE_BYTES / MEGABYTE
    before = [pair.cpu_seconds(node_id) for node_id in (LEADER, FOLLOWER)]
    seconds = _produce(pair, topic, count, SMALL_BATCHES)
    leader_s, follower_s = (
        pair.cpu_seconds(node_id) - cpu_s for node_id, cpu_s in zip((LEADER, FOLLOWER), before, strict=True)
    )
    waits_us = sorted(1e6 * wait_s for wait_s in _one_by_one(pair, topic, max(100, int(REQUESTS * scale))))
    pair.delete(topic)
    return {
        "mb_s": megabytes / seconds,
        "leader_cpu_s_100mb": leader_s * 100 / megabytes,
        "follower_cpu_s_100mb": follower_s * 100 / megabytes,
        "p50_us": waits_us[len(waits_us) // 2],
        "p99_us": waits_us[len(waits_us) * 99 // 100],
    }


def _produce(pair: Pair, topic: str, count: int, settings: Mapping[str, str]) -> float:
    """Produce so many records. Returns the seconds until all are acknowledged."""
    leader = pair.nodes[LEADER].bootstrap
    with Conversation(leader) as client:
        before = client.end_offsets(topic, 1)
        _, seconds = librdkafka.produce(leader, topic, librdkafka.values(VALUE_BYTES), count, settings)
        if (stored := client.end_offsets(topic, 1) - before) != count:
            raise LoadFailed(f"{count} records were produced, the log has {stored} of them")
    return seconds


def _one_by_one(pair: Pair, topic: str, count: int, partitions: int = 1) -> list[float]:
    """The seconds that each of so many requests took, of one record with acks=all."""
    frame = produce_frame(topic, 0, records=1, value_bytes=VALUE_BYTES)
    waits, answers = [], []
    with Conversation(pair.nodes[LEADER].bootstrap) as client:
        before = client.end_offsets(topic, partitions)
        for _ in range(count):
            started = time.perf_counter()
            answer = client.exchange(frame)
            waits.append(time.perf_counter() - started)
            answers.append(answer)
        if (stored := client.end_offsets(topic, partitions) - before) != count:
            raise LoadFailed(f"{count} records were produced one by one, the log has {stored} of them")
    # An answer with an error may be quick.
    messages = [decode_response(ProduceResponse, PRODUCE_VERSION, answer)[1] for answer in answers]
    if codes := {message.responses[0].partition_responses[0].error_code for message in messages} - {0}:
        raise LoadFailed(f"records produced one by one were answered with errors {sorted(codes)}")
    return waits


def _warm_up_s(scale: float) -> float:
    return WARM_UP_S * min(1.0, scale)


def _warm_up(pair: Pair, seconds: float) -> None:
    """Let a pair of brokers replicate for so long, in both directions."""
    end = time.monotonic() + seconds
    pair.create("warm-up", [LEADER, FOLLOWER], BOTH_IN_SYNC)
    while time.monotonic() < end:
        _produce(pair, "warm-up", WARM_UP_RECORDS, SMALL_BATCHES)
        _one_by_one(pair, "warm-up", WARM_UP_REQUESTS)
    pair.delete("warm-up")


# Rejoining ------------------------------------------------------------------------------------------------------------


def rejoin(directory: Path, scale: float) -> dict[str, float]:
    """Seconds from a follower's start until it is in sync again, of which the leader has got a gigabyte since its clean
    stop; MB/s from the first byte that it fetches; and the seconds of a follower that is started as soon as it has
    stopped (`at_once_s`): the controllers let it wait until its last session is over."""
    count = max(1_000, int(MISSED_RECORDS * scale))
    topic = "missed"
    figures: dict[str, float] = {}
    with pairs(directory, {}, warm_up=_warm_up, warm_up_s=_warm_up_s(scale)) as found:
        for pair in found.values():
            pair.create(topic, [LEADER, FOLLOWER], {})
            _produce(pair, topic, WARM_UP_RECORDS, {"acks": "all"})
            pair.nodes[FOLLOWER].stop()
        stopped = time.monotonic()
        for pair in found.values():
            _produce(pair, topic, count, {"acks": "1"})
        time.sleep(max(0.0, stopped + SESSION_S + 1 - time.monotonic()))
        for prefix, pair in found.items():
            sample = _rejoin(pair, topic, count * VALUE_BYTES / MEGABYTE)
            figures |= {f"{prefix}{name}": value for name, value in sample.items()}
        started = {}
        for prefix, pair in found.items():
            pair.nodes[FOLLOWER].stop()
            started[prefix] = time.perf_counter()
            pair.nodes[FOLLOWER].launch()
        for prefix, pair in found.items():
            figures[f"{prefix}at_once_s"] = _until_in_sync(pair, topic) - started[prefix]
    shutil.rmtree(directory)
    if "kafka_rejoin_s" in figures:
        figures["rejoin_ratio"] = figures["kafka_rejoin_s"] / figures["rejoin_s"]
        figures["catch_up_ratio"] = figures["catch_up_mb_s"] / figures["kafka_catch_up_mb_s"]
    return figures


def _rejoin(pair: Pair, topic: str, missed_mb: float) -> dict[str, float]:
    had_bytes = pair.log_bytes(topic, FOLLOWER)
    leader_s = pair.cpu_seconds(LEADER)
    started = time.perf_counter()
    pair.nodes[FOLLOWER].launch()
    catching_up = until(lambda: pair.log_bytes(topic, FOLLOWER) > had_bytes, "the follower catches up")
    in_sync = _until_in_sync(pair, topic)
    return {
        "rejoin_s": in_sync - started,
        "catch_up_mb_s": missed_mb / (in_sync - catching_up),
        "rejoin_leader_cpu_s": pair.cpu_seconds(LEADER) - leader_s,
        "rejoin_follower_cpu_s": pair.cpu_seconds(FOLLOWER),
    }


def _until_in_sync(pair: Pair, topic: str) -> float:
    return until(lambda: pair.in_sync(topic, LEADER) == {LEADER, FOLLOWER}, f"both replicas of {topic} are in sync")


# Failing over ---------------------------------------------------------------------------------------------------------


def failover(directory: Path, scale: float) -> dict[str, float]:
    """The longest time without an acknowledgement under 500 records a second with acks=all, where the leader is stopped
    (`stop_s`) and where it is killed, with a session of 2 s (`kill_2s_s`) and of 9 s, the default (`kill_9s_s`)."""
    figures: dict[str, float] = {}
    with pairs(directory / "2s", SHORT_SESSION, warm_up=_warm_up, warm_up_s=_warm_up_s(scale)) as found:
        for prefix, pair in found.items():
            figures[f"{prefix}stop_s"] = _pause_s(pair, "stopped", is_killed=False)
            pair.nodes[FOLLOWER].start()
            figures[f"{prefix}kill_2s_s"] = _pause_s(pair, "killed", is_killed=True)
    with pairs(directory / "9s", {}, warm_up=_warm_up, warm_up_s=_warm_up_s(scale)) as found:
        for prefix, pair in found.items():
            figures[f"{prefix}kill_9s_s"] = _pause_s(pair, "killed", is_killed=True)
    shutil.rmtree(directory)
    if "kafka_stop_s" in figures:
        for name in ("stop", "kill_2s", "kill_9s"):
            figures[f"{name}_ratio"] = figures[f"kafka_{name}_s"] / figures[f"{name}_s"]
    return figures


def _pause_s(pair: Pair, topic: str, *, is_killed: bool) -> float:
    """The longest pause of acknowledgements around the end of broker 2, which leads the topic."""
    # Here the leader is the broker without a controller, since the controller has to decide.
    leader = pair.nodes[2]
    pair.create(topic, [2, 1], {})
    load = Load(pair.bootstrap, topic, **QUICK_CLIENT)
    load.wait_for(RECORDS_AROUND)
    since = time.monotonic()
    if is_killed:
        leader.kill()
    else:
        leader.stop()
    load.wait_for(RECORDS_AROUND)
    load.end()
    if load.errors:
        raise LoadFailed(f"records were lost: {load.errors[:3]}")
    times = [at for at in load.times if at > since - 1]
    return max(after - before for before, after in pairwise(times))


# Metadata -------------------------------------------------------------------------------------------------------------


def metadata(directory: Path, scale: float) -> dict[str, float]:
    """Seconds from the start of a broker without data until it knows 100,000 partitions on another broker and answers;
    its CPU and memory by then. Our broker under our controller; and ours (`under_kafka_`) and Kafka's (`kafka_`) under
    Kafka's controller, with the same log."""
    count = max(1_000, int(PARTITIONS * scale))
    with Nodes() as cluster:
        primary = cluster.nodes[1] = our_primary(directory / "ours", {})
        controller = f"127.0.0.1:{primary.controller_port}"
        with RegisteredOnly(controller, PLACED_ON):
            figures = {"create_s": _create_partitions(primary.bootstrap, count)}
            member = cluster.nodes[JOINING] = our_member(directory / "ours", JOINING, [primary.controller_port], {})
            figures |= _start(member, count)
    with Nodes() as cluster, contextlib.suppress(NoKafka):
        kafkas = cluster.nodes[1] = kafkas_controller(directory / "kafka", {})
        with RegisteredOnly(kafkas.bootstrap, PLACED_ON):
            figures["kafka_create_s"] = _create_partitions(kafkas.bootstrap, count)
            ours = cluster.nodes[JOINING] = our_member(directory / "under-kafka", JOINING, [kafkas.port], {})
            of_ours = _start(ours, count)
            cluster.nodes[JOINING].kill()
            broker = cluster.nodes[JOINING + 1] = kafkas_broker(directory / "kafka", JOINING + 1, [kafkas.port], {})
            of_kafka = _start(broker, count)
        for name, value in of_ours.items():
            figures |= {f"under_kafka_{name}": value, f"kafka_{name}": of_kafka[name]}
        for name in ("ready", "cpu"):
            figures[f"{name}_ratio"] = of_kafka[f"{name}_s"] / of_ours[f"{name}_s"]
        figures["memory_ratio"] = of_kafka["memory_mb"] / of_ours["memory_mb"]
    shutil.rmtree(directory)
    return figures


def _topics(partitions: int) -> dict[str, int]:
    """The topics by their names, with so many partitions in all."""
    starts = range(0, partitions, PARTITIONS_OF_TOPIC)
    return {f"many-{start}": min(PARTITIONS_OF_TOPIC, partitions - start) for start in starts}


def _create_partitions(bootstrap: str, count: int) -> float:
    started = time.perf_counter()
    with Conversation(bootstrap) as client:
        for topic, partitions in _topics(count).items():
            create_assigned(client, topic, [[PLACED_ON]] * partitions, {})
    return time.perf_counter() - started


def _start(node: BrokerProcess, count: int) -> dict[str, float]:
    """Start a broker, and measure it when it knows all partitions."""
    topic, partitions = list(_topics(count).items())[-1]
    started = time.perf_counter()
    node.launch()
    pid = node.process.pid
    ready = until(lambda: _known_partitions(node, topic) == partitions, f"{node.bootstrap} knows {topic}")
    figures = {"ready_s": ready - started, "cpu_s": cpu_seconds(pid), "memory_mb": memory_mb(pid)[0]}
    sys.stderr.write(f"{type(node).__name__} with {count} partitions: {figures}\n")
    return figures


def _known_partitions(node: BrokerProcess, topic: str) -> int:
    """How many partitions of a topic a broker knows; 0 before it answers."""
    request = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)], allow_auto_topic_creation=False)
    try:
        with Conversation(node.bootstrap) as client:
            (found,) = client.ask(request, MetadataResponse).topics
    except OSError:
        return 0
    return len(found.partitions)
