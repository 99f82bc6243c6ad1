"""Measure a broker: `python -m bench [--bootstrap HOST:PORT] [--only CASE ...] [--rounds N]`; see bench/README.md."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench import (
    acl_cases,
    archive_cases,
    assignor_cases,
    audit_cases,
    cleaning_cases,
    client_cases,
    cold_file_cases,
    connection_cases,
    decode_cases,
    group_cases,
    group_start_cases,
    metrics_cases,
    partition_cases,
    process_cases,
    profiles,
    raw_cases,
    recovery_cases,
    replication_cases,
    report,
    session_cases,
    share_cases,
    spark_cases,
    testing_cases,
    tls_cases,
    transaction_cases,
)
from bench.limits import SocketOptions
from bench.processes import BenchedBroker, Disturbance, OwnBroker, memory_mb, wait_until_answering
from bench.raw_cases import Bench
from bench.rival import WARM_UP_S, Rival

CASES: dict[str, Callable[[Bench], dict[str, float]]] = {
    "produce-one-record": raw_cases.produce_one_record,
    "produce-ping-pong": raw_cases.produce_ping_pong,
    "produce-16kb": raw_cases.produce_16kb,
    "produce-128kb": raw_cases.produce_128kb,
    "produce-1mb": raw_cases.produce_1mb,
    "produce-flushed": raw_cases.produce_flushed,
    "fetch-64kb": raw_cases.fetch_64kb,
    "fetch-1mb": raw_cases.fetch_1mb,
    "fetch-16x64kb": raw_cases.fetch_16_partitions,
    "fetch-session": session_cases.fetch_session,
    "latency": raw_cases.latency,
    "commits": group_cases.commits,
    "rebalances": group_cases.rebalances,
    "newer-rebalances": group_cases.newer_rebalances,
    "transactions": transaction_cases.transactions,
    "isolation": transaction_cases.isolation,
    "fairness": connection_cases.fairness,
    "confluent-kafka": client_cases.confluent_kafka,
    "kafka-python": client_cases.kafka_python,
}
ON_A_FRESH_BROKER: dict[str, Callable[[Path], dict[str, float]]] = {
    "start": process_cases.start,
    "idle-connections": connection_cases.idle_connections,
    "cold-reader": connection_cases.cold_reader,
}
OF_A_SCALE: dict[str, Callable[[Path, float], dict[str, float]]] = {
    "assignors": assignor_cases.assignors,
    "testing": testing_cases.testing,
    "tls": tls_cases.tls,
    "share-groups": share_cases.share_groups,
    "disturbers": connection_cases.disturbers,
    "partitions": partition_cases.partitions,
    "many-partitions": recovery_cases.many_partitions,
    "acls": acl_cases.acls,
    "counters": metrics_cases.counters,
    "scrape": metrics_cases.scrape,
    "scrape-lag": metrics_cases.scrape_lag,
    "recovery-one-record": recovery_cases.one_record,
    "recovery-16kb": recovery_cases.sixteen_kb,
    "recovery-1mb": recovery_cases.one_mb,
    "cleaning": cleaning_cases.cleaning,
    "cleaning-latency": cleaning_cases.cleaning_latency,
    "group-start": group_start_cases.group_start,
    "replication-produce": replication_cases.produce,
    "replication-partitions": replication_cases.partitions,
    "replication-rejoin": replication_cases.rejoin,
    "replication-failover": replication_cases.failover,
    "replication-metadata": replication_cases.metadata,
    "audit-1": audit_cases.one_record,
    "audit-100": audit_cases.hundred_records,
    "audit-8000": audit_cases.many_records,
    "spark-1": spark_cases.one_record,
    "spark-100": spark_cases.hundred_records,
    "spark-8000": spark_cases.eight_thousand_records,
    "archive-1": archive_cases.one_record,
    "archive-100": archive_cases.hundred_records,
    "archive-8000": archive_cases.eight_thousand_records,
    "decode": decode_cases.decode,
    "cold-file": cold_file_cases.cold_file,
}
OF_OUR_PROCESS = (*ON_A_FRESH_BROKER, *OF_A_SCALE, "imports", "costliest")
QUIET_CORES = 0.15
"""If other processes take more than this share of a processor, the sample is repeated."""


def progress(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure a broker and this machine's limits.")
    parser.add_argument("--bootstrap", help="a running broker; without it, the broker of this checkout is started")
    parser.add_argument("--pid", type=int, help="its process, if /proc does not show it")
    parser.add_argument("--only", nargs="+", default=[], metavar="CASE", help=", ".join([*CASES, *OF_OUR_PROCESS]))
    parser.add_argument(
        "--skip", nargs="+", default=[], metavar="CASE", help="cases to leave out, by their whole names"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual number of requests")
    parser.add_argument(
        "--warm-up", type=float, default=1.0, metavar="S", help="seconds of load first (a JVM needs 45)"
    )
    parser.add_argument(
        "--kafka-warm-up", type=float, default=WARM_UP_S, metavar="S", help="the same for an Apache Kafka beside it"
    )
    parser.add_argument("--attempts", type=int, default=3, help="how often a sample is taken at most, if disturbed")
    parser.add_argument("--directory", type=Path, default=Path(os.environ.get("TMPDIR", "/var/tmp")))
    parser.add_argument("--congestion", help="congestion control of the limits' sockets; default: the broker's")
    parser.add_argument("--send-buffer", type=int, default=-1, metavar="BYTES", help="SO_SNDBUF of the limits' sockets")
    parser.add_argument("--receive-buffer", type=int, default=-1, metavar="BYTES")
    return parser.parse_args()


def chosen(given: argparse.Namespace, names: tuple[str, ...] | list[str]) -> list[str]:
    """The names that begin with one of the prefixes of `--only`, all names without it; less those of `--skip`."""
    only = given.only
    return [
        name
        for name in names
        if name not in given.skip and (not only or any(name.startswith(wanted) for wanted in only))
    ]


def warm_up(bench: Bench, seconds: float) -> None:
    """Put produce and fetch load on the broker for so long, without measuring."""
    small = replace(bench, scale=0.2)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        raw_cases.produce(small, records=1, value_bytes=100, connections=8, in_flight=8, requests=20_000)
        raw_cases.produce(small, records=16, value_bytes=1_000, connections=4, in_flight=4, requests=5_000)
        raw_cases.produce(small, records=990, value_bytes=1_000, connections=2, in_flight=2, requests=500)


def undisturbed(bench: Bench, case: Callable[[Bench], dict[str, float]], attempts: int) -> dict[str, float]:
    """Take a sample while no other process has much work; after so many attempts, the least disturbed sample."""
    quietest: dict[str, float] | None = None
    for _ in range(attempts):
        disturbance = Disturbance(bench.broker, bench.rival)
        figures = case(bench)
        figures["others_cores"] = disturbance.processors()
        if quietest is None or figures["others_cores"] < quietest["others_cores"]:
            quietest = figures
        if not figures["others_cores"] > QUIET_CORES:
            break
    assert quietest is not None
    return quietest


def measure_load(
    bench: Bench, given: argparse.Namespace, results: dict[str, list[dict[str, float]]], names: list[str]
) -> None:
    if given.warm_up > 0:
        progress(f"warming up for {given.warm_up:.0f} s")
        warm_up(bench, given.warm_up)
    if bench.broker.pid is not None:
        results["memory"] = [{"before_mb": memory_mb(bench.broker.pid)[0]}]
    for number in range(1, given.rounds + 1):
        # Every second round runs backwards: what one case leaves behind does not always meet the same other one.
        for name in names if number % 2 else reversed(names):
            started = time.monotonic()
            figures = undisturbed(bench, CASES[name], given.attempts)
            results.setdefault(name, []).append(figures)
            first = ", ".join(f"{key} {value:,.2f}" for key, value in list(figures.items())[:3])
            progress(f"round {number}/{given.rounds}  {name:<20} {time.monotonic() - started:5.1f} s   {first}")
    if bench.broker.pid is not None:
        now, most = memory_mb(bench.broker.pid)
        results["memory"][0] |= {"after_mb": now, "most_mb": most}


def main() -> int:
    given = options()
    load_cases = chosen(given, list(CASES))
    own_cases = [] if given.bootstrap else chosen(given, OF_OUR_PROCESS)
    if given.bootstrap and given.only and (left_out := chosen(given, OF_OUR_PROCESS)):
        progress(f"left out with --bootstrap, since they start a broker of this checkout: {', '.join(left_out)}")
    if not load_cases and not own_cases:
        progress(f"no case begins with {' or '.join(given.only)}; there are: {', '.join([*CASES, *OF_OUR_PROCESS])}")
        return 2
    if unknown := set(given.skip) - {*CASES, *OF_OUR_PROCESS}:
        progress(f"no case is called {' or '.join(sorted(unknown))}; there are: {', '.join([*CASES, *OF_OUR_PROCESS])}")
        return 2
    results: dict[str, list[dict[str, float]]] = {}
    imports: list[dict[str, object]] = []
    about: dict[str, object] = {"bootstrap": given.bootstrap or "own broker", "rounds": given.rounds}
    given.directory.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="ottla-bench-", dir=given.directory))
    try:
        for name, case in ON_A_FRESH_BROKER.items():
            for number in range(given.rounds if name in own_cases else 0):
                started = time.monotonic()
                results.setdefault(name, []).append(case(directory / f"{name}-{number}"))
                progress(f"round {number + 1}/{given.rounds}  {name:<20} {time.monotonic() - started:5.1f} s")
        for name, start in OF_A_SCALE.items():
            for number in range(given.rounds if name in own_cases else 0):
                started = time.monotonic()
                results.setdefault(name, []).append(start(directory / f"{name}-{number}", given.scale))
                progress(f"round {number + 1}/{given.rounds}  {name:<20} {time.monotonic() - started:5.1f} s")
        if "imports" in own_cases:
            imports = process_cases.imports(directory / "imports")
        if load_cases:
            broker = BenchedBroker(given.bootstrap, given.pid) if given.bootstrap else OwnBroker(directory / "broker")
            rival = Rival(directory / "kafka", given.kafka_warm_up)
            with contextlib.closing(broker), contextlib.closing(rival):
                wait_until_answering(broker.bootstrap)
                congestion = given.congestion or broker.congestion_control()
                about |= {"congestion_control": congestion, "send_buffer_bytes": given.send_buffer}
                sockets = SocketOptions(
                    congestion=congestion,
                    send_buffer_bytes=given.send_buffer,
                    receive_buffer_bytes=given.receive_buffer,
                )
                bench = Bench(broker=broker, rival=rival, options=sockets, directory=directory, scale=given.scale)
                measure_load(bench, given, results, load_cases)
        costliest = profiles.costliest_of_paths(directory, given.scale) if "costliest" in own_cases else {}
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    sys.stdout.write(f"{about}\n{report.table(results)}\n")
    if imports:
        sys.stdout.write(f"\nimports until ready\n{report.import_table(imports)}\n")
    progress(f"written: {report.write_json(results, about=about, imports=imports)}")
    if costliest:
        sys.stdout.write(f"{profiles.lines(costliest)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
