"""The groups of a data directory, read only from the files of ``__consumer_offsets``.

A test replays the records that a broker has written, one by one, and compares the result with the broker's memory.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from broker.coordinators.group.image import GroupImage
from broker.coordinators.group.modern.group import ModernGroup
from broker.coordinators.group.offset_table import unpack_offset
from protocol.primitives import Malformed
from protocol.records.group_metadata import decode_group_record
from storage.batch.markers import read_marker
from storage.batch.records import iterate_records
from storage.batch.walk import BatchWalk, StoredBatch
from storage.files import FileSystem
from storage.sentinels import NO_PRODUCER_ID

TOPIC = "__consumer_offsets"


class StoredGroups:
    """An image of each partition, replayed from its files."""

    def __init__(self, *directories: str | Path) -> None:
        self._directories = [Path(directory) for directory in directories]
        self._files = FileSystem()
        self._read: dict[Path, int] = {}
        """How many bytes of each segment have been read."""
        self.images: dict[int, GroupImage] = {}
        """Images by partition."""
        self.records = 0
        """How many records have been replayed."""
        self.passed_over: list[str] = []
        """Descriptions of unreadable records."""

    def read_on(self) -> int:
        """Replay the records that were written since the last call. Returns their number."""
        return sum(1 for _ in self.steps())

    def steps(self) -> Iterator[tuple[int, int, GroupImage]]:
        """Replay new records one by one: partition and offset of each record, and the image after it."""
        for partition, segment in self._segments():
            image = self.images.setdefault(partition, GroupImage())
            file = self._files.open_read(str(segment))
            for batch in BatchWalk(file.pread, self._read.get(segment, 0), file.size):
                for offset in self._replay(batch, image, segment.parent.name):
                    self.records += 1
                    yield partition, offset, image
                self._read[segment] = batch.position + len(batch.data)

    def _segments(self) -> Iterator[tuple[int, Path]]:
        for directory in self._directories:
            for home in sorted(directory.glob(f"{TOPIC}-*")):
                number = home.name.removeprefix(f"{TOPIC}-")
                if number.isdigit():
                    yield from ((int(number), segment) for segment in sorted(home.glob("*.log")))

    def _replay(self, batch: StoredBatch, image: GroupImage, where: str) -> Iterator[int]:
        header = batch.header
        if header.is_control:
            marker = read_marker(header, batch.data)
            if marker is not None:
                image.replay_marker(marker.producer_id, commits=marker.is_commit)
                yield header.base_offset
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in iterate_records(batch.data):
            try:
                if record.key is None:
                    raise Malformed("it has no key")
                image.replay(decode_group_record(record.key, record.value), producer_id)
            except Malformed as error:
                self.passed_over.append(f"{where} at {record.offset}: {error}")
            yield record.offset


def contents(image: GroupImage) -> dict[tuple[str, ...], Any]:
    """All state of an image by unambiguous names; equal images give equal mappings."""
    found: dict[tuple[str, ...], Any] = {}
    for group_id, metadata in image.groups.items():
        for name in ("protocol_type", "generation", "protocol", "leader", "state_timestamp"):
            found["group", group_id, name] = getattr(metadata, name)
        found["group", group_id, "members"] = tuple(metadata.members.values())
    for group_id, group in image.modern.items():
        found[f"{group.kind} group", group_id] = dict(_fields(group))
    for group_id in image.offsets.groups():
        for (topic, partition), committed in image.offsets.of_group(group_id):
            found["offset", group_id, topic, str(partition)] = committed
    for group_id in image.pending.groups():
        for topic, partition in image.pending.partitions(group_id):
            by_producer = image.pending._by_group[group_id][topic, partition]
            found["pending offset", group_id, topic, str(partition)] = [
                (producer_id, None if packed is None else unpack_offset(packed))
                for producer_id, packed in by_producer.items()
            ]
    return found


def _fields(group: ModernGroup) -> Iterator[tuple[str, Any]]:
    """All that a group keeps, in whatever order its records came."""
    for of_class in type(group).__mro__:
        for name in getattr(of_class, "__slots__", ()):
            yield name, getattr(group, name)


def differences(stored: Mapping[int, GroupImage], live: Mapping[int, GroupImage]) -> list[str]:
    """The fields in which the files and a broker's memory differ, one line for each field, partition by partition."""
    lines = []
    for partition in sorted({*stored, *live}):
        told = contents(stored.get(partition, GroupImage()))
        known = contents(live.get(partition, GroupImage()))
        lines += [
            f"{TOPIC}-{partition}: {' '.join(name)}: {told.get(name, 'nothing')} is stored, "
            f"the broker has {known.get(name, 'nothing')}"
            for name in sorted({*told, *known})
            if (name in told, told.get(name)) != (name in known, known.get(name))
        ]
    return lines
