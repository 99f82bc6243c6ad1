"""The topology of a Kafka Streams application: its subtopologies, the topics between them, and how many tasks it has.

A subtopology has a task for each partition of its source topics. Its internal topics, repartition topics between
subtopologies and changelogs of its state, are created by the broker (`Configured.missing`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

from protocol.records.group_metadata import StreamsGroupTopologyValue

_LISTED: Final = 3
"""How many topics an answer names."""

PartitionCount = Callable[[str], int | None]
"""How many partitions a topic has; None if there is no such topic."""


class StatusCode(IntEnum):
    """What a heartbeat's answer tells of the group besides tasks, by Kafka's numbers."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


class Status(NamedTuple):
    code: StatusCode
    detail: str


class InternalTopic(NamedTuple):
    name: str
    partitions: int = 0
    """0: it follows from other topics."""
    replication_factor: int = 0
    """0: the default of the cluster."""
    configs: tuple[tuple[str, str], ...] = ()


class CopartitionGroup(NamedTuple):
    """Topics that must have equally many partitions, by their places in the lists of the subtopology."""

    source_topics: tuple[int, ...]
    source_topic_regex: tuple[int, ...]
    repartition_source_topics: tuple[int, ...]


class Subtopology(NamedTuple):
    subtopology_id: str
    source_topics: tuple[str, ...]
    source_topic_regex: tuple[str, ...]
    changelogs: tuple[InternalTopic, ...]
    repartition_sinks: tuple[str, ...]
    """Topics that it writes to, and other subtopologies read."""
    repartition_sources: tuple[InternalTopic, ...]
    """Topics that it reads, and other subtopologies write."""
    copartition_groups: tuple[CopartitionGroup, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of all topics that it reads."""
        return (*self.source_topics, *(topic.name for topic in self.repartition_sources))

    @property
    def is_stateful(self) -> bool:
        """Whether its tasks have state that a changelog restores."""
        return bool(self.changelogs)


class Topology(NamedTuple):
    epoch: int
    subtopologies: tuple[Subtopology, ...]
    """In the order of the request."""

    def required_topics(self) -> set[str]:
        """The names of all topics that the application reads, and of its changelogs."""
        return {name for one in self.subtopologies for name in (*one.inputs, *(topic.name for topic in one.changelogs))}

    def same(self, other: Topology) -> bool:
        """Whether both are the same, whatever the order of their subtopologies."""
        return self.epoch == other.epoch and self.by_id() == other.by_id()

    def by_id(self) -> dict[str, Subtopology]:
        """The subtopologies by their ids."""
        return {one.subtopology_id: one for one in self.subtopologies}


class ConfiguredSubtopology(NamedTuple):
    subtopology: Subtopology
    tasks: int
    """How many."""
    changelogs: tuple[InternalTopic, ...]
    """With their numbers of partitions, as are ``repartition_sources``."""
    repartition_sources: tuple[InternalTopic, ...]


class Configured(NamedTuple):
    """A topology against the topics of the cluster."""

    subtopologies: Mapping[str, ConfiguredSubtopology]
    """In the order of their ids; none if ``problem`` is not about missing internal topics."""
    missing: Sequence[InternalTopic] = ()
    """Internal topics that do not exist yet."""
    problem: Status | None = None

    @property
    def is_ready(self) -> bool:
        """Whether tasks may be assigned."""
        return self.problem is None


class InvalidTopology(Exception):
    """The topology contradicts itself. The message is for the client."""


class _Problem(Exception):
    def __init__(self, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.status = Status(code, detail)


def topology_of(struct: Any) -> Topology:
    """The topology of a heartbeat or of a record, which have the same fields."""
    return Topology(
        struct.epoch,
        tuple(
            Subtopology(
                one.subtopology_id,
                tuple(one.source_topics),
                tuple(one.source_topic_regex),
                tuple(map(_topic_of, one.state_changelog_topics)),
                tuple(one.repartition_sink_topics),
                tuple(map(_topic_of, one.repartition_source_topics)),
                tuple(
                    CopartitionGroup(
                        tuple(group.source_topics),
                        tuple(group.source_topic_regex),
                        tuple(group.repartition_source_topics),
                    )
                    for group in one.copartition_groups
                ),
            )
            for one in struct.subtopologies
        ),
    )


def _topic_of(struct: Any) -> InternalTopic:
    configs = tuple((config.key, config.value) for config in struct.topic_configs)
    return InternalTopic(struct.name, struct.partitions, struct.replication_factor, configs)


def topology_value(topology: Topology) -> StreamsGroupTopologyValue:
    """The topology as a record has it."""
    of = StreamsGroupTopologyValue.Subtopology

    def topic(one: InternalTopic) -> StreamsGroupTopologyValue.Subtopology.TopicInfo:
        configs = [of.TopicInfo.TopicConfig(key=key, value=value) for key, value in one.configs]
        return of.TopicInfo(
            name=one.name,
            partitions=one.partitions,
            replication_factor=one.replication_factor,
            topic_configs=configs,
        )

    return StreamsGroupTopologyValue(
        epoch=topology.epoch,
        subtopologies=[
            of(
                subtopology_id=one.subtopology_id,
                source_topics=list(one.source_topics),
                source_topic_regex=list(one.source_topic_regex),
                state_changelog_topics=[topic(changelog) for changelog in one.changelogs],
                repartition_sink_topics=list(one.repartition_sinks),
                repartition_source_topics=[topic(source) for source in one.repartition_sources],
                copartition_groups=[
                    of.CopartitionGroup(
                        source_topics=list(group.source_topics),
                        source_topic_regex=list(group.source_topic_regex),
                        repartition_source_topics=list(group.repartition_source_topics),
                    )
                    for group in one.copartition_groups
                ],
            )
            for one in topology.subtopologies
        ],
    )


def configure(topology: Topology, existing: PartitionCount) -> Configured:
    """Find out how many tasks and how many partitions of internal topics the topology has in this cluster.

    Raises:
        InvalidTopology: The numbers do not follow from the topics that exist, whatever topics there are.
    """
    if len(topology.by_id()) < len(topology.subtopologies):
        raise InvalidTopology("Two subtopologies have one id.")
    try:
        missing_sources = {
            name for one in topology.subtopologies for name in one.source_topics if existing(name) is None
        }
        if missing_sources:
            names = _listed(sorted(missing_sources))
            raise _Problem(StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {names} are missing.")
        decided = _Decided(topology, existing)
        configured = {
            one.subtopology_id: ConfiguredSubtopology(
                one,
                max(decided.count(name) for name in one.inputs),
                decided.topics(one.changelogs),
                decided.topics(one.repartition_sources),
            )
            for one in sorted(topology.subtopologies)
        }
        missing = _missing(configured, existing)
    except _Problem as problem:
        return Configured({}, (), problem.status)
    if not missing:
        return Configured(configured)
    names = _listed([topic.name for topic in missing])
    return Configured(
        configured, missing, Status(StatusCode.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
    )


def _missing(configured: Mapping[str, ConfiguredSubtopology], existing: PartitionCount) -> list[InternalTopic]:
    found = {topic.name: topic for one in configured.values() for topic in (*one.repartition_sources, *one.changelogs)}
    for name in sorted(found):
        count = existing(name)
        if count is None:
            continue
        expected = found.pop(name).partitions
        if count != expected:
            raise _Problem(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {expected}, found {count}",
            )
    return sorted(found.values())


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {rest} additional topics" if rest > 0 else "")


class _Decided:
    """The numbers of partitions of internal topics."""

    def __init__(self, topology: Topology, existing: PartitionCount) -> None:
        self._subtopologies = topology.subtopologies
        self._existing = existing
        self._counts: dict[str, int] = {}
        self._decide_repartition_topics()
        for one in self._subtopologies:
            for group in one.copartition_groups:
                self._equalize(_topics_of(one, group))
        for one in self._subtopologies:
            if not one.inputs:
                raise InvalidTopology(f"No source topics found for subtopology {one.subtopology_id}")
            most = max(self.count(name) for name in one.inputs)
            self._counts.update(dict.fromkeys((topic.name for topic in one.changelogs), most))

    def count(self, name: str) -> int:
        """How many partitions the topic has or will have."""
        found = self._existing(name)
        if found is None:
            found = self._counts.get(name)
        if found is None:
            raise InvalidTopology(f"No partition count for source topic {name}")
        return found

    def topics(self, topics: Iterable[InternalTopic]) -> tuple[InternalTopic, ...]:
        """The topics with their numbers of partitions."""
        return tuple(topic._replace(partitions=self._counts.get(topic.name, topic.partitions)) for topic in topics)

    def _decide_repartition_topics(self) -> None:
        """A repartition topic has as many partitions as the largest topic that its writer reads, unless the application
        says how many."""
        sources = [topic for one in self._subtopologies for topic in one.repartition_sources]
        self._counts.update({topic.name: topic.partitions for topic in sources if topic.partitions})
        undecided = {name for one in self._subtopologies for name in one.repartition_sinks}.difference(self._counts)
        while undecided:
            before = len(undecided)
            for one in self._subtopologies:
                for name in one.repartition_sinks:
                    if name in undecided and (count := self._count_of_writer(one)) is not None:
                        self._counts[name] = count
                        undecided.discard(name)
            if len(undecided) == before:
                raise InvalidTopology(
                    "Failed to compute number of partitions for all repartition topics. There may be loops in the "
                    "topology that cannot be resolved."
                )
        if any(topic.name not in self._counts for topic in sources):
            raise InvalidTopology(
                "Failed to compute number of partitions for all repartition topics, because a repartition source topic "
                "is never used as a sink topic."
            )

    def _count_of_writer(self, writer: Subtopology) -> int | None:
        """The partitions of the largest topic that the subtopology reads, of those whose number is known."""
        counts = [self._counts.get(topic.name) for topic in writer.repartition_sources]
        counts += [
            count if (count := self._existing(name)) is not None else self._counts.get(name)
            for name in writer.source_topics
        ]
        return max((count for count in counts if count is not None), default=None)

    def _equalize(self, names: Sequence[str]) -> None:
        """Let repartition topics have as many partitions as the topics that they are read together with."""
        if not names:
            return
        fixed = {topic.name for one in self._subtopologies for topic in one.repartition_sources if topic.partitions}
        flexible = {topic.name for one in self._subtopologies for topic in one.repartition_sources} - fixed
        repartition = {name: self.count(name) for name in names if name in fixed or name in flexible}
        others = {name: self.count(name) for name in names if name not in repartition}
        if others:
            partitions = _same(others)
        elif fixed_ones := {name: count for name, count in repartition.items() if name in fixed}:
            partitions = _same(fixed_ones, listed=repartition)
        else:
            partitions = max(repartition.values())
        for name, count in repartition.items():
            self._counts[name] = partitions
            if name in fixed and count != partitions:
                raise _Problem(
                    StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{count}] of repartition topic [{name}] doesn't match number of partitions "
                    f"[{partitions}] of the source topic.",
                )


def _topics_of(subtopology: Subtopology, group: CopartitionGroup) -> list[str]:
    try:
        return [subtopology.source_topics[place] for place in group.source_topics] + [
            subtopology.repartition_sources[place].name for place in group.repartition_source_topics
        ]
    except IndexError:
        raise InvalidTopology(
            f"A copartition group of subtopology {subtopology.subtopology_id} names a topic that it has not"
        ) from None


def _same(counts: Mapping[str, int], *, listed: Mapping[str, int] | None = None) -> int:
    """The number of partitions that all topics have."""
    first, *rest = counts.values()
    if any(count != first for count in rest):
        texts = ", ".join(f"{name}={count}" for name, count in sorted((listed or counts).items()))
        raise _Problem(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{texts}}}]",
        )
    return first
