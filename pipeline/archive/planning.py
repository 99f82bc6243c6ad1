"""The plan of a run: the ranges that it archives. The plan is written first, so that a run that was killed is repeated
with the same ranges, into files of the same names."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.archive.durable import put
from pipeline.archive.manifest import Gap, Manifest, NoArchive, from_entry, to_entry
from pipeline.archive.places import PLAN, Stretch
from pipeline.errors import DAMAGED, PipelineError, RecordsGone
from pipeline.reading.ranges import Bounds


class LogWentBack(PipelineError):
    """A log ends before the end of its archived range."""

    exit_code = DAMAGED


class Partition(NamedTuple):
    """A partition as the source has it now."""

    topic: str
    partition: int
    topic_id: str
    bounds: Bounds


class NewGap(NamedTuple):
    """Offsets that were deleted from the log before they were archived."""

    topic: str
    partition: int
    gap: Gap


class Plan(NamedTuple):
    """The ranges of one run."""

    number: int
    topic_ids: Mapping[str, str]
    ranges: tuple[Stretch, ...]
    gaps: tuple[NewGap, ...]

    @property
    def is_empty(self) -> bool:
        return not self.ranges and not self.gaps


Split = Callable[[Stretch], Iterable[Stretch]]
"""Cuts the range of a partition into the ranges of tasks, at batch boundaries."""


def make_plan(
    manifest: Manifest, partitions: Sequence[Partition], split: Split, *, read_committed: bool, accepts_gaps: bool
) -> Plan:
    """Plan the ranges that are readable and not archived yet. Raises RecordsGone, LogWentBack, PipelineError."""
    check_topic_ids(manifest, {partition.topic: partition.topic_id for partition in partitions})
    found = [(one, *_missing(manifest, one, read_committed=read_committed)) for one in partitions]
    gaps = [NewGap(one.topic, one.partition, gap) for one, _, gap in found if gap is not None]
    if gaps and not accepts_gaps:
        listed = ", ".join(str(Stretch(topic, number, *gap[:2])) for topic, number, gap in gaps)
        raise RecordsGone(
            f"records were deleted before they were archived: {listed}; "
            "--accept-gap goes on without them and writes the gap down"
        )
    ranges = [piece for _, stretch, _ in found if stretch is not None for piece in split(stretch)]
    return Plan(
        manifest.plan + 1,
        {partition.topic: partition.topic_id for partition in partitions},
        tuple(ranges),
        tuple(gaps),
    )


def check_topic_ids(manifest: Manifest, topic_ids: Mapping[str, str]) -> None:
    """Raises PipelineError if a topic has another topic id than the archived topic of that name."""
    for topic, topic_id in topic_ids.items():
        archived = manifest.topics.get(topic)
        if archived is not None and archived.topic_id != topic_id:
            raise PipelineError(
                f"topic {topic} has the id {topic_id}, and the archive holds records of the one with the id "
                f"{archived.topic_id}: it was deleted and made anew. Archive it to another --dest, or leave it out"
            )


def _missing(manifest: Manifest, one: Partition, *, read_committed: bool) -> tuple[Stretch | None, Gap | None]:
    """The range of a partition that is to be archived, and the gap before it that was deleted unarchived; None for what
    there is not."""
    start, high_watermark, stable = one.bounds
    until = stable if read_committed else high_watermark
    archived = manifest.partition(one.topic, one.partition)
    done = start if archived is None else archived.until_offset
    if high_watermark < done:
        raise LogWentBack(
            f"{one.topic}-{one.partition} ends at offset {high_watermark}, and is archived up to {done}: "
            "it has lost records, and new ones get their offsets. Archive it to another --dest"
        )
    gap = None
    if start > done:
        gap = Gap(done, start, "deleted before it was archived")
        done = start
    return (Stretch(one.topic, one.partition, done, until) if until > done else None), gap


def write_plan(plan: Plan, dest: Path, *, aside: Path) -> None:
    """Write the plan of a run. Raises Unwritable."""
    entry = {
        "number": plan.number,
        "topicIds": dict(plan.topic_ids),
        "ranges": [to_entry(stretch) for stretch in plan.ranges],
        "gaps": [{"topic": gap.topic, "partition": gap.partition, "gap": to_entry(gap.gap)} for gap in plan.gaps],
    }
    put(json.dumps(entry).encode() + b"\n", dest / PLAN, aside=aside)


def read_plan(dest: Path) -> Plan | None:
    """The plan of a run that has not ended; None where there is none. Raises NoArchive if it cannot be read."""
    path = dest / PLAN
    try:
        entry = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise NoArchive(f"cannot read {path}: {error}") from error
    return Plan(
        entry["number"],
        entry["topicIds"],
        tuple(from_entry(Stretch, stretch) for stretch in entry["ranges"]),
        tuple(_gap(gap) for gap in entry["gaps"]),
    )


def _gap(entry: Mapping[str, Any]) -> NewGap:
    return NewGap(entry["topic"], entry["partition"], from_entry(Gap, entry["gap"]))


def readable(plan: Plan, partitions: Mapping[tuple[str, int], Partition], *, accepts_gaps: bool) -> Iterator[NewGap]:
    """Gaps in planned ranges: offsets that were deleted after the plan was made. Raises RecordsGone unless
    ``accepts_gaps``."""
    gone = []
    for stretch in plan.ranges:
        now = partitions.get((stretch.topic, stretch.partition))
        is_same = now is not None and now.topic_id == plan.topic_ids[stretch.topic]
        start = now.bounds.start_offset if is_same and now is not None else stretch.until_offset
        if start > stretch.from_offset:
            until = min(start, stretch.until_offset)
            gone.append(
                NewGap(
                    stretch.topic, stretch.partition, Gap(stretch.from_offset, until, "deleted before it was archived")
                )
            )
    if gone and not accepts_gaps:
        listed = ", ".join(str(Stretch(topic, number, *gap[:2])) for topic, number, gap in gone)
        raise RecordsGone(
            f"a run that did not end had planned to archive records that have been deleted since: {listed}; "
            "--accept-gap goes on without them and writes the gap down"
        )
    yield from gone
