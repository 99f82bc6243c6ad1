"""The check of a log that was cleaned: each key occurs once up to the cleaner's checkpoint, horizons are times."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage.batch.record_batch import DELETE_HORIZON_BIT, BatchHeader, Codec, read_header, seal
from storage.batch.walk import StoredBatch
from storage.check.batches import batches_to_the_end
from storage.check.findings import Finding, Findings
from storage.check.key_check import KeyCheck
from storage.check.log_check import Claims, check_log
from storage.check.log_files import LogFiles
from storage.cleaning.order import CleanedGroup
from tests.support.batches import EVERY_CODEC
from tests.support.cleaning import CompactedLog
from tests.support.logs import T

FIRST = f"{0:020}.log"
ALIKE = b"the same key"


@pytest.fixture
def orders(tmp_path: Path) -> CompactedLog:
    return CompactedLog.make(tmp_path)


def damaged(found: list[Finding]) -> str:
    """What the only finding, which is damage, has found."""
    (finding,) = found
    assert finding.kind == "damage"
    return finding.found


def change_batch(path: Path, is_the_one: Callable[[BatchHeader], bool], edit: Callable[[memoryview], Any]) -> None:
    """Edit the first such batch of a segment, and give it the CRC that it should have then."""
    content = bytearray(path.read_bytes())
    position = 0
    while not is_the_one(header := read_header(content, position)):
        position += header.size
    batch = memoryview(content)[position : position + header.size]
    edit(batch)
    seal(batch)
    path.write_bytes(content)


# Keys -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", EVERY_CODEC, ids=lambda codec: codec.name)
def test_nothing_is_found_in_a_log_that_our_cleaner_has_cleaned(tmp_path: Path, codec: Codec) -> None:
    orders = CompactedLog.make(tmp_path)
    for number in range(30):
        orders.write((b"k%d" % (number % 5), b"%d" % number), (b"deleted", None), codec=codec)
        orders.write((b"k%d" % (number % 7), b"%d" % number), producer_id=7, is_transactional=True, codec=codec)
        orders.end_transaction(7, commit=number % 3 > 0)
        if not number % 10:
            orders.roll()
            orders.clean()
    orders.write((b"k1", b"not yet cleaned"), (b"k1", b"not yet cleaned"))
    assert orders.log.cleaned_to is not None
    assert len(orders.log.segments) > 2
    assert orders.verified() == []


def test_a_key_that_the_cleaner_should_have_removed_is_found_with_both_places(orders: CompactedLog) -> None:
    orders.write((b"a", b"1"), (ALIKE, b"1"))
    orders.roll()
    orders.write((ALIKE, b"2"), (b"b", b"1"))
    orders.write((ALIKE, b"3"))
    orders.roll()
    (found,) = orders.verified(cleaned_to=5)
    assert (found.kind, found.path, found.position) == ("damage", f"{orders.home.directory}/{2:020}.log", 0)
    assert found.found == ("2 records with the key of an earlier record, the first at offset 2 with that of offset 1")
    assert found.expected == "each key once below offset 5, up to where the log was cleaned"


def test_a_segment_in_its_old_state_among_cleaned_ones_is_found(orders: CompactedLog) -> None:
    for number in range(8):
        orders.write((ALIKE, b"%d" % number), (b"another key", None))
    orders.roll()
    old = {path.name: path.read_bytes() for path in Path(orders.home.directory).glob(f"{0:020}.*")}
    orders.clean()

    def bring_back(directory: Path) -> None:
        for name, content in old.items():
            (directory / name).write_bytes(content)

    found = orders.verified(bring_back)
    assert [one.path for one in found if "with the key of an earlier record" in one.found], found


def test_a_record_behind_the_checkpoint_or_in_the_active_segment_may_repeat_a_key(orders: CompactedLog) -> None:
    orders.write((ALIKE, b"1"))
    orders.write((ALIKE, b"2"))
    orders.roll()
    orders.write((ALIKE, b"3"))
    assert orders.verified(cleaned_to=1) == []
    assert damaged(orders.verified(cleaned_to=3)).startswith("1 records")


def test_records_that_were_deleted_from_the_log_s_beginning_are_not_compared(orders: CompactedLog) -> None:
    orders.write((ALIKE, b"1"), (b"a", b"1"), (ALIKE, b"2"))
    orders.roll()
    assert orders.verified(cleaned_to=3, log_start_offset=1, high_watermark=3) == []


@pytest.mark.parametrize("commit", [True, False])
def test_records_of_an_aborted_transaction_do_not_repeat_a_key(orders: CompactedLog, commit: bool) -> None:
    orders.write((ALIKE, b"1"))
    orders.write((ALIKE, b"2"), producer_id=7, is_transactional=True)
    orders.roll()
    orders.end_transaction(7, commit=commit)
    orders.write((b"a", b"1"), producer_id=7, is_transactional=True)
    orders.end_transaction(7, commit=True)
    orders.roll()
    found = orders.verified(cleaned_to=2)
    assert bool(found) == commit


def test_records_of_the_next_transaction_repeat_a_key(orders: CompactedLog) -> None:
    for commit in (False, True):
        orders.write((ALIKE, b"1"), (ALIKE, b"2"), producer_id=7, is_transactional=True)
        orders.end_transaction(7, commit=commit)
    orders.roll()
    assert damaged(orders.verified(cleaned_to=6)).startswith("1 records")


def test_markers_and_records_without_a_key_repeat_nothing(orders: CompactedLog) -> None:
    for _ in range(2):
        orders.write((None, b"1"), producer_id=7, is_transactional=True)
        orders.end_transaction(7, commit=True)
    orders.roll()
    assert orders.verified(cleaned_to=4) == []


def test_with_little_memory_some_keys_are_left_out_and_the_summary_says_so(orders: CompactedLog) -> None:
    for number in range(100):
        orders.write((b"%d" % number, b""))
    orders.write((b"3", b"again"), (b"99", b"again"))
    orders.roll()
    files, found = orders.home.files, list[Finding]()
    findings = Findings(found.append, lambda size: None)
    log = LogFiles.found_in(files, orders.home.directory)
    check = KeyCheck(files, log, findings, from_offset=0, cleaned_to=102, most_map_bytes=24 * 50)
    for base_offset in log.segment_bases:
        path = log.path(base_offset, ".log")
        file = files.open_read(path)
        for batch in batches_to_the_end(file, file.size):
            assert isinstance(batch, StoredBatch)
            check.batch(path, batch)
    check.finish()
    assert damaged(found).startswith("1 records with the key of an earlier record, the first at offset 100 ")
    assert findings.keys_left_out == findings.counts["keys_left_out"] == 56
    assert str(findings).endswith("; the keys of 56 records were not all compared")


# The checkpoint -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("clean", "kind"), [(True, "damage"), (False, "note")])
def test_a_checkpoint_behind_the_end_of_the_log_is_found(orders: CompactedLog, clean: bool, kind: str) -> None:
    orders.write((b"a", b"1"))
    orders.roll()
    (found,) = orders.verified(clean=clean, cleaned_to=2)
    assert (found.kind, found.path) == (kind, orders.home.directory)
    assert (found.found, found.expected) == ("a log that was cleaned up to 2", "at most its end, 1")


# What the cleaner writes ----------------------------------------------------------------------------------------------


def with_horizon(orders: CompactedLog) -> None:
    """A cleaned log whose second batch has a tombstone."""
    orders.write((b"a", b"1"))
    orders.write((b"b", b"1"), (b"deleted", None))
    orders.roll()
    orders.clean()
    content = orders.home.bytes_of(FIRST)
    assert read_header(content, read_header(content).size).has_delete_horizon


@pytest.mark.parametrize("with_records", [True, False])
def test_a_delete_horizon_that_is_no_time_is_found(orders: CompactedLog, with_records: bool) -> None:
    with_horizon(orders)
    orders.log.close(T)
    path = Path(orders.home.directory) / FIRST
    change_batch(path, lambda header: header.has_delete_horizon, lambda batch: struct.pack_into(">q", batch, 27, -5))
    found: list[Finding] = []
    claims = Claims(was_clean=True, recovery_point=3, producer_id_expiration_ms=1 << 60)
    findings = Findings(found.append, lambda size: None)
    check_log(orders.home.files, orders.home.directory, claims, findings, with_records=with_records)
    assert damaged(found) == "delete horizon -5"


def test_records_behind_a_delete_horizon_are_no_younger_than_their_batch_says(orders: CompactedLog) -> None:
    with_horizon(orders)

    def older(directory: Path) -> None:
        change_batch(
            directory / FIRST,
            lambda header: bool(header.attributes & DELETE_HORIZON_BIT),
            lambda batch: struct.pack_into(">q", batch, 35, T - 1),
        )

    found = orders.verified(older)
    assert f"max timestamp {T - 1}" in [one.found for one in found]


def test_what_a_killed_round_has_left_is_named(orders: CompactedLog) -> None:
    for number in range(20):
        orders.write((ALIKE, b"%d" % number))
    orders.roll()
    groups = [result for result in orders.copies() if isinstance(result, CleanedGroup)]
    orders.begin_swap(groups[0]).prepare()
    found = orders.verified(clean=False)
    assert {(one.kind, one.found) for one in found} == {("note", "a cleaning that was not finished")}
    assert {Path(one.path).suffix for one in found} == {".swap", ".cleaned"}
