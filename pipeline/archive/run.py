"""One run of an archive: finishes an interrupted run, then archives new records; publishes all at once, then commits.

    1  plan.json      the ranges                         a run that dies from here on is done again, with these ranges
    2  run-N.A        the tasks work in it and put their files in place; what has a receipt is not done again
    3  manifest.json  all of the run counts from here on
    4  _delta         where the archive is a Delta table, too: its next version
    5  run-N.A, plan.json go
    6  the group's offsets are committed: the broker may delete what is archived

A reader that knows nothing of manifests sees the files of 2 as they come: rows that are in the log, once. A repeated
run puts the same rows into files of the same names.
"""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from pipeline.archive.compaction import settle
from pipeline.archive.delta_table import follow, require_possible
from pipeline.archive.durable import make_directory, remove, sync_directory, writing
from pipeline.archive.manifest import (
    DELTA,
    PARQUET,
    ArchivedPartition,
    ArchivedTopic,
    CommittedOffset,
    Gap,
    Manifest,
    publish,
    read_manifest,
)
from pipeline.archive.places import BOOKS, PLAN, Stretch, run_name, runs, stretch_of, topic_directory
from pipeline.archive.planning import Partition, Plan, make_plan, read_plan, readable, write_plan
from pipeline.archive.range_archiving import Receipt, Task, read_receipt, receipt_path
from pipeline.errors import PipelineError
from pipeline.reading.ranges import Bounds, OffsetRange

READ_COMMITTED: Final = "read_committed"


def nothing(step: str) -> None:
    """A callback for steps that does nothing."""


At = Callable[[str], None]
"""Called with each step that changes the disk, right after it."""


class ReadPartition(Protocol):
    """The properties of a partition that a run reads: see `pipeline.source.PartitionSource`."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def topic_id(self) -> str | None: ...
    @property
    def bounds(self) -> Bounds: ...
    def range(self, from_offset: int, until_offset: int) -> OffsetRange:
        """A range of the partition."""


class Work(Protocol):
    """A function that runs the archiving tasks."""

    def __call__(self, tasks: Sequence[Task], run: Path, at: At) -> Iterable[Receipt]:
        """Run all tasks, in any order. Raises PipelineError if a task could not be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The properties of an archive, and how a run adds to it."""

    dest: Path
    name: str
    cluster_id: str
    isolation: str = READ_COMMITTED
    partition_by: tuple[str, ...] = ("topic", "date")
    table_format: str | None = None
    """`parquet` or `delta`; None: as the archive is already kept."""
    skip_damaged: bool = False
    accepts_gaps: bool = False

    @property
    def read_committed(self) -> bool:
        return self.isolation == READ_COMMITTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Configs, groups and committed offsets of topics, from the broker."""

    partition_counts: Mapping[str, int]
    configs: Mapping[str, Mapping[str, str]] | None = None
    groups: tuple[CommittedOffset, ...] | None = None


def check_destination(dest: Path) -> None:
    """Raises PipelineError if ``dest`` is neither an archive, nor empty, nor missing."""
    if not dest.exists():
        return
    if not dest.is_dir():
        raise PipelineError(f"{dest} is no directory")
    others = sorted(entry.name for entry in dest.iterdir() if entry.name != BOOKS)
    if others and read_manifest(dest) is None:
        raise PipelineError(f"{dest} is no archive, and not empty: there is {others[0]}; choose another --dest")


def open_for_archiving(settings: Settings, at: At = nothing) -> Manifest:
    """Open the manifest of the destination, or publish the first one. Raises PipelineError if it is another archive's,
    Unwritable.

    Like for all functions of this module, the caller holds the lock of `locking.changing`.
    """
    dest = settings.dest
    check_destination(dest)
    manifest = read_manifest(dest)
    if manifest is None:
        manifest = Manifest(
            name=settings.name,
            cluster_id=settings.cluster_id,
            isolation=settings.isolation,
            partition_by=settings.partition_by,
        )
        return _published_as(settings.table_format or PARQUET, manifest, dest, at)
    for what, mine, found in (
        ("cluster", settings.cluster_id, manifest.cluster_id),
        ("--name", settings.name, manifest.name),
        ("--isolation", settings.isolation, manifest.isolation),
        ("--partition-by", ",".join(settings.partition_by), ",".join(manifest.partition_by)),
    ):
        if mine != found:
            raise PipelineError(f"{dest} is an archive of {what} {found}, not {mine}; choose another --dest")
    manifest = settle(dest, manifest, at)
    if settings.table_format in (None, manifest.table_format):
        return manifest
    if settings.table_format == PARQUET:
        raise PipelineError(
            f"{dest} is a Delta table, too, and is kept as one: leave --format out, or choose another --dest"
        )
    return _published_as(settings.table_format, manifest, dest, at)


def _published_as(table_format: str, manifest: Manifest, dest: Path, at: At) -> Manifest:
    """Publish the manifest of an archive that has this table format from now on."""
    if table_format == DELTA:
        require_possible(dest)
    published = publish(replace(manifest, table_format=table_format), dest, aside=_aside(dest), at=at)
    follow(dest, published, at)
    return published


class Run:
    """One run of an archive. The caller holds the lock."""

    def __init__(
        self, settings: Settings, partitions: Sequence[ReadPartition],
        split: Callable[[OffsetRange], Iterable[OffsetRange]],
        work: Work, *, known: Known, at: At = nothing,
    ) -> None:  # fmt: skip
        """`partitions` are all partitions of the topics to archive, and of the topics in the plan of an interrupted
        run. `split` cuts a range into the ranges of tasks."""
        self._settings = settings
        self._dest = settings.dest
        self._split = split
        self._work = work
        self._known = known
        self._at = at
        self._partitions = {(one.topic, one.partition): one for one in partitions}

    def go(self, manifest: Manifest, topics: Iterable[str]) -> Manifest:
        """Finish an interrupted plan, then archive the new records of these topics. Returns the manifest as it is then.

        Raises RecordsGone, DamagedLog, LogWentBack, Unwritable, PipelineError. Finished tasks of a plan are kept then,
        and their rows are not seen twice.
        """
        left = read_plan(self._dest)
        if left is not None and left.number > manifest.plan:
            manifest = self._carry_out(left, manifest)
        self._clear()
        wanted = set(topics)
        plan = make_plan(
            manifest,
            [self._partition(one) for one in self._partitions.values() if one.topic in wanted],
            self._pieces,
            read_committed=self._settings.read_committed,
            accepts_gaps=self._settings.accepts_gaps,
        )
        if plan.is_empty:
            return self._refreshed(manifest)
        write_plan(plan, self._dest, aside=_aside(self._dest))
        self._at("plan written")
        manifest = self._carry_out(plan, manifest)
        self._clear()
        return manifest

    def _partition(self, one: ReadPartition) -> Partition:
        if one.topic_id is None:
            raise PipelineError(f"nothing says which topic id {one.topic}-{one.partition} has; it cannot be archived")
        return Partition(one.topic, one.partition, one.topic_id, one.bounds)

    def _pieces(self, stretch: Stretch) -> Iterable[Stretch]:
        partition = self._partitions[stretch.topic, stretch.partition]
        for piece in self._split(partition.range(stretch.from_offset, stretch.until_offset)):
            yield Stretch(stretch.topic, stretch.partition, piece.from_offset, piece.until_offset)

    def _carry_out(self, plan: Plan, manifest: Manifest) -> Manifest:
        """Run the tasks of the plan that have no receipt, and publish the manifest."""
        run = self._dest / self._begin_attempt(plan)
        receipts = {
            stretch: read_receipt(receipt_path(run, stretch))
            for stretch in plan.ranges
            if receipt_path(run, stretch).exists()
        }
        missing = [stretch for stretch in plan.ranges if stretch not in receipts]
        now = {place: self._partition(one) for place, one in self._partitions.items()}
        gone = list(readable(plan._replace(ranges=tuple(missing)), now, accepts_gaps=self._settings.accepts_gaps))
        begins = {(one.topic, one.partition, one.gap.from_offset): one.gap.until_offset for one in gone}
        tasks = [self._task(run, stretch, begins.get(stretch[:3], stretch.from_offset)) for stretch in missing]
        try:
            for receipt in self._work(tasks, run, self._at) if tasks else ():
                receipts[receipt.stretch] = receipt
        except BaseException:
            _remove_unfinished(run, plan)
            raise
        self._remove_strays(plan, receipts)
        gaps = [*plan.gaps, *gone]
        published = publish(
            self._with(manifest, plan, list(receipts.values()), [(gap.topic, gap.partition, gap.gap) for gap in gaps]),
            self._dest,
            aside=run / "manifest",
            at=self._at,
        )
        follow(self._dest, published, self._at)
        return published

    def _begin_attempt(self, plan: Plan) -> str:
        """Make the directory of this attempt. It takes over the receipts of earlier attempts, whose tasks can no longer
        put files in place."""
        found = [attempt for number, attempt in runs(self._dest) if number == plan.number]
        name = run_name(plan.number, max(found, default=0) + 1)
        if found:
            with writing(self._dest / BOOKS):
                (self._dest / run_name(plan.number, max(found))).rename(self._dest / name)
                sync_directory(self._dest / BOOKS)
            _remove_unfinished(self._dest / name, plan)
        else:
            make_directory(self._dest / name)
        self._at("attempt begun")
        return name

    def _task(self, run: Path, stretch: Stretch, from_offset: int) -> Task:
        partition = self._partitions.get((stretch.topic, stretch.partition))
        source = (
            OffsetRange(stretch.topic, stretch.partition, "", stretch.until_offset, stretch.until_offset)
            if partition is None
            else partition.range(from_offset, stretch.until_offset)
        )
        return Task(
            str(self._dest),
            run.relative_to(self._dest).as_posix(),
            stretch,
            source,
            self._settings.partition_by,
            self._settings.read_committed,
            self._settings.skip_damaged,
        )

    def _remove_strays(self, plan: Plan, receipts: Mapping[Stretch, Receipt]) -> None:
        """Remove files of an earlier attempt that the repeated tasks did not write again, because the log was compacted
        in between."""
        expected = {file.path for receipt in receipts.values() for file in receipt.files}
        planned = set(plan.ranges)
        for topic in plan.topic_ids:
            for path in sorted((self._dest / topic_directory(topic)).rglob("part-*.parquet")):
                if stretch_of(topic, path.name) in planned and path.relative_to(self._dest).as_posix() not in expected:
                    remove(path)

    def _with(
        self, manifest: Manifest, plan: Plan, receipts: Sequence[Receipt], gaps: Sequence[tuple[str, int, Gap]]
    ) -> Manifest:
        """The manifest with the files and gaps of the finished plan."""
        topics = {name: dict(topic.partitions) for name, topic in manifest.topics.items()}
        for receipt in receipts:
            topic, partition, from_offset, until_offset = receipt.stretch
            before = topics.setdefault(topic, {}).get(partition, ArchivedPartition(from_offset, until_offset))
            topics[topic][partition] = before._replace(
                from_offset=min(before.from_offset, from_offset), until_offset=max(before.until_offset, until_offset)
            )
        for topic, partition, gap in (
            *gaps,
            *((receipt.stretch.topic, receipt.stretch.partition, gap) for receipt in receipts for gap in receipt.gaps),
        ):
            before = topics[topic][partition]
            topics[topic][partition] = before._replace(
                until_offset=max(before.until_offset, gap.until_offset), gaps=tuple(sorted({*before.gaps, gap}))
            )
        return replace(
            self._refreshed_topics(manifest, topics, plan.topic_ids),
            plan=plan.number,
            files=(*manifest.files, *(file for receipt in receipts for file in receipt.files)),
            batches=(*manifest.batches, *(receipt.batches for receipt in receipts)),
        )

    def _refreshed_topics(
        self,
        manifest: Manifest,
        partitions: Mapping[str, Mapping[int, ArchivedPartition]],
        topic_ids: Mapping[str, str],
    ) -> Manifest:
        known = self._known
        topics = {}
        for name in {*manifest.topics, *topic_ids}:
            before = manifest.topics.get(name)
            configs = before.configs if before is not None else None
            if known.configs is not None and name in known.configs:
                configs = known.configs[name]
            topics[name] = ArchivedTopic(
                topic_id=before.topic_id if before is not None else topic_ids[name],
                partition_count=known.partition_counts.get(name, before.partition_count if before is not None else 0),
                configs=configs,
                partitions=partitions.get(name, {}),
            )
        return replace(manifest, topics=topics, groups=manifest.groups if known.groups is None else known.groups)

    def _refreshed(self, manifest: Manifest) -> Manifest:
        """Publish committed offsets and configs that have changed, though there are no new records."""
        partitions = {name: topic.partitions for name, topic in manifest.topics.items()}
        ids = {one.topic: one.topic_id or "" for one in self._partitions.values()}
        refreshed = self._refreshed_topics(manifest, partitions, ids)
        if refreshed == manifest:
            return manifest
        return publish(refreshed, self._dest, aside=_aside(self._dest), at=self._at)

    def _clear(self) -> None:
        """Remove the plan and the run directories."""
        for number, attempt in runs(self._dest):
            path = self._dest / run_name(number, attempt)
            with writing(path):
                shutil.rmtree(path)
        self._at("run removed")
        remove(self._dest / PLAN)
        self._at("plan removed")


def _aside(dest: Path) -> Path:
    return dest / BOOKS / "aside"


def _remove_unfinished(run: Path, plan: Plan) -> None:
    """Remove the files that tasks have left in a run's directory, except for the receipts."""
    receipts = {receipt_path(run, stretch) for stretch in plan.ranges}
    for path in run.iterdir():
        if path not in receipts:
            path.unlink(missing_ok=True)
