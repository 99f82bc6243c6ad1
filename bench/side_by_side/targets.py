"""Our targets against Apache Kafka on a machine of two processors: ratios that each row must reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LOWEST_PAIR: Final = 0.9
"""A target is reached if the median reaches it, and the lowest pair is at least this share of it."""


@dataclass(frozen=True, slots=True)
class Target:
    """How many times better ours must be; only in tables under ``congestion``, if that is set."""

    workload: str
    figure: str
    at_least: float
    congestion: str = ""


TARGETS: Final = (
    Target("librdkafka-produce-1kb-all", "mb_s", 1.4),
    Target("librdkafka-produce-1kb-all-16kb", "mb_s", 2.2),
    Target("librdkafka-consume-1kb", "mb_s", 1.3),
    Target("raw-one-record-8x8", "requests_s", 2.1),
    Target("raw-16kb", "mb_s", 1.6),
    Target("raw-128kb", "mb_s", 1.3),
    Target("raw-1mb", "mb_s", 1.1),
    Target("fetch-64kb", "mb_s", 2.2, "cubic"),
    Target("fetch-1mb", "mb_s", 1.6, "cubic"),
    Target("fetch-16x64kb", "mb_s", 1.7, "cubic"),
    Target("fetch-1mb", "mb_s", 1.4, "bbr"),
    Target("fetch-16x64kb", "mb_s", 1.4, "bbr"),
    Target("latency", "p99_us", 1 / 0.4),
    Target("latency-end-to-end", "p99_us", 1 / 0.45),
    Target("librdkafka-produce-1kb-all", "cpu_s_gb", 1 / 0.55),
    Target("raw-16kb", "cpu_s_gb", 1 / 0.45),
    Target("librdkafka-consume-1kb", "cpu_s_gb", 1 / 0.45),
    Target("start", "idle_mb", 11.0),
    Target("memory", "loaded_mb", 25.0),
    Target("start", "first_answer_s", 14.0),
    Target("first-seconds-one-record", "requests_s", 4.0),
    Target("first-seconds-librdkafka", "mb_s", 3.5),
    Target("first-seconds-latency", "p99_us", 10.0),
)


def target(workload: str, figure: str, congestion: str) -> float | None:
    """The target of this row under this congestion control; None where there is none."""
    for one in TARGETS:
        if (one.workload, one.figure) == (workload, figure) and one.congestion in ("", congestion):
            return one.at_least
    return None
