"""Offsets without a record are counted: those that the cleaner has left, and those of a segment that is gone."""

from pathlib import Path

from storage.check.findings import Findings
from storage.check.log_check import WHOLE, Claims, check_log, split
from storage.check.log_files import LogFiles
from tests.support.cleaning import COMPACTED, CompactedLog


def written(path: Path) -> CompactedLog:
    orders = CompactedLog.make(path, COMPACTED.replace(segment_bytes=4000))
    for turn in range(4):
        orders.write((b"a", b"%d" % turn), (b"k%d" % turn, b"kept"), producer_id=7)
        orders.write((b"b", b"%d" % turn), producer_id=20, is_transactional=True)
        orders.end_transaction(20, commit=turn != 1)
        orders.roll()
    return orders


def missing(orders: CompactedLog) -> int:
    """What is counted in a log that was closed; as a whole and in parts, with its records and without."""
    files, directory = orders.home.files, orders.home.directory
    claims = Claims(was_clean=True, recovery_point=orders.log.log_end_offset, producer_id_expiration_ms=1 << 60)
    log = LogFiles.found_in(files, directory)
    counted = set()
    for parts in ([WHOLE], split(log, claims, 1)):
        for with_records in (True, False):
            findings = Findings(lambda finding: None, lambda size: None)
            counted.add(
                sum(
                    check_log(files, directory, claims, findings, part=part, with_records=with_records).missing
                    for part in parts
                )
            )
    assert len(split(log, claims, 1)) > 1
    (only,) = counted
    return only


def test_a_log_that_was_not_cleaned_lacks_none(tmp_path: Path) -> None:
    orders = written(tmp_path)
    orders.log.close(orders.home.now_ms)
    assert missing(orders) == 0


def test_what_the_cleaner_has_removed_is_counted(tmp_path: Path) -> None:
    orders = written(tmp_path)
    end_offset = orders.log.log_end_offset
    orders.clean()
    kept = sum(header.record_count for header, _ in orders.log.batches())
    assert 0 < kept < end_offset
    orders.write((b"later", b"1"))
    orders.log.close(orders.home.now_ms)
    assert missing(orders) == end_offset - kept


def test_the_offsets_of_a_segment_that_is_gone_are_counted(tmp_path: Path) -> None:
    orders = written(tmp_path)
    bases = orders.log.segments.bases
    orders.log.close(orders.home.now_ms)
    for path in Path(orders.home.directory).glob(f"{bases[1]:020d}.*"):
        path.unlink()
    assert missing(orders) == bases[2] - bases[1]
