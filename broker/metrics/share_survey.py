"""ShareSurvey: one pass over what share groups have done before a page is written: their lag, and what is in flight.

The lag is that of the states that are coordinated here, whose partitions have a replica here. What is in flight is that
of the partitions that this node leads. The loop turns in between, as in `survey`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.coordinators.share.persister import NO_START_OFFSET, NOT_COUNTED, SharePartitionKey
from broker.metrics.group_survey import LimitedRows
from broker.metrics.series import quantiles
from broker.metrics.sources import MetricSources
from broker.metrics.table import label_text
from broker.share.in_flight import TERMINAL

if TYPE_CHECKING:
    from broker.coordinators.share.state import SharePartitionState
    from broker.share.share_partitions import Hosted

OF_PARTITION: Final = ("group", "topic", "partition")

STATES_A_TURN: Final = 50
"""States that are looked at in one turn of the loop: a tenth of a millisecond."""
PARTITIONS_A_TURN: Final = 5
"""The same for partitions with records in flight, whose histograms are read."""


class TopicOfShareGroupRow:
    """A row for a topic that a share group reads."""

    __slots__ = ("labels", "lag", "start_offset")

    def __init__(self, group_id: str, topic: str) -> None:
        self.labels = label_text(OF_PARTITION[:2], (group_id, topic))
        self.start_offset = 0
        self.lag = 0


class PartitionOfShareGroupRow:
    """A row for a partition that a share group reads."""

    __slots__ = ("labels", "lag", "start_offset")

    def __init__(self, topic: TopicOfShareGroupRow, partition: int, start_offset: int, lag: int | None) -> None:
        self.labels = f'{topic.labels[:-1]},partition="{partition}"}}'
        self.start_offset = start_offset
        self.lag = lag
        """None: this node does not have the partition."""


class InFlightRow:
    """A row for what a share group has in flight of a partition."""

    __slots__ = ("batches", "expired_locks", "labels", "put_in_flight", "records")

    def __init__(self, hosted: Hosted) -> None:
        topic, index = hosted.partition.topic_partition
        share = hosted.share
        self.labels = label_text(OF_PARTITION, (share.key.group_id, topic, str(index)))
        self.records = share.window.size
        self.batches = len(share.window.batches)
        self.expired_locks = share.stats.expired_locks
        self.put_in_flight = share.window.batch_sizes.total


class BatchSizeRow:
    """A row for a percentile of the batches that were put in flight."""

    __slots__ = ("labels", "size")

    def __init__(self, partition: InFlightRow, quantile: str, size: int) -> None:
        self.labels = f'{partition.labels[:-1]},quantile="{quantile}"}}'
        self.size = size


class ShareSurvey:
    """The result of one pass."""

    __slots__ = ("batch_sizes", "in_flight", "partitions", "topics")

    def __init__(self) -> None:
        self.topics: LimitedRows[TopicOfShareGroupRow] = LimitedRows()
        self.partitions: LimitedRows[PartitionOfShareGroupRow] = LimitedRows()
        self.in_flight: LimitedRows[InFlightRow] = LimitedRows()
        self.batch_sizes: LimitedRows[BatchSizeRow] = LimitedRows()

    @property
    def left_out(self) -> int:
        """How many rows did not fit and are left out."""
        return sum(rows.left_out for rows in (self.topics, self.partitions, self.in_flight, self.batch_sizes))


class ShareSurveyor:
    """Makes surveys, and keeps the last one."""

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources
        self._tells_partitions = sources.settings.ottla_prometheus_partitions
        self.seen = ShareSurvey()

    def look(self) -> Iterator[None]:
        """Make a new survey; the loop may turn at each step. `seen` is the old survey until the last step."""
        survey = ShareSurvey()
        yield from self._look_at_states(survey)
        if self._tells_partitions and self._sources.share_partitions is not None:
            hosted = list(self._sources.share_partitions.hosted())
            for first in range(0, len(hosted), PARTITIONS_A_TURN):
                for one in hosted[first : first + PARTITIONS_A_TURN]:
                    _add_in_flight(one, survey)
                yield
        self.seen = survey

    def _look_at_states(self, survey: ShareSurvey) -> Iterator[None]:
        coordinator = self._sources.share_coordinator
        topics: dict[tuple[str, bytes], TopicOfShareGroupRow | None] = {}
        for one in () if coordinator is None else coordinator().shares.active:
            states = one.shard.image.by_key
            keys = list(states)
            for first in range(0, len(keys), STATES_A_TURN):
                for key in keys[first : first + STATES_A_TURN]:
                    # The state may have been deleted meanwhile. A group that has not begun yet has no lag.
                    state = states.get(key)
                    if state is not None and state.start_offset != NO_START_OFFSET:
                        self._add(key, state, topics, survey)
                yield

    def _add(
        self,
        key: SharePartitionKey,
        state: SharePartitionState,
        topics: dict[tuple[str, bytes], TopicOfShareGroupRow | None],
        survey: ShareSurvey,
    ) -> None:
        topic = self._sources.metadata.image.topics.by_id.get(key.topic_id)
        if topic is None:
            return  # it was deleted, and the state will be, too
        of_topic = key.group_id, key.topic_id
        if of_topic not in topics:
            topics[of_topic] = survey.topics.offer(partial(TopicOfShareGroupRow, key.group_id, topic.name))
        row = topics[of_topic]
        if row is None:
            return
        hosted = self._sources.replicas.find(topic.name, key.partition)
        lag = None if hosted is None else max(hosted.log.high_watermark - state.start_offset - _done(state), 0)
        row.start_offset += state.start_offset
        row.lag += lag or 0
        if self._tells_partitions:
            survey.partitions.offer(partial(PartitionOfShareGroupRow, row, key.partition, state.start_offset, lag))


def _done(state: SharePartitionState) -> int:
    """How many records at and behind the start offset are done with."""
    if state.delivery_complete_count != NOT_COUNTED:
        return state.delivery_complete_count
    return sum(one.last_offset - one.first_offset + 1 for one in state.batches if one.delivery_state in TERMINAL)


def _add_in_flight(hosted: Hosted, survey: ShareSurvey) -> None:
    row = survey.in_flight.offer(partial(InFlightRow, hosted))
    if row is not None:
        for quantile, size in quantiles(hosted.share.window.batch_sizes.recent()):
            survey.batch_sizes.offer(partial(BatchSizeRow, row, quantile, size))
