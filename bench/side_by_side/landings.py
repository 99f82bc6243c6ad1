"""The table of landings, `bench/landings.tsv`: what start, memory and the hot path cost, relative to the last release.

A line for each commit that touches the start or the hot path: its hash and the ratios of a comparison with the release
in turns, above 1 where the commit is better. `make bench-landing` measures and adds a line. `python -m
bench.side_by_side.landings` prints the table, and names what has touched the start or the hot path since its last line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from bench.checkout import git
from bench.processes import REPOSITORY
from bench.side_by_side.standing import Standing
from compiled.hot_path import HOT_PATH

RELEASE: Final = "d7c2271c"
"""The commit that stands for the last release until there is one."""

TABLE: Final = REPOSITORY / "bench" / "landings.tsv"

COLUMNS: Final = (
    # column, workload, figure
    ("start", "start", "first_answer_s"),
    ("start CPU", "start", "start_cpu_s"),
    ("idle memory", "start", "idle_mb"),
    ("loaded memory", "memory", "loaded_mb"),
    ("produce CPU", "raw-one-record-8x8", "cpu_us"),
    ("fetch CPU", "fetch-64kb", "cpu_s_gb"),
    ("commit CPU", "group-commits-8x8", "cpu_us"),
)

WORKLOADS: Final = tuple(dict.fromkeys(workload for _, workload, _ in COLUMNS))
"""Each is measured before `memory`, which reads what their load has left."""

STARTS: Final = ("broker/server", "broker/__main__.py", "broker/raft", "broker/metadata")
"""What every start goes through, beside the hot path."""


class Landing(NamedTuple):
    """A line of the table."""

    commit: str
    release: str
    ratios: tuple[float, ...]
    """In the order of `COLUMNS`."""


def row_of(found: Iterable[Standing], commit: str, release: str) -> Landing:
    """The line of a comparison of ``commit`` with ``release``. Raises KeyError where a figure was not measured."""
    medians = {(one.workload.name, one.row.figure): one.ratio.median for one in found}
    return Landing(commit, release, tuple(medians[workload, figure] for _, workload, figure in COLUMNS))


def read() -> list[Landing]:
    """The lines of the table, the oldest first."""
    _, *lines = TABLE.read_text().splitlines()
    fields = (line.split("\t") for line in lines)
    return [Landing(commit, release, tuple(map(float, ratios))) for commit, release, *ratios in fields]


def add(landing: Landing) -> None:
    """Add a line to the table."""
    with TABLE.open("a") as file:
        file.write("\t".join([landing.commit, landing.release, *(f"{ratio:.2f}" for ratio in landing.ratios)]) + "\n")


def since(commit: str) -> Sequence[str]:
    """The commits behind ``commit`` that have touched the start or the hot path, each with its subject."""
    listed = git("log", "--format=%h %s", f"{commit.partition('+')[0]}..HEAD", "--", *HOT_PATH, *STARTS)
    return (listed or "").splitlines()


def main() -> int:
    """Print the table and what has no line yet. Returns the exit code, 0."""
    landings = read()
    names = [column for column, _, _ in COLUMNS]
    print(f"Relative to the last release, above 1 where the commit is better:\n{'commit':<24}{'  '.join(names)}")
    for landing in landings:
        ratios = (f"{ratio:>{len(name)}.2f}" for name, ratio in zip(names, landing.ratios, strict=True))
        print(f"{landing.commit:<24}{'  '.join(ratios)}")
    later = since(landings[-1].commit) if landings else []
    print(f"{len(later)} commits have touched the start or the hot path since then; `make bench-landing` adds a line")
    return 0


if __name__ == "__main__":
    sys.exit(main())
