"""The costliest functions are those that were at work themselves most often."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from bench import profiles
from bench.processes import REPOSITORY, OwnBroker


def test_what_a_function_calls_does_not_count_for_it() -> None:
    stacks = ["main (a.py);append (b.py) 30", "main (a.py);append (b.py);write (c.py) 60", "main (a.py) 10"]

    assert profiles.costliest(stacks, most=2) == [("write (c.py)", 0.6), ("append (b.py)", 0.3)]


def test_a_function_is_counted_whoever_called_it() -> None:
    assert profiles.costliest(["a;c 1", "b;c 2", "a 1"], most=1) == [("c", 0.75)]


def test_nothing_found_is_no_division_by_nothing() -> None:
    assert profiles.costliest([]) == []


def test_the_last_words_name_functions_and_shares() -> None:
    assert profiles.lines({"fetch": [("send (x.py)", 0.25), ("read (y.py)", 0.125)]}) == (
        "costliest functions of the fetch path: send (x.py) 25%, read (y.py) 12%"
    )


def test_a_broker_with_the_sampler_inside_writes_its_stacks_when_it_stops(tmp_path: Path) -> None:
    stacks = tmp_path / "stacks"
    module = ("bench.sampled_broker", str(stacks))
    broker = OwnBroker(tmp_path / "broker", module=module, packages=REPOSITORY)
    for _ in range(5):
        os.kill(broker.pid, signal.SIGPROF)  # as the system does after some CPU time; a new broker has not had much
        broker.latency_line("PLAINTEXT")

    broker.close()

    lines = stacks.read_text().splitlines()
    assert lines
    assert all(line.startswith("<module> (bench/sampled_broker.py);") or "<frozen" in line for line in lines)
