"""Which brokers and log directories new partitions get, and why a client's own choice of brokers is refused."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topics import PartitionImage
from broker.request.faults import InvalidReplicaAssignment

MAX_PARTITIONS_PER_REQUEST: Final = 10_000


RESERVED_IDS: Final = 100
"""Ids below this number are no directories (KIP-858)."""

LOST: Final = (2).to_bytes(16, "big")
"""Stands instead of a directory's id: the directory failed before the metadata had the replica's directory."""


def is_online(directory: bytes, online: Collection[bytes]) -> bool:
    """Whether a replica in this log directory can be used. A replica without a directory yet can."""
    return directory in online or (int.from_bytes(directory, "big") < RESERVED_IDS and directory != LOST)


class Placement:
    """Places the partitions of one request on the only broker, each in the log directory with the fewest partitions."""

    def __init__(self, image: MetadataImage, *, broker_id: int, directories: Sequence[bytes]) -> None:
        """``directories``: the ids of the broker's log directories, in the order of ``log.dirs``."""
        self.broker_id = broker_id
        self._image = image
        self._directories = directories
        self._load: Counter[bytes] | None = None

    def partition(self, index: int, brokers: Sequence[int]) -> PartitionImage:
        """A new partition with a replica on each of ``brokers``; the first one leads."""
        return PartitionImage(
            index=index,
            replicas=tuple(brokers),
            isr=tuple(brokers),
            leader=brokers[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=tuple(self._least_loaded_directory() for _ in brokers),
        )

    def check_brokers(self, brokers: Sequence[int]) -> None:
        """Raises `InvalidReplicaAssignment` for brokers that a partition cannot have."""
        if not brokers:
            raise InvalidReplicaAssignment("The manual partition assignment includes an empty replica list.")
        repeated = [broker for broker, times in Counter(brokers).items() if times > 1]
        if repeated:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes the broker {repeated[0]} more than once."
            )
        unknown = [broker for broker in brokers if broker != self.broker_id]
        if unknown:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes broker {unknown[0]}, but no such broker is registered."
            )

    def _least_loaded_directory(self) -> bytes:
        """The log directory with the fewest partitions; of equals, the first in the settings."""
        if len(self._directories) == 1:
            return self._directories[0]
        if self._load is None:
            self._load = Counter(dict.fromkeys(self._directories, 0))
            for topic in self._image.topics.by_name.values():
                self._load.update(partition.directory_of(self.broker_id) for partition in topic.partitions)
        load = self._load
        chosen = min(self._directories, key=lambda directory: load[directory])
        load[chosen] += 1
        return chosen
