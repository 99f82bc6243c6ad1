"""The shape of the tree: what stands in `broker/`, and that no file reaches itself over its imports."""

import pytest

from dev.imports import circles, imports_of
from dev.repository import REPOSITORY

pytestmark = pytest.mark.sources_only

PACKAGES = ("broker", "protocol", "storage", "config", "pipeline", "dev", "bench", "ottla", "boards", "compiled")
ENTRIES = (
    *(
        "__init__.py",
        "__main__.py",
        "control",
        "controller",
        "coordinators",
        "dispatch",
        "fetch",
        "handlers",
        "logs",
        "membership",
    ),
    *("metadata", "metrics", "network", "peers", "raft", "replication", "request", "runtime", "security", "server"),
    *("share", "tools"),
)


def test_the_broker_has_these_packages_and_no_loose_files() -> None:
    entries = sorted(path.name for path in (REPOSITORY / "broker").iterdir() if path.name != "__pycache__")

    assert entries == sorted(ENTRIES)


def test_no_file_imports_itself_over_others_type_hints_included() -> None:
    assert circles(imports_of(PACKAGES)) == []


def test_a_circle_is_found_and_each_is_told_once() -> None:
    imports = {
        "a": frozenset({"b"}),
        "b": frozenset({"c", "d"}),
        "c": frozenset({"a"}),
        "d": frozenset({"e"}),
        "e": frozenset({"d"}),
        "f": frozenset({"a"}),
    }

    assert circles(imports) == [["d", "e"], ["a", "b", "c"]]
