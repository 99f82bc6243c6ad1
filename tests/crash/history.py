"""The history of one partition over all lives of the broker, and the check that a new reading agrees with it."""

from __future__ import annotations

import random
from collections.abc import Collection
from itertools import pairwise
from typing import NamedTuple

from tests.crash.promises import Promise, PromiseBroken, require
from tests.crash.stored import Batch, Stored, values_in
from tests.crash.topics import OFFSET_UNKNOWN, Identity, Place, Stands, Topic, identity_in


class Bounds(NamedTuple):
    """Where a partition begins and ends, and the leader epoch it is in."""

    start: int
    end: int
    leader_epoch: int


class PartitionHistory:
    """One partition: `look` once the broker has started, `broker_died` as soon as it has not."""

    def __init__(self, topic: Topic, place: Place, once_only: Collection[str]) -> None:
        """``once_only``: the producers whose records may be there once only."""
        self._topic = topic
        self.place = place
        self._once_only = once_only
        self._batches: list[Batch] = []
        self._identities: dict[int, Identity] = {}
        self._offsets: dict[Identity, int] = {}
        self._newest_of: dict[str, int] = {}
        self.bounds = Bounds(0, 0, -1)
        self.doubled = 0
        """Records that are there more than once, of producers that may do that."""
        self._told: list[Stands] = []
        self._told_end = 0
        self._left_at = 0

    def was_told(self, stands: Stands) -> None:
        """A producer or a consumer has been told of a record here."""
        self._told.append(stands)
        self._told_end = max(self._told_end, stands.offset + 1)

    def broker_died(self) -> None:
        """The leader epoch of the last look has ended, no earlier than where somebody was told that the log is."""
        self._left_at = max(self._told_end, self.bounds.end)

    def look(self, stored: Stored, *, leader_epoch: int, epoch_must_rise: bool, chance: random.Random) -> None:
        """Read everything and compare. ``leader_epoch``: the one that the partition is said to be in."""
        before = self.bounds
        while True:
            bounds = self.bounds = Bounds(*stored.bounds(self.place), leader_epoch)
            self._check_bounds(before, bounds)
            self._check_epoch(stored, before, epoch_must_rise)
            try:
                self._read(stored, before)
                self._look_up(stored, chance)
            except PromiseBroken:
                if self._topic.retention_bytes is None or stored.bounds(self.place)[0] == bounds.start:
                    raise
                continue  # retention was faster
            break
        self._check_told()

    def _check_bounds(self, before: Bounds, now: Bounds) -> None:
        require(
            now.end >= self._told_end,
            Promise.HIGH_WATERMARK,
            f"{self.place} ends at {now.end}, and offset {self._told_end - 1} was told to somebody",
        )
        require(
            now.end >= before.end,
            Promise.HIGH_WATERMARK,
            f"{self.place} ends at {now.end}, and had {before.end} before",
        )
        require(
            now.start >= before.start,
            Promise.LOG_START,
            f"{self.place} begins at {now.start}, and began at {before.start} before",
        )
        if self._topic.keeps_everything:
            require(now.start == 0, Promise.LOG_START, f"{self.place} begins at {now.start}, and nothing was deleted")

    def _check_epoch(self, stored: Stored, before: Bounds, must_rise: bool) -> None:
        now = self.bounds
        require(
            now.leader_epoch >= before.leader_epoch + must_rise,
            Promise.EPOCH_RISES,
            f"{self.place} is in leader epoch {now.leader_epoch}, and was in {before.leader_epoch} before",
        )
        if before.leader_epoch < 0 or now.leader_epoch == before.leader_epoch:
            return
        end = stored.epoch_end(self.place, before.leader_epoch)
        require(
            self._left_at <= end <= now.end,
            Promise.EPOCH_ENDS,
            f"{self.place}: epoch {before.leader_epoch} is said to end at {end}; clients knew of "
            f"{self._left_at} in it, and the log ends at {now.end}",
        )

    def _read(self, stored: Stored, before: Bounds) -> None:
        start, end, leader_epoch = self.bounds
        known = [batch for batch in self._batches if batch.last_offset >= start]
        now: list[Batch] = []
        for batch, data in stored.batches(self.place, start, end):
            number = len(now)
            now.append(batch)
            if number < len(known):
                require(
                    batch == known[number],
                    Promise.NOTHING_CHANGED,
                    f"{self.place} has {batch}, and had {known[number]} in its place",
                )
            else:
                self._take_in(data)
        require(
            len(now) >= len(known),
            Promise.NOTHING_CHANGED,
            f"{self.place} has {len(now)} batches from {start} on, and had {len(known)}",
        )
        for one, following in pairwise(now):
            require(
                one.leader_epoch <= following.leader_epoch <= leader_epoch,
                Promise.EPOCH_ENDS,
                f"{self.place}, in epoch {leader_epoch}: a batch of {one.leader_epoch} before one of "
                f"{following.leader_epoch} at {following.base_offset}",
            )
        if (kept := self._topic.retention_bytes) is not None and start > before.start:
            left = sum(batch.size for batch in now)
            require(left >= kept, Promise.LOG_START, f"retention left {left} bytes of {self.place}, not {kept}")
        self._batches = now

    def _take_in(self, data: memoryview) -> None:
        """Records that are read for the first time."""
        for offset, value in values_in(data):
            identity = identity_in(value, self._topic.most_value_bytes)
            require(
                identity is not None,
                Promise.NOTHING_CHANGED,
                f"{self.place}: nobody has sent what is at {offset}: {(value or b'')[:60]!r}…",
            )
            assert identity is not None
            self._identities[offset] = identity
            first = self._offsets.setdefault(identity, offset)
            if identity.producer not in self._once_only:
                self.doubled += first != offset
                continue
            require(first == offset, Promise.NOTHING_DOUBLED, f"{self.place} has {identity} at {first} and at {offset}")
            newest = self._newest_of.get(identity.producer, -1)
            require(
                identity.number > newest,
                Promise.NOTHING_DOUBLED,
                f"{self.place} has {identity} at {offset}, behind #{newest}",
            )
            self._newest_of[identity.producer] = identity.number

    def _check_told(self) -> None:
        told, self._told = self._told, []
        for stands in told:
            offset = stands.offset
            if offset == OFFSET_UNKNOWN:
                offset = self._offsets.get(stands.identity, OFFSET_UNKNOWN)
                require(
                    # What was written may have been deleted before it was ever looked at.
                    offset != OFFSET_UNKNOWN or not self._topic.keeps_everything,
                    Promise.NOTHING_MISSING,
                    f"{stands.identity} is not in {self.place}",
                )
            elif offset >= self.bounds.start or offset in self._identities:
                found = self._identities.get(offset)
                require(
                    found == stands.identity,
                    Promise.NOTHING_MISSING,
                    f"{self.place} has {found} at {offset}, where {stands.identity} was",
                )

    def _look_up(self, stored: Stored, chance: random.Random) -> None:
        """Some offsets and times, which the indexes lead to."""
        if not self._batches:
            return
        for batch in chance.choices(self._batches, k=3):
            offset = chance.randint(max(batch.base_offset, self.bounds.start), batch.last_offset)
            found = stored.batch_at(self.place, offset)
            require(found == batch, Promise.LOOK_UPS, f"{self.place}: {found} for offset {offset}, which is in {batch}")
        moment = chance.choice(self._batches).max_timestamp
        due = next(batch for batch in self._batches if batch.max_timestamp >= moment)
        offset = stored.offset_at(self.place, moment)
        require(
            due.base_offset <= offset <= due.last_offset,
            Promise.LOOK_UPS,
            f"{self.place}: offset {offset} for time {moment}, which is first reached in {due}",
        )

    def all_of(self, producer: str) -> int:
        """How many different records of a producer have been read here."""
        return sum(identity.producer == producer for identity in self._offsets)
