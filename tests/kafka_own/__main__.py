"""`make kafka-tests`: Apache Kafka's own integration tests, with our processes as their brokers.

python -m tests.kafka_own                        all classes that have no results yet; prints the totals of all
python -m tests.kafka_own --only TransactionsTest    the classes whose names end so, again (Class#test: one test)
python -m tests.kafka_own --failed               the classes with tests that have failed, again
python -m tests.kafka_own --unrecorded           the classes that outcomes.tsv has no line of: not run, or with failures
python -m tests.kafka_own --short                the choice for CI, all of it
python -m tests.kafka_own --again                forget all results, and run everything
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from tqdm import tqdm

from bench.checkout import name_of_this
from dev.broker_process import port_below_client_ports
from dev.maven import NoJars
from dev.repository import PACKAGES
from tests.kafka_own import jars, results, table
from tests.kafka_own.results import Record, Result
from tests.kafka_own.table import Entry, Use

CLASS_LIMIT_S: Final = 3600
"""Time for a class. Its tests have limits of their own, 5 minutes where Kafka sets none."""

SHORT_LIMIT_S: Final = 420
"""After so long the choice for CI begins no other class."""

SILENCE_LIMIT_S: Final = 600
"""A class is ended where no test of it has ended for so long."""


class Runner:
    """Runs a class in a virtual machine of its own, and ends all processes that it leaves."""

    def __init__(self, first_port: int | None) -> None:
        libraries = jars.libraries()
        self._class_path = f"{jars.adapter(libraries)}:{libraries}/*"
        self._first_port = first_port or port_below_client_ports()
        self._entries = table.read()

    def run(self, class_name: str, *tests: str) -> list[Result]:
        """Run a class, or some of its tests."""
        directory = jars.CACHE / "runs" / class_name
        shutil.rmtree(directory, ignore_errors=True)
        (directory / "temporary").mkdir(parents=True)
        exceptions = table.exceptions(self._entries, class_name)
        (directory / "exceptions").write_text("".join(f"{test}\t{reason}\n" for test, reason in exceptions.items()))
        written = directory / "results"
        with (directory / "output").open("wb") as output:
            process = subprocess.Popen(
                self._command(directory, written, class_name, *tests),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                ended = _wait(process, written)
            finally:
                # The brokers that it has started are in its session.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        found = results.of_class(class_name, written)
        if ended and not any(map(results.has_failed, found)):
            shutil.rmtree(directory / "temporary")
        if not ended:
            reason = f"no test ended within {SILENCE_LIMIT_S} s, or the class took more than {CLASS_LIMIT_S} s"
            found.append(Result(class_name, "class", results.FAILED, 0, f"{reason}: see {directory}"))
        elif not found:
            found.append(Result(class_name, "class", results.FAILED, 0, f"no test was run: see {directory}"))
        return found

    def _command(self, directory: Path, written: Path, class_name: str, *tests: str) -> list[str]:
        broker = "\n".join([sys.executable, "-m", "broker"])
        properties = {
            "java.io.tmpdir": directory / "temporary",
            "log4j2.configurationFile": "classpath:log4j2.properties",
            "ottla.command": broker,
            "ottla.packages": PACKAGES,
            "ottla.directory": directory,
            "ottla.first.port": self._first_port,
            "ottla.exceptions": directory / "exceptions",
        }
        return [
            *("java", "-Xmx512M", "-XX:TieredStopAtLevel=1", "-XX:+EnableDynamicAgentLoading"),
            *(f"-D{name}={value}" for name, value in properties.items()),
            *("-cp", self._class_path, "ottla.RunTests", str(written), class_name, *tests),
        ]


def _wait(process: subprocess.Popen[bytes], written: Path) -> bool:
    """Wait for the end of a class. False if it takes too long."""
    began = heard = time.monotonic()
    size = 0
    while True:
        try:
            process.wait(1)
        except subprocess.TimeoutExpired:
            now = time.monotonic()
            found = written.stat().st_size if written.exists() else 0
            heard, size = (now, found) if found != size else (heard, size)
            if now - heard > SILENCE_LIMIT_S or now - began > CLASS_LIMIT_S:
                return False
        else:
            return True


def _chosen(entries: list[Entry], record: Record, options: argparse.Namespace) -> list[tuple[str, tuple[str, ...]]]:
    """The classes to run, each with the tests that were named."""
    runnable = [entry.name for entry in entries if entry.is_class and entry.use is not Use.LEFT_OUT]
    if options.only:
        named = [name.partition("#") for name in options.only]
        return [
            (name, (test,) if test else ())
            for wanted, _, test in named
            for name in runnable
            if name == wanted or name.endswith("." + wanted)
        ]
    if options.failed:
        return [(name, ()) for name in runnable if any(map(results.has_failed, record.results.get(name, ())))]
    if options.unrecorded:
        recorded = results.outcomes()
        return [(name, ()) for name in runnable if name not in recorded]
    if options.short:
        return [(entry.name, ()) for entry in entries if entry.is_class and entry.use is Use.RUN_IN_CI]
    return [(name, ()) for name in runnable if name not in record.results]


def main() -> int:
    """Run what was asked for. Returns the exit code: 1 if a test failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka_own", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="CLASS[#TEST]", help="these classes, again")
    parser.add_argument("--failed", action="store_true", help="the classes with tests that have failed, again")
    parser.add_argument("--unrecorded", action="store_true", help="the classes that outcomes.tsv has no line of")
    parser.add_argument("--short", action="store_true", help="the choice for CI")
    parser.add_argument("--again", action="store_true", help="forget the results of earlier runs")
    parser.add_argument("--first-port", type=int, help="the first of 96 ports for the brokers")
    options = parser.parse_args()
    try:
        runner = Runner(options.first_port)
    except NoJars as reason:
        sys.stderr.write(f"Skipped: {reason}.\n")
        return 0
    kept = jars.CACHE / "results.tsv"
    if options.again:
        kept.unlink(missing_ok=True)
    record = Record(kept)
    entries = table.read()
    commit = name_of_this()
    chosen = _chosen(entries, record, options)
    shown: list[Result] = []
    progress = tqdm(chosen, unit="class", disable=None)
    began = time.monotonic()
    for class_name, tests in progress:
        if options.short and time.monotonic() - began > SHORT_LIMIT_S:
            shown.append(
                Result(class_name, "class", results.LEFT_OUT, 0, "the machine was too busy to begin it in time")
            )
            continue
        progress.set_description(class_name.rpartition(".")[2])
        found = runner.run(class_name, *tests)
        shown += found
        if not tests:
            record.replace(class_name, found)
            if not options.short:
                results.keep_outcome(found, class_name, commit)
        for result in found:
            if results.has_failed(result):
                tqdm.write(f"failed: {class_name}#{result.test}: {result.reason[:300]}", file=sys.stderr)
    if not (options.only or options.short):
        shown = [result for each in record.results.values() for result in each]
        sys.stdout.write(table.left_out_classes(entries) + "\n")
    sys.stdout.write(results.summary(shown) + "\n")
    return 1 if any(map(results.has_failed, shown)) else 0


if __name__ == "__main__":
    raise SystemExit(main())
