"""RackAwareSelector: sends a consumer to a replica in its own rack, if it can have the same records there (KIP-392)."""

from broker.metadata.brokers import Brokers
from broker.replication.partition import Partition


class RackAwareSelector:
    """Chooses by the racks of the brokers, as Kafka's RackAwareReplicaSelector does."""

    __slots__ = ("_brokers",)

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def choice(self, rack_id: str, listener: str) -> "ReplicaChoice | None":
        """The choice for a consumer in this rack, which has come in on this listener; None if it says no rack."""
        return ReplicaChoice(rack_id, listener, self._brokers) if rack_id else None


class ReplicaChoice:
    """Which replicas a consumer had better read."""

    __slots__ = ("_brokers", "_listener", "rack_id")

    def __init__(self, rack_id: str, listener: str, brokers: Brokers) -> None:
        self.rack_id = rack_id
        self._listener = listener
        self._brokers = brokers

    def preferred(self, partition: Partition, fetch_offset: int) -> int | None:
        """The broker whose replica the consumer had better read; None if that is this one.

        Only the leader chooses: another broker in the consumer's rack that is in sync and has the offset. Of several
        it is the broker whose log is longest, then the broker that was caught up last. A leader in the consumer's rack
        sends it nowhere.
        """
        followers = partition.followers
        if followers is None:
            return None
        find = self._brokers.on(self._listener).find_alive
        leader = find(partition.node_id)
        if leader is not None and leader.rack == self.rack_id:
            return None
        best = None
        for replica, state in followers.followers.items():
            if replica in partition.in_sync_replicas and state.log_start_offset <= fetch_offset <= state.log_end_offset:
                broker = find(replica)
                if broker is not None and broker.rack == self.rack_id:
                    rank = (state.log_end_offset, state.caught_up_ms, replica)
                    best = rank if best is None else max(best, rank)
        return None if best is None else best[2]
