"""The plan of a restore: its topics, their new names, their ranges of offsets, and the group offsets."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from pipeline.archive.manifest import ArchivedPartition, ArchivedTopic, CommittedOffset, Manifest
from pipeline.errors import DAMAGED, PipelineError
from pipeline.restore.selection import Offsets

_INTERNAL: Final = "__"


class ArchiveHasGaps(PipelineError):
    """Offsets that are to be restored are not in the archive."""

    exit_code = DAMAGED


class Place(NamedTuple):
    """An offset, or a timestamp: exactly one is set."""

    offset: int | None = None
    time_ms: int | None = None

    def __str__(self) -> str:
        if self.time_ms is None:
            return str(self.offset)
        return datetime.fromtimestamp(self.time_ms / 1000, UTC).isoformat(timespec="milliseconds")

    @classmethod
    def parse(cls, text: str) -> Place:
        """Digits are an offset; everything else is a timestamp in ISO 8601, in UTC if it has no zone. Raises
        ValueError."""
        if text.isascii() and text.isdigit():
            return cls(offset=int(text))
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return cls(time_ms=round(moment.timestamp() * 1000))


def name_pair(text: str) -> tuple[str, str]:
    """The words before and behind a =, for `argparse`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ArgumentTypeError(f"found {text!r}; expected two words with = between them")
    return name, value


class PlannedPartition(NamedTuple):
    """A partition to restore, with the range of its offsets."""

    number: int
    from_offset: int
    until_offset: int

    @property
    def offsets(self) -> Offsets:
        return Offsets(self.from_offset, self.until_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTopic:
    """A topic to restore."""

    source: str
    """Its name in the archive."""
    name: str
    configs: Mapping[str, str]
    partitions: tuple[PlannedPartition, ...]
    """All partitions, from 0 on. A partition without archived records is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a restore. It is written to disk before the work begins."""

    archive: str
    topics: tuple[PlannedTopic, ...]
    committed: tuple[CommittedOffset, ...]
    """The groups' offsets, with the topics' new names."""

    def to_json(self) -> dict[str, Any]:
        """The plan as a JSON object."""
        topics = [
            {"source": one.source, "name": one.name, "configs": dict(one.configs), "partitions": one.partitions}
            for one in self.topics
        ]
        return {"archive": self.archive, "topics": topics, "committed": self.committed}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Plan:
        """The plan from a JSON object of `to_json`."""
        return cls(
            archive=content["archive"],
            topics=tuple(
                PlannedTopic(
                    source=one["source"],
                    name=one["name"],
                    configs=one["configs"],
                    partitions=tuple(PlannedPartition(*partition) for partition in one["partitions"]),
                )
                for one in content["topics"]
            ),
            committed=tuple(CommittedOffset(*one) for one in content["committed"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The options of a restore."""

    topics: Sequence[str] = ()
    """Empty means all topics but internal ones."""
    names: Mapping[str, str] | None = None
    """New names of topics, by their names in the archive."""
    begin: Place | None = None
    end: Place | None = None
    configs: Mapping[str, str] | None = None
    """Configs that override those of the archived topics."""
    groups: Sequence[str] | None = None
    """None means all archived groups."""
    accepts_gaps: bool = False


def make_plan(manifest: Manifest, wishes: Wishes, offset_at: Callable[[str, int, int], int | None]) -> Plan:
    """Find the topics, ranges and group offsets to restore.

    Args:
        offset_at: The offset of the first record of a topic's partition with a timestamp or a later one, or None: only
            called if the wishes have a timestamp.

    Raises PipelineError for topics that do not exist or two with one name, ArchiveHasGaps.
    """
    names = dict(wishes.names or {})
    chosen = _chosen(manifest, wishes.topics, names)
    planned = tuple(
        PlannedTopic(
            source=topic,
            name=names.get(topic, topic),
            configs={**(manifest.topics[topic].configs or {}), **(wishes.configs or {})},
            partitions=tuple(_partitions(topic, manifest.topics[topic], wishes, offset_at)),
        )
        for topic in chosen
    )
    by_name: dict[str, str] = {}
    for topic in planned:
        if other := by_name.get(topic.name):
            raise PipelineError(f"topics {other} and {topic.source} would both be called {topic.name}")
        by_name[topic.name] = topic.source
    return Plan(archive=manifest.name, topics=planned, committed=tuple(_committed(manifest, wishes, planned)))


def _chosen(manifest: Manifest, wanted: Sequence[str], names: Mapping[str, str]) -> list[str]:
    for topic in (*wanted, *names):
        if topic not in manifest.topics:
            nearest = get_close_matches(topic, manifest.topics, n=1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            raise PipelineError(f"the archive {manifest.name} has no topic {topic}{hint}")
        if topic.startswith(_INTERNAL):
            raise PipelineError(f"{topic} belongs to the broker: groups come back with the offsets that they committed")
    chosen = list(dict.fromkeys(wanted)) or [topic for topic in manifest.topics if not topic.startswith(_INTERNAL)]
    if not chosen:
        raise PipelineError(f"the archive {manifest.name} holds no topic yet")
    return chosen


def _partitions(
    topic: str, archived: ArchivedTopic, wishes: Wishes, offset_at: Callable[[str, int, int], int | None]
) -> list[PlannedPartition]:
    planned = []
    for number in range(max(archived.partition_count, max(archived.partitions, default=-1) + 1)):
        known = archived.partitions.get(number, ArchivedPartition(0, 0))

        def found(place: Place | None, otherwise: int, number: int = number, known: ArchivedPartition = known) -> int:
            if place is None:
                return otherwise
            offset = place.offset
            if place.time_ms is not None:
                offset = offset_at(topic, number, place.time_ms)
            # Nothing is as late: everything lies before it.
            offset = known.until_offset if offset is None else offset
            return min(max(offset, known.from_offset), known.until_offset)

        begin = found(wishes.begin, known.from_offset)
        end = max(found(wishes.end, known.until_offset), begin)
        if not wishes.accepts_gaps:
            for gap in known.gaps:
                if gap.from_offset < end and gap.until_offset > begin:
                    raise ArchiveHasGaps(
                        f"the archive lacks the offsets {gap.from_offset} to {gap.until_offset - 1} of "
                        f"{topic}-{number} ({gap.reason}); --accept-gap restores what there is"
                    )
        planned.append(PlannedPartition(number, begin, end))
    return planned


def _committed(manifest: Manifest, wishes: Wishes, planned: Sequence[PlannedTopic]) -> list[CommittedOffset]:
    known = manifest.groups or ()
    wanted = wishes.groups
    if wanted is None:
        wanted = sorted({one.group for one in known})
    for group in wanted:
        if all(one.group != group for one in known):
            raise PipelineError(f"the archive {manifest.name} has no offsets of group {group}")
    partitions = {
        (topic.source, partition.number): (topic.name, partition) for topic in planned for partition in topic.partitions
    }
    found = []
    for one in known:
        if one.group in wanted and (one.topic, one.partition) in partitions:
            name, partition = partitions[one.topic, one.partition]
            # A group whose offset lies behind the restored records goes on behind them.
            offset = min(one.offset, partition.until_offset)
            found.append(one._replace(topic=name, offset=offset))
    return found
