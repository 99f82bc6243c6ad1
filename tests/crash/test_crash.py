"""Ten kills, and a storm of a few seconds; `make crash` does two hundred, and 30 s with more consumers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dev.repository import REPOSITORY

KILLS = 10


@pytest.mark.timeout(900)
def test_ten_kills_lose_nothing_and_double_nothing() -> None:
    none = (
        *("--transform-kills", "0", "--storm", "0", "--compaction-kills", "0"),
        *("--pair-kills", "0", "--archive-kills", "0"),
    )
    run("--kills", str(KILLS), *none)


@pytest.mark.timeout(900)
def test_a_storm_of_consumers_loses_nothing_and_takes_nothing_back() -> None:
    run("--kills", "0", "--storm", "6", "--consumers", "8", "--pair-kills", "0", "--archive-kills", "0")


@pytest.mark.timeout(900)
def test_a_table_is_exact_though_broker_and_cleaner_are_killed() -> None:
    run("--kills", "0", "--compaction-kills", "8", "--storm", "0", "--pair-kills", "0", "--archive-kills", "0")


def run(*options: str) -> None:
    """Every time with another seed, which stands in the output of a run that fails."""
    command = [sys.executable, "-m", "tests.crash", *options]
    done = subprocess.run(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
