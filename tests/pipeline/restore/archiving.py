"""Topics archived and restored without Spark, by the functions that its workers run; and what stands in a directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline.__main__ import main
from pipeline.archive.archive import Archive
from pipeline.archive.locking import changing
from pipeline.archive.online import known_of
from pipeline.archive.range_archiving import archive_range
from pipeline.archive.run import READ_COMMITTED, Known, Run, Settings, open_for_archiving
from pipeline.broker import Broker
from pipeline.restore.archived import Archived
from pipeline.source import Source, split
from storage.batch.record_batch import read_header
from storage.batch.walk import BatchWalk
from storage.files import FileSystem
from storage.topic_partition import TopicPartition, parse_dir_name

NAME = "nightly"


def archive(
    data: Path,
    dest: Path,
    *topics: str,
    bootstrap: str | None = None,
    isolation: str = READ_COMMITTED,
    range_bytes: int = 1 << 20,
    accepts_gaps: bool = False,
) -> Archived:
    """Archive topics of a data directory, all of them by default; with a broker also configs and groups."""
    dest.mkdir(exist_ok=True)
    with Source.open([str(data)], bootstrap) as source, changing(dest):
        names = source.topics(topics)
        partitions = source.partitions(names)
        settings = Settings(
            dest=dest, name=NAME, cluster_id=source.cluster_id, isolation=isolation, accepts_gaps=accepts_gaps
        )
        manifest = open_for_archiving(settings)
        if bootstrap is None:
            counts = {name: sum(one.topic == name for one in partitions) for name in names}
            known = Known(partition_counts=counts)
        else:
            known = known_of(Broker(bootstrap), names, manifest.group)
        run = Run(
            settings,
            partitions,
            lambda whole: split(whole, range_bytes),
            lambda tasks, _, at: [archive_range(task, at) for task in tasks],
            known=known,
        )
        run.go(manifest, names)
    return Archived(Archive.open(dest))


def restore(dest: Path, *words: str) -> int:
    """`ottla pipeline restore` with these words; its exit code."""
    return main(["restore", "--archive", str(dest), *words])


def restored(dest: Path, target: Path, *words: str) -> Path:
    """A directory with what was archived."""
    assert restore(dest, "--target-dir", str(target), *words) == 0
    return target


def stored(data: Path, topic: str, partition: int = 0, *, start: int = 0) -> list[bytes]:
    """The batches of a partition in its files, but for those that end before an offset."""
    files = FileSystem()
    found = []
    for path in sorted((data / f"{topic}-{partition}").glob("*.log")):
        file = files.open_read(str(path))
        found += [bytes(batch.data) for batch in BatchWalk(file.pread, 0, file.size)]
    return [batch for batch in found if read_header(batch).next_offset > start]


def partitions(data: Path) -> Iterator[TopicPartition]:
    """Those whose logs stand in a directory, internal ones aside."""
    for path in sorted(data.glob("*-*/")):
        place, fate = parse_dir_name(path.name)
        if not fate and not place.topic.startswith("__"):
            yield place


def names_in(directory: Path) -> Sequence[str]:
    """What is in a directory."""
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []
