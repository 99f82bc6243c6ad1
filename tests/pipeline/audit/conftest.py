"""`ottla pipeline audit`, and directories to try it on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.pipeline_commands import Reported, Run, commands_on, with_report
from tests.support.written_directories import killed, whole, written  # noqa: F401 - fixtures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Audited = Reported


@pytest.fixture
def run_audit(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command."""
    return commands_on(spark, monkeypatch, capsys, "audit", "pipeline.audit.command")


@pytest.fixture
def audited(run_audit: Run, tmp_path: Path) -> Audited:
    """The command with a JSON report: its exit code, and the report."""

    return with_report(run_audit, tmp_path / "audit.json")
