"""Conditions: a call that returns once something holds of a group or a topic, looked at whenever something happens."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.control.arguments import BadArguments, argument, shown
from broker.control.calls import CHANGES, Answer, Call, NotInTime
from broker.control.groups import described
from storage.sentinels import NO_OFFSET

if TYPE_CHECKING:
    from broker.control.broker_host import BrokerHost
    from broker.control.happenings import Happenings
    from broker.server.broker_server import BrokerServer

PATIENCE_MS: Final = 10_000
"""How long a condition may take by default, in milliseconds of the system's time."""

MOST_MS: Final = 86_400_000
"""How long a condition may take at most: a day, in milliseconds."""

STATES: Final = (
    "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "NotReady", "Reconciling", "Stable", "Dead",
)  # fmt: skip
"""The states of groups of all kinds, by Kafka's names."""


@dataclasses.dataclass(frozen=True)
class Condition:
    """What has to hold: all that is given, of one group, of one topic, or of both."""

    group: str | None = argument("a group's id", None)
    state: str | None = argument("the state that the group is in", None, choices=STATES)
    members: int | None = argument("how many members the group has", None)
    committed: dict[str, int] | None = argument(
        "the offsets that the group has committed at least, by topic-partition", None
    )
    caught_up: bool = argument("whether the group has committed the end of every partition of the topic", False)
    topic: str | None = argument("a topic's name", None)
    records: int | None = argument("how many records the topic has at least that readers can see", None)
    timeout_ms: int = argument("how long it may take, in milliseconds of the system's time", PATIENCE_MS, most=MOST_MS)

    def __str__(self) -> str:
        given = (
            f"{one.name}={getattr(self, one.name)!r}"
            for one in dataclasses.fields(self)
            if one.name != "timeout_ms" and getattr(self, one.name) != one.default
        )
        return ", ".join(given)

    def fault(self) -> str | None:
        """Why this is no condition, as a sentence; None if it is."""
        about_group = (self.state, self.members, self.committed)
        if self.group is None and (self.caught_up or any(one is not None for one in about_group)):
            return "state, members, committed and caught_up say something of a group: which?"
        if self.topic is None and (self.caught_up or self.records is not None):
            return "records and caught_up say something of a topic: which?"
        if not self.caught_up and all(one is None for one in (*about_group, self.records)):
            return "nothing is waited for: give state, members, committed, caught_up or records"
        for place in self.committed or ():
            topic, _, index = place.rpartition("-")
            if not (topic and index.isdecimal()):
                return f"committed has {shown(place)}, expected a topic and a partition, such as orders-0"
        return None


class Found(NamedTuple):
    """What there is of what a condition is about."""

    holds: bool
    answer: Answer


class Conditions:
    """The conditions that are waited for."""

    def __init__(self, host: BrokerHost, happenings: Happenings) -> None:
        self._host = host
        self._happenings = happenings

    def calls(self) -> list[Call]:
        """The call that waits."""
        return [
            Call(
                CHANGES,
                "/wait",
                "Return once all that is given holds; 408 and what is there if it never does.",
                Condition,
                self.wait,
            )
        ]

    async def wait(self, condition: Condition) -> Answer:
        """Return what there is once the condition holds. Raises `NotInTime`, and `CannotDo` where it is none."""
        if fault := condition.fault():
            raise BadArguments(fault)
        deadline_s = asyncio.get_running_loop().time() + condition.timeout_ms / 1000
        while not (found := _look(self._host.server, condition)).holds:
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._happenings.next()
            except TimeoutError:
                raise NotInTime(f"waited {condition.timeout_ms} ms for {condition}", found.answer) from None
        return found.answer


def _look(server: BrokerServer, condition: Condition) -> Found:
    holds, answer = True, {}
    if condition.group is not None:
        group = answer["group"] = described(server, condition.group)
        holds &= condition.state in (None, group["state"])
        holds &= condition.members in (None, len(group["members"]))
        for place, offset in (condition.committed or {}).items():
            holds &= group["committed"].get(place, NO_OFFSET) >= offset
    if condition.topic is not None:
        topic = answer["topic"] = described_topic(server, condition.topic)
        holds &= condition.records is None or topic["records"] >= condition.records
        if condition.caught_up:
            ends = {f"{condition.topic}-{one['partition']}": one["end"] for one in topic["partitions"]}
            committed = answer["group"]["committed"]
            holds &= bool(ends) and all(end == 0 or committed.get(place) == end for place, end in ends.items())
    return Found(holds, answer)


def described_topic(server: BrokerServer, name: str) -> Answer:
    """A topic as it is now, as JSON: without partitions if it does not exist."""
    found = server.metadata.image.topics.by_name.get(name)
    partitions = []
    for index in range(0 if found is None else len(found.partitions)):
        partition = server.components.replicas.find(name, index)
        if partition is not None:
            log = partition.log
            partitions.append({"partition": index, "start": log.log_start_offset, "end": log.last_stable_offset})
    return {
        "topic": name,
        "partitions": partitions,
        "records": sum(one["end"] - one["start"] for one in partitions),
    }
