"""Which brokers and log directories new partitions get, and why a client's own choice of brokers is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from broker.controller.striping import Chance, StripedPlacer, UsableBroker
from broker.metadata.directories import (
    MIGRATING,
    UNASSIGNED,
)
from broker.metadata.image.cluster import is_active
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topics import PartitionImage
from broker.metadata.record_versions import CORDONED_SINCE, DIRECTORIES_SINCE
from broker.request.faults import InvalidReplicaAssignment
from protocol.records.cluster_metadata import RegisterBrokerRecord

MAX_PARTITIONS_PER_REQUEST: Final = 10_000

_NO_OTHERS: Final[Mapping[int, RegisterBrokerRecord]] = MappingProxyType({})


def _no_chance(below: int) -> int:
    return 0


class Placement:
    """Places the partitions of one request, on this broker and on the others that are registered.

    On this broker, a replica gets the log directory with the fewest partitions. Another broker chooses the directory
    itself, unless it has one only.
    """

    def __init__(
        self,
        image: MetadataImage,
        *,
        broker_id: int,
        directories: Sequence[bytes],
        cordoned: Collection[bytes] = (),
        others: Mapping[int, RegisterBrokerRecord] = _NO_OTHERS,
        chance: Chance = _no_chance,
    ) -> None:
        """
        Args:
            image: the partitions that there are.
            broker_id: this broker.
            directories: the ids of this broker's log directories, in the order of ``log.dirs``.
            cordoned: the ids of those that take no new replicas (KIP-1066).
            others: the registrations of the other brokers of the cluster.
            chance: mixes the brokers, so that not every topic begins with the same broker.
        """
        self.broker_id = broker_id
        self._image = image
        self._directories = directories
        self._cordoned = cordoned
        self._others = others
        self._chance = chance
        this = image.cluster.brokers.get(broker_id)
        self._rack = None if this is None else this.rack
        self._is_stopping = bool(others) and this is not None and not is_active(this)
        # The image of a cluster that is being formatted has no metadata.version yet.
        self._has_directories = not 0 < image.features.metadata_version < DIRECTORIES_SINCE
        self._placer: StripedPlacer | None = None
        self._load: Counter[bytes] | None = None

    @property
    def is_alone(self) -> bool:
        """Whether this is the only broker of the cluster."""
        return not self._others

    @property
    def brokers(self) -> int:
        """How many brokers can have replicas of new partitions."""
        return len(self._usable_brokers())

    def partition(self, index: int, brokers: Sequence[int]) -> PartitionImage:
        """A new partition with a replica on each of ``brokers``; the first one that is active leads."""
        isr = tuple(broker for broker in brokers if self._is_active(broker))
        return PartitionImage(
            index=index,
            replicas=tuple(brokers),
            isr=isr,
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=tuple(self._directory(broker) for broker in brokers) if self._has_directories else (),
        )

    def place(self, partitions: int, replication_factor: int) -> list[list[int]]:
        """The brokers of new partitions. Raises `InvalidReplicationFactor`, with Kafka's reason."""
        if self._placer is None:
            self._placer = StripedPlacer(self._usable_brokers(), self._chance)
        self._placer.check(replication_factor)
        return [self._placer.place(replication_factor) for _ in range(partitions)]

    def check_brokers(self, brokers: Sequence[int]) -> None:
        """Raises `InvalidReplicaAssignment` for brokers that a partition cannot have."""
        if not brokers:
            raise InvalidReplicaAssignment("The manual partition assignment includes an empty replica list.")
        before = None
        for broker in sorted(brokers):
            if broker != self.broker_id and broker not in self._others:
                raise InvalidReplicaAssignment(
                    f"The manual partition assignment includes broker {broker}, but no such broker is registered."
                )
            if self._is_cordoned(broker):
                raise InvalidReplicaAssignment(
                    f"The manual partition assignment includes broker {broker}, but all its log directories are "
                    "cordoned."
                )
            if broker == before:
                raise InvalidReplicaAssignment(
                    f"The manual partition assignment includes the broker {broker} more than once."
                )
            before = broker

    def check_assignment(self, index: int, brokers: Sequence[int], replication_factor: int | None) -> None:
        """Raises `InvalidReplicaAssignment` for brokers that new partition ``index`` cannot have.

        ``replication_factor`` is how many the partitions before it have, None if it is the first one.
        """
        self.check_brokers(brokers)
        if replication_factor is not None and len(brokers) != replication_factor:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes a partition with {len(brokers)} replica(s), but this is "
                f"not consistent with previous partitions, which have {replication_factor} replica(s)."
            )
        if not any(self._is_active(broker) for broker in brokers):
            raise InvalidReplicaAssignment(
                f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
                "controlled shutdown."
            )

    def _is_active(self, broker_id: int) -> bool:
        if broker_id == self.broker_id:
            return not self._is_stopping
        other = self._others.get(broker_id)
        return other is not None and is_active(other)

    def _usable_brokers(self) -> list[UsableBroker]:
        """All brokers but those that shut down, or take no new replica in any of their directories (KIP-1066)."""
        usable = []
        if not (self._is_stopping or self._is_cordoned(self.broker_id)):
            usable.append(UsableBroker(self.broker_id, self._rack, is_fenced=False))
        usable.extend(
            UsableBroker(other.broker_id, other.rack, is_fenced=other.fenced)
            for other in self._others.values()
            if not (self._is_cordoned(other.broker_id) or (other.in_controlled_shutdown and not other.fenced))
        )
        return usable

    def _is_cordoned(self, broker_id: int) -> bool:
        """Whether a broker takes new replicas in none of its log directories, at a level where the cluster heeds it."""
        if self._image.features.metadata_version < CORDONED_SINCE:
            return False
        if broker_id == self.broker_id:
            return bool(self._directories) and set(self._directories) <= set(self._cordoned)
        other = self._others[broker_id]
        return bool(other.log_dirs) and set(other.log_dirs) <= set(other.cordoned_log_dirs or ())

    def _directory(self, broker_id: int) -> bytes:
        if broker_id == self.broker_id:
            return self._least_loaded_directory()
        directories = self._others[broker_id].log_dirs
        if len(directories) == 1:
            return directories[0]
        return UNASSIGNED if directories else MIGRATING

    def _least_loaded_directory(self) -> bytes:
        """The log directory with the fewest partitions of those that are not cordoned; of equals, the first in the
        settings. Where all are cordoned it is the first one."""
        candidates = [one for one in self._directories if one not in self._cordoned] or self._directories[:1]
        if len(candidates) == 1:
            return candidates[0]
        if self._load is None:
            self._load = Counter(dict.fromkeys(self._directories, 0))
            for topic in self._image.topics.by_name.values():
                self._load.update(partition.directory_of(self.broker_id) for partition in topic.partitions)
        load = self._load
        chosen = min(candidates, key=lambda directory: load[directory])
        load[chosen] += 1
        return chosen
