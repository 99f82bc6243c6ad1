"""The tables as text: on the terminal, and as the generated parts of docs/performance.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import yaml

from bench.side_by_side.standing import Spread, Standing

EXPLANATIONS: Final = Path(__file__).with_name("explanations.yaml")
GROUPS: Final = {
    "raw": "Produce requests, acks=all",
    "fetch": "Fetches, one connection",
    "latency": "Latency",
    "many": "Many partitions",
    "librdkafka": "librdkafka",
    "kafka-python": "kafka-python",
    "kafka-producer": "Kafka's own programs",
    "kafka-consumer": "Kafka's own programs",
    "group": "Groups",
    "transactions": "Transactions",
    "read-committed": "Transactions",
    "start": "The process",
    "memory": "The process",
    "first": "The process",
}
"""The headings, by the first word of a workload's name."""

BREAK: Final = "<br>"
"""Between the figures of one workload, which share a line."""


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
    """A picture of all rows; a table of all workloads under the first congestion control and set of settings; and one
    of the ratios under the others."""
    first = [one for one in standings if one.table is standings[0].table]
    others = [one for one in standings if one.table is not standings[0].table]
    lines = ["![Every workload: how many times better](pictures/performance.png)", "", f"### {first[0].table.title}"]
    lines += ["", f"| workload | figure | {titles[0]} | {titles[1]} | ratio (lowest pair) |", "|---|---|---|---|---|"]
    last_group = ""
    for rows in _by_workload(first):
        if (of_group := group(rows[0])) != last_group:
            last_group = of_group
            lines.append(f"| **{of_group}** | | | | |")
        cells = (
            [one.row.words for one in rows],
            [number(one.ours.median) for one in rows],
            [number(one.theirs.median) for one in rows],
            [_marked(one) for one in rows],
        )
        lines.append(f"| {rows[0].workload.words} | {' | '.join(map(BREAK.join, cells))} |")
    return "\n".join([*lines, *_other_tables(others)])


def _other_tables(standings: Sequence[Standing]) -> list[str]:
    """The ratios of the same workloads under other congestion controls and settings, a column for each."""
    if not standings:
        return []
    tables = list(dict.fromkeys(one.table.key for one in standings))
    titles = {one.table.key: one.table.title for one in standings}
    settings = {one.table.key: one.table.settings for one in standings if one.table.settings}
    lines = ["", "### The same with other settings of the sockets: ratios", ""]
    for key, given in settings.items():
        lines += [f"{titles[key]}: " + ", ".join(f"`{name}={value}`" for name, value in given.items()) + ".", ""]
    lines += [
        f"| workload | figure | {' | '.join(titles[key] for key in tables)} |",
        f"|---|---{'|---' * len(tables)}|",
    ]
    by_name: dict[str, list[list[Standing]]] = {}
    for rows in _by_workload(standings):
        by_name.setdefault(rows[0].workload.name, []).append(rows)
    for of_tables in by_name.values():
        found = {rows[0].table.key: BREAK.join(map(_marked, rows)) for rows in of_tables}
        rows = of_tables[0]
        figures = BREAK.join(one.row.words for one in rows)
        where = f"{group(rows[0])}: {rows[0].workload.words}"
        lines.append(f"| {where} | {figures} | {' | '.join(found.get(key, '') for key in tables)} |")
    return lines


def _by_workload(standings: Sequence[Standing]) -> Iterator[list[Standing]]:
    """The rows of each workload in each table."""
    for _, rows in groupby(standings, key=lambda one: (one.table.key, one.workload.name)):
        yield list(rows)


def _marked(standing: Standing) -> str:
    """The ratio, in bold where we are behind."""
    shown = ratio(standing.ratio)
    return f"**{shown}**" if standing.is_behind else shown


def markdown_behind(standings: Sequence[Standing], known: Mapping[str, str]) -> str:
    """The rows in which we are behind or have not reached a target, by their explanations."""
    by_reason: dict[str, list[str]] = {}
    for one in standings:
        missed = one.target is not None and not one.is_reached
        if one.is_behind or missed:
            to_reach = f" of {one.target:.3g} to reach" if missed else ""
            where = "" if one.table is standings[0].table else f" ({one.table.title})"
            said = f"{group(one)}: {one.workload.words}, {one.row.words}{where} {ratio(one.ratio)}{to_reach}"
            by_reason.setdefault(explanation(one, known) or "not explained yet", []).append(said)
    if not by_reason:
        return "There is none."
    lines = ["| rows, ratio (lowest pair) | why |", "|---|---|"]
    return "\n".join([*lines, *(f"| {BREAK.join(rows)} | {why} |" for why, rows in by_reason.items())])


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
