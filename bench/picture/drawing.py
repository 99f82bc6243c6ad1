"""Drawing a board with matplotlib: the same panels in the same places as in Grafana."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

mpl.use("agg")

from matplotlib import pyplot
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from bench.picture.panels import Line, Shown
from bench.picture.saving import save
from boards.panels import COLUMNS, Panel, Unit

WIDTH_INCHES: Final = 13.0
INCHES_A_UNIT: Final = 0.27
"""Inches of a unit of Grafana's heights."""
DOTS_PER_INCH: Final = 90
NAMES_SHOWN: Final = 6
"""The most names in a legend of two columns."""
LONG_NAMES_SHOWN: Final = 5
"""The most names in a legend of one column, for names that are too long for two."""
ROW_OF_NAMES: Final = 0.1
"""The height of a row of names, as a share of a panel's height."""
LONGEST_NAME: Final = 30
"""The longest name in a legend of two columns, in characters."""
GREY: Final = "#666666"


@dataclass(frozen=True, slots=True)
class Run:
    """The time of the run, and the times at which the broker was stopped or killed."""

    start_s: float
    end_s: float
    marks: tuple[float, ...]

    def minutes(self, time_s: float) -> float:
        """Minutes from the beginning of the run to ``time_s``."""
        return (time_s - self.start_s) / 60


def draw(board: Sequence[Shown], path: Path, run: Run) -> None:
    """Draw all panels of one board."""
    placed = board[0].board.json()["panels"]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in placed)
    figure = pyplot.figure(figsize=(WIDTH_INCHES, (height + 2) * INCHES_A_UNIT), dpi=DOTS_PER_INCH)
    figure.suptitle(
        board[0].board.json()["title"], x=0.012, y=1 - 0.6 / (height + 2), ha="left", weight="bold", size=12
    )
    by_title = {one.panel.title: one for one in board}
    for panel in placed:
        x, y, w, h = (panel["gridPos"][side] for side in "xywh")
        bottom = 1 - (y + h + 2) / (height + 2)
        if panel["type"] == "row":
            figure.text(0.012, bottom + 0.2 / (height + 2), panel["title"], size=10, color=GREY, weight="bold")
            continue
        # Space for the title above and the numbers at the sides.
        left, wide, high = 0.01 + 0.98 * x / COLUMNS + 0.042, 0.98 * w / COLUMNS - 0.055, h / (height + 2)
        if panel["type"] == "stat":
            left, high = left - 0.04, 0.8 * high
        axes = figure.add_axes((left, bottom + 0.16 * high, wide, 0.66 * high))
        axes.set_title(panel["title"], size=8.5, loc="left", weight="bold")
        one = by_title[panel["title"]]
        if panel["type"] == "stat":
            _number(axes, one)
        else:
            _lines(axes, one, run, is_stacked=_is_stacked(one.panel))
    save(figure, path)


def _lines(axes: Axes, one: Shown, run: Run, *, is_stacked: bool) -> None:
    axes.tick_params(labelsize=7, color=GREY, labelcolor=GREY)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: text_of(value, one.panel.unit)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda minutes, _: f"{minutes:g} min"))
    lines = sorted(one.lines, key=_highest, reverse=True)
    handles: list[Artist] = []
    if not lines:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color="red")
    if is_stacked and lines:
        times = sorted({time_s for line in lines for time_s, _ in line.points})
        values = [[dict(line.points).get(time_s, 0.0) for time_s in times] for line in lines]
        handles += axes.stackplot([run.minutes(time_s) for time_s in times], values, alpha=0.6)
    else:
        for line in lines:
            points = _with_gaps(line)
            handles += axes.plot([run.minutes(time_s) for time_s, _ in points], [value for _, value in points], lw=1)
    for mark in run.marks:
        axes.axvline(run.minutes(mark), color="red", lw=0.6, ls=":")
    axes.set_xlim(0, run.minutes(run.end_s))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    names_in_rows = _legend(axes, handles, [line.name for line in lines])
    highest = 1.0 if one.panel.unit is Unit.SHARE else axes.get_ylim()[1] if _is_ever_above_zero(one) else 1.0
    # Space for the legend above the lines.
    axes.set_ylim(0, 1.05 * highest / (0.98 - ROW_OF_NAMES * names_in_rows))
    axes.set_yticks(_ticks(highest, one))


def _legend(axes: Axes, handles: Sequence[Artist], names: list[str]) -> int:
    """Write the legend with the names of the highest lines. Returns how many rows it takes."""
    columns = 1 if any(len(name) > LONGEST_NAME for name in names) else 2
    most = NAMES_SHOWN if columns == 2 else LONG_NAMES_SHOWN
    shown = names[:most]
    if len(names) > most:
        shown[-1] += f" and {len(names) - most} more"
    axes.legend(
        handles[:most], shown, fontsize=6, frameon=False, loc="upper left", ncols=columns, labelcolor=GREY
    )  # given by hand: a name that begins with an underscore is a topic's, and no remark to matplotlib
    return math.ceil(len(shown) / columns)


def _is_ever_above_zero(one: Shown) -> bool:
    return any(value > 0 for line in one.lines for _, value in line.points)


def _ticks(highest: float, one: Shown) -> list[float]:
    """Round numbers of the unit up to the highest value; whole numbers if the unit has no fractions."""
    is_bytes = one.panel.unit in (Unit.BYTES, Unit.BYTES_PER_S)
    scale = 1024 ** int(math.log(highest, 1024)) if is_bytes and highest >= 1024 else 1
    is_whole = one.panel.unit is Unit.COUNT and all(
        value.is_integer() for line in one.lines for _, value in line.points
    )
    locator = MaxNLocator(4, integer=is_whole)
    return [tick * scale for tick in locator.tick_values(0, highest / scale) if 0 <= tick * scale <= highest]


def _number(axes: Axes, one: Shown) -> None:
    axes.set_axis_off()
    if one.lines:
        value = _last(one.lines[0])
        text = _words(one.panel).get(str(round(value))) or text_of(value, one.panel.unit)
    else:
        text = "no data"
    axes.text(0.0, 0.35, text, size=14, transform=axes.transAxes, va="center")


def _highest(line: Line) -> float:
    return max((value for _, value in line.points if math.isfinite(value)), default=0.0)


def _last(line: Line) -> float:
    return line.points[-1][1] if line.points else 0.0


def _with_gaps(line: Line) -> list[tuple[float, float]]:
    """The points, with a gap where there were none for a while."""
    points = list(line.points)
    if len(points) < 3:
        return points
    step = min(after[0] - before[0] for before, after in pairwise(points))
    found = points[:1]
    for before, after in pairwise(points):
        if after[0] - before[0] > 1.5 * step:
            found.append((before[0] + step, math.nan))
        found.append(after)
    return found


def _is_stacked(panel: Panel) -> bool:
    custom: dict[str, Any] = panel.look["fieldConfig"]["defaults"]["custom"]
    return bool(custom["stacking"]["mode"] == "normal")


def _words(panel: Panel) -> dict[str, str]:
    mappings = panel.look["fieldConfig"]["defaults"]["mappings"]
    return {value: word["text"] for mapping in mappings for value, word in mapping["options"].items()}


def text_of(value: float, unit: Unit) -> str:
    """A value with its unit, rounded for people."""
    if not math.isfinite(value):
        return "∞"
    match unit:
        case Unit.SECONDS:
            return str(timedelta(seconds=round(value))) if value >= 60 else f"{value:.3g} s"
        case Unit.MS:
            return f"{value:.3g} ms" if value < 1000 else f"{value / 1000:.3g} s"
        case Unit.SHARE:
            return f"{value:.0%}"
        case Unit.BYTES | Unit.BYTES_PER_S:
            return _scaled(value, 1024, ("", "Ki", "Mi", "Gi", "Ti")) + ("B/s" if unit is Unit.BYTES_PER_S else "B")
        case _:
            return _scaled(value, 1000, ("", "k", "M", "G", "T"))


def _scaled(value: float, base: int, prefixes: Sequence[str]) -> str:
    power = 0
    while abs(value) >= base and power < len(prefixes) - 1:
        value /= base
        power += 1
    number = f"{value:.0f}" if value >= 100 else f"{value:.3g}"
    return f"{number} {prefixes[power]}".rstrip() if base == 1000 else f"{number} {prefixes[power]}"
