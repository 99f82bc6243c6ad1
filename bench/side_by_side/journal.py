"""The journal of samples, a file of JSON lines, from which an interrupted run continues."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.side_by_side.workload import Figures

Identity = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A sample of one workload on one broker. ``others_cores``: how many processors other processes used meanwhile."""

    table: str
    workload: str
    round: int
    contender: str
    figures: Figures
    others_cores: float
    attempts: int
    seconds: float

    @property
    def key(self) -> tuple[str, str, int, str]:
        return self.table, self.workload, self.round, self.contender


class Journal:
    """The samples of one run. The first line of the file describes the run; a file of a different run is replaced."""

    def __init__(self, path: Path, identity: Identity) -> None:
        self.path = path
        self.samples: dict[tuple[str, str, int, str], Sample] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = _whole_lines(path)
        if lines and lines[0] == dict(identity):
            for line in lines[1:]:
                sample = Sample(**line)
                self.samples[sample.key] = sample
        else:
            lines = [dict(identity)]
        # Written anew: of a line that an interruption cut in half nothing is left.
        half = path.with_suffix(".part")
        half.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        half.replace(path)

    def add(self, sample: Sample) -> None:
        """Append a sample to the file."""
        self.samples[sample.key] = sample
        with self.path.open("a") as file:
            file.write(f"{json.dumps(asdict(sample))}\n")
            file.flush()
            os.fsync(file.fileno())

    def has(self, table: str, workload: str, round_number: int, contender: str) -> bool:
        return (table, workload, round_number, contender) in self.samples


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found
