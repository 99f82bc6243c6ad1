"""`restore --mode produce`: archived records produced to any Kafka, into topics that are made for them.

The new topics begin empty and nobody else writes to them, so how far a restore has come is to be seen from where they
end: one that was interrupted goes on there, and what a record's new offset must be is known before it is sent. If one
gets another, somebody else writes there, and the restore ends with a sentence.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa

from pipeline.archive.run import At, nothing
from pipeline.broker import Broker
from pipeline.errors import PipelineError
from pipeline.progress import Progress
from pipeline.restore.groups import commit_offsets
from pipeline.restore.offset_map import PartitionMap, write_offset_map
from pipeline.restore.plan import Plan, PlannedTopic
from pipeline.sending import Sender
from storage.topic_partition import TopicPartition

_FORMAT: Final = 1
_UNFINISHED: Final = ".unfinished"
OURS: Final = "ottla."
"""Configs that begin so are known to no other broker."""
TIMESTAMP_TYPE: Final = "message.timestamp.type"
_CREATE_TIME: Final = "CreateTime"
_AT_ONCE: Final = 10_000
"""Rows that are made Python objects of together."""


class Rows(Protocol):
    """Where records come from: an archive."""

    def rows(self, topic: str, partition: int, from_offset: int, until_offset: int) -> Iterator[pa.RecordBatch]:
        """Those between two offsets, in order."""


class Produced:
    """What has come of a restore."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.records = 0
        self.maps: dict[tuple[str, str, int], PartitionMap] = {}


def restore_by_producing(
    archive: Rows,
    broker: Broker,
    offset_map: Path,
    *,
    wishes: str,
    make_plan: Callable[[], Plan],
    at: At = nothing,
) -> Produced:
    """Produce what is archived, in the order of its offsets, and commit the groups' offsets as they are called there.

    Args:
        offset_map: Where the old and the new offsets are written; until all is done, a file beside it says what was
            begun.
        wishes: What was asked for, as text: one that was interrupted is only gone on with if it is the same.

    Raises PipelineError.
    """
    try:
        return _Producing(archive, broker, offset_map, wishes, at).run(make_plan)
    except OSError as error:
        raise PipelineError(f"{error.filename or offset_map} cannot be written: {error.strerror}") from error


class _Producing:
    def __init__(self, archive: Rows, broker: Broker, offset_map: Path, wishes: str, at: At) -> None:
        self._archive = archive
        self._broker = broker
        self._offset_map = offset_map
        self._unfinished = offset_map.with_name(offset_map.name + _UNFINISHED)
        self._wishes = wishes
        self._at = at
        self._next: dict[tuple[str, int], int] = {}
        """The offset that the next record gets."""
        self._progress: Progress | None = None

    def run(self, make_plan: Callable[[], Plan]) -> Produced:
        plan = self._begin(make_plan)
        self._create_topics(plan)
        produced = Produced(plan)
        self._produce(plan, produced)
        self._check_ends(plan)
        self._commit(plan, produced)
        for topic in plan.topics:
            if TIMESTAMP_TYPE in topic.configs:
                self._broker.alter_topic_configs(topic.name, {TIMESTAMP_TYPE: topic.configs[TIMESTAMP_TYPE]})
        write_offset_map(self._offset_map, produced.maps)
        self._at("offset map written")
        self._unfinished.unlink()
        return produced

    def _begin(self, make_plan: Callable[[], Plan]) -> Plan:
        cluster_id = self._broker.cluster_id()
        try:
            told: dict[str, Any] = json.loads(self._unfinished.read_bytes())
        except FileNotFoundError:
            return self._begin_anew(make_plan(), cluster_id)
        except ValueError as error:
            raise PipelineError(f"{self._unfinished} is not the beginning of a restore: {error}") from error
        if told["wishes"] != self._wishes or told["clusterId"] != cluster_id:
            raise PipelineError(
                f"{self._unfinished} is of a restore that was not finished; it was asked for with {told['wishes']}, "
                f"to the cluster {told['clusterId']}: do that again first, or name another --offset-map"
            )
        return Plan.from_json(told["plan"])

    def _begin_anew(self, plan: Plan, cluster_id: str) -> Plan:
        if self._offset_map.exists():
            raise PipelineError(f"{self._offset_map} is there already; name another --offset-map")
        taken = sorted(self._broker.topics().keys() & {topic.name for topic in plan.topics})
        if taken:
            raise PipelineError(
                f"the broker at {self._broker.bootstrap} has topics of these names already: {', '.join(taken)}; "
                "--topic-map gives new ones"
            )
        told = {"format": _FORMAT, "wishes": self._wishes, "clusterId": cluster_id, "plan": plan.to_json()}
        aside = self._unfinished.with_name(self._unfinished.name + ".tmp")
        aside.write_text(json.dumps(told))
        aside.replace(self._unfinished)
        self._at("begun")
        return plan

    def _create_topics(self, plan: Plan) -> None:
        there = self._broker.topics()
        for topic in plan.topics:
            if topic.name in there:
                continue
            configs = {name: value for name, value in topic.configs.items() if not name.startswith(OURS)}
            # The archived times are to stay; the topic gets its own type when they are there.
            if TIMESTAMP_TYPE in configs:
                configs[TIMESTAMP_TYPE] = _CREATE_TIME
            self._broker.create_topic(topic.name, partitions=len(topic.partitions), configs=configs)
            self._at("created a topic")

    def _produce(self, plan: Plan, produced: Produced) -> None:
        places = [TopicPartition(topic.name, one.number) for topic in plan.topics for one in topic.partitions]
        ends = {place: bounds.high_watermark for place, bounds in self._broker.bounds(places).items()}
        total = sum(one.until_offset - one.from_offset for topic in plan.topics for one in topic.partitions)
        self._progress = Progress("producing", total, unit=" records")
        sender = Sender(self._broker.bootstrap, on_delivered=self._delivered)
        try:
            for topic in plan.topics:
                for partition in topic.partitions:
                    place = TopicPartition(topic.name, partition.number)
                    self._next[place] = ends[place]
                    known = produced.maps[topic.source, topic.name, partition.number] = PartitionMap()
                    for rows in self._archive.rows(
                        topic.source, partition.number, partition.from_offset, partition.until_offset
                    ):
                        # What is there already is only counted.
                        there = min(max(ends[place] - known.next_offset, 0), len(rows))
                        known.add(rows.column("offset"))
                        for first in range(there, len(rows), _AT_ONCE):
                            sender.send(topic.name, partition.number, rows.slice(first, _AT_ONCE))
                            self._at("sent")
                    produced.records += known.next_offset
            sender.flush()
        finally:
            sender.give_up()
            self._progress.close()
        self._at("produced")

    def _delivered(self, topic: str, partition: int, offset: int) -> None:
        expected = self._next[topic, partition]
        if offset != expected:
            raise PipelineError(
                f"a record of {topic}-{partition} got the offset {offset} where {expected} was to come next: somebody "
                "else writes there. Delete the topic, and restore again"
            )
        self._next[topic, partition] = expected + 1
        if self._progress is not None:
            self._progress.advance(1)

    def _check_ends(self, plan: Plan) -> None:
        for place, bounds in self._broker.bounds([TopicPartition(*place) for place in self._next]).items():
            if bounds.high_watermark != self._next[place]:
                raise PipelineError(
                    f"{place} ends at offset {bounds.high_watermark}, and what was produced to it at "
                    f"{self._next[place]}: somebody else writes there"
                )

    def _commit(self, plan: Plan, produced: Produced) -> None:
        sources: dict[str, PlannedTopic] = {topic.name: topic for topic in plan.topics}
        commit_offsets(
            self._broker,
            [
                # The epoch was the other cluster's.
                one._replace(
                    offset=produced.maps[sources[one.topic].source, one.topic, one.partition].translate(one.offset),
                    leader_epoch=-1,
                )
                for one in plan.committed
            ],
        )
        self._at("committed")
