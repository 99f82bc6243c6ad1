"""`ottla verify` on directories that are undamaged, of a killed broker, damaged in every way, or in use."""

import json
import os
import shutil
import struct
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from broker.tools import verify
from storage.batch.record_batch import read_header, seal, stamp
from storage.errors import DirectoryLocked
from storage.files import FileSystem
from storage.producer_state import ProducerEntry, encode_snapshot
from tests.support.batches import T
from tests.support.broker import running_broker
from tests.unit.broker.tools.conftest import Tool

FIRST = "orders-0/00000000000000000000"
FIRST_SNAPSHOT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def second(directory: Path) -> str:
    """The second segment of `orders-0`, without a suffix."""
    return "orders-0/" + sorted(path.name for path in (directory / "orders-0").glob("*.log"))[1].removesuffix(".log")


def change(path: Path, edit: Callable[[bytearray], Any]) -> None:
    content = bytearray(path.read_bytes())
    edit(content)
    path.write_bytes(content)


def positions(log: Path) -> list[int]:
    """Where the batches of a segment begin."""
    content = log.read_bytes()
    found, position = [], 0
    while position < len(content):
        found.append(position)
        position += read_header(content, position).size
    return found


def change_batch(path: Path, number: int, edit: Callable[[memoryview], Any]) -> int:
    """Edit one batch of a segment and give it the CRC that it should have then; its position."""
    content = bytearray(path.read_bytes())
    position = positions(path)[number]
    batch = memoryview(content)[position : position + read_header(content, position).size]
    edit(batch)
    seal(batch)
    path.write_bytes(content)
    return position


def findings(answer: list[dict[str, Any]], kind: str = "damage") -> list[dict[str, Any]]:
    return [line for line in answer if line["type"] == kind]


def the_damage(run_verify: Tool, directory: Path, path: str) -> list[str]:
    """What was found in the one file where it must have been found, and nowhere else."""
    code, answer = run_verify(directory)
    damages = findings(answer)
    assert code == 1
    assert {damage["path"] for damage in damages} == {f"{directory}/{path}"}, damages
    return [damage["found"] for damage in damages]


# Whole ----------------------------------------------------------------------------------------------------------------


def test_a_directory_that_was_left_in_order_is_whole(whole: Path, run_verify: Tool) -> None:
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}

    code, answer = run_verify(whole)

    assert (code, answer[:-1]) == (0, [])
    summary = answer[-1]
    assert (summary["type"], summary["logs"], summary["segments"]) == ("summary", 6, 7)
    assert before == {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}


def test_so_is_one_whose_broker_was_killed(killed: Path, run_verify: Tool) -> None:
    assert not (killed / ".kafka_cleanshutdown").exists()

    code, answer = run_verify(killed)

    assert (code, answer[:-1]) == (0, [])


def test_people_get_one_line_about_it(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main([str(whole)]) == 0

    assert capsys.readouterr().out.startswith("whole: 6 logs, 7 segments, ")


def test_people_get_one_line_for_each_damage(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(whole / f"{FIRST}.log", lambda content: content.__setitem__(70, content[70] ^ 1))

    assert verify.main([str(whole)]) == 1

    damage, summary = capsys.readouterr().out.splitlines()
    assert damage.startswith(f"damage  {whole}/{FIRST}.log at 0: found CRC ")
    assert summary.startswith("1 damaged: 6 logs")


# Killed in the middle of something ------------------------------------------------------------------------------------


def cut_end(path: Path, by: int = 5) -> None:
    change(path, lambda content: content.__delitem__(slice(len(content) - by, None)))


@pytest.mark.parametrize(
    "tear",
    [
        cut_end,
        lambda path: change(path, lambda content: content.extend(bytes(500))),
        lambda path: change(path, lambda content: content.extend(b"\xff" * 100)),
        lambda path: change(path, lambda content: content.__setitem__(len(content) - 1, content[-1] ^ 0xFF)),
    ],
    ids=["cut", "zeros", "rubbish", "a flipped bit"],
)
def test_a_torn_end_behind_the_recovery_point_is_recovered_and_no_damage(
    killed: Path, run_verify: Tool, tear: Callable[[Path], None]
) -> None:
    path = killed / f"{second(killed)}.log"
    tear(path)

    code, answer = run_verify(killed)

    assert code == 0
    assert [note["path"] for note in findings(answer, "note")] == [str(path)]
    assert (answer[-1]["damage"], answer[-1]["notes"]) == (0, 1)


def test_the_same_end_is_damage_where_the_broker_left_in_order(whole: Path, run_verify: Tool) -> None:
    cut_end(whole / f"{second(whole)}.log")

    code, answer = run_verify(whole)

    assert code == 1
    assert f"{whole}/{second(whole)}.log" in {damage["path"] for damage in findings(answer)}


def test_below_the_recovery_point_everything_must_be_there_after_a_kill_too(killed: Path, run_verify: Tool) -> None:
    change(killed / f"{FIRST}.log", lambda content: content.__setitem__(70, content[70] ^ 1))

    assert the_damage(run_verify, killed, f"{FIRST}.log")[0].startswith("CRC ")


def test_a_log_that_ends_before_its_recovery_point_is_damaged(killed: Path, run_verify: Tool) -> None:
    base = int(second(killed)[-20:])
    (killed / "recovery-point-offset-checkpoint").write_text(f"0\n1\norders 0 {base + 5}\n")
    (killed / f"{second(killed)}.log").write_bytes(b"")

    code, answer = run_verify(killed)

    assert code == 1
    assert f"recovery point {base + 5}" in [damage["found"] for damage in findings(answer)]


def test_indexes_and_snapshots_behind_the_recovery_point_are_made_anew(killed: Path, run_verify: Tool) -> None:
    for suffix in (".index", ".timeindex"):
        (killed / f"{second(killed)}{suffix}").write_bytes(b"\x7f" * 24)
    (killed / "orders-0/00000000000000009999.snapshot").write_bytes(b"rubbish")

    assert run_verify(killed)[0] == 0


def test_a_later_segment_behind_a_torn_one_goes_with_its_end(killed: Path, run_verify: Tool) -> None:
    (killed / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    last_transaction = positions(killed / f"{FIRST}.log")[-2]
    change(killed / f"{FIRST}.log", lambda content: content.__delitem__(slice(last_transaction + 5, None)))

    code, answer = run_verify(killed)

    assert code == 0
    assert [note["path"] for note in findings(answer, "note")] == [
        f"{killed}/{FIRST}.log",
        f"{killed}/{second(killed)}.log",
    ]


def test_a_cleaning_that_was_not_finished_is_no_damage(killed: Path, run_verify: Tool) -> None:
    (killed / f"{FIRST}.log.cleaned").write_bytes(b"")

    code, answer = run_verify(killed)

    assert (code, len(findings(answer, "note"))) == (0, 1)


# Batches --------------------------------------------------------------------------------------------------------------


def test_a_flipped_bit_is_found_at_its_batch(whole: Path, run_verify: Tool) -> None:
    position = positions(whole / f"{FIRST}.log")[3]
    change(whole / f"{FIRST}.log", lambda content: content.__setitem__(position + 65, content[position + 65] ^ 4))

    _, answer = run_verify(whole)

    (damage,) = findings(answer)
    assert (damage["path"], damage["position"]) == (f"{whole}/{FIRST}.log", position)


def test_zeros_in_the_middle_end_the_batches_of_a_segment(whole: Path, run_verify: Tool) -> None:
    position = positions(whole / f"{FIRST}.log")[3]
    change(whole / f"{FIRST}.log", lambda content: content.__setitem__(slice(position, position + 400), bytes(400)))

    _, answer = run_verify(whole)

    assert (findings(answer)[0]["position"], findings(answer)[0]["found"][:14]) == (position, "a batch length")


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (lambda batch: struct.pack_into(">i", batch, 23, 9), None),
        (lambda batch: struct.pack_into(">i", batch, 23, -1), "last offset delta -1"),
        (lambda batch: struct.pack_into(">i", batch, 57, 2), "2 records"),
        (lambda batch: struct.pack_into(">i", batch, 57, 0), None),
        (lambda batch: struct.pack_into(">h", batch, 21, 7), None),
        (lambda batch: struct.pack_into(">h", batch, 21, 4), None),
        (lambda batch: struct.pack_into(">q", batch, 35, 5), "max timestamp 5"),
        (lambda batch: batch.__setitem__(64, 6), "offset delta 3"),
        (lambda batch: stamp(batch, 2, 0), "base offset 2"),
        (lambda batch: stamp(batch, 3, -1), "leader epoch -1"),
    ],
    ids=["delta beyond the next batch", "negative delta", "count", "no count", "codec", "not compressed", "time",
         "record's delta", "base offset", "epoch"],
)  # fmt: skip
def test_a_batch_that_contradicts_itself_or_the_log_is_damage(
    whole: Path, run_verify: Tool, edit: Callable[[memoryview], Any], found: str | None
) -> None:
    position = change_batch(whole / f"{FIRST}.log", 3, edit)

    _, answer = run_verify(whole)

    at_fault = [d for d in findings(answer) if d["path"].endswith(f"{FIRST}.log")]
    assert at_fault[0]["position"] in (position, positions(whole / f"{FIRST}.log")[4])
    assert found is None or at_fault[0]["found"] == found


def test_two_batches_in_each_others_place_are_damage(whole: Path, run_verify: Tool) -> None:
    path = whole / f"{FIRST}.log"
    second_at, third_at, fourth_at = positions(path)[1:4]

    def swap(content: bytearray) -> None:
        content[second_at:fourth_at] = content[third_at:fourth_at] + content[second_at:third_at]

    change(path, swap)

    _, answer = run_verify(whole)

    damage = next(d for d in findings(answer) if d["path"] == str(path))
    assert (damage["position"], damage["found"], damage["expected"]) == (third_at, "base offset 1", "3 or more")


def test_a_segment_whose_offsets_reach_into_the_next_one_is_damage(whole: Path, run_verify: Tool) -> None:
    path = whole / f"{FIRST}.log"
    change_batch(path, -1, lambda batch: stamp(batch, 5000, 0))

    _, answer = run_verify(whole)

    assert "last offset 5000" in {d["found"] for d in findings(answer) if d["path"] == str(path)}


def test_a_segment_that_is_gone_is_missed(whole: Path, run_verify: Tool) -> None:
    base = int(second(whole)[-20:])
    (whole / f"{second(whole)}.log").unlink()

    _, answer = run_verify(whole)

    found = {(d["path"].removeprefix(f"{whole}/"), d["found"]) for d in findings(answer)}
    assert (f"{second_name(base)}.index", "an index without a segment") in found
    assert any(what.startswith("recovery point ") for _, what in found)


def second_name(base: int) -> str:
    return f"orders-0/{base:020d}"


# Indexes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("suffix", "edit", "found"),
    [
        (".index", lambda content: struct.pack_into(">i", content, 4, 77), "position 77"),
        (".index", lambda content: struct.pack_into(">i", content, 0, 1000), "offset 1000 for position "),
        (".index", lambda content: content.__setitem__(slice(0, 16), content[8:16] + content[0:8]), "position "),
        (".index", lambda content: content.extend(bytes(8)), "position 0"),
        (".index", lambda content: content.extend(struct.pack(">ii", 9999, 99999)), "position 99999"),
        (".index", lambda content: content.append(0), "1 bytes"),
        (".timeindex", lambda content: struct.pack_into(">q", content, 0, 1), "timestamp 1 for offset "),
        (".timeindex", lambda content: struct.pack_into(">i", content, 8, 3), "offset 3"),
        (".timeindex", lambda content: content.__delitem__(slice(len(content) - 12, None)), "a last entry for "),
        (".timeindex", lambda content: content.clear(), "no entry"),
        (".timeindex", lambda content: content.extend(struct.pack(">qi", 1 << 50, 9999)), "offset 9999"),
        (".timeindex", lambda content: content.extend(bytes(12)), "offset 0"),
        (".txnindex", lambda content: content.clear(), "no entry for the marker at offset "),
        (".txnindex", lambda content: struct.pack_into(">q", content, 2, 777), "producer 777 aborted from "),
        (".txnindex", lambda content: struct.pack_into(">q", content, 18, 18), "no entry for the marker at offset "),
        (".txnindex", lambda content: struct.pack_into(">q", content, 18, 1), "first offset 15"),
        (".txnindex", lambda content: struct.pack_into(">q", content, 10, -1), "first offset -1"),
        (".txnindex", lambda content: struct.pack_into(">q", content, 10, 14), "producer 200 aborted from 14"),
        (".txnindex", lambda content: struct.pack_into(">q", content, 26, 1), "producer 200 aborted from "),
        (".txnindex", lambda content: struct.pack_into(">q", content, 26, 19), "last stable offset 19"),
        (".txnindex", lambda content: struct.pack_into(">h", content, 0, 1), "version 1"),
        (".txnindex", lambda content: content.extend(content[:34]), "last offset "),
        (".txnindex", lambda content: content.extend(b"\0"), "1 bytes"),
    ],
)
def test_an_index_that_says_what_is_not_true_is_damage(
    whole: Path, run_verify: Tool, suffix: str, edit: Callable[[bytearray], Any], found: str
) -> None:
    change(whole / f"{FIRST}{suffix}", edit)

    assert the_damage(run_verify, whole, f"{FIRST}{suffix}")[0].startswith(found)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_is_gone_is_missed(whole: Path, run_verify: Tool, suffix: str) -> None:
    (whole / f"{FIRST}{suffix}").unlink()

    assert the_damage(run_verify, whole, f"{FIRST}{suffix}") == ["no file"]


def test_an_index_below_the_recovery_point_must_be_right_after_a_kill_too(killed: Path, run_verify: Tool) -> None:
    change(killed / f"{FIRST}.index", lambda content: struct.pack_into(">i", content, 4, 77))

    assert the_damage(run_verify, killed, f"{FIRST}.index") == ["position 77"]


def test_an_index_that_was_not_trimmed_is_damage_after_a_clean_stop(whole: Path, run_verify: Tool) -> None:
    change(whole / f"{second(whole)}.index", lambda content: content.extend(bytes(800)))

    assert the_damage(run_verify, whole, f"{second(whole)}.index") == ["position 0"]


def test_the_indexes_of_the_metadata_log_may_have_their_preallocated_length_as_kafka_leaves_them(
    whole: Path, run_verify: Tool
) -> None:
    metadata = "__cluster_metadata-0/00000000000000000000"
    change(whole / f"{metadata}.index", lambda content: content.extend(bytes(8_000)))
    # The entry for the largest timestamp comes when the file is cut.
    (whole / f"{metadata}.timeindex").write_bytes(bytes(12_000))
    assert run_verify(whole)[0] == 0

    change(whole / f"{metadata}.timeindex", lambda content: struct.pack_into(">qi", content, 0, T, 9_999))
    assert the_damage(run_verify, whole, f"{metadata}.timeindex") == ["offset 9999"]


# Producers and leader epochs ------------------------------------------------------------------------------------------


def snapshots(directory: Path) -> list[str]:
    return sorted(f"orders-0/{path.name}" for path in (directory / "orders-0").glob("*.snapshot"))


def test_a_snapshot_that_cannot_be_read_is_damage(whole: Path, run_verify: Tool) -> None:
    for name in snapshots(whole):
        change(whole / name, lambda content: content.__setitem__(20, content[20] ^ 1))

    code, answer = run_verify(whole)

    assert code == 1
    assert [damage["path"] for damage in findings(answer)] == [f"{whole}/{name}" for name in snapshots(whole)]


def test_a_snapshot_that_says_something_else_than_the_batches_is_damage(whole: Path, run_verify: Tool) -> None:
    at_roll, at_end = snapshots(whole)
    shutil.copy2(whole / at_roll, whole / at_end)

    found = the_damage(run_verify, whole, at_end)

    assert found == ["no producer 101", "no producer 201"]


def test_a_snapshot_with_a_producer_that_never_wrote_is_damage(whole: Path, run_verify: Tool) -> None:
    at_roll, _ = snapshots(whole)
    stranger = ProducerEntry(9, 0, (), 1, 0, -1)
    (whole / at_roll).write_bytes(encode_snapshot({9: stranger}))

    found = the_damage(run_verify, whole, at_roll)

    assert found[0].startswith("producer 9 of epoch 0")


def test_producers_may_be_missing_once_they_were_silent_for_long(whole: Path, run_verify: Tool) -> None:
    for name in snapshots(whole):
        (whole / name).write_bytes(encode_snapshot({}))
        os.utime(whole / name, (T / 1000 + 60, T / 1000 + 60))

    assert run_verify(whole)[0] == 1
    assert run_verify(whole, "--producer-id-expiration-ms", 0)[0] == 0


def test_a_clean_stop_leaves_a_snapshot_at_the_end(whole: Path, run_verify: Tool) -> None:
    (whole / snapshots(whole)[1]).unlink()

    assert the_damage(run_verify, whole, _end(whole)) == ["no producer snapshot"]


def _end(directory: Path) -> str:
    """Where the snapshot at the end of `orders-0` would be."""
    checkpoint = (directory / "recovery-point-offset-checkpoint").read_text()
    offset = next(line.split()[2] for line in checkpoint.splitlines() if line.startswith("orders 0 "))
    return f"orders-0/{int(offset):020d}.snapshot"


@pytest.mark.parametrize(
    ("lines", "path"),
    [
        ("0\n2\n1 0\n0 5\n", "orders-0/leader-epoch-checkpoint"),
        ("0\n2\n0 5\n1 5\n", "orders-0/leader-epoch-checkpoint"),
        ("0\n2\n0 0\n1 9999\n", "orders-0/leader-epoch-checkpoint"),
        ("0\n1\nzero 0\n", "orders-0/leader-epoch-checkpoint"),
        ("0\n2\n0 0\n1 5\n", f"{FIRST}.log"),
    ],
    ids=["epochs fall", "starts do not rise", "behind the end", "no numbers", "batches have another"],
)
def test_leader_epochs_that_the_batches_do_not_have_are_damage(
    whole: Path, run_verify: Tool, lines: str, path: str
) -> None:
    (whole / "orders-0/leader-epoch-checkpoint").write_text(lines)

    code, answer = run_verify(whole)

    assert code == 1
    assert findings(answer)[0]["path"] == f"{whole}/{path}"


# The directory --------------------------------------------------------------------------------------------------------


def rewrite_line(path: Path, begins: str, line: str) -> None:
    lines = [line if old.startswith(begins) else old for old in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("name", "line", "path", "found"),
    [
        ("recovery-point-offset-checkpoint", "orders 0 9999", "orders-0", "recovery point 9999"),
        ("recovery-point-offset-checkpoint", "orders 0 1", "orders-0", "recovery point 1"),
        ("recovery-point-offset-checkpoint", "gone 0 1", "recovery-point-offset-checkpoint", "an offset of gone-0"),
        ("recovery-point-offset-checkpoint", "orders 0", "recovery-point-offset-checkpoint", None),
        ("replication-offset-checkpoint", "orders 0 9999", "orders-0", "high watermark 9999"),
        ("replication-offset-checkpoint", "orders 0 -4", "orders-0", "high watermark -4"),
    ],
)
def test_a_checkpoint_that_the_log_does_not_bear_out_is_damage(
    whole: Path, run_verify: Tool, name: str, line: str, path: str, found: str | None
) -> None:
    rewrite_line(whole / name, "orders 0 ", line)

    code, answer = run_verify(whole)

    damages = [(damage["path"], damage["found"]) for damage in findings(answer)]
    assert code == 1
    assert damages[0][0] == f"{whole}/{path}"
    assert found is None or damages[0][1] == found


@pytest.mark.parametrize("name", ["replication-offset-checkpoint", "cleaner-offset-checkpoint"])
def test_some_checkpoints_may_name_partitions_that_are_gone(whole: Path, run_verify: Tool, name: str) -> None:
    path = whole / name
    known = path.read_text().splitlines()[2:] if path.exists() else []
    path.write_text("\n".join(["0", str(len(known) + 1), *known, "gone 0 7", ""]))

    assert run_verify(whole)[0] == 0


def test_a_log_that_starts_behind_its_end_is_damage(whole: Path, run_verify: Tool) -> None:
    (whole / "log-start-offset-checkpoint").write_text("0\n1\norders 0 9999\n")

    _, answer = run_verify(whole)

    assert "log start offset 9999" in {damage["found"] for damage in findings(answer)}


def test_directories_that_are_no_logs_are_damage_and_those_on_their_way_out_are_not(
    whole: Path, run_verify: Tool
) -> None:
    (whole / "backup").mkdir()
    (whole / "lost+found").mkdir()
    (whole / f"old-0.{'ab' * 16}-delete").mkdir()
    (whole / f"old-1.{'ab' * 16}-stray").mkdir()

    assert the_damage(run_verify, whole, "backup") == ["a directory of this name"]


def test_a_directory_that_spells_a_partitions_number_in_another_way_is_damage(whole: Path, run_verify: Tool) -> None:
    (whole / "orders-00").mkdir()

    assert the_damage(run_verify, whole, "orders-00") == ["a directory of this name"]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (None, "no file"),
        ("version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAABQ", "topic id AAAAAAAAQACAAAAAAAAABQ"),
        ("version: 7\ntopic_id: AAAAAAAAQACAAAAAAAAABQ", None),
    ],
    ids=["missing", "another topic's", "another version"],
)
def test_the_id_of_the_topic_must_be_that_of_the_metadata_log(
    whole: Path, run_verify: Tool, content: str | None, found: str | None
) -> None:
    path = whole / "orders-0/partition.metadata"
    path.unlink()
    if content is not None:
        path.write_text(content)

    damages = the_damage(run_verify, whole, "orders-0/partition.metadata")

    assert found is None or damages == [found]


def test_a_partition_without_its_log_is_damage_after_a_clean_stop_only(
    whole: Path, killed: Path, run_verify: Tool
) -> None:
    for directory in (whole, killed):
        shutil.rmtree(directory / "orders-1")

    _, answer = run_verify(whole)
    assert "no directory" in {d["found"] for d in findings(answer) if d["path"] == f"{whole}/orders-1"}
    code, answer = run_verify(killed)
    assert (code, [note["path"] for note in findings(answer, "note")]) == (0, [f"{killed}/orders-1"])


def test_a_log_without_its_partition_is_damage_after_a_clean_stop_only(
    whole: Path, killed: Path, run_verify: Tool
) -> None:
    for directory in (whole, killed):
        shutil.copytree(directory / "orders-1", directory / "strange-0")

    _, answer = run_verify(whole)
    assert {d["path"] for d in findings(answer)} >= {f"{whole}/strange-0"}
    code, answer = run_verify(killed)
    assert (code, [note["path"] for note in findings(answer, "note")]) == (0, [f"{killed}/strange-0"])


def test_without_its_metadata_log_a_directory_is_checked_as_far_as_it_goes(whole: Path, run_verify: Tool) -> None:
    shutil.rmtree(whole / "__cluster_metadata-0")

    assert run_verify(whole)[0] == 0


@pytest.mark.parametrize(
    ("path", "edit", "found"),
    [
        ("meta.properties", lambda path: path.unlink(), "no file"),
        ("meta.properties", lambda path: path.write_text("version=0\n"), None),
        ("__cluster_metadata-0/quorum-state", lambda path: path.write_text("{"), None),
        ("__cluster_metadata-0/quorum-state", lambda path: path.unlink(), "epoch 0"),
        (
            "bootstrap.checkpoint",
            lambda path: path.write_bytes((path.parent / FIRST_SNAPSHOT).read_bytes()[:-1]),
            None,
        ),
        (
            FIRST_SNAPSHOT,
            lambda path: (path.chmod(0o600), cut_end(path, 75)),
            "no SNAPSHOT_FOOTER",
        ),
    ],
)
def test_each_file_of_the_node_must_be_readable(
    whole: Path, run_verify: Tool, path: str, edit: Callable[[Path], Any], found: str | None
) -> None:
    edit(whole / path)

    damages = the_damage(run_verify, whole, path)

    assert found is None or damages == [found]


def test_a_metadata_log_that_makes_no_sense_is_damage(whole: Path, run_verify: Tool) -> None:
    # Without the batch that creates a topic, those that speak of it fit nothing.
    log = whole / "__cluster_metadata-0/00000000000000000000.log"
    content = log.read_bytes()
    starts = [*positions(log), len(content)]
    batches = [content[start:end] for start, end in pairwise(starts)]
    creation = next(number for number, batch in enumerate(batches) if b"orders" in batch)
    log.write_bytes(b"".join(batch for number, batch in enumerate(batches) if number != creation))

    _, answer = run_verify(whole)

    assert any("speaks of topic id" in d["found"] or "does not know it" in d["expected"] for d in findings(answer))


def test_directories_of_different_clusters_do_not_go_together(whole: Path, tmp_path: Path, run_verify: Tool) -> None:
    other = tmp_path / "other"
    other.mkdir()
    properties = "version=1\ncluster.id=another\nnode.id=2\ndirectory.id=AAAAAAAAQACAAAAAAAAABQ\n"
    (other / "meta.properties").write_text(properties)
    (other / ".kafka_cleanshutdown").touch()

    code, answer = run_verify(whole, other)

    assert code == 1
    assert [(d["path"], d["found"]) for d in findings(answer)] == [
        (f"{other}/meta.properties", "cluster.id another"),
        (f"{other}/meta.properties", "node.id 2"),
    ]


def test_several_directories_of_one_node_are_whole_together_and_each_by_itself(
    tmp_path: Path, run_verify: Tool
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    with running_broker(tmp_path, log_dirs=f"{one},{other}") as broker:
        broker.create_topic("orders", 4)
        for partition in range(4):
            broker.produce("orders", b"value", partition=partition)
    logs = {directory: len(list(directory.glob("orders-*"))) for directory in (one, other)}
    assert logs == {one: 2, other: 2}

    for directories in ((one, other), (other, one), (one,), (other,)):
        code, answer = run_verify(*directories)
        assert (code, answer[:-1]) == (0, [])
    shutil.rmtree(next(other.glob("orders-*")))
    code, answer = run_verify(one, other)
    assert (code, "no directory" in {damage["found"] for damage in findings(answer)}) == (1, True)


def test_a_log_in_two_directories_is_damage(whole: Path, tmp_path: Path, run_verify: Tool) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "meta.properties").write_bytes((whole / "meta.properties").read_bytes())
    shutil.copytree(whole / "orders-1", other / "orders-1")

    _, answer = run_verify(whole, other)

    found = {(d["path"], d["found"].partition(" ")[0]) for d in findings(answer)}
    assert (f"{other}/meta.properties", "directory.id") in found
    assert (f"{other}/orders-1", "a") in found


# In use, and other reasons not to begin -------------------------------------------------------------------------------


def test_a_directory_that_a_broker_works_in_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running_broker(tmp_path / "data"):
        assert verify.main([str(tmp_path / "data")]) == 2

    assert "is in use by another broker" in capsys.readouterr().err


def test_a_broker_that_starts_meanwhile_makes_the_check_void(
    whole: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as started:

        def start_a_broker(*_: object, **__: object) -> None:
            started.enter_context(running_broker(whole))

        monkeypatch.setattr(verify, "check_directories", start_a_broker)

        assert verify.main([str(whole)]) == 2

    assert "is in use by another broker" in capsys.readouterr().err


def test_a_broker_cannot_start_where_a_killed_one_has_left_its_lock_file(
    killed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (killed / ".lock").touch()

    def start_a_broker(*_: object, **__: object) -> None:
        with pytest.raises(DirectoryLocked):
            FileSystem().lock(f"{killed}/.lock")

    monkeypatch.setattr(verify, "check_directories", start_a_broker)

    assert verify.main([str(killed)]) == 0
    FileSystem().lock(f"{killed}/.lock").release()


def test_what_is_no_directory_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()

    assert verify.main([str(tmp_path / "file")]) == 2
    assert verify.main([str(tmp_path / "nothing")]) == 2

    refused = capsys.readouterr().err.splitlines()
    assert refused[0] == f"ottla verify: {tmp_path}/file is no directory"
    assert refused[1] == f"ottla verify: there is no {tmp_path}/nothing"


def test_bad_usage_has_an_exit_code_of_its_own() -> None:
    with pytest.raises(SystemExit) as exit_:
        verify.main([])

    assert exit_.value.code == 2


def test_the_summary_is_json_too(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verify.main([str(whole), "--json"])

    assert set(json.loads(capsys.readouterr().out)) == {
        "type", "damage", "notes", "logs", "segments", "batches", "bytes", "keys_left_out",
    }  # fmt: skip
