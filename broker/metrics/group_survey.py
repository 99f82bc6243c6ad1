"""One look at all consumer groups before a page is written: their states, their members, their lag.

The loop turns in between, as in `survey`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from broker.metrics.sources import MetricSources
from broker.metrics.table import Row, label_text

if TYPE_CHECKING:
    from broker.coordinators.group.requests import ListedGroup
    from broker.coordinators.group.shard import GroupShard

OFFSETS_A_TURN: Final = 100
"""A tenth of a millisecond."""

MOST_CHARACTERS: Final = 8 << 20
"""Of all labels of groups, and as many of their topics and of their partitions: 80,000 lines of a usual length. Clients
choose how many groups there are and how long their names."""

RowT = TypeVar("RowT", bound=Row)


class Told(Generic[RowT]):
    """Rows, as long as there is room for their labels. Those behind the first that had none are counted."""

    __slots__ = ("_room", "left_out", "rows")

    def __init__(self) -> None:
        self.rows: list[RowT] = []
        self.left_out = 0
        self._room = MOST_CHARACTERS

    @property
    def has_room(self) -> bool:
        """Whether another row need be made."""
        return self._room > 0

    def add(self, row: RowT) -> None:
        """Take a row while there is room."""
        self._room -= len(row.labels)
        self.rows.append(row)


class GroupRow:
    """A group."""

    __slots__ = ("labels", "members")

    def __init__(self, group: ListedGroup) -> None:
        self.labels = label_text(("consumergroup",), (group.group_id,))
        self.members = group.members


class TopicOfGroupRow:
    """What a group has committed of a topic."""

    __slots__ = ("labels", "lag", "offsets")

    def __init__(self, group_id: str, topic: str) -> None:
        self.labels = label_text(("consumergroup", "topic"), (group_id, topic))
        self.offsets = 0
        self.lag = 0


class PartitionOfGroupRow:
    """What a group has committed of a partition."""

    __slots__ = ("labels", "lag", "offset")

    def __init__(self, topic: TopicOfGroupRow, partition: int, offset: int, lag: int | None) -> None:
        self.labels = f'{topic.labels[:-1]},partition="{partition}"}}'
        self.offset = offset
        self.lag = lag
        """None: the partition is not here."""


class GroupSurvey:
    """What a look has seen."""

    __slots__ = ("groups", "kinds", "offsets", "partitions", "states", "topics")

    def __init__(self) -> None:
        self.groups: Told[GroupRow] = Told()
        self.topics: Told[TopicOfGroupRow] = Told()
        self.partitions: Told[PartitionOfGroupRow] = Told()
        self.offsets = 0
        self.kinds: Counter[str] = Counter()
        """How many groups there are of each kind."""
        self.states: Counter[tuple[str, str]] = Counter()
        """How many of each kind are in each state."""

    @property
    def left_out(self) -> int:
        """How many rows had no room."""
        return self.groups.left_out + self.topics.left_out + self.partitions.left_out


class GroupSurveyor:
    """Looks, and keeps what it saw the last time."""

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources
        self._tells_partitions = sources.settings.ottla_prometheus_partitions
        self.seen = GroupSurvey()

    def look(self) -> Iterator[None]:
        """See everything anew; the loop may turn at each step. `seen` is the old one until the last."""
        survey = GroupSurvey()
        coordinator = self._sources.group_coordinator
        for one in () if coordinator is None else coordinator.groups.active:
            for group_id in one.shard.group_ids():
                # Meanwhile it may have gone.
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
        # Who commits what is not written yet is not behind.
        lag = None if hosted is None else max(hosted.log.high_watermark - offset, 0)
        row.offsets += offset
        row.lag += lag or 0
        if not self._tells_partitions:
            return
        if survey.partitions.has_room:
            survey.partitions.add(PartitionOfGroupRow(row, partition, offset, lag))
        else:
            survey.partitions.left_out += 1


def _count(group: ListedGroup, survey: GroupSurvey) -> None:
    survey.kinds[group.type] += 1
    survey.states[group.type, group.state] += 1
    if survey.groups.has_room:
        survey.groups.add(GroupRow(group))
    else:
        survey.groups.left_out += 1


def _new_topic(group_id: str, topic: str, survey: GroupSurvey) -> TopicOfGroupRow | None:
    """None where there is no room for it."""
    if not survey.topics.has_room:
        survey.topics.left_out += 1
        return None
    row = TopicOfGroupRow(group_id, topic)
    survey.topics.add(row)
    return row
