"""Which replicas of a partition clients are told are offline (KIP-112)."""

from typing import Final

from broker.metadata.brokers import BrokersOnListener
from broker.metadata.directories import is_online
from broker.metadata.image.topics import PartitionImage

_KEPT: Final = 10_000
"""What is found is kept for so many placements of replicas on brokers and log directories."""


def offline_replicas(partition: PartitionImage, brokers: BrokersOnListener) -> list[int]:
    """The brokers whose replica of the partition cannot be used from this listener: the broker is not registered or is
    fenced, has no such listener, or the log directory with the replica is not online. Callers change nothing in it."""
    # Partitions have few placements, and answers have many partitions (bench: partitions).
    placement = partition.replicas, partition.directories
    offline = brokers.offline.get(placement)
    if offline is None:
        if len(brokers.offline) >= _KEPT:
            brokers.offline.clear()
        offline = brokers.offline[placement] = [
            broker_id for broker_id in partition.replicas if _is_offline(broker_id, partition, brokers)
        ]
    return offline


def _is_offline(broker_id: int, partition: PartitionImage, brokers: BrokersOnListener) -> bool:
    online = brokers.directories.get(broker_id)
    # Brokers older than 3.7 do not say which directories they have.
    return online is None or (bool(online) and not is_online(partition.directory_of(broker_id), online))
