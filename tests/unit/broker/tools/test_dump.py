"""`ottla dump` of every kind of file, undamaged and damaged, as text and as JSON."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.tools import dump
from protocol.records.group_metadata import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupKey,
    GroupRecord,
    GroupValue,
    ShareGroupMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    encode_group_record,
)
from protocol.records.share_state import (
    ShareSnapshotKey,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
    encode_share_state_key,
    encode_share_state_value,
)
from storage.batch.record_batch import Codec, read_header
from storage.batch.records import Record
from tests.support.batches import T, stored
from tests.support.written_directories import BATCHES
from tests.unit.broker.tools.conftest import Tool

FIRST = "orders-0/00000000000000000000"


def of_type(answer: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [line for line in answer if line["type"] == kind]


# Segments -------------------------------------------------------------------------------------------------------------


def test_a_segment_is_shown_batch_by_batch_with_its_records(whole: Path, run_dump: Tool) -> None:
    code, answer = run_dump(whole / f"{FIRST}.log")

    content = (whole / f"{FIRST}.log").read_bytes()
    assert code == 0
    assert answer[0] == {"type": "file", "name": "00000000000000000000.log", "bytes": len(content)}
    first, record = answer[1:3]
    assert first == {
        "type": "batch",
        "base_offset": 0,
        "last_offset": 0,
        "records": 1,
        "position": 0,
        "size": read_header(content).size,
        "crc": read_header(content).crc,
        "crc_valid": True,
        "leader_epoch": 0,
        "codec": "none",
        "timestamp_type": "CreateTime",
        "max_timestamp": T,
        "transactional": False,
        "control": False,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "last_sequence": -1,
        "delete_horizon": -1,
    }
    assert record == {"type": "record", "offset": 0, "timestamp": T, "key": "key", "value": "segment 0, batch 0"}
    batches = of_type(answer, "batch")
    assert len(batches) == BATCHES + 4
    assert all(batch["crc_valid"] for batch in batches)
    assert sum(batch["size"] for batch in batches) == len(content)
    markers = [line for line in of_type(answer, "record") if "control" in line]
    assert [(marker["control"], marker["coordinator_epoch"]) for marker in markers] == [("COMMIT", 0), ("ABORT", 0)]
    assert {batch["producer_id"] for batch in batches if batch["transactional"]} == {100, 200}


def test_people_get_a_line_for_each_with_what_says_something(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dump.main([str(whole / f"{FIRST}.log")]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("  batch  base_offset       0  last_offset       0  records 1  position       0  size ")
    assert "crc_valid  leader_epoch 0  codec none  timestamp_type CreateTime" in lines[1]
    assert "max_timestamp 2023-11-14T22:13:20.000Z" in lines[1]
    assert "producer_id" not in lines[1]
    assert lines[2] == (
        '    record  offset       0  timestamp 2023-11-14T22:13:20.000Z  key "key"  value "segment 0, batch 0"'
    )
    assert any("transactional  producer_id 100" in line for line in lines)


def test_headers_and_bytes_that_are_no_text_are_marked(
    tmp_path: Path, run_dump: Tool, capsys: pytest.CaptureFixture[str]
) -> None:
    record = Record(timestamp=T, key=b"\xff\x00", value=None, headers=[("h", b"v"), ("\udcfe", None)])
    path = tmp_path / "00000000000000000007.log"
    path.write_bytes(stored([record], offset=7))

    _, answer = run_dump(path)

    assert of_type(answer, "record") == [
        {
            "type": "record",
            "offset": 7,
            "timestamp": T,
            "key": {"base64": "/wA="},
            "value": None,
            "headers": [{"key": "h", "value": "v"}, {"key": {"base64": "/g=="}, "value": None}],
        }
    ]
    dump.main([str(path)])
    assert "key base64:/wA=  value null  headers [{" in capsys.readouterr().out


def test_no_record_moves_the_terminals_cursor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(stored([Record(timestamp=T, key="\x1b[2J\x9b".encode(), value="\u202e".encode())]))

    for options in ([], ["--json"]):
        dump.main([str(path), *options])
        assert capsys.readouterr().out.replace("\n", "").isprintable()


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_records_are_shown_whatever_compresses_them(whole: Path, run_dump: Tool, codec: Codec) -> None:
    _, answer = run_dump(whole / "packed-0/00000000000000000000.log")

    names = [batch["codec"] for batch in of_type(answer, "batch")]
    assert names == ["none", "gzip", "snappy", "lz4", "zstd"]
    offsets = [record["offset"] for record in of_type(answer, "record")]
    assert offsets == list(range(25))


def test_only_headers_are_shown_where_only_they_are_wanted(whole: Path, run_dump: Tool) -> None:
    _, answer = run_dump(whole / f"{FIRST}.log", "--headers-only")

    assert {line["type"] for line in answer} == {"file", "batch"}


def test_it_begins_at_the_offset_that_is_wanted(whole: Path, run_dump: Tool) -> None:
    _, answer = run_dump(whole / "packed-0/00000000000000000000.log", "--offset", 7)

    assert of_type(answer, "batch")[0]["base_offset"] == 5
    assert of_type(answer, "record")[0]["offset"] == 7


@pytest.mark.parametrize(
    ("edit", "from_end", "found", "expected"),
    [
        (
            lambda content: content[:-5],
            78,
            "73 bytes of a batch, 73 bytes before",
            "the 78 bytes that its header counts",
        ),
        (lambda content: content + bytes(200), 0, "zeros to the end of the file, 200 bytes before", "a record batch"),
        (lambda content: content + bytes(9) + b"\1", 0, "10 bytes, 10 bytes before", "a batch's header of 61"),
        (lambda content: content + b"\xff" * 99, 0, "a batch length of -1, 99 bytes before", "49 or more"),
        (lambda content: content[:-62] + b"\1" + content[-61:], 78, "magic 1, 78 bytes before", "2"),
    ],
    ids=["cut", "zeros", "few bytes", "rubbish", "magic"],
)
def test_what_is_no_batch_is_shown_and_ends_the_segment(
    whole: Path, run_dump: Tool, edit: Callable[[bytes], bytes], from_end: int, found: str, expected: str
) -> None:
    path = whole / f"{FIRST}.log"
    content = path.read_bytes()
    path.write_bytes(edit(content))

    code, answer = run_dump(path)

    assert code == 0
    assert answer[-1] == {
        "type": "damage",
        "position": len(content) - from_end,
        "found": f"{found} the end",
        "expected": expected,
    }
    assert len(of_type(answer, "batch")) == BATCHES + 4 - bool(from_end)


def test_a_batch_with_a_wrong_crc_does_not_hide_the_others(whole: Path, run_dump: Tool) -> None:
    path = whole / f"{FIRST}.log"
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    path.write_bytes(content)

    _, answer = run_dump(path)

    batches = of_type(answer, "batch")
    assert [batch["crc_valid"] for batch in batches] == [False] + [True] * (BATCHES + 3)
    assert of_type(answer, "damage")[0]["found"].startswith("CRC ")


# Kafka's own topics ---------------------------------------------------------------------------------------------------


def test_committed_offsets_and_groups_are_decoded(whole: Path, run_dump: Tool) -> None:
    _, answer = run_dump(whole / "__consumer_offsets-0/00000000000000000000.log")

    commit, tombstone, unknown, malformed = of_type(answer, "record")
    assert (commit["record"], commit["version"]) == ("OffsetCommit", 4)
    assert commit["key"] == {"group": "g", "topic": "orders", "partition": 0}
    assert commit["value"] == {
        "offset": 3,
        "leader_epoch": -1,
        "metadata": "",
        "commit_timestamp": T,
        "topic_id": "AAAAAAAAAAAAAAAAAAAAAA",
    }
    assert (tombstone["record"], tombstone["key"], tombstone["value"]) == ("GroupMetadata", {"group": "g"}, None)
    assert (unknown["record"], unknown["key"]) == ("unknown type 99", "\x00cnew")
    assert malformed["key"] == "\x00\x02\x00"
    assert malformed["malformed"]


def test_transactions_are_decoded(whole: Path, run_dump: Tool) -> None:
    _, answer = run_dump(whole / "__transaction_state-0/00000000000000000000.log")

    complete, prepared = of_type(answer, "record")
    assert (complete["record"], complete["version"], complete["key"]) == (
        "TransactionLog",
        1,
        {"transactional_id": "t"},
    )
    assert (complete["value"]["producer_id"], complete["value"]["transaction_status"]) == (200, "COMPLETE_ABORT")
    assert prepared["key"] == {"transactional_id": "u"}
    assert prepared["value"] == {
        "producer_id": 201,
        "previous_producer_id": -1,
        "next_producer_id": -1,
        "producer_epoch": 0,
        "next_producer_epoch": -1,
        "transaction_timeout_ms": 60_000,
        "transaction_status": "PREPARE_ABORT",
        "transaction_partitions": [{"topic": "orders", "partition_ids": [0]}],
        "transaction_last_update_timestamp_ms": T,
        "transaction_start_timestamp_ms": T,
        "client_transaction_version": 0,
    }


def write_internal(directory: Path, topic: str, records: list[tuple[bytes, bytes | None]]) -> Path:
    """A segment of one of Kafka's own topics with a batch of these records."""
    segment = directory / f"{topic}-0" / "00000000000000000000.log"
    segment.parent.mkdir()
    batch = stored([Record(timestamp=T, key=key, value=value) for key, value in records])
    segment.write_bytes(batch)
    return segment


def test_records_of_newer_groups_are_decoded_by_their_names(tmp_path: Path, run_dump: Tool) -> None:
    topic_id = bytes(range(16))
    target = ShareGroupTargetAssignmentMemberValue
    written: list[tuple[GroupKey, GroupValue | None]] = [
        (ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=7, metadata_hash=5)),
        (
            ShareGroupTargetAssignmentMemberKey(group_id="s", member_id="anna"),
            target(topic_partitions=[target.TopicPartition(topic_id=topic_id, partitions=[0, 2])]),
        ),
        (ShareGroupMetadataKey(group_id="s"), None),
    ]
    records = [encode_group_record(GroupRecord(key, value, 0)) for key, value in written]
    _, answer = run_dump(write_internal(tmp_path, "__consumer_offsets", records))
    epoch, assigned, gone = of_type(answer, "record")
    assert (epoch["record"], epoch["version"], epoch["key"]) == ("ConsumerGroupMetadata", 0, {"group_id": "g"})
    assert epoch["value"] == {"epoch": 7, "metadata_hash": 5}
    assert assigned["record"] == "ShareGroupTargetAssignmentMember"
    assert assigned["key"] == {"group_id": "s", "member_id": "anna"}
    assert assigned["value"] == {"topic_partitions": [{"topic_id": "AAECAwQFBgcICQoLDA0ODw", "partitions": [0, 2]}]}
    assert (gone["record"], gone["value"]) == ("ShareGroupMetadata", None)


def test_states_of_share_groups_are_decoded(tmp_path: Path, run_dump: Tool) -> None:
    about: dict[str, Any] = {"group_id": "s", "topic_id": bytes(range(16)), "partition": 3}
    batches = [
        StateBatch(first_offset=4, last_offset=6, delivery_state=2, delivery_count=1),
        StateBatch(first_offset=7, last_offset=7, delivery_state=77, delivery_count=1),
    ]
    update = ShareUpdateValue(snapshot_epoch=1, leader_epoch=2, start_offset=4, state_batches=batches)
    key, value = encode_share_state_key(ShareUpdateKey(**about)), encode_share_state_value(update)
    records = [
        (key, value),
        (encode_share_state_key(ShareSnapshotKey(**about)), None),
        (key, value[:-3]),
        (b"\x00\x07", b"\x00\x00"),
    ]
    _, answer = run_dump(write_internal(tmp_path, "__share_group_state", records))
    changed, gone, malformed, unknown = of_type(answer, "record")
    assert (changed["record"], changed["version"]) == ("ShareUpdate", 0)
    assert changed["key"] == {"group_id": "s", "topic_id": "AAECAwQFBgcICQoLDA0ODw", "partition": 3}
    assert changed["value"] == {
        "snapshot_epoch": 1,
        "leader_epoch": 2,
        "start_offset": 4,
        "delivery_complete_count": -1,
        "state_batches": [
            {"first_offset": 4, "last_offset": 6, "delivery_state": "ACKNOWLEDGED", "delivery_count": 1},
            {"first_offset": 7, "last_offset": 7, "delivery_state": 77, "delivery_count": 1},
        ],
    }
    assert (gone["record"], gone["value"]) == ("ShareSnapshot", None)
    assert malformed["malformed"]
    assert unknown["record"] == "unknown type 7"


def test_people_read_what_became_of_a_transaction(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dump.main([str(whole / "__transaction_state-0/00000000000000000000.log")]) == 0
    state = capsys.readouterr().out.splitlines()[-1]
    assert dump.main([str(whole / f"{FIRST}.log")]) == 0
    marker = capsys.readouterr().out.splitlines()[-1]

    assert 'record TransactionLog  version 1  key {"transactional_id": "u"}  value {"producer_id": 201, ' in state
    assert '"transaction_status": "PREPARE_ABORT", "transaction_partitions": [{"topic": "orders", ' in state
    assert marker.endswith("control ABORT   version 0  coordinator_epoch 0")


def test_the_metadata_log_and_its_snapshots_are_decoded(whole: Path, run_dump: Tool) -> None:
    directory = whole / "__cluster_metadata-0"
    _, log = run_dump(directory / "00000000000000000000.log")
    _, snapshot = run_dump(directory / "00000000000000000000-0000000000.checkpoint")

    topics = [record for record in of_type(log, "record") if record.get("record") == "TopicRecord"]
    assert [topic["fields"]["name"] for topic in topics] == [
        "orders", "packed", "__consumer_offsets", "__transaction_state",
    ]  # fmt: skip
    assert all(len(topic["fields"]["topic_id"]) == 22 for topic in topics)
    assert of_type(log, "record")[0]["control"] == "LEADER_CHANGE"
    assert [record["control"] for record in of_type(snapshot, "record") if "control" in record] == [
        "SNAPSHOT_HEADER", "KRAFT_VERSION", "KRAFT_VOTERS", "SNAPSHOT_FOOTER",
    ]  # fmt: skip
    first = next(record for record in of_type(snapshot, "record") if record.get("record") == "FeatureLevelRecord")
    assert (first["offset"], first["fields"]) == (3, {"name": "metadata.version", "feature_level": 33})


# Other files ----------------------------------------------------------------------------------------------------------


def test_indexes_and_producers_are_shown_entry_by_entry(whole: Path, run_dump: Tool) -> None:
    _, index = run_dump(whole / f"{FIRST}.index")
    _, times = run_dump(whole / f"{FIRST}.timeindex")
    _, aborted = run_dump(whole / f"{FIRST}.txnindex")
    _, producers = run_dump(next(iter(sorted((whole / "orders-0").glob("*.snapshot")))))

    assert len(of_type(index, "entry")) == (whole / f"{FIRST}.index").stat().st_size // 8
    assert all(set(entry) == {"type", "offset", "position"} for entry in of_type(index, "entry"))
    assert of_type(times, "entry")[-1]["timestamp"] == T + 5
    assert aborted[1:] == [
        {"type": "aborted", "producer_id": 200, "first_offset": 15, "last_offset": 17, "last_stable_offset": 18}
    ]
    assert [(producer["producer_id"], producer["last_offset"]) for producer in producers[1:]] == [(100, 13), (200, 16)]


def test_what_is_preallocated_is_no_entry(killed: Path, run_dump: Tool) -> None:
    (active,) = [path for path in (killed / "orders-0").glob("*.index") if path.name != "00000000000000000000.index"]

    _, answer = run_dump(active)

    (rest,) = of_type(answer, "preallocated")
    assert rest["bytes"] == 12_000 - 8 * len(of_type(answer, "entry"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("replication-offset-checkpoint", {"type": "checkpoint", "topic": "orders", "partition": 0, "offset": 36}),
        ("orders-0/leader-epoch-checkpoint", {"type": "leader_epoch", "epoch": 0, "start_offset": 0}),
        (".kafka_cleanshutdown", {"type": "clean_shutdown", "version": 0}),
        ("__cluster_metadata-0/quorum-state", {"type": "quorum_state", "leaderId": 1, "leaderEpoch": 1}),
        ("meta.properties", {"type": "belongs_to", "node_id": 1}),
        ("__cluster_metadata-0/partition.metadata", {"type": "topic", "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ"}),
    ],
)
def test_the_small_files_are_shown(whole: Path, run_dump: Tool, name: str, expected: dict[str, Any]) -> None:
    code, answer = run_dump(whole / name)

    assert code == 0
    assert any(expected.items() <= line.items() for line in answer), answer


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("replication-offset-checkpoint", b"0\n2\norders 0 1\n"),
        ("leader-epoch-checkpoint", b"\xff"),
        (".kafka_cleanshutdown", b"[]"),
        ("quorum-state", b"{"),
        ("meta.properties", b"version=0"),
        ("partition.metadata", b"version: 1"),
        ("00000000000000000005.snapshot", b"\0\1\0\0\0\0\0\0\0\1"),
        ("00000000000000000005.index", b"\0" * 7),
        ("00000000000000000005.timeindex", b"\1" * 13),
        ("00000000000000000005.txnindex", b"\1" * 34),
    ],
)
def test_damage_in_any_of_them_is_said_and_nothing_more(
    tmp_path: Path, run_dump: Tool, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)

    code, answer = run_dump(tmp_path / name)

    assert (code, len(of_type(answer, "damage"))) == (0, 1)


def test_a_marker_without_content_is_shown_too(tmp_path: Path, run_dump: Tool) -> None:
    (tmp_path / ".kafka_cleanshutdown").touch()

    assert run_dump(tmp_path / ".kafka_cleanshutdown")[1][1:] == [{"type": "clean_shutdown"}]


# LogDirs ----------------------------------------------------------------------------------------------------------


def test_a_partitions_directory_is_shown_file_by_file(whole: Path, run_dump: Tool) -> None:
    _, answer = run_dump(whole / "orders-0")

    names = [line["name"] for line in of_type(answer, "file")]
    assert names == [
        "leader-epoch-checkpoint",
        "partition.metadata",
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000000.txnindex",
        "00000000000000000018.log",
        "00000000000000000018.index",
        "00000000000000000018.timeindex",
        "00000000000000000018.txnindex",
        "00000000000000000018.snapshot",
        "00000000000000000036.snapshot",
    ]


def test_a_data_directory_is_shown_as_an_overview(whole: Path, run_dump: Tool) -> None:
    (whole / "backup").mkdir()

    _, answer = run_dump(whole)

    assert [line["type"] for line in answer[:3]] == ["data_directory", "belongs_to", "clean_shutdown"]
    logs = {line["name"]: line for line in of_type(answer, "log")}
    assert set(logs) == {
        "__cluster_metadata-0", "__consumer_offsets-0", "__transaction_state-0", "orders-0", "orders-1", "packed-0",
    }  # fmt: skip
    size = sum(path.stat().st_size for path in (whole / "orders-0").glob("*.log"))
    assert logs["orders-0"] == {
        "type": "log",
        "name": "orders-0",
        "segments": 2,
        "bytes": size,
        "start_offset": 0,
        "end_offset": 36,
        "recovery_point": 36,
        "high_watermark": 36,
    }
    assert [line["found"].split(";")[0] for line in of_type(answer, "damage")] == [
        "found directory 'backup' among the logs"
    ]
    assert of_type(answer, "file")[0]["name"] == "recovery-point-offset-checkpoint"


def test_the_end_of_a_log_is_found_without_an_index_that_can_be_used(killed: Path, run_dump: Tool) -> None:
    index = killed / "orders-0/00000000000000000018.index"
    for content in (b"", b"\7" * 80, index.read_bytes()):
        index.write_bytes(content)

        _, answer = run_dump(killed)

        assert [line["end_offset"] for line in of_type(answer, "log") if line["name"] == "orders-0"] == [36]


# What cannot be shown -------------------------------------------------------------------------------------------------


def test_what_is_not_there_or_no_file_of_a_data_directory_cannot_be_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").touch()

    for name, sentence in (
        ("gone.log", "there is no "),
        ("notes.txt", "has the name of no file that a data directory has"),
        (".", "is neither a data directory nor a partition's"),
    ):
        assert dump.main([str(tmp_path / name)]) == 1
        assert sentence in capsys.readouterr().err


def test_bad_usage_has_an_exit_code_of_its_own() -> None:
    with pytest.raises(SystemExit) as exit_:
        dump.main(["--nonsense"])

    assert exit_.value.code == 2


def test_who_reads_the_output_may_stop(whole: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "ottla", "dump", str(whole / "orders-0")]

    finished = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)

    os.close(writing)
    assert (finished.returncode, finished.stderr) == (0, b"")


def test_the_launcher_knows_its_commands() -> None:
    finished = subprocess.run([sys.executable, "-m", "ottla", "burn"], capture_output=True, text=True, check=False)

    assert finished.returncode == 2
    commands = "run, dump, verify, health, cluster, features, cert, pipeline"
    assert finished.stderr == f"ottla: there is no command 'burn'; there are: {commands}\n"
