"""A rule: which requests go wrong, which of them, when, and how. Pure: it is told of requests, and says yes or no."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final, NamedTuple

from broker.control.arguments import BadArguments, argument
from broker.control.movable_time import MOST_MS
from broker.control.places import Coordinated
from broker.control.seen_requests import API_NAMES
from protocol.errors import ErrorCode

BEFORE: Final = "before"
AFTER: Final = "after"
MIDDLE: Final = "middle"
DISK_FULL: Final = "full"
FSYNC_ERROR: Final = "fsync"

_HOWS: Final = ("error", "delay_ms", "close", "silence", "disk", "new_leader_epoch", "move_coordinator")
"""How a request may go wrong."""

_ERRORS: Final = tuple(name for name, code in ErrorCode.__members__.items() if code != ErrorCode.NONE)


class Asked(NamedTuple):
    """What a rule looks at in a request."""

    api: str
    client_id: str
    principal: str
    coordinated: Sequence[Coordinated]
    """The groups and transactional ids that the request names."""
    places: Mapping[str, Sequence[int]]
    """The topics that the request names, each with the partitions that it names of it."""


@dataclasses.dataclass(frozen=True)
class NewRule:
    """A rule as a test gives it. Exactly one of `_HOWS` says how it goes wrong."""

    api: str | None = argument("an API's name, such as Produce; without it every API", None, choices=API_NAMES)
    topic: str | None = argument("a topic that the request names; an error is then for its partitions only", None)
    partition: int | None = argument("one partition of the topic", None)
    group: str | None = argument("the group or transactional id that the request names", None)
    client_id: str | None = argument("the client.id of the client", None)
    principal: str | None = argument("who the client is, such as User:alice", None)
    nth: int | None = argument("of the requests that fit only the n-th, counted from 1", None, least=1)
    share: float | None = argument("of the requests that fit only this share, from 0 to 1", None, most=1)
    seed: int = argument("what the share's chance begins with: the same seed chooses the same requests", 0)
    times: int | None = argument("how often at most", None)
    when: str = argument(
        "before the broker acts, after it acted and before it answers, or in the middle of the answer",
        BEFORE,
        choices=(BEFORE, AFTER, MIDDLE),
    )
    error: str | None = argument("the name of an error code, such as NOT_LEADER_OR_FOLLOWER", None, choices=_ERRORS)
    delay_ms: int | None = argument("how long it takes, in milliseconds of the broker's time", None, most=MOST_MS)
    close: bool = argument("whether the connection is closed instead", False)
    silence: bool = argument("whether no answer ever comes", False)
    disk: str | None = argument(
        "full: the topic's logs cannot be written; fsync: they cannot be flushed", None,
        choices=(DISK_FULL, FSYNC_ERROR),
    )  # fmt: skip
    new_leader_epoch: bool = argument(
        "whether a new leader epoch begins, for those partitions of the topic that the request names", False
    )
    move_coordinator: bool = argument(
        "whether the coordinator of the group or transactional id is unloaded and loaded again", False
    )
    away_ms: int = argument(
        "how long there is no leader or coordinator meanwhile, in milliseconds of the broker's time", 0, most=MOST_MS
    )

    def fault(self) -> str | None:
        """Why this is no rule, as a sentence; None if it is."""
        if sum(getattr(self, how) not in (None, False) for how in _HOWS) != 1:
            return f"a rule has one of {', '.join(_HOWS[:-1])} and {_HOWS[-1]}"
        if self.when == MIDDLE and not self.close:
            return f"when is {MIDDLE!r}: in the middle of an answer a connection can be closed, and nothing else"
        if self.partition is not None and self.topic is None:
            return "a partition is one of a topic: which?"
        if self.new_leader_epoch and self.topic is None:
            return "new_leader_epoch is for partitions of a topic: which?"
        if self.away_ms and not self.changes_leader:
            return "only a leader or a coordinator can be away: away_ms goes with new_leader_epoch or move_coordinator"
        return self._fault_of_disk()

    @property
    def changes_leader(self) -> bool:
        """Whether what the rule wants is a change of the cluster's metadata."""
        return self.new_leader_epoch or self.move_coordinator

    def _fault_of_disk(self) -> str | None:
        if self.disk is None:
            return None
        others = (self.api, self.group, self.client_id, self.principal, self.nth, self.share, self.times)
        if any(one is not None for one in others) or self.when != BEFORE:
            return "a disk knows no requests: only topic and partition go with it"
        return None


class Rule:
    """A rule in force."""

    def __init__(self, number: int, given: NewRule) -> None:
        """Raises `BadArguments`."""
        if fault := given.fault():
            raise BadArguments(fault)
        self.number = number
        self.given = given
        self.fitted = 0
        """How many requests have fitted."""
        self.applied = 0
        """How many of them have gone wrong."""
        self._random = Random(given.seed)  # noqa: S311 - chance that repeats itself

    @property
    def is_over(self) -> bool:
        """Whether the rule applies to nothing any more."""
        given = self.given
        return (given.times is not None and self.applied >= given.times) or (
            given.nth is not None and self.fitted >= given.nth
        )

    def applies_to(self, asked: Asked) -> bool:
        """Whether this request goes wrong. Counts it."""
        given = self.given
        if given.disk is not None or self.is_over or not self._fits(asked):
            return False
        self.fitted += 1
        if given.nth is not None and self.fitted != given.nth:
            return False
        # Chance is asked for each request that fits, so that the same requests are chosen whatever else is given.
        if given.share is not None and self._random.random() >= given.share:
            return False
        self.applied += 1
        return True

    def _fits(self, asked: Asked) -> bool:
        given = self.given
        if given.topic is not None:
            partitions = asked.places.get(given.topic)
            if partitions is None or (given.partition is not None and given.partition not in partitions):
                return False
        return (
            given.api in (None, asked.api)
            and (given.group is None or any(one.key == given.group for one in asked.coordinated))
            and (bool(asked.coordinated) or not given.move_coordinator)
            and given.client_id in (None, asked.client_id)
            and given.principal in (None, asked.principal)
        )
