"""The leadership of a partition goes to another node and comes back, as published metadata would have it; a follower
fetches from this node."""

from broker.replication.in_sync_replicas import FollowerFetch
from broker.replication.partition import LeaderAndIsr, Partition
from protocol.errors import ErrorCode
from protocol.messages.topics import CreateTopicsRequest
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


def replicate(broker: InProcessBroker, topic: str, index: int = 0, *, leader: int = OURS) -> Partition:
    """Give the partition a second replica, in sync, on the other node, and let ``leader`` lead it in a new epoch."""

    async def apply() -> Partition:
        replicas = broker.server.components.replicas
        partition = replicas.partition(topic, index)
        state = LeaderAndIsr(
            leader,
            partition.leader_epoch + 1,
            (OURS, OTHER),
            frozenset({OURS, OTHER}),
            partition_epoch=partition.leader_epoch + 1,
        )
        replicas.apply(partition, state)
        return partition

    return broker.run(apply())


def follower_fetches(broker: InProcessBroker, partition: Partition, offset: int | None = None) -> None:
    """The other node, which follows, has everything below ``offset``, or below the end of the log."""

    async def fetch() -> None:
        assert partition.followers is not None
        end_offset = partition.log.log_end_offset
        has = end_offset if offset is None else offset
        partition.followers.fetched(
            OTHER, FollowerFetch(has, 0, 1), leaders_end_offset=end_offset, now_ms=broker.clock.monotonic_ms()
        )
        if partition.advance_high_watermark():
            broker.server.components.replicas.watermark_moved(partition)

    broker.run(fetch())
    broker.settle()


def create_replicated_topic(controller: InProcessBroker, topic: str, *replicas: tuple[int, ...]) -> None:
    """Create a topic with these replicas of each partition. ``controller`` has the controller of their brokers."""
    wanted = CreateTopicsRequest.Topic
    request = wanted(
        name=topic,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            wanted.Assignment(partition_index=index, broker_ids=list(brokers)) for index, brokers in enumerate(replicas)
        ],
        configs=[],
    )
    (created,) = controller.ask(CreateTopicsRequest(topics=[request], timeout_ms=1_000), 7).topics
    assert created.error_code == ErrorCode.NONE, created
