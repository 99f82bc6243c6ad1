"""StripedPlacer: which brokers the replicas of new partitions get, evenly over racks and over the brokers of each rack.

It is Kafka's placement: the first replica goes to an unfenced broker, of rack after rack, and each further replica to
the next rack; in a rack, unfenced brokers come before fenced ones.

    racks A [1 2], B [3 4]      partition 0: 1 3      partition 1: 4 2      partition 2: 1 4   ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from broker.request.faults import InvalidReplicationFactor

Chance = Callable[[int], int]
"""Returns a number from 0 up to its argument, which is left out."""


class UsableBroker(NamedTuple):
    """A broker that new replicas may be placed on."""

    broker_id: int
    rack: str | None
    is_fenced: bool


class _Brokers:
    """Brokers of one rack that are alike; they are taken in turn, beginning with another one for each partition."""

    __slots__ = ("_brokers", "_index", "_offset", "_partition")

    def __init__(self) -> None:
        self._brokers: list[int] = []
        self._partition = -1
        self._offset = 0
        self._index = 0

    def __len__(self) -> int:
        return len(self._brokers)

    def add(self, broker_id: int) -> None:
        self._brokers.append(broker_id)

    def shuffle(self, chance: Chance) -> None:
        self._brokers.sort()
        _shuffle(self._brokers, chance)
        self._partition = -1
        self._offset = 0
        self._index = 0

    def next(self, partition: int) -> int | None:
        """The next broker for the partition, None if it has all of them."""
        if not self._brokers:
            return None
        if self._partition != partition:
            self._partition = partition
            self._index = 0
            self._offset = (self._offset + 1) % len(self._brokers)
        if self._index >= len(self._brokers):
            return None
        broker = self._brokers[(self._index + self._offset) % len(self._brokers)]
        self._index += 1
        return broker


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self) -> None:
        self.fenced = _Brokers()
        self.unfenced = _Brokers()

    def next(self, partition: int) -> int | None:
        broker = self.unfenced.next(partition)
        return self.fenced.next(partition) if broker is None else broker


class StripedPlacer:
    """Places the partitions of one request."""

    def __init__(self, brokers: Iterable[UsableBroker], chance: Chance) -> None:
        racks: dict[str | None, _Rack] = {}
        self._brokers = 0
        self._unfenced = 0
        for broker in brokers:
            rack = racks.setdefault(broker.rack, _Rack())
            (rack.fenced if broker.is_fenced else rack.unfenced).add(broker.broker_id)
            self._brokers += 1
            self._unfenced += not broker.is_fenced
        self._racks = [racks[name] for name in sorted(racks, key=lambda name: (name is not None, name or ""))]
        self._chance = chance
        self._partition = 0
        self._offset = 0
        self._shuffle()
        if len(self._racks) > 1:
            self._offset = chance(len(self._racks))

    def check(self, replication_factor: int) -> None:
        """Raises InvalidReplicationFactor where so many replicas cannot be placed, with Kafka's reason."""
        reason = None
        if replication_factor <= 0:
            reason = f"Invalid replication factor {replication_factor}: the replication factor must be positive."
        elif self._unfenced == 0:
            reason = "All brokers are currently fenced, or have all their log directories cordoned."
        elif replication_factor > self._brokers:
            reason = (
                f"The target replication factor of {replication_factor} cannot be reached because only "
                f"{self._brokers} broker(s) are registered or some brokers have all their log directories cordoned."
            )
        if reason is not None:
            raise InvalidReplicationFactor(reason)

    def place(self, replication_factor: int) -> list[int]:
        """The brokers of one partition, which `check` has found to be enough."""
        if self._partition == self._unfenced:
            # Another order from here on, so that not always the same brokers have replicas together.
            self._shuffle()
            self._partition = 0
        racks = self._racks
        first_rack = self._offset % len(racks)
        self._offset = first_rack + 1
        rack = first_rack
        leader = racks[rack].unfenced.next(self._partition)
        while leader is None:
            rack = (rack + 1) % len(racks)
            leader = racks[rack].unfenced.next(self._partition)
        replicas = [leader]
        led_by: int | None = rack
        rack = first_rack
        while len(replicas) < replication_factor:
            if rack == led_by:
                led_by = None  # the leader's rack has its replica; it comes again when the other racks have theirs
            else:
                broker = racks[rack].next(self._partition)
                if broker is not None:
                    replicas.append(broker)
            rack = (rack + 1) % len(racks)
        self._partition += 1
        return replicas

    def _shuffle(self) -> None:
        for rack in self._racks:
            rack.unfenced.shuffle(self._chance)
            rack.fenced.shuffle(self._chance)


def _shuffle(values: list[int], chance: Chance) -> None:
    for last in range(len(values) - 1, 0, -1):
        other = chance(last + 1)
        values[last], values[other] = values[other], values[last]
