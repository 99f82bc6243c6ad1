"""The order in which samples are taken, and the expected duration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.side_by_side.catalogue import Table
from bench.side_by_side.journal import Journal
from bench.side_by_side.workload import Workload

WARM_UP_S = 45.0
"""Seconds of load for each broker before the samples: a JVM compiles the code that is used."""
STARTS_S = 3.0
"""Seconds until a broker answers, formatting included."""


@dataclass(frozen=True, slots=True)
class Step:
    """One sample to take."""

    table: Table
    workload: Workload
    round: int
    contender: str


def steps(
    tables: Sequence[Table], workloads: Sequence[Workload], contenders: Sequence[str], rounds: int
) -> Iterator[Step]:
    """The samples, table by table and round by round, one broker right after the other.

    Every second round runs backwards, brokers included, so that the after-effects of a sample do not always meet the
    same sample.
    """
    for table in tables:
        for number in range(1, rounds + 1):
            forwards = number % 2 == 1
            in_order = table.workloads(workloads)
            for workload in in_order if forwards else reversed(in_order):
                for contender in contenders if forwards else reversed(contenders):
                    yield Step(table, workload, number, contender)


def missing(all_steps: Iterator[Step], journal: Journal) -> list[Step]:
    """The steps without a sample in the journal."""
    return [
        step for step in all_steps if not journal.has(step.table.key, step.workload.name, step.round, step.contender)
    ]


def expected_s(to_take: Sequence[Step], scale: float, contenders: int) -> float:
    """The expected seconds for these steps, with the warming up before them."""
    starts = len({tuple(step.table.settings.items()) for step in to_take if step.workload.measure is not None})
    return starts * contenders * (STARTS_S + warm_up_s(scale)) + sum(
        step.workload.expected_s(scale) for step in to_take
    )


def warm_up_s(scale: float) -> float:
    return WARM_UP_S * min(1.0, scale)
