"""`ottla pipeline` where something that it needs is missing: one sentence, exit code 2."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dev.repository import REPOSITORY
from pipeline import requirements
from pipeline.requirements import Missing
from tests.support.pipeline_commands import JAVAS_OWN


def ottla(*words: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla", "pipeline", *words]
    return subprocess.run(
        command, cwd=REPOSITORY, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False
    )


def test_the_commands_are_listed_without_loading_any_of_them() -> None:
    done = ottla("--help")
    assert done.returncode == 0
    assert "archive" in done.stdout
    assert "restore" in done.stdout


def test_a_command_that_is_none() -> None:
    done = ottla("archiv")
    assert done.returncode == 2
    assert "invalid choice: 'archiv'" in done.stderr


def test_without_the_libraries(tmp_path: Path) -> None:
    """As `pip install ottla` leaves it: a Python that finds only what the broker needs."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nfor name in ('pyspark', 'pyarrow', 'jinja2'):\n    sys.modules[name] = None\n"
    )
    done = ottla("archive", environment={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 2
    assert done.stderr == (
        "ottla pipeline archive: it needs pyspark, pyarrow, jinja2, not installed here: pip install 'ottla[spark]'\n"
    )


def java_that_says(text: str, place: Path, code: int = 0) -> None:
    path = place / "bin/java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit {code}\n")
    path.chmod(0o755)


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match="Spark needs Java 17 or newer, and there is none: install one"):
        requirements.require_java()


@pytest.mark.parametrize(
    ("says", "sentence"),
    [
        (
            'openjdk version "11.0.2" 2019-01-15',
            r"Spark needs Java 17 or newer, and .*/bin/java is Java 11: install one",
        ),
        ('java version "1.8.0_202"', "is Java 8"),
        ("no Java here", "says 'no Java here'"),
    ],
)
def test_a_java_that_spark_cannot_run_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str, sentence: str
) -> None:
    java_that_says(says, tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(Missing, match=sentence):
        requirements.require_java()


def test_a_java_home_that_is_empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(Missing, match="bin/java does not run"):
        requirements.require_java()


def test_a_newer_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java_that_says('openjdk version "21.0.1" 2023-10-17', tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    requirements.require_java()


@pytest.mark.parametrize("version", ["3.5.4", "4.1.2", "4.3.0", "5.0.0.dev1"])
def test_a_spark_of_another_version(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(Missing, match=rf"found Spark {version}, and the pipeline works with 4.2: pip install"):
        requirements.require_spark()


def test_a_master_that_is_none() -> None:
    pytest.importorskip("pyspark")
    try:
        requirements.require_java()
    except Missing as reason:
        pytest.skip(str(reason))
    script = (
        "import argparse\n"
        "from pipeline.session import spark_session\n"
        "from pipeline.errors import PipelineError\n"
        "try:\n"
        "    with spark_session(argparse.Namespace(master='lokal', spark_conf=[]), 'test'): pass\n"
        "except PipelineError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("Spark did not start with master lokal: "), done.stderr
    assert done.stdout.count("\n") == 1


def test_spark_says_nothing_but_that_it_waits_for_a_cluster() -> None:
    pytest.importorskip("pyspark")
    try:
        requirements.require_java()
    except Missing as reason:
        pytest.skip(str(reason))
    script = (
        "import argparse\n"
        "from pipeline.session import spark_session\n"
        "with spark_session(argparse.Namespace(master='local[1]', spark_conf=[]), 'test') as spark:\n"
        "    print(spark.range(3).count())\n"
        "    logger = spark._jvm.org.apache.logging.log4j.LogManager.getLogger\n"
        "    logger('org.apache.spark.SparkContext').error('of no use')\n"
        "    logger('org.apache.spark.scheduler.TaskSchedulerImpl').warn('it waits for workers')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.stdout == "3\n"
    said = [line for line in done.stderr.splitlines() if line != JAVAS_OWN]
    assert said == ["Spark: it waits for workers"]
