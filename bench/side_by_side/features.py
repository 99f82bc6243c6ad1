"""Rows of the page for what `python -m bench` measures beside Apache Kafka itself: TLS, share groups, groups of both
protocols, cleaning, replication."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.side_by_side.page import BREAK, number
from dev.repository import REPOSITORY

WRITTEN: Final = re.compile(r"^written: (.+\.json)$", re.MULTILINE)
LIMIT_S: Final = 3600


class Feature(NamedTuple):
    """A figure of a case of `python -m bench`, and where the case has Apache Kafka's."""

    case: str
    figure: str
    group: str
    words: str
    unit: str
    is_more_better: bool
    kafkas: str = ""
    """Empty: ``figure`` with `kafka_` before it."""


CLASSIC: Final = "classic: 20 members form a group; one joins 200"
NEWER: Final = "KIP-848: 20 members form a group; one joins 20"


def _cleaned(topic: str, values: str) -> Feature:
    return Feature(
        "cleaning", f"{topic}_mb_s", "Cleaning", "compacted logs", f"MB/s, values of {values}", True,
        f"{topic}_kafka_mb_s",
    )  # fmt: skip


FEATURES: Final = (
    Feature("tls", "produce_mb_s", "TLS", "librdkafka produces 1,000 B", "MB/s", True),
    Feature("tls", "produce_cpu_s_gb", "TLS", "librdkafka produces 1,000 B", "broker CPU-s/GB", False),
    Feature("tls", "consume_mb_s", "TLS", "librdkafka consumes 1,000 B", "MB/s", True),
    Feature("tls", "consume_cpu_s_gb", "TLS", "librdkafka consumes 1,000 B", "broker CPU-s/GB", False),
    Feature("share-groups", "records_s", "Share groups", "three members accept by fetches", "records/s", True),
    Feature("share-groups", "cpu_s_million", "Share groups", "three members accept by fetches", "CPU µs/record", False),
    Feature("share-groups", "each_records_s", "Share groups", "they accept each record by itself", "records/s", True),
    Feature("rebalances", "form_20_ms", "Groups", CLASSIC, "ms to form", False),
    Feature("rebalances", "join_200_ms", "Groups", CLASSIC, "ms to join", False),
    Feature("newer-rebalances", "form_20_ms", "Groups", NEWER, "ms to form", False),
    Feature("newer-rebalances", "join_20_ms", "Groups", NEWER, "ms to join", False),
    _cleaned("100-none", "100 B"),
    _cleaned("1000-none", "1,000 B"),
    _cleaned("1000-lz4", "1,000 B, lz4"),
    _cleaned("1000-zstd", "1,000 B, zstd"),
    Feature("replication-produce", "mb_s", "Replication", "two replicas, 16-KB batches", "MB/s", True),
    Feature(
        "replication-produce", "leader_cpu_s_100mb", "Replication", "two replicas, 16-KB batches",
        "leader's CPU-s/100 MB", False,
    ),
    Feature(
        "replication-produce", "follower_cpu_s_100mb", "Replication", "two replicas, 16-KB batches",
        "follower's CPU-s/100 MB", False,
    ),
    Feature("replication-produce", "p50_us", "Replication", "one record after the other", "p50 µs", False),
    Feature("replication-produce", "p99_us", "Replication", "one record after the other", "p99 µs", False),
    Feature("replication-rejoin", "rejoin_s", "Replication", "a follower that lacks 1 GB is in sync again", "s", False),
    Feature("replication-failover", "stop_s", "Replication", "the leader is stopped: the pause", "s", False),
    Feature("replication-failover", "kill_2s_s", "Replication", "it is killed, session of 2 s", "s", False),
)  # fmt: skip


def measure(scale: float) -> Mapping[str, Any]:
    """Run the cases once. Returns their figures by case. Raises subprocess.CalledProcessError."""
    cases = dict.fromkeys(feature.case for feature in FEATURES)
    command = [sys.executable, "-m", "bench", "--rounds", "1", "--scale", f"{scale:g}", "--skip", "cleaning-latency"]
    done = subprocess.run(
        [*command, "--only", *cases], cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True,
        stderr=subprocess.STDOUT, timeout=LIMIT_S,
    )  # fmt: skip
    written = WRITTEN.findall(done.stdout)
    found: Mapping[str, Any] = json.loads(Path(written[-1]).read_text())["cases"]
    return found


def markdown(found: Mapping[str, Any], titles: Sequence[str]) -> str:
    """The table; a feature without figures of Apache Kafka has no row."""
    lines = [f"| feature | figure | {titles[0]} | {titles[1]} | ratio |", "|---|---|---|---|---|"]
    for (of_group, words), features in groupby(FEATURES, key=lambda feature: (feature.group, feature.words)):
        cells = [cell for feature in features if (cell := _cells(feature, found.get(feature.case, {}))) is not None]
        if cells:
            lines.append(f"| {of_group}: {words} | {' | '.join(map(BREAK.join, zip(*cells, strict=True)))} |")
    return "\n".join(lines)


def _cells(feature: Feature, figures: Mapping[str, Any]) -> tuple[str, str, str, str] | None:
    ours, theirs = (figures.get(name) for name in (feature.figure, feature.kafkas or f"kafka_{feature.figure}"))
    if ours is None or theirs is None:
        return None
    better, worse = (ours, theirs) if feature.is_more_better else (theirs, ours)
    ratio = better["median"] / worse["median"]
    shown = f"{ratio:.2f}"
    return feature.unit, number(ours["median"]), number(theirs["median"]), f"**{shown}**" if ratio < 1 else shown
