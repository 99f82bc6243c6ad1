"""Topics that are cleaned while the pipeline reads them: the rows of a consumer, archives and audits without alarm."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dev.broker_process import BrokerProcess
from dev.brokers import broker_for_tests
from dev.waiting import until
from pipeline.archive.archive import Archive
from pipeline.archive.verification import findings
from pipeline.audit.check import check_parts
from pipeline.audit.command import live_ends
from pipeline.audit.plan import plan, survey_all
from pipeline.broker import Broker
from pipeline.reading.ranges import Wanted
from pipeline.reading.reader import read_range
from pipeline.source import Source, split
from storage.check.findings import Finding
from storage.files import FileSystem
from tests.pipeline.restore.archiving import archive, restored
from tests.support.cleaner_processes import await_cleaned, segment_bases
from tests.support.cleaning import table
from tests.support.clients import connect
from tests.support.table_updates import TOPIC, Updates

COMPACTED = {"cleanup.policy": "compact", "segment.ms": "1000", "index.interval.bytes": "500"}
SETTINGS = {
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.delete.delay.ms": "0",
}
ROWS = Wanted(columns=("offset", "key", "value", "timestamp"), batch_bytes=4_000)
Row = tuple[bytes | None, bytes | None, int]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker_for_tests(tmp_path / "broker", settings=SETTINGS) as process:
        connect("confluent-kafka", process.bootstrap).create_topic(TOPIC, configs=COMPACTED)
        yield process


@contextmanager
def written_all_the_time(updates: Updates) -> Iterator[None]:
    """A context in which a thread goes on updating the table."""
    stopping = threading.Event()

    def write() -> None:
        while not stopping.wait(0.02):
            updates.write(500)
        updates.flush()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def rows(broker: BrokerProcess, *, parts_of: int | None = None) -> Iterator[tuple[int, Row]]:
    """Offset and content of each row up to the end of now, as `kafka_log` reads them, in tasks of so many bytes."""
    with Source.open([str(broker.data_directory)], broker.bootstrap) as source:
        (partition,) = source.partitions([TOPIC])
        whole = partition.readable(read_committed=True)
        for part in split(whole, parts_of) if parts_of else [whole]:
            for batch in read_range(part, ROWS):
                for row in batch.to_pylist():
                    stamp_ms = int(row["timestamp"].timestamp() * 1000 + 0.5)
                    yield row["offset"], (row["key"], row["value"], stamp_ms)


@pytest.mark.parametrize("parts_of", [None, 20_000])
def test_what_is_read_while_it_is_cleaned_is_what_was_written_and_has_the_last_update_of_each_key(
    broker: BrokerProcess, parts_of: int | None
) -> None:
    updates = Updates(broker.bootstrap, keys=300)
    directory = broker.data_directory / f"{TOPIC}-0"
    replaced_while_read = 0
    with written_all_the_time(updates):
        until(lambda: updates.stored >= 3_000, "some updates")
        for _ in range(8):
            found: dict[int, Row] = {}
            before, last = segment_bases(directory), -1
            for offset, row in rows(broker, parts_of=parts_of):
                assert offset > last, "offsets rise"
                found[offset], last = row, offset
            replaced_while_read += before != segment_bases(directory)
            sent = list(updates.sent)
            for offset, row in found.items():
                assert row == (sent[offset].key, sent[offset].value, sent[offset].timestamp_ms), offset
            newest = {one.key: offset for offset, one in enumerate(sent)}
            assert {offset for offset in newest.values() if offset <= last} <= found.keys()
            stored = updates.stored
            until(lambda stored=stored: updates.stored > stored + 2_000, "more updates")
    assert replaced_while_read, "no segment was replaced while it was read"


def test_an_archive_of_a_topic_that_is_cleaned_between_and_during_runs_is_whole_and_restores_the_table(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    updates = Updates(broker.bootstrap, keys=300)
    dest = tmp_path / "archive"
    with written_all_the_time(updates):
        for _ in range(4):
            stored = updates.stored
            until(lambda stored=stored: updates.stored > stored + 3_000, "more updates")
            archive(broker.data_directory, dest, TOPIC, bootstrap=broker.bootstrap)
    await_cleaned(broker.data_directory, TOPIC)
    archived = archive(broker.data_directory, dest, TOPIC, bootstrap=broker.bootstrap)

    assert list(findings(Archive.open(dest), lambda size: None)) == []
    assert archived.manifest.topics[TOPIC].partitions[0].until_offset == len(updates.sent)
    second = broker_for_tests(tmp_path / "second")
    restored(dest, second.data_directory, "--config", "cleanup.policy=compact")
    with second:
        again = connect("kafka-python", second.bootstrap).consume_all(TOPIC)
    assert table(again) == table(updates.sent)
    for one in again:
        sent = updates.sent[one.offset]
        assert (one.key, one.value, one.timestamp_ms) == (sent.key, sent.value, sent.timestamp_ms), one.offset


def audited(broker: BrokerProcess, *, is_running: bool) -> tuple[list[Finding], int]:
    """What the audit finds wrong, with the records, in parts of few bytes, and how many offsets without a record it
    counts. It notes a round that was not finished."""
    files = FileSystem()
    surveyed = survey_all(files, [str(broker.data_directory)])
    ends = (lambda places: live_ends(Broker(broker.bootstrap), places)) if is_running else None
    planned = plan(files, surveyed, [TOPIC], live_ends=ends, part_bytes=50_000)
    checked = check_parts(planned.parts, with_records=True)
    found = [*planned.findings, *(finding for part in checked for finding in part.findings)]
    return [finding for finding in found if finding.kind != "note"], sum(one.extent.missing for one in checked)


def test_an_audit_of_a_topic_that_is_cleaned_meanwhile_finds_nothing_wrong_and_counts_what_was_removed(
    broker: BrokerProcess,
) -> None:
    updates = Updates(broker.bootstrap, keys=300)
    with written_all_the_time(updates):
        for _ in range(10):
            stored = updates.stored
            until(lambda stored=stored: updates.stored > stored + 1_000, "more updates")
            found, _ = audited(broker, is_running=True)
            assert found == []
    await_cleaned(broker.data_directory, TOPIC)
    kept = connect("kafka-python", broker.bootstrap).consume_all(TOPIC)
    removed = len(updates.sent) - len(kept)
    assert removed
    assert audited(broker, is_running=True) == ([], removed)
    for end in (broker.stop, broker.kill):
        end()
        assert audited(broker, is_running=False) == ([], removed)
        broker.start()
