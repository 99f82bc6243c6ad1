"""`make test-compiled`: the broker under test is compiled, as users run it."""

import subprocess
import sys

import pytest

from compiled.hot_path import HOT_PATH
from dev.repository import PACKAGES, REPOSITORY


@pytest.mark.skipif(
    PACKAGES == REPOSITORY, reason="the broker under test is not compiled; `make test-compiled` has that one"
)
def test_every_module_of_the_hot_path_is_compiled() -> None:
    names = [path.removesuffix(".py").replace("/", ".") for path in HOT_PATH]
    ask = f"from importlib import import_module; print(*(import_module(name).__file__ for name in {names}))"

    files = subprocess.run([sys.executable, "-c", ask], cwd=PACKAGES, capture_output=True, text=True, check=True).stdout

    assert [file for file in files.split() if not (file.startswith(str(PACKAGES)) and file.endswith(".so"))] == []
