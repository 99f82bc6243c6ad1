"""`ottla pipeline sql`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.pipeline_commands import Run, commands_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def run_sql(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command."""
    return commands_on(spark, monkeypatch, capsys, "sql", "pipeline.sql")
