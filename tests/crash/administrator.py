"""An administrator who creates and deletes topics, alters configs and deletes records, and records the answers.

What he knows is a set of facts, each with one value. A change takes one fact from one value to another; while it is
not answered either may be true. After a restart each fact is asked for, and what is found settles a change that the
broker's death had left open.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final, NamedTuple

from protocol.errors import ErrorCode
from protocol.messages.configs import IncrementalAlterConfigsRequest
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from protocol.schema import NO_UUID
from tests.crash.load import Load
from tests.crash.promises import Promise, require
from tests.crash.stored import BROKER_RESOURCE, TOPIC_RESOURCE, Stored, values_in
from tests.crash.topics import A_DAY_MS, TOPICS, Place
from tests.support.batches import produced, record
from tests.support.requests import produce_request

SHORT_LIVED: Final = tuple(f"short-lived-{number}" for number in range(4))
"""Names that are used again and again: nothing of a topic may come back in the next one of its name."""

ALTERED_FOR_ALL_BROKERS: Final = "log.retention.ms"
_TIMEOUT_MS: Final = 30_000
_SET: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortLived:
    """A topic, as far as it is looked at: of its records those of partition 0."""

    topic_id: bytes = NO_UUID
    partitions: int
    retention_ms: str
    begins_at: int = 0
    values: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class ShortLivedTopic:
    """The fact which topic of this name there is: a `ShortLived`, or None."""

    name: str


@dataclass(frozen=True, slots=True)
class Config:
    """The fact what a config says; the name is "" for all brokers."""

    resource_type: int
    name: str
    key: str


@dataclass(frozen=True, slots=True)
class LogStart:
    """The fact where a partition begins that only this administrator deletes records from."""

    place: Place


Fact = ShortLivedTopic | Config | LogStart


class Administrator:
    """The facts, and the one who changes them as long as the broker lives."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._numbers = count(1)
        self._lasting: dict[str, bytes] = {}
        """The ids of the topics that are there for the whole run."""
        self._facts: dict[Fact, Any] = {}
        self._undecided: tuple[Fact, Any] | None = None
        self.answered: Counter[str] = Counter()
        """Changes that were answered, by their kind."""
        self.is_asking = threading.Event()
        """Set while a change is under way."""

    def create_lasting_topics(self, stored: Stored) -> None:
        """Once, before everything."""
        self._facts |= {ShortLivedTopic(name): None for name in SHORT_LIVED}
        self._facts[Config(BROKER_RESOURCE, "", ALTERED_FOR_ALL_BROKERS)] = None
        for topic in TOPICS.values():
            retention_ms = self._new_retention_ms()
            change = _create(topic.name, topic, {**topic.configs, "retention.ms": retention_ms})
            (answer,) = change.answers_in(stored.ask(change.request, change.version))
            require(answer.error_code == 0, Promise.METADATA, f"{topic.name} cannot be created: {answer}")
            self._lasting[topic.name] = answer.topic_id
            self._facts[Config(TOPIC_RESOURCE, topic.name, "retention.ms")] = retention_ms
            if topic.is_trimmed:
                self._facts |= {LogStart(Place(topic.name, index)): 0 for index in range(topic.partitions)}

    # Looking ----------------------------------------------------------------------------------------------------------

    def check(self, stored: Stored) -> None:
        """Every fact is as it was answered; a change that was not may have happened or not."""
        topics = stored.topics()
        for name, topic_id in self._lasting.items():
            found = topics.get(name)
            require(
                found is not None and found.topic_id == topic_id and len(found.partitions) == TOPICS[name].partitions,
                Promise.METADATA,
                f"topic {name} with the id {topic_id.hex()} has become {found}",
            )
        for fact, known in self._facts.items():
            observed = self._observe(stored, fact, topics)
            allowed = [known]
            if self._undecided is not None and self._undecided[0] == fact:
                allowed.append(self._undecided[1])
            if isinstance(fact, LogStart):
                # Of records whose deletion was not answered, retention may have removed whole segments.
                promise, is_allowed = Promise.LOG_START, min(allowed) <= observed <= max(allowed)
            else:
                promise, is_allowed = Promise.METADATA, any(_is_same(observed, one) for one in allowed)
            require(is_allowed, promise, f"{fact} is {observed}, and was {' or '.join(map(str, allowed))}")
            self._facts[fact] = observed
        self._undecided = None

    def _observe(self, stored: Stored, fact: Fact, topics: dict[str, Any]) -> Any:
        match fact:
            case LogStart(place):
                return stored.bounds(place)[0]
            case Config(resource_type, name, key):
                return stored.config(resource_type, name, key)
            case ShortLivedTopic(name):
                if name not in topics:
                    return None
                place = Place(name, 0)
                start, end = stored.bounds(place)
                return ShortLived(
                    topic_id=topics[name].topic_id,
                    partitions=len(topics[name].partitions),
                    retention_ms=str(stored.config(TOPIC_RESOURCE, name, "retention.ms")),
                    begins_at=start,
                    values=tuple(
                        value or b""
                        for _, data in stored.batches(place, start, end)
                        for offset, value in values_in(data)
                        if offset >= start
                    ),
                )

    # Changing ---------------------------------------------------------------------------------------------------------

    def change_something(self, stored: Stored) -> None:
        """One change, to its answer. Raises OSError when the broker dies meanwhile; then it is undecided."""
        others = [fact for fact in self._facts if not isinstance(fact, ShortLivedTopic)]
        fact = self._chance.choice([*(ShortLivedTopic(name) for name in SHORT_LIVED * 2), *others])
        change = self._plan(stored, fact)
        self._undecided = fact, change.after
        self.is_asking.set()
        try:
            (answer,) = change.answers_in(stored.ask(change.request, change.version))
        finally:
            self.is_asking.clear()
        self._undecided = None
        if answer.error_code == 0:
            self._facts[fact] = change.after
            self.answered[change.kind] += 1
            if change.kind == "created":
                self._facts[fact] = replace(change.after, topic_id=answer.topic_id)
        else:
            # A topic is there before its logs are.
            is_early = (
                change.kind in ("produced to", "trimmed") and answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            require(is_early, Promise.METADATA, f"{fact} cannot be {change.kind}: error {answer.error_code}")

    def _plan(self, stored: Stored, fact: Fact) -> Change:
        match fact:
            case LogStart(place):
                return _trim(place, self._chance.randint(*stored.bounds(place)))
            case Config(resource_type, name, key):
                return _alter(resource_type, name, key, self._new_retention_ms())
            case ShortLivedTopic(name):
                return self._plan_for_topic(name, self._facts[fact])

    def _plan_for_topic(self, name: str, topic: ShortLived | None) -> Change:
        if topic is None:
            new = ShortLived(partitions=self._chance.randint(1, 3), retention_ms=self._new_retention_ms())
            return _create(name, new, {"retention.ms": new.retention_ms})
        match self._chance.choice(("delete", "grow", "alter", "trim", "produce", "produce", "produce")):
            case "delete":
                return _delete(name)
            case "grow":
                return _grow(name, replace(topic, partitions=topic.partitions + 1))
            case "alter":
                retention_ms = self._new_retention_ms()
                change = _alter(TOPIC_RESOURCE, name, "retention.ms", retention_ms)
                return change._replace(after=replace(topic, retention_ms=retention_ms))
            case "trim":
                kept = self._chance.randint(0, len(topic.values))
                begins_at = topic.begins_at + len(topic.values) - kept
                change = _trim(Place(name, 0), begins_at)
                return change._replace(
                    after=replace(topic, begins_at=begins_at, values=topic.values[len(topic.values) - kept :])
                )
            case _:
                value = b"%s %d" % (name.encode(), next(self._numbers))
                return _produce(name, value, replace(topic, values=(*topic.values, value)))

    def _new_retention_ms(self) -> str:
        """One that was never set before, and that nothing in a run is too old for."""
        return str(7 * A_DAY_MS + next(self._numbers))


class AdministratorAtWork(Load):
    """An administrator during one life of the broker."""

    promise = Promise.METADATA

    def __init__(self, administrator: Administrator, bootstrap: str, chance: random.Random) -> None:
        super().__init__("administrator")
        self._administrator = administrator
        self._bootstrap = bootstrap
        self._chance = chance

    def run(self) -> None:
        with contextlib.suppress(OSError):
            stored = Stored(self._bootstrap)
            while not self._stopping.is_set():
                self._administrator.change_something(stored)
                self._stopping.wait(self._chance.uniform(0, 0.02))
            stored.close()


# The changes ----------------------------------------------------------------------------------------------------------


class Change(NamedTuple):
    """A request, where in its answer it says how it went, and what the fact is once it went well."""

    kind: str
    after: Any
    request: Any
    version: int
    answers_in: Callable[[Any], Sequence[Any]]


def _create(name: str, after: Any, configs: Mapping[str, str]) -> Change:
    given = [CreateTopicsRequest.Topic.Config(name=key, value=value) for key, value in configs.items()]
    topic = CreateTopicsRequest.Topic(
        name=name, num_partitions=after.partitions, replication_factor=1, assignments=[], configs=given
    )
    return Change("created", after, CreateTopicsRequest(topics=[topic]), 7, lambda answer: answer.topics)


def _delete(name: str) -> Change:
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=_TIMEOUT_MS)
    return Change("deleted", None, request, 5, lambda answer: answer.responses)


def _grow(name: str, after: ShortLived) -> Change:
    topic = CreatePartitionsRequest.Topic(name=name, count=after.partitions, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS, validate_only=False)
    return Change("grown", after, request, 3, lambda answer: answer.results)


def _alter(resource_type: int, name: str, key: str, value: str) -> Change:
    resources = IncrementalAlterConfigsRequest.Resource
    config = resources.Config(name=key, config_operation=_SET, value=value)
    resource = resources(resource_type=resource_type, resource_name=name, configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    return Change("altered", value, request, 1, lambda answer: answer.responses)


def _trim(place: Place, begins_at: int) -> Change:
    partition = DeleteRecordsRequest.Topic.Partition(partition_index=place.partition, offset=begins_at)
    topic = DeleteRecordsRequest.Topic(name=place.topic, partitions=[partition])
    request = DeleteRecordsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
    return Change("trimmed", begins_at, request, 2, lambda answer: answer.topics[0].partitions)


def _produce(name: str, value: bytes, after: ShortLived) -> Change:
    batch = produced([record(value, timestamp=int(time.time() * 1000))])
    request = produce_request(name, batch)
    return Change("produced to", after, request, 9, lambda answer: answer.responses[0].partition_responses)


def _is_same(observed: Any, known: Any) -> bool:
    """Whether they are the same, but for an id that nobody has been told."""
    if isinstance(known, ShortLived) and isinstance(observed, ShortLived) and known.topic_id == NO_UUID:
        known = replace(known, topic_id=observed.topic_id)
    return bool(observed == known)
