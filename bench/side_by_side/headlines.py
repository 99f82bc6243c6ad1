"""The README's table: eight rows of docs/performance.md. It is made from that page's text, without a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from bench.side_by_side.catalogue import SYSTEM_TITLE, WORKLOADS
from bench.side_by_side.page import group_of


class Headline(NamedTuple):
    """A row of the table under the system's own congestion control."""

    workload: str
    figure: str
    words: str
    """The name of the row in the README."""


HEADLINES: Final = (
    Headline("raw-one-record-8x8", "requests_s", "Produce requests of one record, 8 x 8, requests/s"),
    Headline("raw-one-record-1x1", "requests_s", "Produce requests of one record, 1 x 1, requests/s"),
    Headline("raw-16kb-1x1", "mb_s", "Produce requests of 16 KB, 1 x 1, MB/s"),
    Headline("librdkafka-produce-1kb-all", "mb_s", "librdkafka produces records of 1,000 B, MB/s"),
    Headline("librdkafka-consume-1kb", "mb_s", "librdkafka consumes records of 1,000 B, MB/s"),
    Headline("latency", "p99_us", "Acknowledgement at 1,000 records/s, p99, µs"),
    Headline("start", "first_answer_s", "Start of the process until its first answer, s"),
    Headline("start", "idle_mb", "Resident memory of the idle process, MB"),
)
"""The rows that users ask about first, also two with one request in flight, in which Apache Kafka is about as fast."""


class Recorded(NamedTuple):
    """A row of the page: medians, and the ratio with its lowest pair, as text."""

    ours: str
    theirs: str
    ratio: str


def markdown(performance_page: str) -> str:
    """The table for the README, made from the text of docs/performance.md.

    Raises KeyError for a row that the page lacks.
    """
    recorded = dict(_rows(performance_page))
    lines = ["| | Ottla | Apache Kafka | ratio (lowest pair) |", "|---|---|---|---|"]
    for one in HEADLINES:
        found = recorded[_place(one)]
        lines.append(f"| {one.words} | {found.ours} | {found.theirs} | {found.ratio} |")
    return "\n".join(lines)


def _place(headline: Headline) -> tuple[str, str, str]:
    """Group, workload and figure, as the page names them."""
    workload = WORKLOADS[headline.workload]
    row = next(row for row in workload.rows if row.figure == headline.figure)
    return group_of(workload.name), workload.words, row.words


def _rows(performance_page: str) -> Iterator[tuple[tuple[str, str, str], Recorded]]:
    """The rows of the table under the system's own congestion control, each with its group, workload and figure."""
    _, _, table = performance_page.partition(f"### {SYSTEM_TITLE}")
    group = ""
    for line in table.partition("\n### ")[0].splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) != 5:
            continue
        workload, *of_figures = cells
        if heading := re.fullmatch(r"\*\*(.+)\*\*", workload):
            group = heading[1]
        else:
            for figure, ours, theirs, ratio in zip(*(cell.split("<br>") for cell in of_figures), strict=True):
                yield (group, workload, figure), Recorded(ours, theirs, ratio)
