"""Twenty kills; `make crash` does two hundred."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.server import REPOSITORY

KILLS = 20


@pytest.mark.timeout(300)
def test_twenty_kills_lose_nothing_and_double_nothing() -> None:
    """Every time with another seed, which stands in the output of a run that fails."""
    command = [sys.executable, "-m", "tests.crash", "--kills", str(KILLS)]
    run = subprocess.run(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert run.returncode == 0, run.stdout
