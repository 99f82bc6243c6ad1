"""Our packages in a process whose user has packages with the same names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from dev.repository import REPOSITORY

pytest.importorskip("pyspark", reason="the pipeline's libraries are not here")

THEIRS: Final = """
import sys
import config, pipeline.stage
assert (config.WHOSE, pipeline.stage.WHOSE) == ("theirs", "theirs")

from pyspark_ottla.packages import our_packages

with our_packages():
    from pipeline.kafka_log.options import read_options
    with our_packages():
        import config as ours
        assert not hasattr(ours, "WHOSE")
    options = read_options({"path": "/data", "subscribe": "orders"})

import config as still, pipeline.stage as stage
assert (still.WHOSE, stage.WHOSE) == ("theirs", "theirs")
assert "storage" not in sys.modules
with our_packages():
    import pipeline.kafka_log.options as again
    assert again.read_options is read_options, "the packages are imported once"
print(*options.subscription.topics)
"""


def test_theirs_stay_theirs(tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text("WHOSE = 'theirs'\n")
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline/__init__.py").touch()
    (tmp_path / "pipeline/stage.py").write_text("WHOSE = 'theirs'\n")
    environment = {"PYTHONPATH": f"{tmp_path}:{REPOSITORY}", "PATH": ""}
    command = [sys.executable, "-c", THEIRS]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "orders\n"), done.stderr


def test_an_older_spark_gets_a_sentence(tmp_path: Path) -> None:
    """Its own packages have no `pyspark.sql.streaming.datasource`."""
    script = (
        "import sys, pyspark.sql.datasource; sys.modules['pyspark.sql.streaming.datasource'] = None\n"
        "import pyspark_ottla\n"
        "assert pyspark_ottla.DefaultSource.name() == 'kafka_log'\n"
        "try: pyspark_ottla.DefaultSource(options={})\n"
        "except RuntimeError as error: print(error)\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("kafka_log needs Spark 4.2, and this is "), done.stderr
