"""What `make pipeline-setup` says of what it cannot bring."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dev import pipeline_setup, spark_connector, spark_delta
from dev.repository import REPOSITORY


def test_without_java_and_the_connector(tmp_path: Path) -> None:
    """Nor anything else on the path that could bring them."""
    nowhere = str(tmp_path)
    environment = {
        **os.environ,
        **{"PATH": nowhere, "JAVA_HOME": "", "OTTLA_TEST_SPARK_JARS": nowhere, "OTTLA_TEST_DELTA_JARS": nowhere},
    }

    done = subprocess.run(
        [sys.executable, "-m", "dev.pipeline_setup"], cwd=REPOSITORY, stdin=subprocess.DEVNULL,
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (1, "")
    java, connector, delta = done.stderr.splitlines()
    assert java.startswith("Not here: Spark needs Java 17 or newer, and there is none: install one (on Debian and Ubu")
    assert connector == (
        "Spark's Kafka connector (kafka_log needs none of it) is not here, and its tests will be skipped: there is no "
        f"{tmp_path}/commons-pool2-2.13.1.jar."
    )
    assert delta == (
        "Delta Lake for Spark (the archive needs none of it) is not here, and its tests will be skipped: there is no "
        f"{tmp_path}/delta-spark_4.2_2.13-4.4.0.jar."
    )


def test_without_maven_the_rest_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for jars, variable in ((spark_connector, "OTTLA_TEST_SPARK_JARS"), (spark_delta, "OTTLA_TEST_DELTA_JARS")):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.setattr(jars, "DIRECTORY", tmp_path / "jars")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(pipeline_setup, "require_java", lambda: None)
    monkeypatch.setattr(pipeline_setup, "require_spark", lambda: None)

    assert pipeline_setup.main() == 0

    assert capsys.readouterr().err.splitlines() == [
        "Spark and Java are here.",
        "Spark's Kafka connector (kafka_log needs none of it) is not here, and its tests will be skipped: there is no "
        "'mvn' on the path: install Maven, or name a directory with the jars by OTTLA_TEST_SPARK_JARS.",
        "Delta Lake for Spark (the archive needs none of it) is not here, and its tests will be skipped: there is no "
        "'mvn' on the path: install Maven, or name a directory with the jars by OTTLA_TEST_DELTA_JARS.",
    ]
