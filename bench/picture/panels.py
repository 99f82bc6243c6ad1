"""The data of each panel, queried from Prometheus as Grafana does."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from boards.all_boards import BOARDS
from boards.panels import Board, Panel
from boards.promql import filled_in
from dev.prometheus import Prometheus

ZERO_IS_WELL: Final = {
    "Offline partitions",
    "Under min ISR",
    "Failed directories",
    "Partitions offline",
    "Failed",
    "Not cleaned any more",
    "Partitions with hanging transactions",
    "Ends that are written again",
    "Deleted without being archived",
    "Dead letters that cannot be written",
    "Slowest hundredth of fetches until they can acquire",
    # No request waits at the moments when Prometheus scrapes.
    "Queues",
    # Recovery of some megabytes is over between two scrapes.
    "Logs to open",
    "Bytes to check",
}
"""Panels that show only 0 if nothing is broken."""


@dataclass(frozen=True, slots=True)
class Line:
    """A series: its name in the legend, and its values by time."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """A panel with all its series."""

    board: Board
    panel: Panel
    lines: tuple[Line, ...]

    @property
    def where(self) -> str:
        """The panel's name, with its board."""
        return f"{self.board.title}: {self.panel.title}"

    @property
    def fault(self) -> str | None:
        """What is wrong with the panel's data; None if nothing is."""
        values = [value for line in self.lines for _, value in line.points]
        if not values:
            return "no data"
        if not any(values) and self.panel.title not in ZERO_IS_WELL:
            return "nothing but 0"
        return None


def shown(prometheus: Prometheus, *, instance: str, start_s: float, end_s: float, step_s: float) -> Iterator[Shown]:
    """The data of all panels of all boards, over a time. ``step_s`` is the scrape interval of Prometheus."""
    # As Grafana takes it for a window as short as this.
    variables = {"instance": instance, "__rate_interval": f"{round(4 * step_s)}s"}
    variables |= dict.fromkeys(("topic", "group", "request"), ".+")
    for board in BOARDS:
        for panel in board.panels:
            lines = [
                Line(_name(query.legend, series["metric"]), tuple(_points(series["values"])))
                for query in panel.queries
                for series in prometheus.query_range(
                    filled_in(query.expr, variables), start_s=start_s, end_s=end_s, step_s=step_s
                )
            ]
            yield Shown(board, panel, tuple(lines))


def _name(legend: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), legend)


def _points(values: Iterable[tuple[float, str]]) -> Iterator[tuple[float, float]]:
    for time_s, text in values:
        value = float(text)
        if not math.isnan(value):
            yield time_s, value
