"""Case: assignors of groups by themselves, which compute in one turn of the broker's loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from broker.coordinators.group.consumer.assignors import ASSIGNORS
from broker.coordinators.group.consumer.group import ConsumerGroup
from broker.coordinators.group.consumer.member import ConsumerMember
from broker.coordinators.group.consumer.targets import new_targets
from broker.coordinators.group.modern.topics import GroupTopic
from broker.coordinators.group.streams import assignor as streams
from broker.coordinators.group.streams.member import NOTHING
from broker.coordinators.group.streams.topology import ConfiguredSubtopology, InternalTopic, Subtopology

STREAMS_MEMBERS: Final = 1_000
MOST_TASKS: Final = 10_000
ROUNDS: Final = 5


def assignors(directory: Path, scale: float) -> dict[str, float]:
    """Milliseconds, the least of five: all target assignments with their records, of consumer groups with 1,000 and
    10,000 members that get a partition each; ``sticky`` of 10,000 tasks for 1,000 members of a streams group, without
    standby tasks and with one for each."""
    figures: dict[str, float] = {}
    for members in (1_000, 10_000):
        for name in ASSIGNORS:
            figures[f"{name}_{members}_ms"] = _least_ms(partial(_assign, name, _group_of(max(int(members * scale), 1))))
    workers = {
        f"member-{number}": streams.Worker(f"process-{number}", NOTHING, streams.NO_OFFSETS)
        for number in range(max(int(STREAMS_MEMBERS * scale), 1))
    }
    changelogs = (InternalTopic("changelog"),)
    stateful = Subtopology("0", ("orders",), (), changelogs, (), (), ())
    tasks = [ConfiguredSubtopology(stateful, max(int(MOST_TASKS * scale), 1), changelogs, ())]
    for standbys in (0, 1):
        figures[f"sticky_{standbys}_standbys_ms"] = _least_ms(partial(streams.assign, workers, tasks, standbys))
    return figures


class OneTopic:
    """A `TopicsView` with as many partitions as there are members."""

    version = 0

    def __init__(self, partitions: int) -> None:
        self._topic = GroupTopic("orders", bytes(16), partitions, ())

    def of_name(self, name: str) -> GroupTopic:
        """The topic."""
        return self._topic

    def of_id(self, topic_id: bytes) -> GroupTopic:
        """The topic."""
        return self._topic

    def names(self) -> Iterator[str]:
        """Its name."""
        return iter((self._topic.name,))


def _group_of(members: int) -> ConsumerGroup:
    group = ConsumerGroup("readers")
    for number in range(members):
        group.replay_member(ConsumerMember(member_id=f"member-{number}", subscribed_topics=frozenset({"orders"})))
    return group


def _assign(name: str, group: ConsumerGroup) -> None:
    last = group.members[f"member-{len(group.members) - 1}"]
    topics = OneTopic(len(group.members))
    new_targets(group, 2, assignor=name, updated=last, replaced=None, topics=topics, now_ms=0)


def _least_ms(work: Callable[[], object]) -> float:
    took: list[float] = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        took.append((time.perf_counter() - began) * 1_000)
    return min(took)
