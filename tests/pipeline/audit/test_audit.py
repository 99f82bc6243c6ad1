"""`ottla pipeline audit` on directories that are whole, killed, damaged in every way, or in use."""

from __future__ import annotations

import json
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dev.broker_process import BrokerProcess
from pipeline.audit import plan
from storage.batch.record_batch import read_header, seal, stamp
from tests.pipeline.audit.conftest import Audited
from tests.pipeline.written_transactions import LAST_STABLE_OFFSET, TOPIC, Ledger
from tests.support.clients import Client, Record, connect
from tests.support.damage import break_batch
from tests.support.pages import Page
from tests.support.pipeline_commands import Run

FIRST = "orders-0/00000000000000000000"


def second(directory: Path) -> str:
    """The second segment of `orders-0`, without a suffix."""
    return "orders-0/" + sorted(path.stem for path in (directory / "orders-0").glob("*.log"))[1]


def change(path: Path, edit: Callable[[bytearray], Any]) -> None:
    content = bytearray(path.read_bytes())
    edit(content)
    path.write_bytes(content)


def batch_at(path: Path, number: int) -> tuple[int, int, int]:
    """Where a batch stands in a segment: position, size, base offset."""
    content, position = path.read_bytes(), 0
    for _ in range(number):
        position += read_header(content, position).size
    header = read_header(content, position)
    return position, header.size, header.base_offset


def change_batch(path: Path, number: int, edit: Callable[[memoryview], Any]) -> None:
    """Edit a batch and give it the CRC that it should have then."""
    position, size, _ = batch_at(path, number)

    def edit_and_seal(content: bytearray) -> None:
        edit(memoryview(content)[position : position + size])
        seal(memoryview(content)[position : position + size])

    change(path, edit_and_seal)


# Whole ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deep", [(), ("--deep",)], ids=["headers", "deep"])
def test_a_directory_that_was_left_in_order_is_whole(whole: Path, audited: Audited, deep: tuple[str, ...]) -> None:
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}

    code, report = audited("--data-dir", whole, *deep)

    assert (code, report["result"], report["findings"], report["deep"]) == (0, "whole", [], bool(deep))
    assert report["counts"]["logs"] == 6
    assert report["counts"]["segments"] == 7
    assert report["counts"]["offsets_without_record"] == 0
    (orders,) = [log for log in report["logs"] if (log["topic"], log["partition"]) == ("orders", 0)]
    assert (orders["start_offset"], orders["segments"], orders["damage"]) == (0, 2, 0)
    assert orders["batches"] == 32
    assert orders["bytes"] == sum(path.stat().st_size for path in (whole / "orders-0").glob("*.log"))
    assert before == {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}


def test_so_is_one_whose_broker_was_killed(killed: Path, audited: Audited) -> None:
    code, report = audited("--data-dir", killed)

    assert (code, report["findings"]) == (0, [])


@pytest.mark.parametrize("deep", [(), ("--deep",)], ids=["headers", "deep"])
@pytest.mark.parametrize("name", ["kafka-dir", "kafka-dir-unclean", "kafka-dir-fresh"])
def test_what_apache_kafka_wrote_is_whole(
    kafka_directory: Callable[[str], Path], audited: Audited, name: str, deep: tuple[str, ...]
) -> None:
    directory = kafka_directory(name)

    code, report = audited("--data-dir", directory, *deep)

    assert [finding for finding in report["findings"] if finding["kind"] == "damage"] == []
    assert code == 0
    if name == "kafka-dir":
        (transactions,) = [log for log in report["logs"] if log["topic"] == "txn" and log["partition"] == 0]
        assert transactions["open_transactions"] == []
        assert {log["topic"] for log in report["logs"]} >= {"plain", "codecs", "rolled", "__cluster_metadata"}


def test_open_transactions_are_listed_and_no_damage(tmp_path: Path, audited: Audited) -> None:
    ledger = Ledger(tmp_path / "data")

    code, report = audited("--data-dir", ledger.directory, "--topics", TOPIC)

    assert (code, report["findings"]) == (0, [])
    (log,) = report["logs"]
    assert log["open_transactions"] == [
        {"producer_id": ledger.open_producer_id, "producer_epoch": 0, "first_offset": LAST_STABLE_OFFSET}
    ]


def test_people_get_one_line_about_it(whole: Path, run_audit: Run) -> None:
    answer = run_audit("--data-dir", whole)

    assert answer.code == 0
    assert answer.out.startswith("whole: 6 logs, 7 segments, ")


def test_topics_can_be_chosen(whole: Path, audited: Audited) -> None:
    change(whole / f"{FIRST}.log", lambda content: content.__setitem__(70, content[70] ^ 1))

    by_name = audited("--data-dir", whole, "--topics", "packed,__consumer_offsets")
    by_pattern = audited("--data-dir", whole, "--topic-pattern", "or.*")

    assert (by_name[0], {log["topic"] for log in by_name[1]["logs"]}) == (0, {"packed", "__consumer_offsets"})
    assert (by_pattern[0], {log["topic"] for log in by_pattern[1]["logs"]}) == (1, {"orders"})


# Damaged --------------------------------------------------------------------------------------------------------------


def _flip(path: Path) -> None:
    position, size, _ = batch_at(path, 3)
    change(path, lambda content: content.__setitem__(position + size - 1, content[position + size - 1] ^ 1))


def _offsets_go_back(path: Path) -> None:
    change_batch(path, 3, lambda batch: stamp(batch, 1, 0))


def _first(suffix: str) -> Callable[[Path], str]:
    return lambda directory: f"{FIRST}{suffix}"


def _first_snapshot(directory: Path) -> str:
    return f"orders-0/{min(path.name for path in (directory / 'orders-0').glob('*.snapshot'))}"


Place = Callable[[Path], str]
Edit = Callable[[bytearray], Any]

DAMAGES: dict[str, tuple[Place, Edit, str]] = {
    "no length": (_first(".log"), lambda c: struct.pack_into(">i", c, 8, 7), "a batch length of 7"),
    "a length beyond the end": (_first(".log"), lambda c: struct.pack_into(">i", c, 8, 1 << 30), r"\d+ bytes of a"),
    "no magic": (_first(".log"), lambda c: c.__setitem__(16, 9), "magic 9"),
    "index: position": (_first(".index"), lambda c: struct.pack_into(">i", c, 4, 77), "position 77"),
    "index: offset": (_first(".index"), lambda c: struct.pack_into(">i", c, 0, 1000), "offset 1000 for position"),
    "timeindex: timestamp": (_first(".timeindex"), lambda c: struct.pack_into(">q", c, 0, 1), "timestamp 1 for offset"),
    "timeindex: offset": (_first(".timeindex"), lambda c: struct.pack_into(">i", c, 8, 3), "offset 3"),
    "timeindex: empty": (_first(".timeindex"), lambda c: c.clear(), "no entry"),
    "txnindex: producer": (_first(".txnindex"), lambda c: struct.pack_into(">q", c, 2, 777), "producer 777 aborted"),
    "txnindex: empty": (_first(".txnindex"), lambda c: c.clear(), "no entry for the marker at offset"),
    "snapshot": (_first_snapshot, lambda c: c.__setitem__(20, c[20] ^ 1), "has the CRC"),
    "epochs": (lambda directory: "orders-0/leader-epoch-checkpoint", lambda c: c.__setitem__(slice(0, 99), b"0\n1\nx"),
               "leader-epoch-checkpoint"),
    "checkpoint": (lambda directory: "recovery-point-offset-checkpoint", lambda c: c.__setitem__(0, 120), "checkpoint"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGES)
def test_each_kind_of_damage_is_found_where_it_is(whole: Path, audited: Audited, kind: str) -> None:
    place, edit, found = DAMAGES[kind]
    path = place(whole)
    change(whole / path, edit)

    code, report = audited("--data-dir", whole)

    assert (code, report["result"]) == (1, "damaged")
    at_fault = [finding for finding in report["findings"] if finding["path"] == f"{whole}/{path}"]
    assert at_fault, report["findings"]
    assert (at_fault[0]["kind"], bool(re.search(found, at_fault[0]["found"]))) == ("damage", True), at_fault
    assert report["counts"]["damage"] == len(report["findings"])


def test_a_flipped_bit_is_told_with_file_position_and_offset(whole: Path, audited: Audited, run_audit: Run) -> None:
    path = whole / f"{FIRST}.log"
    position, _, offset = batch_at(path, 3)
    _flip(path)

    code, report = audited("--data-dir", whole)

    assert code == 1
    (finding,) = report["findings"]
    assert (finding["path"], finding["position"], finding["offset"]) == (str(path), position, offset)
    assert finding["found"].startswith("CRC ")
    lines = run_audit("--data-dir", whole).out.splitlines()
    assert lines[0].startswith(f"damage  {path} at {position}: found CRC ")
    assert lines[1].startswith("1 damaged: 6 logs, ")


def test_an_offset_that_goes_back_is_damage(whole: Path, audited: Audited) -> None:
    path = whole / f"{FIRST}.log"
    position = batch_at(path, 3)[0]
    _offsets_go_back(path)

    code, report = audited("--data-dir", whole)

    assert code == 1
    assert (report["findings"][0]["position"], report["findings"][0]["found"]) == (position, "base offset 1")


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_an_index_that_is_gone_is_missed(whole: Path, audited: Audited, suffix: str) -> None:
    (whole / f"{FIRST}{suffix}").unlink()

    code, report = audited("--data-dir", whole)

    assert code == 1
    assert {finding["path"] for finding in report["findings"]} == {f"{whole}/{FIRST}{suffix}"}


def test_a_torn_tail_is_damage_below_the_recovery_point_and_a_note_behind_it(
    whole: Path, killed: Path, audited: Audited
) -> None:
    for directory in (whole, killed):
        change(directory / f"{second(directory)}.log", lambda content: content.__delitem__(slice(-5, None)))

    below, behind = audited("--data-dir", whole), audited("--data-dir", killed)

    assert below[0] == 1
    assert (behind[0], behind[1]["counts"]["damage"], behind[1]["counts"]["notes"]) == (0, 0, 1)
    (note,) = behind[1]["findings"]
    assert (note["kind"], note["path"]) == ("note", f"{killed}/{second(killed)}.log")


def test_a_record_that_contradicts_its_batch_is_found_by_looking_deep(whole: Path, audited: Audited) -> None:
    change_batch(whole / f"{FIRST}.log", 3, lambda batch: batch.__setitem__(64, 6))

    assert audited("--data-dir", whole)[0] == 0
    code, report = audited("--data-dir", whole, "--deep")

    assert (code, [finding["found"] for finding in report["findings"]]) == (1, ["offset delta 3"])


def test_damage_that_apache_kafka_left_is_found_as_well(
    kafka_directory: Callable[[str], Path], audited: Audited
) -> None:
    directory = kafka_directory("kafka-dir")
    logs = sorted((directory / "rolled-0").glob("*.log"))
    position, offset = break_batch(logs[1], 2)

    code, report = audited("--data-dir", directory)

    assert code == 1
    assert {(f["path"], f["position"], f["offset"]) for f in report["findings"]} == {(str(logs[1]), position, offset)}


def test_a_log_that_several_tasks_check_is_damaged_in_the_same_places(
    whole: Path, audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    _flip(whole / f"{FIRST}.log")
    (whole / f"{second(whole)}.txnindex").unlink()
    _, together = audited("--data-dir", whole)

    monkeypatch.setattr(plan.plan, "__kwdefaults__", {**plan.plan.__kwdefaults__, "part_bytes": 1})
    monkeypatch.setattr(plan, "_TOGETHER_BYTES", 1)
    code, apart = audited("--data-dir", whole)

    assert (code, apart["findings"], apart["counts"]) == (1, together["findings"], together["counts"])
    assert apart["logs"] == together["logs"]


# In use ---------------------------------------------------------------------------------------------------------------


def test_where_a_broker_works_what_lies_below_its_high_watermark_is_checked(
    broker: BrokerProcess, client: Client, topic: str, audited: Audited, run_audit: Run
) -> None:
    client.create_topic(topic, partitions=2)
    records = [Record(key=b"%d" % number, value=b"value %d" % number, partition=number % 2) for number in range(500)]
    client.produce(topic, records)
    data = broker.directory / "data"

    refused = run_audit("--data-dir", data)
    code, report = audited("--data-dir", data, "--bootstrap", broker.bootstrap, "--topics", topic)

    assert refused.code == 2
    assert "--bootstrap" in refused.err
    assert (code, report["findings"]) == (0, [])
    assert [(log["partition"], log["end_offset"]) for log in report["logs"]] == [(0, 250), (1, 250)]


def test_damage_below_the_high_watermark_of_a_running_broker_is_found(
    own_broker: BrokerProcess, topic: str, audited: Audited
) -> None:
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic(topic)
    for number in range(5):
        client.produce(topic, [Record(value=b"value %d of many" % number)])
    path = own_broker.directory / "data" / f"{topic}-0/{0:020d}.log"
    position, _, offset = batch_at(path, 1)
    change(path, lambda content: content.__setitem__(position + 70, content[position + 70] ^ 1))

    code, report = audited("--data-dir", own_broker.directory / "data", "--bootstrap", own_broker.bootstrap)

    assert code == 1
    assert [(f["path"], f["position"], f["offset"]) for f in report["findings"]] == [(str(path), position, offset)]


# The page -------------------------------------------------------------------------------------------------------------


def test_the_page_shows_what_is_damaged_and_fetches_nothing(whole: Path, run_audit: Run, tmp_path: Path) -> None:
    path = whole / f"{FIRST}.log"
    _flip(path)

    run_audit("--data-dir", whole, "--report", tmp_path / "audit.html")

    page = Page((tmp_path / "audit.html").read_text())
    assert "1 damaged" in page.text
    assert (page.classes.count("finding"), page.classes.count("log")) == (1, 6)
    assert str(path) in page.text
    assert f" {batch_at(path, 3)[2]} CRC " in page.text
    assert (page.fetched, "script" in page.tags, "link" in page.tags) == ([], False, False)


def test_names_on_the_page_are_text_whatever_they_are(whole: Path, run_audit: Run, tmp_path: Path) -> None:
    name = "<script>alert(1)<b>-0"
    shutil.copytree(whole / "packed-0", whole / name.replace("/", ""))

    run_audit("--data-dir", whole, "--report", tmp_path / "audit.html")

    page = Page((tmp_path / "audit.html").read_text())
    assert "<script>alert(1)<b>-0" in page.text
    assert "script" not in page.tags


# What cannot be done --------------------------------------------------------------------------------------------------


def test_a_report_that_cannot_be_written_is_told_before_the_work(whole: Path, run_audit: Run, tmp_path: Path) -> None:
    for place, sentence in [
        (tmp_path / "nowhere/audit.html", "No such file or directory"),
        (tmp_path / "audit.txt", "expected one that ends with .html or .json"),
        (whole.parent / "taken.html", "it is a directory"),
    ]:
        if place.name == "taken.html":
            place.mkdir()
        answer = run_audit("--data-dir", whole, "--report", place)
        assert (answer.code, answer.out) == (2, "")
        assert sentence in answer.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--topics", "ordres"), "; did you mean orders?"),
        (("--topic-pattern", "nothing.*"), "no topic has a name that matches 'nothing.*'"),
        (("--topic-pattern", "("), "the pattern '(' cannot be read"),
        (("--data-dir", "/nowhere/at/all"), "there is no /nowhere/at/all"),
    ],
)
def test_what_is_not_there_is_a_sentence(
    whole: Path, run_audit: Run, arguments: tuple[str, ...], sentence: str
) -> None:
    answer = run_audit("--data-dir", whole, *arguments)

    assert (answer.code, answer.out) == (2, "")
    assert sentence in answer.err
    assert answer.err.count("\n") == 1


def test_an_empty_directory_has_nothing_to_audit(run_audit: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    answer = run_audit("--data-dir", tmp_path / "empty")

    assert answer.code == 2
    assert "there is no log to audit" in answer.err


def test_reports_appear_whole_or_not_at_all(whole: Path, run_audit: Run, tmp_path: Path) -> None:
    places = tmp_path / "reports"
    places.mkdir()
    (places / "audit.json").write_text("what was there before")

    run_audit("--data-dir", whole, "--report", places / "audit.json", "--report", places / "audit.html")

    assert sorted(path.name for path in places.iterdir()) == ["audit.html", "audit.json"]
    assert json.loads((places / "audit.json").read_text())["report"] == "audit"
