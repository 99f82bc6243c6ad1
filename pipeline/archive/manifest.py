"""The manifest names the files of an archive. It is one file, replaced by a rename: all of a run counts, or none."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from pipeline.archive.durable import put
from pipeline.archive.places import MANIFEST, Stretch
from pipeline.errors import PipelineError

FORMAT: Final = 1

PARQUET: Final = "parquet"
DELTA: Final = "delta"
TABLE_FORMATS: Final = (PARQUET, DELTA)
"""The table formats of an archive: only directories of Parquet files, or also a Delta table."""


class NoArchive(PipelineError):
    """There is no archive, or its format is of another version."""


class RowsFile(NamedTuple):
    """A Parquet file with rows of one partition and, if the archive has directories by date, of one date."""

    path: str
    """The path relative to the archive."""
    topic: str
    partition: int
    date: str | None
    from_offset: int
    until_offset: int
    first_offset: int
    last_offset: int
    rows: int
    bytes: int
    sha256: str

    @property
    def stretch(self) -> Stretch:
        return Stretch(self.topic, self.partition, self.from_offset, self.until_offset)


class BatchesFile(NamedTuple):
    """A Parquet file with a row for each batch of a range of offsets."""

    path: str
    topic: str
    partition: int
    from_offset: int
    until_offset: int
    batches: int
    rows: int
    """How many rows of these offsets the files with rows have."""
    leader_epoch: int
    """The leader epoch of the last batch; -1 if there is no batch."""
    bytes: int
    sha256: str

    @property
    def stretch(self) -> Stretch:
        return Stretch(self.topic, self.partition, self.from_offset, self.until_offset)


class Gap(NamedTuple):
    """Offsets that are not in the archive and never will be."""

    from_offset: int
    until_offset: int
    reason: str


class ArchivedPartition(NamedTuple):
    """The range of offsets of a partition that is archived."""

    from_offset: int
    until_offset: int
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedTopic:
    """A topic of the archive, as the last run found it."""

    topic_id: str
    partition_count: int
    configs: Mapping[str, str] | None = None
    """The topic's configs; None if the archive was made without a broker."""
    partitions: Mapping[int, ArchivedPartition] = field(default_factory=dict)


class CommittedOffset(NamedTuple):
    """The committed offset of a consumer group for a partition."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of the manifest's file. It is immutable."""

    name: str
    cluster_id: str
    isolation: str
    partition_by: tuple[str, ...]
    table_format: str = PARQUET
    version: int = 0
    plan: int = 0
    """The number of the last plan that has been published."""
    topics: Mapping[str, ArchivedTopic] = field(default_factory=dict)
    files: tuple[RowsFile, ...] = ()
    batches: tuple[BatchesFile, ...] = ()
    groups: tuple[CommittedOffset, ...] | None = None

    @property
    def group(self) -> str:
        """The consumer group whose committed offsets record on the broker how far topics are archived."""
        return f"archive.{self.name}"

    def partition(self, topic: str, partition: int) -> ArchivedPartition | None:
        """The archived range of the partition; None if it is not archived."""
        archived = self.topics.get(topic)
        return None if archived is None else archived.partitions.get(partition)


def read_manifest(dest: Path) -> Manifest | None:
    """The manifest of an archive, None where there is none. Raises NoArchive if it cannot be read."""
    path = dest / MANIFEST
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NoArchive(f"cannot read {path}: {error.strerror}") from error
    try:
        content = json.loads(text)
        if content["format"] != FORMAT:
            raise NoArchive(f"{path} is of format {content['format']}; this version reads format {FORMAT}")
        return _from_json(content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoArchive(f"{path} is no manifest of an archive: {error!r}") from error


def publish(manifest: Manifest, dest: Path, *, aside: Path, at: Callable[[str], None]) -> Manifest:
    """Replace the manifest of the archive. Returns the published manifest with its new version. Raises Unwritable."""
    published = replace(manifest, version=manifest.version + 1)
    text = json.dumps(_to_json(published), indent=1)
    put(text.encode() + b"\n", dest / MANIFEST, aside=aside, written=lambda: at("manifest written"))
    at("manifest published")
    return published


_STRETCH: Final = {"from_offset": "from", "until_offset": "until", "first_offset": "firstOffset",
                   "last_offset": "lastOffset", "leader_epoch": "leaderEpoch"}  # fmt: skip


def to_entry(value: Any) -> dict[str, Any]:
    """A named tuple as a JSON object, under the manifest's own names."""
    return {_STRETCH.get(name, name): content for name, content in value._asdict().items()}


def from_entry(kind: Any, entry: Mapping[str, Any]) -> Any:
    """A named tuple of the class ``kind`` from a JSON object that `to_entry` has made."""
    return kind(**{name: entry[_STRETCH.get(name, name)] for name in kind._fields})


def _to_json(manifest: Manifest) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": manifest.version,
        "name": manifest.name,
        "clusterId": manifest.cluster_id,
        "isolation": manifest.isolation,
        "partitionBy": list(manifest.partition_by),
        "tableFormat": manifest.table_format,
        "plan": manifest.plan,
        "topics": {name: _topic_to_json(topic) for name, topic in sorted(manifest.topics.items())},
        "files": _sorted(manifest.files),
        "batches": _sorted(manifest.batches),
        "groups": None if manifest.groups is None else [to_entry(one) for one in manifest.groups],
    }


def _sorted(files: Sequence[RowsFile] | Sequence[BatchesFile]) -> list[dict[str, Any]]:
    return [to_entry(file) for file in sorted(files, key=lambda file: (file.stretch, file.path))]


def _topic_to_json(topic: ArchivedTopic) -> dict[str, Any]:
    partitions = {
        str(number): {**to_entry(partition), "gaps": [to_entry(gap) for gap in partition.gaps]}
        for number, partition in sorted(topic.partitions.items())
    }
    return {
        "topicId": topic.topic_id,
        "partitionCount": topic.partition_count,
        "configs": topic.configs,
        "partitions": partitions,
    }


def _from_json(entry: Mapping[str, Any]) -> Manifest:
    groups = entry["groups"]
    return Manifest(
        name=entry["name"],
        cluster_id=entry["clusterId"],
        isolation=entry["isolation"],
        partition_by=tuple(entry["partitionBy"]),
        # Archives made before there was a choice do not say.
        table_format=entry.get("tableFormat", PARQUET),
        version=entry["version"],
        plan=entry["plan"],
        topics={name: _topic_from_json(topic) for name, topic in entry["topics"].items()},
        files=tuple(from_entry(RowsFile, file) for file in entry["files"]),
        batches=tuple(from_entry(BatchesFile, file) for file in entry["batches"]),
        groups=None if groups is None else tuple(from_entry(CommittedOffset, one) for one in groups),
    )


def _topic_from_json(entry: Mapping[str, Any]) -> ArchivedTopic:
    return ArchivedTopic(
        topic_id=entry["topicId"],
        partition_count=entry["partitionCount"],
        configs=entry["configs"],
        partitions={
            int(number): ArchivedPartition(
                partition["from"], partition["until"], tuple(from_entry(Gap, gap) for gap in partition["gaps"])
            )
            for number, partition in entry["partitions"].items()
        },
    )
