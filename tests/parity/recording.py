"""Kafka's answers as a text file for each script: normalised values, one step a paragraph, equal versions together.

# PRODUCE: a batch with a wrong CRC
v3-v4 {"responses": [...]}
v5-v13 {"responses": [...]}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.parity.exchange import Answered

DIRECTORY = Path(__file__).parent / "recorded"
WIDTH = 118

_HEADING = re.compile(r"# (?P<api>[A-Z0-9_]+|API -?\d+): (?P<step>.*)")
_OUTCOME = re.compile(r"(?P<versions>raw|v-?\d+(-v\d+)?) (?P<json>.*)")


def write(script: str, answered: Iterable[Answered]) -> Path:
    """Write what Kafka answered to a script; returns the file."""
    path = DIRECTORY / f"{script}.txt"
    path.write_text("\n".join(_paragraphs(answered)), encoding="utf-8")
    return path


def read(script: str) -> list[Answered]:
    """What Kafka answered to a script when it was recorded. Raises `FileNotFoundError` where that never was."""
    found: list[Answered] = []
    api = step = ""
    versions, text = "", ""
    for line in [*(DIRECTORY / f"{script}.txt").read_text(encoding="utf-8").splitlines(), "# END: of the file"]:
        heading, outcome = _HEADING.fullmatch(line), _OUTCOME.fullmatch(line)
        if (heading or outcome) and versions:
            value = json.loads(text)
            found += (Answered(api=api, step=step, version=version, outcome=value) for version in _each(versions))
            versions = ""
        if heading:
            api, step = heading["api"], heading["step"]
        elif outcome:
            versions, text = outcome["versions"], outcome["json"]
        else:
            text += line
    return found


def _each(versions: str) -> Iterator[str]:
    first, dash, last = versions.partition("-v")
    if not dash:
        yield first
        return
    for version in range(int(first.removeprefix("v")), int(last) + 1):
        yield f"v{version}"


def _number(version: str) -> int:
    return int(version.removeprefix("v")) if version.startswith("v") else 0


def _paragraphs(answered: Iterable[Answered]) -> Iterator[str]:
    by_step: dict[tuple[str, str], list[Answered]] = {}
    for answer in answered:
        by_step.setdefault((answer.api, answer.step), []).append(answer)
    for (api, step), answers in by_step.items():
        yield f"# {api}: {step}"
        placed = [(index, answer, render(answer.outcome)) for index, answer in enumerate(answers)]
        for (text, _), run in groupby(placed, lambda item: (item[2], _number(item[1].version) - item[0])):
            versions = [answer.version for _, answer, _ in run]
            label = versions[0] if len(versions) == 1 else f"{versions[0]}-{versions[-1]}"
            yield f"{label} {text}"
        yield ""


def render(value: Any, indent: int = 0) -> str:
    """JSON that is on one line where it fits, else an element a line."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + indent <= WIDTH or not isinstance(value, dict | list) or not value:
        return flat
    margin = " " * (indent + 1)
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {render(item, indent + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(margin + item for item in items) + "\n" + " " * indent + "}"
    return "[\n" + ",\n".join(margin + render(item, indent + 1) for item in value) + "\n" + " " * indent + "]"
