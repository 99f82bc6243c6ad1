"""Apache Kafka's own tests: the table of those that `make kafka-tests` runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from dev.maven import NoJars
from tests.kafka_own import jars, results, table
from tests.kafka_own.results import Outcome, Result
from tests.kafka_own.table import Use


def test_every_class_of_the_published_tests_stands_in_the_table_once() -> None:
    try:
        libraries = jars.libraries()
    except NoJars as reason:
        pytest.skip(str(reason))
    listed = Counter(entry.name for entry in table.read() if entry.is_class)
    assert listed == Counter(jars.test_classes(libraries))


def test_what_is_left_out_has_a_reason_and_what_is_run_has_none() -> None:
    for entry in table.read():
        assert (entry.use is Use.LEFT_OUT) == bool(entry.reason), f"{entry.name}: {entry.use.value}, '{entry.reason}'"


def test_tests_are_left_out_of_classes_that_are_run() -> None:
    run = {entry.name for entry in table.read() if entry.is_class and entry.use is not Use.LEFT_OUT}
    for entry in table.read():
        assert entry.is_class or entry.name.partition("#")[0] in run, f"{entry.name}: its class is not run"


def test_outcomes_are_those_of_classes_that_are_run() -> None:
    run = {entry.name for entry in table.read() if entry.is_class and entry.use is not Use.LEFT_OUT}
    assert results.outcomes().keys() <= run


def test_the_outcome_of_a_class_takes_the_place_of_its_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.tsv"
    failed = Result("org.B", "testTwo", results.FAILED, 10, "why")
    passed = Result("org.B", "testOne", f"{results.PASSED} under Kafka's controllers", 10, "")
    skipped = Result("org.B", "testThree", results.LEFT_OUT, 0, "reaches into the JVM")
    results.keep_outcome([passed, failed, skipped], "org.B", "1111", path)
    results.keep_outcome([passed], "org.A", "1111", path)
    assert results.outcomes(path) == {"org.A": Outcome("org.A", 1, 0, "1111")}, "a class with a failure has none"
    results.keep_outcome([passed, passed, skipped], "org.B", "2222", path)
    assert path.read_text() == "org.A\t1\t0\t1111\norg.B\t2\t1\t2222\n"
    results.keep_outcome([failed], "org.A", "2222", path)
    assert path.read_text() == "org.B\t2\t1\t2222\n"
