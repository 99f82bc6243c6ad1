"""A short share of `make simulate`, and that it finds what is broken and repeats what it has found."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dev.repository import REPOSITORY

SEEDS = {"single-node": 80, "replicated": 30}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", SEEDS)
def test_brokers_keep_their_promises_in_some_worlds(scenario: str) -> None:
    """Other seeds every time; a seed that fails stands in the output."""
    run("-m", "tests.simulation", "--scenario", scenario, "--seeds", str(SEEDS[scenario]))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", SEEDS)
def test_a_seed_is_the_same_run_in_every_process(scenario: str) -> None:
    seeds = ("-m", "tests.simulation", "--scenario", scenario, "--seeds", "8", "--first", "0")
    first = run(*seeds, "--twice")
    # In one process the memory looks different, where the second seed begins.
    second = run(*seeds, "--processes", "1")
    assert last_word(first) == last_word(second)


BROKEN = {
    "records that are not synced": (
        "single-node",
        0,
        """
from tests.simulation.disk import SimulatedFile
fsync = SimulatedFile.fsync
SimulatedFile.fsync = lambda file: None if "plain" in file.path else fsync(file)
""",
    ),
    "acknowledgements that wait for no follower": (
        "replicated",
        0,
        """
from broker.replication.in_sync_replicas import InSyncReplicas
InSyncReplicas.high_watermark = lambda isr, *, leaders_end_offset, **_: leaders_end_offset
""",
    ),
    "followers that are counted before they have flushed": (
        "replicated",
        # Before it two machines never lose their power in the right moment.
        298,
        """
from broker.replication.replica_fetch import ReplicaFetch
ReplicaFetch.is_flush_due = property(lambda fetch: False)
""",
    ),
    "followers that take damaged batches": (
        "replicated",
        0,
        """
from broker.replication import replica_fetch
replica_fetch._CHECKED = replica_fetch._CHECKED._replace(checks_crc=False)
""",
    ),
    "a cleaner that removes the last value of a key": (
        "replicated",
        0,
        """
from storage.cleaning.offset_map import OffsetMap
get = OffsetMap.get
OffsetMap.get = lambda offsets, key: get(offsets, key) + 1
""",
    ),
}

FOUND = 3
"""The exit code of a process that has found what is broken; that of an exception is 1."""

FIRST_FAILURE = """
import logging
from tests.simulation import system
system.install()
logging.disable(logging.CRITICAL)
{breaking}
from tests.simulation.run import run_seed
is_found = any("Broken" in run_seed("{scenario}", seed).failure for seed in range({first}, {first} + 200))
raise SystemExit({FOUND} if is_found else 0)
"""


@pytest.mark.timeout(900)
@pytest.mark.sources_only
@pytest.mark.parametrize("what", BROKEN)
def test_it_finds(what: str) -> None:
    scenario, first, breaking = BROKEN[what]
    run("-c", FIRST_FAILURE.format(scenario=scenario, first=first, breaking=breaking, FOUND=FOUND), exit_code=FOUND)


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
