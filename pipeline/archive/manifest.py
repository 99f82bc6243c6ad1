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
"""As what an archive can be read beside its directories of Parquet files: as nothing else, or as a Delta table."""


class NoArchive(PipelineError):
    """There is no archive, or none that this version can read."""


class RowsFile(NamedTuple):
    """A Parquet file with rows of one partition and, where dates have directories, one date."""

    path: str
    """Relative to the archive."""
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
    """A file with a row for each batch between two offsets."""

    path: str
    topic: str
    partition: int
    from_offset: int
    until_offset: int
    batches: int
    rows: int
    """How many rows the files with rows hold of these offsets."""
    leader_epoch: int
    """Of the last batch; -1 where there is none."""
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
    """How far a partition is archived."""

    from_offset: int
    until_offset: int
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedTopic:
    """A topic of the archive, as the last run has seen it."""

    topic_id: str
    partition_count: int
    configs: Mapping[str, str] | None = None
    """The topic's configs; None where no broker was asked for them."""
    partitions: Mapping[int, ArchivedPartition] = field(default_factory=dict)


class CommittedOffset(NamedTuple):
    """What a consumer group had committed."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of the manifest's file. A change makes a new object."""

    name: str
    cluster_id: str
    isolation: str
    partition_by: tuple[str, ...]
    table_format: str = PARQUET
    version: int = 0
    plan: int = 0
    """The number of the last plan that counts."""
    topics: Mapping[str, ArchivedTopic] = field(default_factory=dict)
    files: tuple[RowsFile, ...] = ()
    batches: tuple[BatchesFile, ...] = ()
    groups: tuple[CommittedOffset, ...] | None = None

    @property
    def group(self) -> str:
        """The group whose committed offsets say on the broker how far the archive is."""
        return f"archive.{self.name}"

    def partition(self, topic: str, partition: int) -> ArchivedPartition | None:
        """How far it is archived; None if it is not."""
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
        told = json.loads(text)
        if told["format"] != FORMAT:
            raise NoArchive(f"{path} is of format {told['format']}; this version reads format {FORMAT}")
        return _from_json(told)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoArchive(f"{path} is no manifest of an archive: {error!r}") from error


def publish(manifest: Manifest, dest: Path, *, aside: Path, at: Callable[[str], None]) -> Manifest:
    """Let this manifest count from now on; returns it with its version. Raises Unwritable."""
    published = replace(manifest, version=manifest.version + 1)
    text = json.dumps(_to_json(published), indent=1)
    put(text.encode() + b"\n", dest / MANIFEST, aside=aside, written=lambda: at("manifest written"))
    at("manifest published")
    return published


_STRETCH: Final = {"from_offset": "from", "until_offset": "until", "first_offset": "firstOffset",
                   "last_offset": "lastOffset", "leader_epoch": "leaderEpoch"}  # fmt: skip


def told(value: Any) -> dict[str, Any]:
    """A named tuple as a JSON object, under the manifest's own names."""
    return {_STRETCH.get(name, name): content for name, content in value._asdict().items()}


def heard(kind: Any, entry: Mapping[str, Any]) -> Any:
    """A named tuple of this kind from a JSON object that `told` has made."""
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
        "groups": None if manifest.groups is None else [told(one) for one in manifest.groups],
    }


def _sorted(files: Sequence[RowsFile] | Sequence[BatchesFile]) -> list[dict[str, Any]]:
    return [told(file) for file in sorted(files, key=lambda file: (file.stretch, file.path))]


def _topic_to_json(topic: ArchivedTopic) -> dict[str, Any]:
    partitions = {
        str(number): {**told(partition), "gaps": [told(gap) for gap in partition.gaps]}
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
        files=tuple(heard(RowsFile, file) for file in entry["files"]),
        batches=tuple(heard(BatchesFile, file) for file in entry["batches"]),
        groups=None if groups is None else tuple(heard(CommittedOffset, one) for one in groups),
    )


def _topic_from_json(entry: Mapping[str, Any]) -> ArchivedTopic:
    return ArchivedTopic(
        topic_id=entry["topicId"],
        partition_count=entry["partitionCount"],
        configs=entry["configs"],
        partitions={
            int(number): ArchivedPartition(
                partition["from"], partition["until"], tuple(heard(Gap, gap) for gap in partition["gaps"])
            )
            for number, partition in entry["partitions"].items()
        },
    )
