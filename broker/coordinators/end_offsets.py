"""EndOffsets: up to where partitions are committed, wherever they are led."""

from broker.coordinators.remote_end_offsets import EndOffsetReply, RemoteEndOffsets
from broker.metadata.cache import ImageSource
from broker.replication.replica_manager import ReplicaManager
from protocol.errors import ErrorCode
from storage.sentinels import NO_OFFSET
from storage.topic_partition import TopicPartition


class EndOffsets:
    """Finds the high watermark of a partition at its leader."""

    def __init__(
        self, replicas: ReplicaManager, source: ImageSource, *, node_id: int, remote: RemoteEndOffsets | None
    ) -> None:
        """``node_id``: this node; ``remote``: asks leaders on other nodes, None where there are none."""
        self._replicas = replicas
        self._source = source
        self._node_id = node_id
        self._remote = remote

    def find(self, place: TopicPartition, then: EndOffsetReply) -> None:
        """Call ``then`` with the high watermark, or why it is not known; perhaps before this returns."""
        partition = self._source.image.topics.partition(*place)
        if partition is None:
            then(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_OFFSET)
        elif partition.leader == self._node_id:
            hosted = self._replicas.find(*place)
            if hosted is not None and hosted.is_leader:
                then(ErrorCode.NONE, hosted.log.high_watermark)
            else:
                then(ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_OFFSET)
        elif partition.leader < 0 or self._remote is None:
            then(ErrorCode.LEADER_NOT_AVAILABLE, NO_OFFSET)
        else:
            self._remote.ask(partition.leader, place, then)
