"""Setup of all tests: how several workers share them, and which tests the compiled broker cannot run
(`make test-compiled`): putting something else in place of its parts."""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import hypothesis
import pytest

from dev.repository import PACKAGES, REPOSITORY

# An example takes as long as a busy machine needs: a deadline of its own would fail tests by chance.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

TOGETHER = ("tests/unit/broker/logs/test_retention_hold.py", "tests/unit/broker/metrics/")
"""These tests are one worker's: the last of them asks what the others have looked at."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each file is one worker's, in the order in which they stand: its tests share what a fixture has made."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return TOGETHER[-1] if nodeid.startswith(TOGETHER) else super()._split_scope(nodeid)

    config.option.loadscopereorder = False
    return ByFile(config, log)


REACH_NOTHING_COMPILED = (
    *("unit/bench/test_picture_panels.py", "unit/bench/test_report.py"),
    *("unit/boards/test_alerts.py", "unit/boards/test_boards.py", "unit/config", "unit/packaging"),
    *("unit/house/test_changed.py", "unit/house/test_layers.py"),
)
"""Tests that `make test-compiled` would repeat in vain; `tests/unit/house/test_left_out.py` holds the list to it."""

RUN_THE_SOURCES = ("simulation",)
"""Tests whose processes run the sources in any case, so that `make test-compiled` would repeat them in vain."""

KILLED_ELSEWHERE = "crash"
"""`make crash` kills the compiled broker, many times more often."""

LEFT_OUT = () if PACKAGES == REPOSITORY else (*REACH_NOTHING_COMPILED, *RUN_THE_SOURCES, KILLED_ELSEWHERE)

collect_ignore = [*LEFT_OUT]


def pytest_report_header() -> list[str]:
    told = f"left out, since nothing compiled would run, or `make crash` runs it: {', '.join(LEFT_OUT)}"
    return [told] if LEFT_OUT else []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if PACKAGES == REPOSITORY:
        return
    for item in items:
        if item.get_closest_marker("sources_only") is not None:
            item.add_marker(pytest.mark.skip(reason="needs the sources"))


@pytest.fixture(autouse=PACKAGES != REPOSITORY, scope="session")
def _only_sources_are_patched() -> Iterator[None]:
    """Compiled code calls its own directly, so such a patch would be taken and not felt."""
    set_attribute = pytest.MonkeyPatch.setattr

    def set_if_felt(patch: pytest.MonkeyPatch, target: Any, *words: Any, **named: Any) -> None:
        if _is_compiled(target):
            pytest.skip(f"replaces a part of {target}, which is compiled")
        set_attribute(patch, target, *words, **named)

    with pytest.MonkeyPatch.context() as whole_run:
        whole_run.setattr(pytest.MonkeyPatch, "setattr", set_if_felt)
        yield


def _is_compiled(target: object) -> bool:
    if isinstance(target, str):
        target = sys.modules.get(target.rpartition(".")[0])
    if not isinstance(target, ModuleType):
        target = sys.modules[(target if isinstance(target, type) else type(target)).__module__]
    return (getattr(target, "__file__", None) or "").endswith(".so") and str(PACKAGES) in str(target.__file__)
