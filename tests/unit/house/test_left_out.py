"""What `make test-compiled` leaves out reaches no module that is compiled, and starts no broker."""

import subprocess
import sys

import pytest

from compiled.hot_path import HOT_PATH
from dev.imports import PACKAGES, imports_of, reached
from dev.repository import REPOSITORY
from tests.conftest import REACH_NOTHING_COMPILED, RUN_THE_SOURCES

pytestmark = pytest.mark.sources_only

PATHS = [REPOSITORY / "tests" / path for path in REACH_NOTHING_COMPILED]


def loaded_by(*paths: object) -> set[str]:
    """The modules that are there once the tests at these places are collected."""
    collect = "import pytest, sys; pytest.main(sys.argv[1:]); print(); print(*sys.modules)"
    command = [sys.executable, "-c", collect, "--collect-only", "-qq", "-p", "no:cacheprovider", *map(str, paths)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def compiled_among(modules: set[str]) -> set[str]:
    return modules & {path.removesuffix(".py").replace("/", ".") for path in HOT_PATH}


def test_they_load_nothing_that_is_compiled() -> None:
    loaded = loaded_by(*PATHS)

    assert {"config.parse", "boards"} <= loaded, "they were not collected"
    assert compiled_among(loaded) == set()


def test_they_import_nothing_that_is_compiled_later_either() -> None:
    places = [path.relative_to(REPOSITORY).as_posix() for path in PATHS]

    assert reached(imports_of(PACKAGES), places) & set(HOT_PATH) == set()


def test_others_do() -> None:
    assert "storage.log" in compiled_among(loaded_by(REPOSITORY / "tests/unit/storage/test_log_read.py"))


def test_they_start_no_broker() -> None:
    sources = [source for path in PATHS for source in ([path] if path.is_file() else path.rglob("*.py"))]

    assert sources
    assert [
        path for path in sources if "BrokerProcess" in path.read_text() or '"-m", "broker"' in path.read_text()
    ] == []


def test_each_process_that_they_start_runs_the_sources() -> None:
    starting = [
        source.read_text()
        for path in RUN_THE_SOURCES
        for source in (REPOSITORY / "tests" / path).rglob("test_*.py")
        if "sys.executable" in source.read_text()
    ]

    assert starting
    assert all('"PYTHONPATH": str(REPOSITORY)' in text for text in starting)
