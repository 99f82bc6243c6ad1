"""The result of a comparison: medians, spreads, and ratios pair by pair."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.side_by_side.catalogue import Table
from bench.side_by_side.journal import Sample
from bench.side_by_side.targets import LOWEST_PAIR, target
from bench.side_by_side.workload import Row, Workload


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, minimum and maximum of a figure over the rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Standing:
    """One figure of one workload in one table. ``ratio`` is how many times better ours is, computed within each
    round."""

    table: Table
    workload: Workload
    row: Row
    ours: Spread
    theirs: Spread
    ratio: Spread
    rounds: int
    disturbed: int
    """How many samples were taken while other processes used too much, in spite of repetitions."""

    @property
    def key(self) -> str:
        return f"{self.workload.name}:{self.row.figure}"

    @property
    def target(self) -> float | None:
        """The target of this row; None where there is none."""
        if not self.table.has_targets:
            return None
        return target(self.workload.name, self.row.figure, self.table.congestion)

    @property
    def is_reached(self) -> bool:
        return self.target is not None and reaches(self.ratio, self.target)

    @property
    def is_behind(self) -> bool:
        """Whether ours is worse, by the two digits that are shown."""
        return round(self.ratio.median, 2) < 1.0


def reaches(ratio: Spread, at_least: float) -> bool:
    """Whether the median is at least the target, and the lowest pair not far below."""
    return ratio.median >= at_least and ratio.least >= LOWEST_PAIR * at_least


def standings(
    samples: Iterable[Sample],
    tables: Sequence[Table],
    workloads: Sequence[Workload],
    contenders: tuple[str, str],
) -> list[Standing]:
    """All rows with at least one pair of samples, in the order of tables and workloads; ours is the first contender."""
    by_place: dict[tuple[str, str, int], dict[str, Sample]] = {}
    for sample in samples:
        by_place.setdefault((sample.table, sample.workload, sample.round), {})[sample.contender] = sample
    ours, theirs = contenders
    found = []
    for table in tables:
        for workload in table.workloads(workloads):
            pairs = [
                (of_round[ours], of_round[theirs])
                for (of_table, name, _), of_round in sorted(by_place.items())
                if (of_table, name) == (table.key, workload.name) and ours in of_round and theirs in of_round
            ]
            if pairs:
                found += [_standing(table, workload, row, pairs) for row in workload.rows]
    return found


def _standing(table: Table, workload: Workload, row: Row, pairs: Sequence[tuple[Sample, Sample]]) -> Standing:
    values = [(mine.figures[row.figure], other.figures[row.figure]) for mine, other in pairs]
    return Standing(
        table,
        workload,
        row,
        Spread.of([mine for mine, _ in values]),
        Spread.of([other for _, other in values]),
        Spread.of([row.advantage(mine, other) for mine, other in values]),
        len(pairs),
        sum(sample.others_cores > workload.quiet_cores for pair in pairs for sample in pair),
    )
