"""Drawing the ratios: how many times better Ottla is, with a line for each row of a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl

mpl.use("agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from bench.picture.saving import save
from bench.side_by_side.page import group
from bench.side_by_side.standing import Standing

WIDTH_INCHES: Final = 11.0
INCHES_A_ROW: Final = 0.17
INCHES_AROUND: Final = 0.9
DOTS_PER_INCH: Final = 100
AHEAD: Final = "#2a7f62"
BEHIND: Final = "#c0392b"
GREY: Final = "#666666"


def draw(standings: Sequence[Standing], titles: tuple[str, str], path: Path) -> None:
    """Draw one panel for each table. A line reaches from the lowest to the highest pair, a dot is the median, and `|`
    the target."""
    tables = list(dict.fromkeys(one.table.key for one in standings))
    if not tables:
        return
    of_table = [[one for one in standings if one.table.key == key] for key in tables]
    heights = [INCHES_AROUND + INCHES_A_ROW * len(rows) for rows in of_table]
    figure, panels = pyplot.subplots(
        len(tables), 1, figsize=(WIDTH_INCHES, sum(heights)), height_ratios=heights, squeeze=False, sharex=True,
        dpi=DOTS_PER_INCH, layout="constrained",
    )  # fmt: skip
    for axes, rows in zip(panels[:, 0], of_table, strict=True):
        _panel(axes, rows, titles)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(figure, path)


def _panel(axes: Axes, rows: Sequence[Standing], titles: tuple[str, str]) -> None:
    for place, one in enumerate(rows):
        colour = BEHIND if one.is_behind else AHEAD
        axes.plot([one.ratio.least, one.ratio.most], [place, place], color=colour, lw=2, alpha=0.4)
        axes.plot([one.ratio.median], [place], marker="o", ms=4, color=colour)
        if one.target is not None:
            axes.plot([one.target], [place], marker="|", ms=8, mew=1.5, color="black")
    axes.axvline(1.0, color=GREY, lw=0.8)
    axes.set_yticks(range(len(rows)), [f"{group(one)}: {one.workload.words}, {one.row.words}" for one in rows])
    axes.tick_params(axis="y", labelsize=6.5, length=0)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", lw=0.3)
    axes.set_title(rows[0].table.title, fontsize=10, loc="left", weight="bold")
    axes.set_xlabel(f"how many times better {titles[0]} is than {titles[1]}", fontsize=8, color=GREY)
