"""A short share of `make simulate`, and that it finds what is broken and repeats what it has found."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dev.broker_process import REPOSITORY

SEEDS = 100


@pytest.mark.timeout(900)
def test_a_broker_keeps_its_promises_in_a_hundred_worlds() -> None:
    """Other seeds every time; a seed that fails stands in the output."""
    run("-m", "tests.simulation", "--seeds", str(SEEDS))


@pytest.mark.timeout(900)
def test_a_seed_is_the_same_run_in_every_process() -> None:
    first = run("-m", "tests.simulation", "--seeds", "12", "--first", "0", "--twice")
    # Another number of processes: the seeds run in another order, in a memory that looks different.
    second = run("-m", "tests.simulation", "--seeds", "12", "--first", "0", "--processes", "1")
    assert last_word(first) == last_word(second)


SYNCS_NO_RECORDS = """
import logging
from tests.simulation import system
system.install()
logging.disable(logging.CRITICAL)
from tests.simulation.disk import SimulatedFile
from tests.simulation.run import run_seed
fsync = SimulatedFile.fsync
SimulatedFile.fsync = lambda file: None if "plain" in file.path else fsync(file)
raise SystemExit(any("was acknowledged" in run_seed("single-node", seed).failure for seed in range(100)))
"""


@pytest.mark.timeout(900)
def test_a_disk_that_syncs_no_records_is_found_out() -> None:
    run("-c", SYNCS_NO_RECORDS, exit_code=1)


def run(*arguments: str, exit_code: int = 0) -> str:
    """The output of a Python process."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == exit_code, done.stdout
    return done.stdout


def last_word(output: str) -> str:
    return output.split()[-1]
