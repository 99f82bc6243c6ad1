"""GroupSurvey: one pass over all consumer groups before a page is written: their states, members and lag.

The loop turns in between, as in `survey`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from broker.coordinators.group.image import SHARE
from broker.metrics.sources import MetricSources
from broker.metrics.table import Row, label_text

if TYPE_CHECKING:
    from broker.coordinators.group.requests import ListedGroup
    from broker.coordinators.group.shard import GroupShard

OFFSETS_A_TURN: Final = 100
"""Offsets that are read in one turn of the loop: a tenth of a millisecond."""

MOST_CHARACTERS: Final = 8 << 20
"""The most characters that all labels of groups may have together; the same for their topics and for their partitions.
That is enough for 80,000 lines of a usual length. Clients choose how many groups there are and how long their names."""

RowT = TypeVar("RowT", bound=Row)


class LimitedRows(Generic[RowT]):
    """Rows, until their labels have `MOST_CHARACTERS` together. Later rows are only counted, in `left_out`."""

    __slots__ = ("_characters_left", "left_out", "rows")

    def __init__(self) -> None:
        self.rows: list[RowT] = []
        self.left_out = 0
        self._characters_left = MOST_CHARACTERS

    def offer(self, make: Callable[[], RowT]) -> RowT | None:
        """Make a row and add it; None where rows do not fit any more."""
        if self._characters_left <= 0:
            self.left_out += 1
            return None
        row = make()
        self._characters_left -= len(row.labels)
        self.rows.append(row)
        return row


class GroupRow:
    """A row for a group."""

    __slots__ = ("labels", "members")

    def __init__(self, group: ListedGroup) -> None:
        self.labels = label_text(("consumergroup",), (group.group_id,))
        self.members = group.members


class ShareGroupRow:
    """A row for a share group."""

    __slots__ = ("labels", "members")

    def __init__(self, group: ListedGroup) -> None:
        self.labels = label_text(("group",), (group.group_id,))
        self.members = group.members


class TopicOfGroupRow:
    """A row for the committed offsets of a group in a topic."""

    __slots__ = ("labels", "lag", "offsets")

    def __init__(self, group_id: str, topic: str) -> None:
        self.labels = label_text(("consumergroup", "topic"), (group_id, topic))
        self.offsets = 0
        self.lag = 0


class PartitionOfGroupRow:
    """A row for the committed offset of a group in a partition."""

    __slots__ = ("labels", "lag", "offset")

    def __init__(self, topic: TopicOfGroupRow, partition: int, offset: int, lag: int | None) -> None:
        self.labels = f'{topic.labels[:-1]},partition="{partition}"}}'
        self.offset = offset
        self.lag = lag
        """None: this node does not have the partition."""


class GroupSurvey:
    """The result of one pass over all groups."""

    __slots__ = ("groups", "kinds", "offsets", "partitions", "share_groups", "states", "topics")

    def __init__(self) -> None:
        self.groups: LimitedRows[GroupRow] = LimitedRows()
        self.share_groups: LimitedRows[ShareGroupRow] = LimitedRows()
        self.topics: LimitedRows[TopicOfGroupRow] = LimitedRows()
        self.partitions: LimitedRows[PartitionOfGroupRow] = LimitedRows()
        self.offsets = 0
        self.kinds: Counter[str] = Counter()
        """How many groups there are of each kind."""
        self.states: Counter[tuple[str, str]] = Counter()
        """How many groups of each kind are in each state."""

    @property
    def left_out(self) -> int:
        """How many rows did not fit and are left out, those of share groups excepted."""
        return self.groups.left_out + self.topics.left_out + self.partitions.left_out


class GroupSurveyor:
    """Makes surveys, and keeps the last one."""

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources
        self._tells_partitions = sources.settings.ottla_prometheus_partitions
        self.seen = GroupSurvey()

    def look(self) -> Iterator[None]:
        """Make a new survey; the loop may turn at each step. `seen` is the old survey until the last step."""
        survey = GroupSurvey()
        coordinator = self._sources.group_coordinator
        for one in () if coordinator is None else coordinator.groups.active:
            for group_id in one.shard.group_ids():
                # The group may have been deleted meanwhile.
                if (group := one.shard.glance(group_id)) is not None:
                    _count(group, survey)
                    yield from self._look_at_offsets(group_id, one.shard, survey)
        self.seen = survey

    def _look_at_offsets(self, group_id: str, shard: GroupShard, survey: GroupSurvey) -> Iterator[None]:
        committed = shard.image.offsets
        partitions = committed.partitions(group_id)
        survey.offsets += len(partitions)
        topics: dict[str, TopicOfGroupRow | None] = {}
        for first in range(0, len(partitions), OFFSETS_A_TURN):
            for topic, partition in partitions[first : first + OFFSETS_A_TURN]:
                offset = committed.offset(group_id, (topic, partition))
                if offset is None:
                    continue
                if topic not in topics:
                    topics[topic] = _new_topic(group_id, topic, survey)
                if (row := topics[topic]) is not None:
                    self._add(row, topic, partition, offset, survey)
            yield
        yield

    def _add(self, row: TopicOfGroupRow, topic: str, partition: int, offset: int, survey: GroupSurvey) -> None:
        hosted = self._sources.replicas.find(topic, partition)
        # A group that has committed an offset behind the log's end has no lag.
        lag = None if hosted is None else max(hosted.log.high_watermark - offset, 0)
        row.offsets += offset
        row.lag += lag or 0
        if not self._tells_partitions:
            return
        survey.partitions.offer(partial(PartitionOfGroupRow, row, partition, offset, lag))


def _count(group: ListedGroup, survey: GroupSurvey) -> None:
    survey.kinds[group.type] += 1
    survey.states[group.type, group.state] += 1
    if group.type == SHARE:
        survey.share_groups.offer(partial(ShareGroupRow, group))
    else:
        survey.groups.offer(partial(GroupRow, group))


def _new_topic(group_id: str, topic: str, survey: GroupSurvey) -> TopicOfGroupRow | None:
    """The row of a topic; None where rows do not fit any more."""
    return survey.topics.offer(partial(TopicOfGroupRow, group_id, topic))
