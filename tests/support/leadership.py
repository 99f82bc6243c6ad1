"""The leadership of a partition goes to another node and comes back, as published metadata would have it."""

from broker.replication.partition import LeaderAndIsr, Partition
from tests.support.broker import InProcessBroker

OURS = 1
"""The id of the broker in the test."""
OTHER = 2


def hand_over(broker: InProcessBroker, topic: str, leader: int, index: int = 0) -> Partition:
    """Let ``leader`` lead the partition, in a new epoch."""

    async def apply() -> Partition:
        return hand_over_now(broker, topic, leader, index)

    return broker.run(apply())


def hand_over_now(broker: InProcessBroker, topic: str, leader: int, index: int = 0) -> Partition:
    """The same in a turn of the broker's loop that does something else too."""
    replicas = broker.server.components.replicas
    partition = replicas.partition(topic, index)
    state = LeaderAndIsr(leader, partition.leader_epoch + 1, partition.replicas, partition.in_sync_replicas)
    replicas.apply(partition, state)
    return partition
