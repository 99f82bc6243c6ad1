"""`restore --mode produce`: archived records produced to any Kafka, into topics that are made for them.

The new topics begin empty and have no other producer, so how far a restore has come is to be seen from where they
end: one that was interrupted goes on there, and what a record's new offset must be is known before it is sent. If one
gets another, another producer writes there, and the restore ends with a sentence. One task produces to a partition.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from pipeline.archive.run import At, nothing
from pipeline.broker import Broker
from pipeline.errors import PipelineError
from pipeline.progress import Progress, followed
from pipeline.restore.groups import commit_offsets
from pipeline.restore.offset_map import PartitionMap, write_offset_map
from pipeline.restore.plan import Plan, PlannedTopic
from pipeline.restore.selection import Offsets
from pipeline.sending import Sender
from pipeline.work import GetWorkers, Workers, in_this_process
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


class ToProduce(NamedTuple):
    """What goes into one partition."""

    source: str
    """What its topic is called in the archive."""
    place: TopicPartition
    offsets: Offsets


class Produced:
    """The result of a restore."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.maps: dict[tuple[str, str, int], PartitionMap] = {}

    @property
    def records(self) -> int:
        """How many there are."""
        return sum(known.next_offset for known in self.maps.values())


def restore_by_producing(
    archive: Rows,
    broker: Broker,
    offset_map: Path,
    *,
    wishes: str,
    make_plan: Callable[[], Plan],
    workers: GetWorkers = in_this_process,
    at: At = nothing,
) -> Produced:
    """Produce what is archived, in the order of its offsets, and commit the groups' offsets as they are called there.

    Args:
        offset_map: Where the old and the new offsets are written; until all is done, a file beside it says what was
            begun.
        wishes: What was asked for, as text: one that was interrupted is only gone on with if it is the same.
        workers: Who produces; asked for when it is certain that something is to be done.

    Raises PipelineError.
    """
    try:
        return _Producing(archive, broker, offset_map, wishes, at).run(make_plan, workers)
    except OSError as error:
        raise PipelineError(f"{error.filename or offset_map} cannot be written: {error.strerror}") from error


def produce_partition(one: ToProduce, archive: Rows, broker: Broker, sender: Sender, at: At) -> PartitionMap:
    """Produce what its partition lacks, and wait until it is there. Raises PipelineError."""
    known = PartitionMap()
    # Asked here: Spark may try a task again that had come some way.
    end = broker.bounds([one.place])[one.place].high_watermark
    expected = _Expected(end)
    try:
        for rows in archive.rows(one.source, one.place.partition, *one.offsets):
            # What is there already is only counted.
            there = min(max(end - known.next_offset, 0), len(rows))
            known.add(rows.column("offset"))
            for first in range(there, len(rows), _AT_ONCE):
                sender.send(*one.place, rows.slice(first, _AT_ONCE), expected)
                at("sent")
        sender.flush()
    except BaseException:
        sender.give_up()
        raise
    return known


class _Expected:
    """The offset that the next record of a partition gets if no other producer writes there."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def __call__(self, topic: str, partition: int, offset: int) -> None:
        if offset != self._offset:
            raise PipelineError(
                f"a record of {topic}-{partition} got the offset {offset} where {self._offset} was to come next: "
                "somebody else writes there. Delete the topic, and restore again"
            )
        self._offset += 1


class _Producing:
    def __init__(self, archive: Rows, broker: Broker, offset_map: Path, wishes: str, at: At) -> None:
        self._archive = archive
        self._broker = broker
        self._cluster_id = broker.cluster_id()
        self._offset_map = offset_map
        self._unfinished = offset_map.with_name(offset_map.name + _UNFINISHED)
        self._wishes = wishes
        self._at = at

    def run(self, make_plan: Callable[[], Plan], workers: GetWorkers) -> Produced:
        plan = self._planned(make_plan)
        with workers() as do:
            self._begin(plan)
            self._create_topics(plan)
            produced = self._produce(plan, do)
        self._check_ends(produced)
        self._commit(plan, produced)
        for topic in plan.topics:
            if TIMESTAMP_TYPE in topic.configs:
                self._broker.alter_topic_configs(topic.name, {TIMESTAMP_TYPE: topic.configs[TIMESTAMP_TYPE]})
        write_offset_map(self._offset_map, produced.maps)
        self._at("offset map written")
        self._unfinished.unlink()
        return produced

    def _planned(self, make_plan: Callable[[], Plan]) -> Plan:
        """Look whether it can be done, or what had begun. Nothing is changed."""
        try:
            told: dict[str, Any] = json.loads(self._unfinished.read_bytes())
        except FileNotFoundError:
            plan = make_plan()
            self._check_is_new(plan)
            return plan
        except ValueError as error:
            raise PipelineError(f"{self._unfinished} is not the beginning of a restore: {error}") from error
        if told["wishes"] != self._wishes or told["clusterId"] != self._cluster_id:
            raise PipelineError(
                f"{self._unfinished} is of a restore that was not finished; it was asked for with {told['wishes']}, "
                f"to the cluster {told['clusterId']}: do that again first, or name another --offset-map"
            )
        return Plan.from_json(told["plan"])

    def _check_is_new(self, plan: Plan) -> None:
        if self._offset_map.exists():
            raise PipelineError(f"{self._offset_map} is there already; name another --offset-map")
        taken = sorted(self._broker.topics().keys() & {topic.name for topic in plan.topics})
        if taken:
            raise PipelineError(
                f"the broker at {self._broker.bootstrap} has topics of these names already: {', '.join(taken)}; "
                "--topic-map gives new ones"
            )

    def _begin(self, plan: Plan) -> None:
        """Write down that it has begun."""
        told = {"format": _FORMAT, "wishes": self._wishes, "clusterId": self._cluster_id, "plan": plan.to_json()}
        aside = self._unfinished.with_name(self._unfinished.name + ".tmp")
        aside.write_text(json.dumps(told))
        aside.replace(self._unfinished)
        self._at("begun")

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

    def _produce(self, plan: Plan, do: Workers) -> Produced:
        wanted = [
            ToProduce(topic.source, TopicPartition(topic.name, one.number), one.offsets)
            for topic in plan.topics
            for one in topic.partitions
        ]
        places = [one.place for one in wanted]
        total = sum(one.offsets.until_offset - one.offsets.from_offset for one in wanted)
        produced = Produced(plan)
        sender = Sender(self._broker.bootstrap)
        with followed(Progress("producing", total, unit=" records"), lambda: sum(self._ends(places).values())):
            known = do(produce_partition, wanted, self._archive, self._broker, sender, self._at)
            for one, its_map in zip(wanted, known, strict=True):
                produced.maps[one.source, *one.place] = its_map
        self._at("produced")
        return produced

    def _ends(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: bounds.high_watermark for place, bounds in self._broker.bounds(places).items()}

    def _check_ends(self, produced: Produced) -> None:
        expected = {
            TopicPartition(topic, number): known.next_offset for (_, topic, number), known in produced.maps.items()
        }
        for place, end in self._ends(list(expected)).items():
            if end != expected[place]:
                raise PipelineError(
                    f"{place} ends at offset {end}, and what was produced to it at {expected[place]}: somebody else "
                    "writes there"
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
