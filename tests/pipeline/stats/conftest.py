"""`ottla pipeline stats`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.pipeline_commands import Reported, Run, commands_on, with_report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Counted = Reported


@pytest.fixture
def run_stats(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command."""
    return commands_on(spark, monkeypatch, capsys, "stats", "pipeline.stats.command")


@pytest.fixture
def counted(run_stats: Run, tmp_path: Path) -> Counted:
    """The command with a JSON report: its exit code, and the report."""

    return with_report(run_stats, tmp_path / "stats.json")
