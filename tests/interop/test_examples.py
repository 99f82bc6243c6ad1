"""The example projects run as their users run them: with `ottla` on the path."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from dev.repository import PACKAGES, REPOSITORY
from tests.interop import programs
from tests.interop.conftest import installed

EXAMPLES = REPOSITORY / "examples"
AT_LEAST = 20
RUN_TIMEOUT_S = 240.0


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of a shell that finds `ottla`."""
    directory = tmp_path_factory.mktemp("bin")
    command = directory / "ottla"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -P {PACKAGES}/ottla/__main__.py "$@"\n')
    command.chmod(0o755)
    return {**os.environ, "PATH": f"{directory}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("project", "tests_of", "counted"),
    [
        ("java", programs.maven_tests, r"Tests run: (\d+), Failures: 0, Errors: 0, Skipped: 0\n"),
        ("go", programs.go_tests, r"^--- PASS"),
        ("node", programs.node_tests, r"^# pass (\d+)"),
    ],
)
def test_all_tests_of_an_example_pass(
    project: str, tests_of: Callable[[Path], list[str]], counted: str, environment: Mapping[str, str]
) -> None:
    command = installed(lambda: tests_of(EXAMPLES / project))
    done = programs.run(command, timeout_s=RUN_TIMEOUT_S, environment=environment).done()
    passed = re.findall(counted, done.output, re.MULTILINE)
    assert (int(passed[-1]) if passed[-1].isdecimal() else len(passed)) >= AT_LEAST, done


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["aiokafka", "confluent-kafka", "faststream", "kafka-python"])
def test_all_tests_of_an_example_in_python_pass(name: str) -> None:
    project = EXAMPLES / name
    others = project / "requirements.txt"
    packages = installed(lambda: programs.python_packages(others)) if others.exists() else project
    words = ["-m", "pytest", "-q", "-c", os.devnull, "-p", "ottla.testing.plugin", "-p", "no:cacheprovider"]
    path = os.pathsep.join([str(project), str(packages), str(REPOSITORY)])
    command = [sys.executable, "-P", *words, "--rootdir", str(project), str(project)]
    done = programs.run(command, timeout_s=RUN_TIMEOUT_S, environment={**os.environ, "PYTHONPATH": path}).done()
    passed = re.search(r"(\d+) passed", done.output)
    assert passed is not None, done
    assert int(passed[1]) >= AT_LEAST, done
