"""Plots as SVG inside of a page, in the page's own colours: light, dark and printed alike.

They are drawn in placeholder colours, which are then replaced by variables of the style sheet. Their text is numbers
and times, never names or keys from topics.
"""

import io
import re
from collections.abc import Sequence
from typing import Any, Final

from markupsafe import Markup, escape
from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

SERIES_COLORS: Final = 6
"""How many colours there are; the last colour is for series that are added together."""

_SOFT: Final = "#010203"
_GRID: Final = "#010204"
_SERIES: Final = tuple(f"#0102{number:02x}" for number in range(0x10, 0x10 + SERIES_COLORS))
_VARIABLES: Final = {_SOFT: "var(--soft)", _GRID: "var(--grid)"} | {
    color: f"var(--c{number})" for number, color in enumerate(_SERIES)
}
_STYLE: Final = {
    "svg.fonttype": "none", "svg.hashsalt": "ottla", "font.size": 10.5, "axes.edgecolor": _GRID, "axes.linewidth": 1,
    "axes.labelcolor": _SOFT, "text.color": _SOFT, "xtick.color": _SOFT, "ytick.color": _SOFT, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False, "xtick.major.size": 0,
    "ytick.major.size": 0, "xtick.minor.size": 0, "xtick.major.pad": 5, "grid.color": _GRID, "grid.linewidth": 1,
}  # fmt: skip
_WIDE: Final = (10.6, 2.7)
_NARROW: Final = (5.1, 2.3)
_LEAST_BARS: Final = 8
"""With fewer bars than these, each bar is as wide as with so many."""


def areas(times: Sequence[Any], series: Sequence[Sequence[float]], colors: Sequence[int], label: str) -> Markup:
    """Stacked areas of numbers over time. `times` are rising datetimes, as many as each series has numbers; each number
    counts until the next time. `colors` are numbers below SERIES_COLORS."""
    with rc_context(_STYLE):
        figure, axes = _figure(_WIDE)
        axes.stackplot(times, *series, colors=[_SERIES[color] for color in colors], step="post", linewidth=0)
        locator = AutoDateLocator(minticks=3, maxticks=9)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
        axes.set_xlim(times[0], times[-1])
        axes.set_ylim(bottom=0)
        return _svg(figure, label)


def bars(names: Sequence[str], values: Sequence[float], label: str) -> Markup:
    """A bar for each number, above its name."""
    with rc_context(_STYLE):
        figure, axes = _figure(_NARROW)
        places = range(len(names))
        axes.bar(places, values, color=_SERIES[0], width=0.82)
        every = max(1, -(-len(names) // 9))
        axes.set_xticks(list(places)[::every], list(names)[::every])
        beside = max(0.7, (_LEAST_BARS - len(names)) / 2)
        axes.set_xlim(-beside, len(names) - 1 + beside)
        axes.set_ylim(bottom=0)
        return _svg(figure, label)


def short_number(number: float, _: object = None) -> str:
    """1500 -> 1.5k."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def short_size(number: int) -> str:
    """A power of two of bytes, or one less: 2048 -> 2K."""
    for bits, unit in ((30, "G"), (20, "M"), (10, "K")):
        if number >= 1 << bits:
            return f"{number >> bits}{unit}"
    return str(number)


def _figure(size: tuple[float, float]) -> tuple[Figure, Any]:
    figure = Figure(figsize=size, layout="constrained", facecolor="none")
    axes: Any = figure.subplots()
    axes.set_facecolor("none")
    axes.grid(axis="y")
    axes.yaxis.set_major_formatter(FuncFormatter(short_number))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    return figure, axes


def _svg(figure: Figure, label: str) -> Markup:
    written = io.StringIO()
    FigureCanvasSVG(figure).print_svg(written, metadata={"Date": None, "Creator": None})
    text = written.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    # Several plots stand on one page, where an id is of one of them only.
    text = re.sub(r' id="[a-zA-Z0-9]+_\d+"', "", text)
    # The page says how wide it is.
    text = re.sub(r' (width|height)="[^"]*"', "", text, count=2)
    text = text.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1)
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 system-ui, 'DejaVu Sans', sans-serif", text)
    for color, variable in _VARIABLES.items():
        text = text.replace(color, variable)
    return Markup(text)  # noqa: S704
