"""Ottla and Apache Kafka clean the same logs to the same records, and each goes on with what the other has left."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from storage.file_names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from tests.interop import programs
from tests.interop.compaction import (
    EVERYTHING_IS_DUE,
    NOTHING_IS_DUE,
    SWAPPED,
    TABLES,
    Writer,
    clean_and_die,
    leave_swap_of_kafka,
    logs,
    segments,
    states_of_kafka,
    table,
    tables,
    was_killed,
    write,
    write_more,
    write_swapped,
)
from tests.interop.directories import BROKER, SharedDirectory, Visitor, complaints_of_dump_log
from tests.support.cleaner_processes import await_cleaned

ENDINGS = (CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX)

pytestmark = pytest.mark.timeout(400)  # several starts of a Java broker, on whatever machine

SWAP_STATES_OF_OTTLA = 60
"""More than the changes of names in two swaps."""


def test_kafka_and_ottla_clean_to_the_same_records_and_go_on_with_what_the_other_has_cleaned(
    shared: SharedDirectory,
) -> None:
    shared.ottla.settings |= NOTHING_IS_DUE
    shared.ottla.start()
    with Visitor(shared.ottla.bootstrap) as ottla:
        write(Writer(shared.ottla, ottla))
    before = tables(shared.ottla)
    shared.ottla.stop()
    written = shutil.copytree(shared.data, shared.data.with_name("written"))
    done = [topic for topic in TABLES if topic != "waiting"]

    shared.kafka.settings |= EVERYTHING_IS_DUE
    shared.kafka.start()
    await_cleaned(shared.data, *done)
    assert tables(shared.kafka) == before
    shared.kafka.stop()
    by_kafka = shared.data.rename(shared.data.with_name("by-kafka"))
    written.rename(shared.data)
    shared.ottla.settings |= EVERYTHING_IS_DUE
    shared.ottla.start()
    await_cleaned(shared.data, *done)
    assert tables(shared.ottla) == before
    shared.ottla.stop()
    assert logs(shared.data) == logs(by_kafka)
    assert complaints(shared.data) == complaints(by_kafka)

    shared.kafka.settings |= NOTHING_IS_DUE
    shared.ottla.settings |= NOTHING_IS_DUE
    shared.kafka.start()
    assert tables(shared.kafka) == before
    with Visitor(shared.kafka.bootstrap) as kafka:
        write_more(Writer(shared.kafka, kafka))
        kafka.configure(BROKER, "", EVERYTHING_IS_DUE)
    await_cleaned(shared.data, *TABLES)
    after = tables(shared.kafka)
    shared.kafka.stop()
    by_both = shared.data.rename(shared.data.with_name("by-both"))
    by_kafka.rename(shared.data)
    shared.ottla.start()
    assert tables(shared.ottla) == before
    with Visitor(shared.ottla.bootstrap) as ottla:
        write_more(Writer(shared.ottla, ottla))
        ottla.configure(BROKER, "", EVERYTHING_IS_DUE)
    await_cleaned(shared.data, *TABLES)
    assert tables(shared.ottla) == after
    shared.ottla.stop()
    assert logs(shared.data) == logs(by_both)
    assert complaints(shared.data) == complaints(by_both)


def test_kafka_finishes_or_takes_back_the_swaps_that_ottla_has_left(shared: SharedDirectory) -> None:
    shared.ottla.settings |= NOTHING_IS_DUE
    shared.ottla.start()
    with Visitor(shared.ottla.bootstrap) as ottla:
        write_swapped(Writer(shared.ottla, ottla), SWAP_STATES_OF_OTTLA)
    expected = table(shared.ottla, SWAPPED)
    shared.ottla.stop()
    died = [clean_and_die(shared.data, number, changes=number) for number in range(SWAP_STATES_OF_OTTLA)]
    assert died[0]
    assert not died[-1], "there are more changes than partitions"
    was_killed(shared.data)

    shared.kafka.settings |= NOTHING_IS_DUE
    shared.kafka.start()
    for partition in range(SWAP_STATES_OF_OTTLA):
        assert table(shared.kafka, SWAPPED, partition) == expected, partition
    shared.kafka.stop()
    look_at_files(shared.data)


def test_ottla_finishes_or_takes_back_the_swaps_that_kafka_has_left(shared: SharedDirectory) -> None:
    states = states_of_kafka()
    shared.ottla.settings |= NOTHING_IS_DUE
    shared.ottla.start()
    with Visitor(shared.ottla.bootstrap) as ottla:
        write_swapped(Writer(shared.ottla, ottla), len(states))
    expected = table(shared.ottla, SWAPPED)
    shared.ottla.stop()
    written = shutil.copytree(shared.data, shared.data.with_name("written"))
    shared.kafka.settings |= EVERYTHING_IS_DUE
    shared.kafka.start()
    await_cleaned(shared.data, SWAPPED, partitions=len(states))
    shared.kafka.stop()
    cleaned = shared.data.rename(shared.data.with_name("cleaned"))
    written.rename(shared.data)
    for number, state in enumerate(states):
        directory = f"{SWAPPED}-{number}"
        leave_swap_of_kafka(shared.data / directory, cleaned / directory, state)
    was_killed(shared.data)

    shared.ottla.start()
    for partition in range(len(states)):
        assert table(shared.ottla, SWAPPED, partition) == expected, states[partition]
    shared.ottla.stop()
    look_at_files(shared.data)


def complaints(data: Path) -> list[str]:
    """What `kafka-dump-log` says of gaps between offsets, and of time index entries for batches without records."""
    return sorted(line.replace(str(data), "") for line in complaints_of_dump_log(programs.java(), data))


def look_at_files(data: Path) -> None:
    """Every log of the topic has its old segments or the copies, and no file of a swap is left."""
    seen = set()
    for directory in data.glob(f"{SWAPPED}-*"):
        assert not [path.name for path in directory.iterdir() if path.suffix in ENDINGS], directory.name
        seen.add(tuple((base, len(batches)) for base, batches in segments(directory).items()))
    assert 2 <= len(seen) <= 3, "not cleaned, cleaned in part, cleaned"
