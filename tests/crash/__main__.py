"""`make crash`: the broker is killed again and again while it is used; a line for each restart, then a summary.

Afterwards workers that transform a topic in transactions are killed, as often, and the broker with them. Then a storm:
a group whose members come and go, while the broker is killed twice. Then a compacted topic is updated while the broker
and its cleaner are killed, as often. Then a node and its standby are killed while clients use both. Then, where there
is Java, the archive: the pipeline's command is killed at each of its steps, and at random moments.
"""

import argparse
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import fields
from pathlib import Path

from tests.crash.compaction import CompactionRun
from tests.crash.group_storm import GroupStorm
from tests.crash.pair import PairRun
from tests.crash.run import CrashRun, Summary
from tests.crash.transform import TransformRun

BROKER_KILLS_IN_A_STORM = 2


def main() -> int:
    """Run; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how often the process is killed")
    parser.add_argument(
        "--transform-kills", type=int, metavar="KILLS",
        help="how often the broker or a worker that transforms a topic is killed, by default as often as --kills says",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000), help="what chance begins with")
    parser.add_argument("--storm", type=float, default=30.0, metavar="SECONDS", help="how long members come and go")
    parser.add_argument("--consumers", type=int, default=20, help="how many of them there are")
    parser.add_argument(
        "--archive-kills", type=int, default=20, metavar="KILLS",
        help="at how many random moments `archive` is killed, beside all of its steps; 0 leaves it out",
    )  # fmt: skip
    parser.add_argument(
        "--compaction-kills", type=int, metavar="KILLS",
        help="how often the broker or its cleaner is killed while a compacted topic is updated; by default as --kills",
    )  # fmt: skip
    parser.add_argument(
        "--pair-kills", type=int, default=30, metavar="KILLS",
        help="how often a node, its standby, both, or a worker that transforms there is killed; 0 leaves it out",
    )  # fmt: skip
    options = parser.parse_args()
    # Whoever ends the run ends the broker with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    directory = Path(tempfile.mkdtemp(prefix="ottla-crash-"))
    print(f"seed {options.seed}, in {directory}", flush=True)
    try:
        if options.kills:
            _kill(directory / "kills", options.seed, options.kills)
        if transform_kills := options.kills if options.transform_kills is None else options.transform_kills:
            _transform(directory / "transform", options.seed, transform_kills)
        if options.storm:
            _storm(directory / "storm", options.seed, options.storm, options.consumers)
        if compaction_kills := options.kills if options.compaction_kills is None else options.compaction_kills:
            _compaction(directory / "compaction", options.seed, compaction_kills)
        if options.pair_kills:
            _pair(directory / "pair", options.seed, options.pair_kills)
        if options.archive_kills:
            _archive(directory / "archive", options.seed, options.archive_kills)
    except AssertionError as broken:
        for line in (broken, *getattr(broken, "__notes__", ())):
            sys.stderr.write(f"{line}\n")
        sys.stderr.write(f"seed {options.seed}; the broker's directory and log are left in {directory}\n")
        sys.stderr.flush()
        # The clients would wait for the broker's next life.
        os._exit(1)
    shutil.rmtree(directory)
    return 0


def _kill(directory: Path, seed: int, kills: int) -> None:
    began = time.monotonic()
    with CrashRun(directory, seed=seed, report=_print) as run:
        summary = run.go(kills)
    _tell(summary, time.monotonic() - began)


def _transform(directory: Path, seed: int, kills: int) -> None:
    began = time.monotonic()
    with TransformRun(directory, seed=seed, report=_print) as run:
        summary = run.go(kills)
    print(
        f"{kills} kills in {time.monotonic() - began:.0f} s: {_list(summary.kills)}; "
        f"{summary.records:,} records transformed, {summary.revived} workers started again"
    )


def _storm(directory: Path, seed: int, seconds: float, consumers: int) -> None:
    with GroupStorm(directory, seed=seed, consumers=consumers, report=_print) as storm:
        summary = storm.go(seconds, BROKER_KILLS_IN_A_STORM)
    told = ", ".join(f"{one.name} {getattr(summary, one.name)}" for one in fields(summary))
    print(f"storm of {seconds:.0f} s: {told}")


def _compaction(directory: Path, seed: int, kills: int) -> None:
    began = time.monotonic()
    with CompactionRun(directory, seed=seed, report=_print) as run:
        summary = run.go(kills)
    print(
        f"{summary.broker_kills} kills of the broker and {summary.cleaner_kills} of its cleaner in "
        f"{time.monotonic() - began:.0f} s: {summary.updates:,} updates of {summary.keys:,} keys, "
        f"{summary.records_left:,} records are left"
    )


def _pair(directory: Path, seed: int, kills: int) -> None:
    began = time.monotonic()
    with PairRun(directory, seed=seed, report=_print) as run:
        summary = run.go(kills)
    print(
        f"{kills} kills of a node and its standby in {time.monotonic() - began:.0f} s: {_list(summary.kills)}; "
        f"{summary.records:,} records acknowledged and transformed, {summary.revived} workers started again, "
        f"the longest pause {summary.longest_pause_s:.1f} s"
    )


def _archive(directory: Path, seed: int, kills: int) -> None:
    # Whoever has no Spark can do everything else.
    try:
        from tests.crash.archive_kills import ArchiveKills, CannotRun
    except ImportError as reason:
        print(f"archive: skipped, {reason}")
        return
    try:
        with ArchiveKills(directory, seed=seed, report=_print) as run:
            summary = run.go(kills)
    except CannotRun as reason:
        print(f"archive: skipped, {reason}")
        return
    print(f"archive: {', '.join(f'{one.name} {getattr(summary, one.name):,}' for one in fields(summary))}")


def _print(line: str) -> None:
    print(line, flush=True)


def _list(counted: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in sorted(counted.items()))


def _tell(summary: Summary, seconds: float) -> None:
    print(f"{summary.kills.total()} kills in {seconds:.0f} s: {_list(summary.kills)}")
    print(f"{summary.restarts} restarts looked at, {summary.clean_stops} clean stops")
    print(f"acknowledged records: {_list(summary.records)}; {summary.doubled:,} of 'plain' are there twice, as may be")
    print(f"records consumed: {summary.consumed:,}; changes answered: {_list(summary.changes)}")
    print(f"torn tails cut off: {summary.torn_tails} ({summary.torn_bytes:,} bytes)")
    print(f"offline checks: {summary.verifications}" + (f" ({summary.verify_missing})" * bool(summary.verify_missing)))


if __name__ == "__main__":
    raise SystemExit(main())
