"""The tables as text: on the terminal, and as the generated parts of docs/performance.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import yaml

from bench.side_by_side.catalogue import Table
from bench.side_by_side.standing import Spread, Standing

EXPLANATIONS: Final = Path(__file__).with_name("explanations.yaml")
GROUPS: Final = {
    "raw": "Produce requests, acks=all",
    "fetch": "Fetches, one connection",
    "latency": "Latency",
    "many": "Many partitions",
    "librdkafka": "librdkafka",
    "kafka-python": "kafka-python",
    "kafka-producer": "kafka-producer-perf-test",
    "kafka-consumer": "kafka-consumer-perf-test",
    "group": "Groups",
    "transactions": "Transactions",
    "read-committed": "Transactions",
    "start": "The process",
    "memory": "The process",
    "first": "The process",
}
"""The headings, by the first word of a workload's name."""


def explanations(path: Path = EXPLANATIONS) -> dict[str, str]:
    """Explanations of rows in which we are behind, by the row's key."""
    return {str(key): str(text) for key, text in (yaml.safe_load(path.read_text()) or {}).items()}


def explanation(standing: Standing, known: Mapping[str, str]) -> str | None:
    """The explanation of a row: that of its table, else that of all tables; None if there is none."""
    names = (f"{standing.table.key}/{standing.key}", standing.key)
    return next((text for row, text in known.items() if any(fnmatchcase(name, row) for name in names)), None)


def number(value: float) -> str:
    """A number with three digits, or with all digits of its whole part."""
    if value >= 1000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def spread(of: Spread) -> str:
    return f"{number(of.median)} ({number(of.least)}–{number(of.most)})"  # noqa: RUF001 - a range


def ratio(of: Spread) -> str:
    return f"{of.median:.2f} ({of.least:.2f})"


def verdict(standing: Standing) -> str:
    """The target of a row, and whether it is reached."""
    if standing.target is None:
        return ""
    return f"≥ {standing.target:.3g}: {'reached' if standing.is_reached else 'not reached'}"


def group(standing: Standing) -> str:
    """The heading of a row on the page."""
    return group_of(standing.workload.name)


def group_of(workload: str) -> str:
    """The heading of a workload on the page."""
    return next(words for beginning, words in GROUPS.items() if workload.startswith(beginning))


def terminal_table(standings: Sequence[Standing], titles: tuple[str, str]) -> str:
    """A line for each row."""
    lines = []
    table = None
    for one in standings:
        if one.table is not table:
            table = one.table
            lines += ["", table.title, _columns("workload", "figure", *titles, "ratio (lowest)", "to reach")]
        mark = f" ({one.disturbed} disturbed)" if one.disturbed else ""
        lines.append(
            _columns(
                one.workload.name, one.row.words, spread(one.ours), spread(one.theirs), ratio(one.ratio),
                verdict(one) + mark,
            )
        )  # fmt: skip
    return "\n".join(lines)


def _columns(name: str, figure: str, ours: str, theirs: str, ratio_words: str, rest: str) -> str:
    return f"{name:<39}{figure:<36}{ours:<28}{theirs:<28}{ratio_words:<16}{rest}".rstrip()


def markdown_tables(standings: Sequence[Standing], titles: tuple[str, str]) -> str:
    """A picture of all rows; then a table for each congestion control and set of settings."""
    lines = ["", "![Every workload: how many times better](pictures/performance.png)"]
    table: Table | None = None
    last_group = ""
    for one in standings:
        if one.table is not table:
            table, last_group = one.table, ""
            lines += ["", f"### {table.title}", ""]
            if table.settings:
                lines += ["Both with " + ", ".join(f"`{k}={v}`" for k, v in table.settings.items()) + ".", ""]
            lines += [f"| workload | figure | {titles[0]} | {titles[1]} | ratio (lowest pair) | to reach |"]
            lines += ["|---|---|---|---|---|---|"]
        if (of_group := group(one)) != last_group:
            last_group = of_group
            lines.append(f"| **{of_group}** | | | | | |")
        shown = ratio(one.ratio)
        lines.append(
            f"| {one.workload.words} | {one.row.words} | {spread(one.ours)} | {spread(one.theirs)} "
            f"| {f'**{shown}**' if one.is_behind else shown} | {verdict(one)} |"
        )
    return "\n".join(lines[1:])


def markdown_behind(standings: Sequence[Standing], known: Mapping[str, str]) -> str:
    """The rows in which we are behind, with their explanations."""
    behind = [one for one in standings if one.is_behind]
    if not behind:
        return "There is none."
    lines = ["| row | table | ratio (lowest pair) | why |", "|---|---|---|---|"]
    for one in behind:
        why = explanation(one, known) or "not explained yet"
        where = f"{group(one)}: {one.workload.words}, {one.row.words}"
        lines.append(f"| {where} | {one.table.title} | {ratio(one.ratio)} | {why} |")
    return "\n".join(lines)


def markdown_about(about: Mapping[str, Any]) -> str:
    """Machine, versions, date and command."""
    return "\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in about.items())])


def fill(path: Path, parts: Mapping[str, str]) -> list[str]:
    """Put generated parts between their markers in a page. Returns the names of the parts that the page has."""
    if not path.exists():
        return []
    text = path.read_text()
    filled = []
    for name, part in parts.items():
        begin, end = f"<!-- {name}: written by make bench-kafka -->", f"<!-- end of {name} -->"
        marked = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        if (old := marked.search(text)) is not None:
            text = f"{text[: old.start()]}{begin}\n{part}\n{end}{text[old.end() :]}"
            filled.append(name)
    path.write_text(text)
    return filled
