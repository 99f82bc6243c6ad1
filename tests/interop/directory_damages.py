"""Kinds of damage to a data directory: each is made on disk, in a topic of its own.

Every topic has one partition of four segments, each of 20 batches of 3 records: base offsets 0, 60, 120 and 180, log
end 240, one producer. The recovery point is 120, so that two segments lie below it and two above.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from storage.batch.record_batch import HEADER_SIZE, BatchHeader, read_header

SEGMENTS = (0, 60, 120, 180)
LOG_END = 240
RECOVERY_POINT = 120
RECORDS_A_BATCH = 3

Damage = Callable[["PartitionFiles"], None]


class PartitionFiles:
    """The files of one partition, to be made worse."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def file(self, base: int, suffix: str) -> Path:
        return self.directory / f"{base:020d}{suffix}"

    def batches(self, base: int) -> list[tuple[int, BatchHeader]]:
        """Position and header of each batch of a segment."""
        content = self.file(base, ".log").read_bytes()
        found = []
        position = 0
        while position + HEADER_SIZE <= len(content):
            header = read_header(content, position)
            found.append((position, header))
            position += header.size
        return found

    def overwrite(self, base: int, suffix: str, position: int, content: bytes) -> None:
        with self.file(base, suffix).open("r+b") as file:
            file.seek(position)
            file.write(content)

    def truncate(self, path: Path, size: int) -> None:
        with path.open("r+b") as file:
            file.truncate(size)


# Indexes: (offset i32, position i32), (time stamp i64, offset i32).

_ENTRY_BYTES = {".index": 8, ".timeindex": 12}
_LAYOUT = {".index": struct.Struct(">ii"), ".timeindex": struct.Struct(">qi")}


def _entries(files: PartitionFiles, base: int, suffix: str) -> list[tuple[int, int]]:
    content = files.file(base, suffix).read_bytes()
    size = _ENTRY_BYTES[suffix]
    found = [_LAYOUT[suffix].unpack_from(content, at) for at in range(0, len(content) // size * size, size)]
    return [entry for number, entry in enumerate(found) if number == 0 or entry != (0, 0)]


def _put_entries(files: PartitionFiles, base: int, suffix: str, entries: list[tuple[int, int]]) -> None:
    path = files.file(base, suffix)
    length = path.stat().st_size
    content = b"".join(_LAYOUT[suffix].pack(*entry) for entry in entries)
    # The active segment's keep their full length.
    path.write_bytes(content.ljust(length, b"\0") if base == SEGMENTS[-1] else content)


def index_missing(base: int, suffix: str) -> Damage:
    return lambda files: files.file(base, suffix).unlink()


def index_of_odd_length(base: int, suffix: str) -> Damage:
    def damage(files: PartitionFiles) -> None:
        size = len(_entries(files, base, suffix)) * _ENTRY_BYTES[suffix]
        files.truncate(files.file(base, suffix), size // 2 | 1)

    return damage


def index_of_zeros(base: int, suffix: str) -> Damage:
    def damage(files: PartitionFiles) -> None:
        path = files.file(base, suffix)
        path.write_bytes(bytes(path.stat().st_size))

    return damage


def index_empty(base: int, suffix: str) -> Damage:
    return lambda files: files.truncate(files.file(base, suffix), 0)


def index_wrong(base: int, suffix: str) -> Damage:
    """Entries that rise as they should, and point to the middle of batches, or to the wrong offsets."""

    def damage(files: PartitionFiles) -> None:
        entries = _entries(files, base, suffix)
        if suffix == ".index":
            changed = [(offset, position + 17) for offset, position in entries]
        else:
            changed = [(timestamp + 30, offset) for timestamp, offset in entries]
        _put_entries(files, base, suffix, changed)

    return damage


def index_falling(base: int, suffix: str) -> Damage:
    return lambda files: _put_entries(files, base, suffix, _entries(files, base, suffix)[::-1])


def index_beyond_the_log(base: int, suffix: str) -> Damage:
    def damage(files: PartitionFiles) -> None:
        entries = _entries(files, base, suffix)
        last = entries[-1]
        beyond = (last[0] + 500, last[1] + 100_000) if suffix == ".index" else (last[0] + 500, last[1] + 1000)
        _put_entries(files, base, suffix, [*entries, beyond])

    return damage


# Batches


def _in_the_middle(files: PartitionFiles, base: int) -> tuple[int, BatchHeader]:
    return files.batches(base)[10]


def bad_magic(base: int) -> Damage:
    return lambda files: files.overwrite(base, ".log", _in_the_middle(files, base)[0] + 16, b"\x07")


def bad_crc(base: int) -> Damage:
    return lambda files: files.overwrite(base, ".log", _in_the_middle(files, base)[0] + 70, b"\xff\xff\xff")


def bad_length(base: int) -> Damage:
    return lambda files: files.overwrite(base, ".log", _in_the_middle(files, base)[0] + 8, struct.pack(">i", 1 << 28))


def torn_last_batch(base: int) -> Damage:
    return lambda files: files.truncate(files.file(base, ".log"), files.batches(base)[-1][0] + 40)


def torn_header(base: int) -> Damage:
    return lambda files: files.truncate(files.file(base, ".log"), files.batches(base)[-1][0] + 7)


def zeros_at_the_end(base: int) -> Damage:
    """What a power failure leaves where the length was written and the data was not."""

    def damage(files: PartitionFiles) -> None:
        path = files.file(base, ".log")
        path.write_bytes(path.read_bytes() + bytes(5000))

    return damage


def offset_falls_back(base: int) -> Damage:
    return lambda files: files.overwrite(
        base, ".log", _in_the_middle(files, base)[0], struct.pack(">q", _in_the_middle(files, base)[1].base_offset - 9)
    )


def offset_leaps(base: int) -> Damage:
    return lambda files: files.overwrite(
        base, ".log", _in_the_middle(files, base)[0], struct.pack(">q", _in_the_middle(files, base)[1].base_offset + 9)
    )


def log_missing(base: int) -> Damage:
    return lambda files: files.file(base, ".log").unlink()


def log_empty(base: int) -> Damage:
    return lambda files: files.truncate(files.file(base, ".log"), 0)


# Files beside


def snapshots_missing(files: PartitionFiles) -> None:
    for path in files.directory.glob("*.snapshot"):
        path.unlink()


def newest_snapshot_missing(files: PartitionFiles) -> None:
    max(files.directory.glob("*.snapshot")).unlink()


def snapshots_corrupt(files: PartitionFiles) -> None:
    for path in files.directory.glob("*.snapshot"):
        path.write_bytes(path.read_bytes()[:-1] + b"\x55")


def newest_snapshot_corrupt(files: PartitionFiles) -> None:
    path = max(files.directory.glob("*.snapshot"))
    path.write_bytes(path.read_bytes()[:-1] + b"\x55")


def snapshots_empty(files: PartitionFiles) -> None:
    for path in files.directory.glob("*.snapshot"):
        path.write_bytes(b"")


def snapshot_beyond_the_log(files: PartitionFiles) -> None:
    shutil.copy(max(files.directory.glob("*.snapshot")), files.file(900, ".snapshot"))


def missing(name: str) -> Damage:
    return lambda files: (files.directory / name).unlink()


def replaced(name: str, content: bytes) -> Damage:
    def damage(files: PartitionFiles) -> None:
        (files.directory / name).write_bytes(content)

    return damage


def left_over(base: int, suffix: str, left_as: str, *, remove: bool = False) -> Damage:
    """A file that the cleaner, or a deletion, has left; with ``remove``, what it was made of is gone."""

    def damage(files: PartitionFiles) -> None:
        path = files.file(base, suffix)
        shutil.copy(path, files.file(base, suffix + left_as))
        if remove:
            path.unlink()

    return damage


def swapped_pair(files: PartitionFiles) -> None:
    """The cleaner has put segments 0 and 60 into one, and had removed neither."""
    both = files.file(0, ".log").read_bytes() + files.file(60, ".log").read_bytes()
    files.file(0, ".log.swap").write_bytes(both)


def cleaned_below_swap(files: PartitionFiles) -> None:
    """A split that was not complete: `.cleaned` files below a `.swap`."""
    shutil.copy(files.file(0, ".log"), files.file(0, ".log.cleaned"))
    shutil.copy(files.file(60, ".log"), files.file(60, ".log.swap"))


def several(*damages: Damage) -> Damage:
    def damage(files: PartitionFiles) -> None:
        for one in damages:
            one(files)

    return damage


def _catalog() -> dict[str, Damage]:
    damages: dict[str, Damage] = {}
    places = {"old": 60, "middle": 120, "active": 180}
    for where, base in places.items():
        for kind, suffix in (("index", ".index"), ("timeindex", ".timeindex")):
            damages |= {
                f"{kind}-missing.{where}": index_missing(base, suffix),
                f"{kind}-empty.{where}": index_empty(base, suffix),
                f"{kind}-odd-length.{where}": index_of_odd_length(base, suffix),
                f"{kind}-zeros.{where}": index_of_zeros(base, suffix),
                f"{kind}-wrong.{where}": index_wrong(base, suffix),
                f"{kind}-falling.{where}": index_falling(base, suffix),
                f"{kind}-beyond.{where}": index_beyond_the_log(base, suffix),
            }
        damages |= {
            f"magic.{where}": bad_magic(base),
            f"crc.{where}": bad_crc(base),
            f"length.{where}": bad_length(base),
            f"torn-batch.{where}": torn_last_batch(base),
            f"torn-header.{where}": torn_header(base),
            f"zeros-at-end.{where}": zeros_at_the_end(base),
            f"offset-back.{where}": offset_falls_back(base),
            f"offset-leaps.{where}": offset_leaps(base),
            f"log-missing.{where}": log_missing(base),
            f"log-empty.{where}": log_empty(base),
        }
    damages |= {
        "snapshots-missing": snapshots_missing,
        "newest-snapshot-missing": newest_snapshot_missing,
        "snapshots-corrupt": snapshots_corrupt,
        "newest-snapshot-corrupt": newest_snapshot_corrupt,
        "snapshots-empty": snapshots_empty,
        "snapshot-beyond": snapshot_beyond_the_log,
        "epochs-missing": missing("leader-epoch-checkpoint"),
        "epochs-empty": replaced("leader-epoch-checkpoint", b""),
        "epochs-beyond": replaced("leader-epoch-checkpoint", b"0\n2\n0 0\n7 900\n"),
        "deleted-left": several(left_over(60, ".log", ".deleted"), left_over(60, ".index", ".deleted")),
        "snapshot-deleted-left": left_over(60, ".snapshot", ".deleted"),
        "cleaned-left": several(left_over(60, ".log", ".cleaned"), left_over(60, ".index", ".cleaned")),
        "swap-beside": several(left_over(60, ".log", ".swap"), left_over(60, ".index", ".swap")),
        "swap-alone": several(
            left_over(60, ".log", ".swap", remove=True), left_over(60, ".index", ".swap", remove=True)
        ),
        "swap-index-only": left_over(60, ".index", ".swap", remove=True),
        "swap-of-two": swapped_pair,
        "cleaned-below-swap": cleaned_below_swap,
        "tmp-left": left_over(60, ".snapshot", ".tmp"),
        "index-without-log": lambda files: files.file(90, ".index").write_bytes(bytes(8)) and None,
        "strange-file": replaced("notes.txt", b"do not delete"),
    }
    return damages


SOUND: dict[str, Damage] = {"none": lambda files: None}
"""A topic that nothing is wrong with."""

DAMAGES = _catalog()
"""Damages that concern their topic only, by name."""

DANGEROUS = {
    "epochs-corrupt": replaced("leader-epoch-checkpoint", b"0\n2\nnonsense\n"),
    "epochs-torn": replaced("leader-epoch-checkpoint", b"0\n2\n0 0\n"),
    "partition-metadata-missing": missing("partition.metadata"),
    "partition-metadata-corrupt": replaced("partition.metadata", b"\x00\x01nonsense"),
    "partition-metadata-empty": replaced("partition.metadata", b""),
    "partition-metadata-other-id": replaced("partition.metadata", b"version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAABQ"),
    "log-is-directory": several(missing(f"{60:020d}.log"), lambda files: files.file(60, ".log").mkdir()),
}
"""Damages of one topic that may take the whole directory with them."""


def _checkpoint(name: str, content: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(data: Path) -> None:
        path = data / name
        path.write_bytes(content(path.read_bytes() if path.exists() else b"0\n1\nnone 0 60\n"))

    return damage


def _directory(name: str) -> Callable[[Path], None]:
    def damage(data: Path) -> None:
        (data / name).mkdir()

    return damage


def _unknown_topic(data: Path) -> None:
    shutil.copytree(data / "none-0", data / "unknown-0")
    (data / "unknown-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAABQ")


def _unknown_partition(data: Path) -> None:
    shutil.copytree(data / "none-0", data / "none-7")


OF_THE_DIRECTORY: dict[str, Callable[[Path], None]] = {
    f"{what}-{how}": _checkpoint(name, content)
    for what, name in {
        "recovery-points": "recovery-point-offset-checkpoint",
        "log-starts": "log-start-offset-checkpoint",
        "high-watermarks": "replication-offset-checkpoint",
    }.items()
    for how, content in {
        "torn": lambda content: content[: len(content) // 2],
        "empty": lambda content: b"",
        "garbage": lambda content: b"\x00" * len(content),
    }.items()
} | {
    "unknown-topic": _unknown_topic,
    "unknown-partition": _unknown_partition,
    "no-partition-number": _directory("notes"),
    "no-number-after-dash": _directory("some-notes"),
    "lost+found": _directory("lost+found"),
    "hidden": _directory(".hidden"),
    "delete-directory": lambda data: shutil.copytree(data / "none-0", data / f"gone-0.{'a' * 32}-delete") and None,
    "stray-directory": lambda data: shutil.copytree(data / "none-0", data / f"gone-0.{'a' * 32}-stray") and None,
    "future-directory": lambda data: shutil.copytree(data / "none-0", data / f"none-0.{'a' * 32}-future") and None,
    "empty-known-directory": lambda data: [path.unlink() for path in (data / "none-0").iterdir()] and None,
    "known-directory-missing": lambda data: shutil.rmtree(data / "none-0"),
    "marker-garbage": lambda data: (data / ".kafka_cleanshutdown").write_bytes(b"\x00garbage") and None,
}
"""Damages of the whole directory, each to be tried alone."""
