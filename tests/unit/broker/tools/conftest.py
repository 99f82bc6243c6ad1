"""Data directories for the tools: written by a broker that was stopped cleanly or killed."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from broker.tools import dump, verify
from tests.support.written_directories import killed, whole, written  # noqa: F401 - fixtures

Tool = Callable[..., tuple[int, list[dict[str, Any]]]]


def _run(main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]) -> Tool:
    def run(*arguments: object) -> tuple[int, list[dict[str, Any]]]:
        code = main([*map(str, arguments), "--json"])
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


@pytest.fixture
def run_dump(capsys: pytest.CaptureFixture[str]) -> Tool:
    """`ottla dump --json`: its exit code, and what it says."""
    return _run(dump.main, capsys)


@pytest.fixture
def run_verify(capsys: pytest.CaptureFixture[str]) -> Tool:
    """`ottla verify --json`: its exit code, and what it says."""
    return _run(verify.main, capsys)
