"""What comments, docstrings and pages refer to is there: documents, files, modules, and what the benchmarks measure."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from bench.__main__ import CASES, OF_OUR_PROCESS
from bench.side_by_side.catalogue import WORKLOADS
from dev.repository import REPOSITORY

pytestmark = pytest.mark.sources_only

FOLDERS: Final = (
    *(".", "bench", "boards", "broker", "compiled", "config", "dev", "docker", "docs", "examples", "ottla", "pipeline"),
    *("protocol", "pyspark_ottla", "storage", "systemd", "tests"),
)
KINDS: Final = frozenset({".md", ".py", ".toml", ".yml", ".yaml", ".service"})
NAMES: Final = frozenset({"Makefile", "Dockerfile"})

_LINK: Final = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:|#)(?P<path>[^)#\s]+)(#[^)]*)?\)")
_PAGE: Final = re.compile(r"(?<![\w/.-])docs/[\w./-]+\.md\b")
_FILE: Final = re.compile(
    r"`(?P<path>(?:bench|boards|broker|compiled|config|dev|docs|ottla|pipeline|protocol|pyspark_ottla"
    r"|storage|tests)/[\w./-]+\.(?:md|py|tsv|toml|java|js))`"
)
_MODULE: Final = re.compile(
    r"`(?P<name>(?:bench|boards|broker|compiled|config|dev|pipeline|protocol|pyspark_ottla|storage"
    r"|tests)(?:\.\w+)+)`"
)
_FACTS: Final = re.compile(r"\((?:kafka-)?facts\b|\bfacts (?:[A-Z]\.)?\d", re.IGNORECASE)
_BENCH: Final = re.compile(r"(?<!lambda )\bbench(?:-kafka)?: (?=[a-z0-9])")
_MEASURED: Final = re.compile(r"\((?P<of>bench(?:-kafka)?:\s[a-z0-9][^()]*)\)")
_SETTINGS: Final = frozenset(
    re.findall(r"^\w+\t(\S+)", (REPOSITORY / "config/kafka_settings.tsv").read_text(), re.MULTILINE)
)
_SUITES: Final = {"bench": (*CASES, *OF_OUR_PROCESS), "bench-kafka": tuple(WORKLOADS)}


def files() -> Iterator[Path]:
    """Everything that somebody may read, but for this file, which says how a wrong reference looks."""
    for folder in FOLDERS:
        found = (REPOSITORY / folder).glob("*") if folder == "." else (REPOSITORY / folder).rglob("*")
        for path in sorted(found):
            is_ours = path.suffix in KINDS or path.name in NAMES
            if is_ours and path.is_file() and path != Path(__file__) and "node_modules" not in path.parts:
                yield path


def missing_in(path: Path, text: str) -> list[str]:
    """What a text at this place refers to in vain."""
    wrong = [found[0] for found in _FACTS.finditer(text)]
    wrong += [found[0] for found in _PAGE.finditer(text) if not (REPOSITORY / found[0]).is_file()]
    wrong += [found[0] for found in _FILE.finditer(text) if not _is_file(found["path"])]
    wrong += [found[0] for found in _MODULE.finditer(text) if not _is_there(found["name"])]
    if path.suffix == ".md":
        wrong += [found[0] for found in _LINK.finditer(text) if not (path.parent / found["path"]).exists()]
    return wrong + _not_measured(text)


def _is_file(path: str) -> bool:
    return (REPOSITORY / path).is_file() or path.startswith("bench/results/")  # which is written there


def _is_there(name: str) -> bool:
    """Whether a dotted name is a setting, a module, or something that a module's source names."""
    if name in _SETTINGS or name.endswith(".py"):
        return True
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        place = REPOSITORY.joinpath(*parts[:length])
        for source in (place.with_suffix(".py"), place / "__init__.py"):
            if source.is_file():
                text = source.read_text(encoding="utf-8")
                return all(re.search(rf"\b{part}\b", text) for part in parts[length:])
    return False


def _not_measured(text: str) -> list[str]:
    """References to benchmarks that are none, or that do not say so in the one form there is."""
    text = re.sub(r"\n\s*#?\s*", " ", text)
    measured = [found["of"] for found in _MEASURED.finditer(text)]
    wrong = [f"({of})" for of in measured if not _is_measured(*of.split(": ", maxsplit=1))]
    if len(_BENCH.findall(text)) > len(measured):
        wrong.append("a benchmark that is not named as '(bench: CASE, CASE)' or '(bench-kafka: WORKLOAD)'")
    return wrong


def _is_measured(suite: str, names: str) -> bool:
    """A name stands for all that begin so, as `--only` takes it; behind it may stand which part of it is meant."""
    wanted = [f"{word.split()[0]}-" for word in names.split(", ")]
    return all(any(f"{known}-".startswith(name) for known in _SUITES[suite]) for name in wanted)


def test_what_is_referred_to_is_there() -> None:
    missing = {
        str(path.relative_to(REPOSITORY)): wrong
        for path in files()
        if (wrong := missing_in(path, path.read_text(encoding="utf-8")))
    }

    assert missing == {}


@pytest.mark.parametrize(
    "text",
    [
        "so Kafka does (facts 2.11)",
        "in time (facts of the clock)",
        "as docs/nowhere.md says",
        "see `storage/nowhere.py`",
        "see `storage.nowhere`",
        "see `storage.files.Nowhere`",
        "[there](nowhere.md)",
        "twice as fast (bench: nothing)",
        "twice as fast (bench-kafka: start, produce-one-record)",
        "twice as fast (docs/durability.md; bench: start)",
        "    # twice as fast (bench:\n    # start, nothing)",
    ],
)
def test_a_reference_to_what_is_not_there_is_found(text: str) -> None:
    assert len(missing_in(REPOSITORY / "docs/page.md", text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "the facts are known",
        "as docs/durability.md says",
        "see `storage/files.py`, `storage.files`, `storage.files.FileSystem`, and the setting `broker.id`",
        "[there](durability.md#flushing) and [elsewhere](https://example.org/)",
        "twice as fast (bench: start, recovery, disturbers deaf)",
        "    # twice as fast (bench-kafka:\n    # raw-16kb)",
    ],
)
def test_a_reference_to_what_is_there_is_none_of_these(text: str) -> None:
    assert missing_in(REPOSITORY / "docs/page.md", text) == []
