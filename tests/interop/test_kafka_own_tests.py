"""Apache Kafka's own tests: the table of those that `make kafka-tests` runs."""

from __future__ import annotations

from collections import Counter

import pytest

from dev.maven import NoJars
from tests.kafka_own import jars, table
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
