"""The table and the JSON file: medians and spread over the rounds, ratios with their targets beside them."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"

TARGETS = {
    ("produce-1mb", "ratio"): (">=", 0.45, "of sequential write() of 1 MB"),
    ("fetch-1mb", "ratio"): (">=", 0.65, "of plain sendfile of 1 MB"),
    ("produce-one-record", "ratio"): ("<=", 2.2, "x the CPU of a bare echo, one request at a time"),
    ("fetch-session", "ratio"): ("<=", 1.25, "x the CPU of a session of the 10 that move"),
    ("recovery-one-record", "to_kafka_2_ratio"): (">=", 0.7, "x Apache Kafka's speed in the same run"),
    **{
        ("cleaning", f"{value_bytes}-{codec}_ratio"): (">=", target, "x Apache Kafka's speed in the same run")
        for value_bytes, target in ((100, 0.5), (1_000, 1.0))
        for codec in ("none", "lz4", "zstd")
    },
    **{
        ("cleaning-latency", f"{kind}_p99_ratio"): ("<=", 1.5, "x the p99 without cleaning")
        for kind in ("produce", "fetch")
    },
    ("cleaning", "memory_mb"): ("<=", 168.0, "MB of the cleaner's process with a buffer of 128 MB for keys"),
    **{("isolation", f"{prefix}ratio"): ("<=", 1.02, "x the CPU of read_uncommitted") for prefix in ("", "of_16_")},
    **{
        (f"recovery-{size}", f"to_kafka_{workers}_ratio"): (">=", 1.0, "x Apache Kafka's speed in the same run")
        for size in ("16kb", "1mb")
        for workers in (1, 2)
    },
    **{
        ("group-start", f"{log}_loaded_ratio"): (">=", 1.0, "x Apache Kafka's speed in the same run")
        for log in ("repeated", "compacted", "distinct")
    },
    ("testing", "start_cpu_ms"): ("<=", 30.0, "ms of CPU"),
    ("testing", "reset_ms"): ("<=", 20.0, "ms"),
    ("testing", "filled_fork_ms"): ("<=", 100.0, "ms"),
    **{
        ("tls", f"{way}{figure}_ratio"): (">=", 1.0, "x as good as Apache Kafka in the same run")
        for way in ("produce", "consume")
        for figure in ("", "_cpu")
    },
    **{
        (f"replication-{case}", f"{figure}_ratio"): (">=", 1.0, "x as good as Apache Kafka in the same run")
        for case, figures in {
            "produce": ("mb_s", "leader_cpu_s_100mb", "follower_cpu_s_100mb", "p50_us", "p99_us"),
            "partitions": ("p50_us", "p99_us"),
            "rejoin": ("rejoin", "catch_up"),
            "failover": ("stop", "kill_2s", "kill_9s"),
            "metadata": ("ready", "cpu", "memory"),
        }.items()
        for figure in figures
    },
    **{
        (f"spark-{records}", "to_connector_ratio"): (
            ">=",
            1.5,
            "x the speed of Spark's Kafka connector in the same run",
        )
        for records in (100, 8000)
    },
    **{
        (f"archive-{records}", "to_spark_job_ratio"): (
            ">=",
            2.0,
            "x the speed of Spark's own job from its connector to Parquet in the same run",
        )
        for records in (1, 100, 8000)
    },
    ("start", "again_s"): ("<=", 0.15, "s from start to first answer"),
    ("start", "new_directory_s"): ("<=", 0.15, "s from start to first answer, formatting included"),
    ("start", "idle_mb"): ("<=", 35.0, "MB resident after the start"),
    ("acls", "ratio"): ("<=", 1.03, "x the CPU of a one-record request without an authorizer"),
    ("counters", "ratio"): ("<=", 1.08, "x the CPU of a one-record request without counters"),
    ("scrape", "scrape_s"): ("<=", 0.5, "s for the page of 5,000 partitions"),
    ("scrape-lag", "scrape_s"): ("<=", 0.5, "s for the page of 50,000 committed offsets"),
    ("idle-connections", "connected_mb"): ("<=", 60.0, "MB for 10,000 connections"),
    ("idle-connections", "asked_mb"): ("<=", 60.0, "MB for 10,000 connections that have all asked at once"),
    ("idle-connections", "idle_cpu_percent"): ("<=", 0.5, "% of a processor for 10,000 connections"),
    ("fairness", "fetch_ratio"): (">=", 0.5, "of the fastest connection's bytes for the slowest"),
    ("fairness", "produce_ratio"): (">=", 0.5, "of the fastest connection's bytes for the slowest"),
    **{
        ("disturbers", f"{kind}_ratio"): ("<=", 2.0, "x the p99 beside a busy loop")
        for kind in ("trickle", "deaf", "pipeline", "greedy")
    },
}
DIGITS = {
    "ratio": 2,
    "ratio_bare": 2,
    "ratio_full": 3,
    "ratio_pipelined": 2,
    "cores": 2,
    "cpu_s_gb": 3,
    "new_directory_s": 3,
    "again_s": 3,
    "stop_s": 2,
    "kafka_stop_s": 2,
    "kill_2s_s": 2,
    "kafka_kill_2s_s": 2,
}


def summary(rounds: list[dict[str, float]]) -> dict[str, dict[str, Any]]:
    """Median, minimum, maximum and all values of every figure of one case."""
    return {
        name: {
            "median": statistics.median(values),
            "least": min(values),
            "most": max(values),
            "rounds": values,
        }
        for name in rounds[0]
        for values in [[figures[name] for figures in rounds]]
    }


def table(cases: dict[str, list[dict[str, float]]]) -> str:
    lines = [f"{'case':<22}{'figure':<24}{'median':>12}   {'least - most':<26}target"]
    for case, rounds in cases.items():
        for number, (name, figures) in enumerate(summary(rounds).items()):
            digits = DIGITS.get(
                name, 2 if name.endswith(("_cores", "_ratio", "_100mb")) else 1 if figures["median"] < 1000 else 0
            )
            spread = f"{figures['least']:,.{digits}f} - {figures['most']:,.{digits}f}"
            lines.append(
                f"{case if number == 0 else '':<22}{name:<24}{figures['median']:>12,.{digits}f}   {spread:<26}"
                + _verdict(case, name, figures["median"])
            )
    return "\n".join(lines)


def _verdict(case: str, name: str, median: float) -> str:
    if (case, name) not in TARGETS:
        return ""
    sign, target, meaning = TARGETS[case, name]
    reached = median >= target if sign == ">=" else median <= target
    return f"{sign} {target} {meaning}: {'reached' if reached else 'MISSED'}"


def import_table(rows: list[dict[str, Any]], most: int = 15) -> str:
    lines = [f"{'package':<28}{'own ms':>10}{'modules':>10}"]
    lines += [f"{row['package']:<28}{row['own_ms']:>10.1f}{row['modules']:>10}" for row in rows[: most + 1]]
    return "\n".join(lines)


def write_json(
    cases: dict[str, list[dict[str, float]]], *, about: dict[str, Any], imports: list[dict[str, Any]]
) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    content = {
        "about": {
            **about,
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "python": platform.python_version(),
            "system": platform.platform(),
            "processors": os.cpu_count(),
        },
        "targets": [
            {"case": case, "figure": name, "is": sign, "target": target, "of": meaning}
            for (case, name), (sign, target, meaning) in TARGETS.items()
        ],
        "cases": {case: summary(rounds) for case, rounds in cases.items()},
        "imports": imports,
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path
