"""A log checked as a whole, without its records, and in parts: the same is found each time."""

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage.batch.record_batch import read_header, seal
from storage.check.data_directory import survey
from storage.check.findings import Finding, Findings
from storage.check.log_check import WHOLE, check_log, split
from storage.check.log_files import LogFiles
from storage.files import FileSystem
from storage.producer_state import encode_snapshot
from storage.topic_partition import TopicPartition
from tests.support.written_directories import write_directories

ORDERS = TopicPartition("orders", 0)
EXPIRATION_MS = 86_400_000

Edit = Callable[[bytearray], Any]


def _in_batch(number: int, edit: Callable[[memoryview], Any]) -> Edit:
    """Edit a batch and give it the CRC that it should have then."""

    def edited(content: bytearray) -> None:
        position = 0
        for _ in range(number):
            position += read_header(content, position).size
        batch = memoryview(content)[position : position + read_header(content, position).size]
        edit(batch)
        seal(batch)

    return edited


DAMAGES: dict[str, tuple[int, str, Edit]] = {
    "nothing": (0, ".log", lambda content: None),
    "a bit": (0, ".log", lambda content: content.__setitem__(70, content[70] ^ 1)),
    "a bit later": (1, ".log", lambda content: content.__setitem__(700, content[700] ^ 1)),
    "a batch's length": (0, ".log", lambda content: struct.pack_into(">i", content, 8, 7)),
    "a magic": (1, ".log", lambda content: content.__setitem__(16, 1)),
    "a torn tail": (1, ".log", lambda content: content.__delitem__(slice(-7, None))),
    "an epoch": (1, ".log", lambda content: struct.pack_into(">i", content, 12, 7)),
    "an offset": (1, ".log", lambda content: struct.pack_into(">q", content, 0, 3)),
    "an offset that goes back": (0, ".log", _in_batch(4, lambda batch: struct.pack_into(">q", batch, 0, 1))),
    "a later time": (0, ".log", _in_batch(4, lambda batch: struct.pack_into(">q", batch, 35, 1 << 42))),
    "an index's position": (0, ".index", lambda content: struct.pack_into(">i", content, 4, 77)),
    "an index's offset": (1, ".index", lambda content: struct.pack_into(">i", content, 0, 1000)),
    "a timestamp": (0, ".timeindex", lambda content: struct.pack_into(">q", content, 0, 1)),
    "no timestamps": (1, ".timeindex", lambda content: content.clear()),
    "no transactions": (1, ".txnindex", lambda content: content.clear()),
    "a transaction that cannot be": (0, ".txnindex", lambda content: struct.pack_into(">q", content, 10, -1)),
    "another producer": (0, ".txnindex", lambda content: struct.pack_into(">q", content, 2, 777)),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("written")
    write_directories(home)
    return home


def check(directory: Path, *, with_records: bool, in_parts: bool) -> tuple[list[Finding], dict[str, int]]:
    files, found = FileSystem(), list[Finding]()
    findings = Findings(found.append, lambda size: None)
    claims = survey(files, str(directory), findings).claims(ORDERS, producer_id_expiration_ms=EXPIRATION_MS)
    path = f"{directory}/orders-0"
    parts = split(LogFiles.found_in(files, path), claims, 1) if in_parts else [WHOLE]
    assert len(parts) == (2 if in_parts else 1)
    for part in parts:
        check_log(files, path, claims, findings, part=part, with_records=with_records)
    return found, findings.counts


@pytest.mark.parametrize("state", ["whole", "killed"])
@pytest.mark.parametrize("kind", DAMAGES)
def test_nothing_is_found_or_missed_for_being_checked_quickly_or_in_parts(
    written: Path, tmp_path: Path, state: str, kind: str
) -> None:
    directory = Path(shutil.copytree(written / state, tmp_path / state))
    number, suffix, edit = DAMAGES[kind]
    stem = sorted((directory / "orders-0").glob("*.log"))[number].stem
    path = directory / "orders-0" / f"{stem}{suffix}"
    content = bytearray(path.read_bytes())
    edit(content)
    path.write_bytes(content)

    thorough = check(directory, with_records=True, in_parts=False)

    assert bool(thorough[0]) == (kind != "nothing" and not (state == "killed" and number == 1 and suffix != ".log"))
    assert check(directory, with_records=False, in_parts=False) == thorough
    assert check(directory, with_records=True, in_parts=True) == thorough
    assert check(directory, with_records=False, in_parts=True) == thorough


def test_the_snapshot_between_two_parts_is_compared_with_what_lies_before_it(written: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(written / "whole", tmp_path / "whole"))
    between = min((directory / "orders-0").glob("*.snapshot"))
    taken = between.stat()
    between.write_bytes(encode_snapshot({}))
    os.utime(between, ns=(taken.st_atime_ns, taken.st_mtime_ns))

    for in_parts in (False, True):
        found, _ = check(directory, with_records=False, in_parts=in_parts)
        assert {finding.found for finding in found if finding.path == str(between)} == {
            "no producer 100",
            "no producer 200",
        }
