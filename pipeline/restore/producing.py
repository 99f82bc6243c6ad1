"""`restore --mode produce`: archived records produced to any Kafka, into topics that are made for them.

The new topics begin empty and have no other producer. So the end of a partition shows how far a restore has come: an
interrupted restore goes on there, and the new offset of a record is known before it is sent. If a record gets another
offset, another producer writes to the topic, and the restore ends with an error. Each partition has one task.
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
"""The prefix of configs that other brokers do not know."""
TIMESTAMP_TYPE: Final = "message.timestamp.type"
_CREATE_TIME: Final = "CreateTime"
_AT_ONCE: Final = 10_000
"""How many rows are made Python objects at a time."""


class Rows(Protocol):
    """A source of records: an archive."""

    def rows(self, topic: str, partition: int, from_offset: int, until_offset: int) -> Iterator[pa.RecordBatch]:
        """The records with offsets from ``from_offset`` to before ``until_offset``, in order."""


class ToProduce(NamedTuple):
    """The records to produce to one partition."""

    source: str
    """The topic's name in the archive."""
    place: TopicPartition
    offsets: Offsets


class Produced:
    """The result of a restore by producing."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.maps: dict[tuple[str, str, int], PartitionMap] = {}

    @property
    def records(self) -> int:
        """How many records were produced."""
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
    """Produce archived records to new topics, in the order of their offsets, and commit the groups' translated offsets.

    Args:
        offset_map: The path of the file with old and new offsets. Until the restore is finished, a file beside it
            holds the plan.
        wishes: The options as text: an interrupted restore is only continued with the same options.
        workers: Gives the workers that produce; called when it is certain that there is work.

    Raises PipelineError.
    """
    try:
        return _Producing(archive, broker, offset_map, wishes, at).run(make_plan, workers)
    except OSError as error:
        raise PipelineError(f"{error.filename or offset_map} cannot be written: {error.strerror}") from error


def produce_partition(one: ToProduce, archive: Rows, broker: Broker, sender: Sender, at: At) -> PartitionMap:
    """Produce the records that the partition lacks, and wait until they are acknowledged. Raises PipelineError."""
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
                "another producer writes to it. Delete the topic, and restore again"
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
        """The plan of an interrupted restore, or a new plan. Raises PipelineError if it cannot be done. Nothing is
        changed."""
        try:
            entry: dict[str, Any] = json.loads(self._unfinished.read_bytes())
        except FileNotFoundError:
            plan = make_plan()
            self._check_is_new(plan)
            return plan
        except ValueError as error:
            raise PipelineError(f"{self._unfinished} is not the beginning of a restore: {error}") from error
        if entry["wishes"] != self._wishes or entry["clusterId"] != self._cluster_id:
            raise PipelineError(
                f"{self._unfinished} is of a restore that was not finished; it was asked for with {entry['wishes']}, "
                f"to the cluster {entry['clusterId']}: do that again first, or name another --offset-map"
            )
        return Plan.from_json(entry["plan"])

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
        """Write the plan to disk."""
        entry = {"format": _FORMAT, "wishes": self._wishes, "clusterId": self._cluster_id, "plan": plan.to_json()}
        aside = self._unfinished.with_name(self._unfinished.name + ".tmp")
        aside.write_text(json.dumps(entry))
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
                    f"{place} ends at offset {end}, and what was produced to it at {expected[place]}: another producer "
                    "writes to it"
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
