"""Which replicas of a partition clients are told are offline (KIP-112)."""

from broker.controller.placement import is_online
from broker.metadata.brokers import BrokersOnListener
from broker.metadata.image.topics import PartitionImage


def offline_replicas(partition: PartitionImage, brokers: BrokersOnListener) -> list[int]:
    """The brokers whose replica of the partition cannot be used from this listener: the broker is not registered or is
    fenced, has no such listener, or the log directory with the replica is not online."""
    # Answers with many partitions are asked for often, and their replicas are online most of the time (bench-kafka:
    # many-partitions).
    replicas, directories = partition.replicas, partition.directories
    if len(directories) == len(replicas) and brokers.usable_replicas.issuperset(
        zip(replicas, directories, strict=True)
    ):
        return []
    offline = []
    for broker_id in replicas:
        online = brokers.directories.get(broker_id)
        if online is None or (online and not is_online(partition.directory_of(broker_id), online)):
            offline.append(broker_id)
    return offline
