"""The small text files: checkpoints of offsets and epochs, `partition.metadata`, `meta.properties`, clean-stop marker.

Offset checkpoints, one file a data directory, and leader epochs, one file a partition (UTF-8, each line ends with \\n):

    0                                    version
    2                                    how many lines follow
    orders 0 12                          topic partition offset        | epoch start-offset
    my.topic-1 3 0

A file of no bytes has no entries.

    partition.metadata                   meta.properties               .kafka_cleanshutdown
    ------------------                   ---------------               --------------------
    version: 0\\n                         #                             {"version":0,"brokerEpoch":42}
    topic_id: AAAAAAAAQACAAAAAAAAABQ     #<date>
    (no \\n at the end)                   node.id=1
                                         directory.id=<22 characters>
                                         version=1
                                         cluster.id=<any text, escaped as in a Java properties file>
"""

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from config.properties import escaped_value, parse_properties
from storage.errors import CorruptCheckpoint, WrongDirectory
from storage.files import FileSystem
from storage.topic_partition import TopicPartition

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"

_VERSION = "0"
_MOST_DIGITS: Final = 18
"""Digits of an offset, at most: at a billion records a second such offsets last for thirty years."""


def read_offset_checkpoint(files: FileSystem, path: str) -> dict[TopicPartition, int]:
    """The offsets in a checkpoint file; none if it is missing. Raises CorruptCheckpoint."""
    offsets: dict[TopicPartition, int] = {}
    for line in _read_lines(files, path):
        words = line.split(" ")
        if len(words) != 3:
            raise _bad_line(path, line, "<topic> <partition> <offset>")
        offsets[TopicPartition(words[0], _number(path, line, words[1]))] = _number(path, line, words[2])
    return offsets


def write_offset_checkpoint(files: FileSystem, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace a checkpoint file; it is on disk when this returns."""
    lines = (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())
    files.replace_atomically(path, _as_text(len(offsets), lines), fsync=True)


def read_leader_epochs(files: FileSystem, path: str) -> list[tuple[int, int]]:
    """The (epoch, start offset) lines of a partition; none if the file is missing. Raises CorruptCheckpoint."""
    epochs: list[tuple[int, int]] = []
    for line in _read_lines(files, path):
        words = line.split(" ")
        if len(words) != 2:
            raise _bad_line(path, line, "<epoch> <start offset>")
        epochs.append((_number(path, line, words[0]), _number(path, line, words[1])))
    return epochs


def encode_leader_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    """The content of a partition's leader-epoch file."""
    lines = [f"{epoch} {start_offset}" for epoch, start_offset in epochs]
    return _as_text(len(lines), lines)


def _as_text(count: int, lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in (_VERSION, count, *lines)).encode()


def _read_lines(files: FileSystem, path: str) -> list[str]:
    try:
        content = files.read_file(path)
    except FileNotFoundError:
        return []
    if not content:
        return []
    try:
        version, count, *lines = content.decode().removesuffix("\n").split("\n")
    except ValueError:
        raise CorruptCheckpoint(f"{path} is no checkpoint: it begins with {content[:40]!r}") from None
    if version != _VERSION:
        raise CorruptCheckpoint(f"{path} has version {version!r}, expected {_VERSION}")
    if _number(path, count, count) != len(lines):
        raise CorruptCheckpoint(f"{path} has {len(lines)} entries and says that it has {count}")
    return lines


def _number(path: str, line: str, word: str) -> int:
    # int() would also take 1_0, and a number of any size.
    digits = word.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS):
        raise _bad_line(path, line, "a number")
    return int(word)


def _bad_line(path: str, line: str, expected: str) -> CorruptCheckpoint:
    return CorruptCheckpoint(f"{path} has the line {line!r}, expected {expected}")


def format_id(raw: bytes) -> str:
    """A 16-byte id as Kafka writes it in text: 22 characters of URL-safe Base64."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def parse_id(text: str) -> bytes:
    """The 16 bytes of an id written as 22 characters. Raises ValueError."""
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except binascii.Error:
        raw = b""
    # Python takes the characters of ordinary Base64 as well.
    if len(raw) != 16 or "+" in text or "/" in text:
        raise ValueError(f"{text!r} is no id: expected 22 characters of URL-safe Base64")
    return raw


def read_topic_id(files: FileSystem, path: str) -> bytes | None:
    """The topic id in a `partition.metadata` file; None if it is missing. Raises CorruptCheckpoint."""
    try:
        text = files.read_file(path).decode(errors="replace")
    except FileNotFoundError:
        return None
    fields = dict(line.split(": ", 1) for line in text.split("\n") if ": " in line)
    if fields.get("version") != "0":
        raise CorruptCheckpoint(f"{path} has version {fields.get('version')!r}, expected 0")
    try:
        topic_id = parse_id(fields.get("topic_id", ""))
    except ValueError as error:
        raise CorruptCheckpoint(f"{path}: {error}") from None
    if not any(topic_id):
        raise CorruptCheckpoint(f"{path} has the topic id of no topic, all zeros")
    return topic_id


def write_topic_id(files: FileSystem, path: str, topic_id: bytes, *, fsync: bool = False) -> None:
    """Write `partition.metadata`.

    Without ``fsync`` it reaches the disk with the first flush of the log: the metadata log has the truth, unless
    another topic had the name before.
    """
    files.replace_atomically(path, f"version: 0\ntopic_id: {format_id(topic_id)}".encode(), fsync=fsync)


class MetaProperties(NamedTuple):
    """The content of `meta.properties`: the cluster, node and id of a data directory."""

    cluster_id: str
    node_id: int
    directory_id: bytes | None
    """The directory id, 16 bytes; None in a directory formatted before Kafka 3.7."""


def read_meta_properties(files: FileSystem, path: str) -> MetaProperties | None:
    """Read `meta.properties`; None if the directory is not formatted. Raises WrongDirectory."""
    try:
        content = files.read_file(path)
    except FileNotFoundError:
        return None
    try:
        values = parse_properties(content.decode("latin-1"))
    except ValueError as error:
        raise WrongDirectory(f"{path} has {error}") from None
    if values.get("version") != "1":
        raise WrongDirectory(
            f"{path} has version {values.get('version')!r}; expected 1, as KRaft brokers write it since Kafka 3.3"
        )
    try:
        directory_id = parse_id(values["directory.id"]) if "directory.id" in values else None
        return MetaProperties(
            cluster_id=values["cluster.id"], node_id=int(values["node.id"]), directory_id=directory_id
        )
    except KeyError as error:
        raise WrongDirectory(f"{path} does not name its {error.args[0]}") from None
    except ValueError as error:
        raise WrongDirectory(f"{path}: {error}") from None


def write_meta_properties(files: FileSystem, path: str, properties: MetaProperties, date: str) -> None:
    """Write `meta.properties`; on disk when this returns. ``date`` is text for people, in the second line."""
    lines = ["#", f"#{date}", f"node.id={properties.node_id}"]
    if properties.directory_id is not None:
        lines.append(f"directory.id={format_id(properties.directory_id)}")
    lines += ["version=1", f"cluster.id={escaped_value(properties.cluster_id)}"]
    files.replace_atomically(path, "".join(f"{line}\n" for line in lines).encode(), fsync=True)


def write_clean_shutdown(files: FileSystem, path: str, broker_epoch: int) -> None:
    """Write the marker of a clean shutdown, the very last write to a directory."""
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    files.replace_atomically(path, content.encode(), fsync=True)


def take_clean_shutdown(files: FileSystem, path: str) -> int | None:
    """Remove the clean-shutdown marker and return its broker epoch (-1 if it names none); None without a marker.

    The marker is gone from the disk when this returns: if it came back after a power cut, it would vouch for logs that
    have been written to since.
    """
    broker_epoch = read_clean_shutdown(files, path)
    if broker_epoch is not None:
        files.remove(path)
        files.fsync_directory(path.rpartition("/")[0])
    return broker_epoch


def read_clean_shutdown(files: FileSystem, path: str) -> int | None:
    """The broker epoch in the clean-shutdown marker, -1 if the marker names none; None without a marker."""
    try:
        content = files.read_file(path)
    except FileNotFoundError:
        return None
    try:
        return int(json.loads(content)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return -1
