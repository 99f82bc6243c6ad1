"""Runs `ottla pipeline` in the process of the tests, on the Spark that the tests share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pipeline.__main__ import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Answer(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


JAVAS_OWN = "WARNING: Using incubator modules: jdk.incubator.vector"
"""A line that a JVM prints to stderr about a module that Spark uses, before Spark itself runs."""

Run = Callable[..., Answer]
Reported = Callable[..., tuple[int, dict[str, Any]]]


def commands_on(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, module: str
) -> Run:
    """Gives a function that runs `ottla pipeline NAME arguments`; `module` is the module from which the command gets
    its Spark session."""

    @contextmanager
    def session(*_: Any) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(import_module(module), "spark_session", session)

    def run(*arguments: object) -> Answer:
        code = main([name, *map(str, arguments)])
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return run


def with_report(run: Run, report: Path) -> Reported:
    """Gives a function that runs a command with a JSON report. It returns the exit code and the report."""

    def reported(*arguments: object) -> tuple[int, dict[str, Any]]:
        answer = run("--report", report, *arguments)
        return answer.code, json.loads(report.read_text())

    return reported
