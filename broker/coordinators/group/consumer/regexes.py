"""Subscriptions by regular expression: when the expressions of a group are resolved, and what follows.

Matching is not done here: expressions and topic names go to a worker, and come back with the topics that match. All
expressions of a group are resolved together, so that the group epoch grows once. That is done when a member brings a
new expression, when topics were created, and every ten minutes; at most every ten seconds for a group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from broker.coordinators.group.consumer import records as r
from broker.coordinators.group.consumer.group import ConsumerGroup, ResolvedRegex
from broker.coordinators.group.consumer.member import ConsumerMember
from broker.coordinators.group.consumer.requests import ConsumerHeartbeat
from broker.coordinators.group.modern.kinds import Context
from broker.coordinators.group.modern.refused import HeartbeatRefused
from broker.coordinators.group.modern.steps import OnWritten
from broker.coordinators.group.records import GroupResult
from protocol.errors import ErrorCode
from protocol.records.group_metadata import GroupRecord

SHORTEST_INTERVAL_MS: Final = 10_000
"""How long a group waits at least before its expressions are resolved again."""


class RegexChange(Enum):
    """What a heartbeat changes of a member's regular expression."""

    NONE = "nothing"
    UNRESOLVED = "the topics of the new expression are not known yet"
    RESOLVED = "the topics of the new expression are known, or the member has no expression any more"


class Regexes:
    """The regular expressions of all consumer groups of a partition."""

    def __init__(self, around: Context, bumped: Callable[[ConsumerGroup, int, int], GroupRecord]) -> None:
        """``bumped`` gives the record of a new epoch: group, epoch, metadata hash."""
        self._around = around
        self._bumped = bumped
        self._resolving: set[str] = set()
        """Groups whose expressions are at a worker."""
        self._last_creation = 0
        """The version of the metadata when a topic was created last."""
        self._is_unloaded = False

    def topics_were_created(self) -> None:
        """Expressions may match more topics."""
        self._last_creation = self._around.topics.version

    def unload(self) -> None:
        """What comes back from a worker changes nothing any more."""
        self._is_unloaded = True

    def change(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        updated: ConsumerMember,
        heartbeat: ConsumerHeartbeat | None,
        records: list[GroupRecord],
        on_written: list[OnWritten],
    ) -> RegexChange:
        """Take over what a member changes, and let the group's expressions be resolved if it is time.

        Raises `HeartbeatRefused` for an expression that is none.
        """
        old, new = member.subscribed_regex, updated.subscribed_regex
        if not (old or new or group.regexes):
            return RegexChange.NONE
        change, is_new = RegexChange.NONE, False
        if old != new:
            change = RegexChange.UNRESOLVED
            if old and group.regexes[old] == 1:
                records.append(r.regex_tombstone(group.group_id, old))
            if not new:
                change = RegexChange.RESOLVED
            elif not group.regexes[new]:
                if heartbeat is not None and heartbeat.regex_error is not None:
                    raise HeartbeatRefused(
                        ErrorCode.INVALID_REGULAR_EXPRESSION,
                        f"SubscribedTopicRegex `{new}` is not a valid regular expression: {heartbeat.regex_error}.",
                    )
                is_new = True
            elif new in group.resolved:
                change = RegexChange.RESOLVED
        subscribed = Counter(group.regexes)
        subscribed.update({old: -1} if old and old != new and group.regexes[old] else {})
        subscribed.update({new: 1} if new and old != new else {})
        regexes = [regex for regex, count in subscribed.items() if count > 0]
        if heartbeat is not None and self._is_due(group, regexes, is_new=is_new):
            on_written.append(
                lambda stands: self._resolve(group.group_id, regexes, heartbeat.may_describe) if stands else None
            )
        return change

    def _is_due(self, group: ConsumerGroup, regexes: list[str], *, is_new: bool) -> bool:
        if not regexes or not (is_new or group.regexes) or group.group_id in self._resolving:
            return False
        now_ms = self._around.clock.now_ms()
        last = next(iter(group.resolved.values()), None)
        last_ms, last_version = (0, 0) if last is None else (last.timestamp, last.version)
        if last is not None and now_ms <= last_ms + SHORTEST_INTERVAL_MS:
            return False
        return (
            is_new
            or len(regexes) != len(group.resolved)
            or last_version < self._last_creation
            or now_ms > last_ms + self._around.settings.consumer_regex_refresh_interval_ms
        )

    def _resolve(self, group_id: str, regexes: list[str], may_describe: Callable[[str], bool]) -> None:
        if group_id in self._resolving or self._is_unloaded:
            return
        self._resolving.add(group_id)
        version, now_ms = self._around.topics.version, self._around.clock.now_ms()
        names = list(self._around.topics.names())

        def resolved(found: Mapping[str, frozenset[str]] | None) -> None:
            self._resolving.discard(group_id)
            if found is None or self._is_unloaded:
                return
            visible = {
                regex: ResolvedRegex(frozenset(filter(may_describe, topics)), version, now_ms)
                for regex, topics in found.items()
            }
            self._around.queues.decide_unasked(group_id, lambda: self._take_over(group_id, visible))

        self._around.resolve(regexes, names, resolved)

    def _take_over(self, group_id: str, found: Mapping[str, ResolvedRegex]) -> GroupResult | None:
        group = self._around.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return None
        resolved = {regex: topics for regex, topics in found.items() if group.regexes[regex]}
        records = [r.regex_record(group_id, regex, topics) for regex, topics in resolved.items()]
        topics = set(group.subscribers)
        for one in ({**group.resolved, **resolved}).values():
            topics |= one.topics
        hashed = self._around.hashes.of_group(topics)
        has_changed = any(
            regex not in group.resolved or group.resolved[regex].topics != one.topics
            for regex, one in resolved.items()
            if one.topics or regex in group.resolved
        )
        if has_changed or hashed != group.metadata_hash:
            records.append(self._bumped(group, group.epoch + 1, hashed))
        return GroupResult(records, lambda error: None) if records else None
