"""The small text files, in Kafka's own bytes."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.checkpoints import (
    MetaProperties,
    encode_leader_epochs,
    format_id,
    parse_id,
    read_leader_epochs,
    read_meta_properties,
    read_offset_checkpoint,
    read_topic_id,
    take_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
    write_offset_checkpoint,
    write_topic_id,
)
from storage.errors import CorruptCheckpoint, DiskFull, WrongDirectory
from storage.files import FileSystem
from storage.topic_partition import TopicPartition
from tests.support.files import FaultyFileSystem

FILES = FileSystem()
ID = bytes.fromhex("00000000000040008000000000000005")


def test_an_offset_checkpoint_is_kafkas(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    offsets = {TopicPartition("orders", 0): 12, TopicPartition("my.topic-1", 3): 0}
    write_offset_checkpoint(FILES, str(path), offsets)
    assert path.read_bytes() == b"0\n2\norders 0 12\nmy.topic-1 3 0\n"
    assert read_offset_checkpoint(FILES, str(path)) == offsets
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_missing_or_empty_checkpoint_has_no_entries(tmp_path: Path) -> None:
    assert read_offset_checkpoint(FILES, str(tmp_path / "none")) == {}
    (tmp_path / "empty").touch()
    assert read_offset_checkpoint(FILES, str(tmp_path / "empty")) == {}
    assert read_leader_epochs(FILES, str(tmp_path / "empty")) == []
    write_offset_checkpoint(FILES, str(tmp_path / "nothing"), {})
    assert (tmp_path / "nothing").read_bytes() == b"0\n0\n"


@pytest.mark.parametrize(
    "content",
    [b"1\n0\n", b"0\n2\norders 0 12\n", b"0\n1\norders 0 12\nmore 0 1\n", b"0\n1\norders 0\n", b"0\n1\norders x 1\n",
     b"0\nx\n", b"0", b"\0" * 20, b"\xff\xfe\n", b"0\n1\norders 0 1_0\n", b"0\n1\norders 0 " + b"9" * 5000 + b"\n",
     "0\n1\norders 0 \N{ARABIC-INDIC DIGIT ONE}\n".encode(), b"0\n1_\norders 0 1\n", b"0\n1\norders 0 --1\n"],
)  # fmt: skip
def test_a_damaged_checkpoint_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "replication-offset-checkpoint"
    path.write_bytes(content)
    with pytest.raises(CorruptCheckpoint, match="replication-offset-checkpoint"):
        read_offset_checkpoint(FILES, str(path))


def test_leader_epochs_are_kafkas(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_bytes(encode_leader_epochs([(0, 0), (3, 100)]))
    assert path.read_bytes() == b"0\n2\n0 0\n3 100\n"
    assert read_leader_epochs(FILES, str(path)) == [(0, 0), (3, 100)]


def test_partition_metadata_is_kafkas(tmp_path: Path) -> None:
    path = tmp_path / "partition.metadata"
    assert read_topic_id(FILES, str(path)) is None
    write_topic_id(FILES, str(path), ID)
    assert path.read_bytes() == b"version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAABQ"
    assert read_topic_id(FILES, str(path)) == ID


@pytest.mark.parametrize(
    "content",
    [b"", b"version: 1\ntopic_id: AAAAAAAAQACAAAAAAAAABQ", b"version: 0\n", b"version: 0\ntopic_id: short",
     b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", b"version: 0\ntopic_id: AAAAAAAA+ACAAAAAAAAABQ"],
)  # fmt: skip
def test_damaged_partition_metadata_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "partition.metadata"
    path.write_bytes(content)
    with pytest.raises(CorruptCheckpoint):
        read_topic_id(FILES, str(path))


@given(st.binary(min_size=16, max_size=16))
def test_every_id_comes_back_from_its_text(raw: bytes) -> None:
    assert len(format_id(raw)) == 22
    assert parse_id(format_id(raw)) == raw


def test_meta_properties_are_kafkas(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    properties = MetaProperties(
        cluster_id="AAAAAAAAQACAAAAAAAAABQ", node_id=1, directory_id=parse_id("8BBBBBBBQACAAAAAAAAABQ")
    )
    assert read_meta_properties(FILES, str(path)) is None
    write_meta_properties(FILES, str(path), properties, "Fri Nov 20 10:23:46 UTC 2026")
    assert path.read_text() == (
        "#\n#Fri Nov 20 10:23:46 UTC 2026\nnode.id=1\ndirectory.id=8BBBBBBBQACAAAAAAAAABQ\nversion=1\n"
        "cluster.id=AAAAAAAAQACAAAAAAAAABQ\n"
    )
    assert read_meta_properties(FILES, str(path)) == properties


CLUSTER_IDS = [
    ("Q2FzZVN0dWR5Q2x1c3Rlcg==", b"Q2FzZVN0dWR5Q2x1c3Rlcg\\=\\="),
    ("my cluster", b"my cluster"),
    (" x ", b"\\ x "),
    ("a:b=c", b"a\\:b\\=c"),
    ("#x!", b"\\#x\\!"),
    ("a\\b\tc\nd\fe", b"a\\\\b\\tc\\nd\\fe"),
    ("{x},'q',${Y}/+..", b"{x},'q',${Y}/+.."),
    ("", b""),
]
"""Ids, and how the format tool of Apache Kafka 4.4.0 writes them."""


@pytest.mark.parametrize(("cluster_id", "written"), CLUSTER_IDS)
def test_any_cluster_id_is_written_as_kafkas_format_tool_writes_it(
    tmp_path: Path, cluster_id: str, written: bytes
) -> None:
    path = tmp_path / "meta.properties"
    properties = MetaProperties(cluster_id=cluster_id, node_id=1, directory_id=None)

    write_meta_properties(FILES, str(path), properties, "today")

    assert path.read_bytes().splitlines()[-1] == b"cluster.id=" + written
    assert read_meta_properties(FILES, str(path)) == properties


@given(st.text())
def test_every_cluster_id_comes_back_from_its_file(cluster_id: str) -> None:
    properties = MetaProperties(cluster_id=cluster_id, node_id=1, directory_id=None)
    with TemporaryDirectory() as directory:
        path = f"{directory}/meta.properties"
        write_meta_properties(FILES, path, properties, "today")
        assert read_meta_properties(FILES, path) == properties


def test_a_directory_from_before_directory_ids_is_read(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    path.write_text("# made by hand\nversion=1\ncluster.id = mine\nnode.id=0\n")
    assert read_meta_properties(FILES, str(path)) == MetaProperties(cluster_id="mine", node_id=0, directory_id=None)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("version=0\nbroker.id=1\ncluster.id=x\n", "version '0'"), ("version=1\nnode.id=1\n", "cluster.id"),
     ("version=1\nnode.id=one\ncluster.id=x\n", "one"), ("", "version None"),
     ("version=1\nnode.id=1\ncluster.id=\\u12\n", "four hexadecimal digits")],
)  # fmt: skip
def test_other_meta_properties_are_refused_with_a_reason(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "meta.properties"
    path.write_text(text)
    with pytest.raises(WrongDirectory, match=complaint):
        read_meta_properties(FILES, str(path))


def test_the_clean_shutdown_marker_is_kafkas_and_is_taken_once(tmp_path: Path) -> None:
    path = tmp_path / ".kafka_cleanshutdown"
    assert take_clean_shutdown(FILES, str(path)) is None
    write_clean_shutdown(FILES, str(path), 42)
    assert path.read_bytes() == b'{"version":0,"brokerEpoch":42}'
    assert take_clean_shutdown(FILES, str(path)) == 42
    assert take_clean_shutdown(FILES, str(path)) is None
    path.touch()
    assert take_clean_shutdown(FILES, str(path)) == -1


def test_a_checkpoint_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    files = FaultyFileSystem()
    path = str(tmp_path / "recovery-point-offset-checkpoint")
    old = {TopicPartition("orders", 0): 1}
    write_offset_checkpoint(files, path, old)
    for room in range(15):
        files.fill_up(room)
        with pytest.raises(DiskFull):
            write_offset_checkpoint(files, path, {TopicPartition("orders", 0): 999_999})
        assert read_offset_checkpoint(files, path) == old
    files.make_room()
    write_offset_checkpoint(files, path, {TopicPartition("orders", 0): 2})
    files.cut_power(str(tmp_path))
    assert read_offset_checkpoint(files, path) == {TopicPartition("orders", 0): 2}
