"""ListOffsets: which offset stands for a time (API key 2; KIP-79, KIP-320, KIP-734)."""

from broker.handlers.partition_lookup import PartitionLookup
from broker.replication.isolation import FetchIsolation, consumer_isolation
from broker.replication.offsets import Named, find_offset
from broker.request.code_versions import known_code
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import (
    Fault,
    InvalidRequest,
    TopicAuthorizationFailed,
    UnknownIsolationLevel,
    UnsupportedVersion,
    error_code_of,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from storage.errors import StorageError
from storage.sentinels import NO_EPOCH, NO_OFFSET, NO_TIMESTAMP

AskedPartition = ListOffsetsRequest.Topic.Partition
TopicAnswer = ListOffsetsResponse.Topic
Answer = ListOffsetsResponse.Topic.Partition

CONSUMER = -1
"""The replica id of a consumer; replicas have their own."""
DEBUGGING = -2
"""The replica id of those that ask a follower for its own offsets, too."""

_SINCE_VERSION: dict[int, int] = {
    Named.LATEST: 1,
    Named.EARLIEST: 1,
    Named.MAX_TIMESTAMP: 7,
    Named.EARLIEST_LOCAL: 8,
    Named.LATEST_TIERED: 9,
    Named.EARLIEST_PENDING_UPLOAD: 11,
}


class ListOffsetsHandler:
    """Looks offsets up."""

    def __init__(self, partitions: PartitionLookup) -> None:
        self._partitions = partitions

    def list_offsets(self, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
        """Answer each partition by itself."""
        isolation = consumer_isolation(request.isolation_level)
        if isolation is None:
            raise UnknownIsolationLevel(f"there is no isolation level {request.isolation_level}")
        if request.replica_id != CONSUMER:
            isolation = FetchIsolation.LOG_END  # whatever isolation level the replica names
        answer = ListOffsetsResponse(topics=[])
        for name, partitions in _by_topic(request).items():
            of_topic = TopicAnswer(name=name, partitions=[])
            for index, (asked, *again) in partitions.items():
                try:
                    if not context.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
                        raise TopicAuthorizationFailed(f"{context.session.principal} may not describe {name}")
                    if again:
                        raise InvalidRequest(f"partition {index} of {name} is listed {1 + len(again)} times")
                    of_partition = self._find(name, asked, isolation, context.api_version, request.replica_id)
                except (Fault, StorageError) as error:
                    code = known_code(error_code_of(error), ApiKey.LIST_OFFSETS, context.api_version)
                    of_partition = _without_offset(asked, code)
                of_topic.partitions.append(of_partition)
            answer.topics.append(of_topic)
        return answer

    def _find(
        self, topic: str, asked: AskedPartition, isolation: FetchIsolation, version: int, replica_id: int
    ) -> Answer:
        if asked.timestamp < 0 and version < _SINCE_VERSION.get(asked.timestamp, version + 1):
            raise UnsupportedVersion(f"a timestamp of {asked.timestamp} in version {version}")
        partition = self._partitions.partition(topic, asked.partition_index)
        partition.check_leader_epoch(asked.current_leader_epoch)
        if replica_id != DEBUGGING:
            partition.check_leadership()
        found = find_offset(partition, asked.timestamp, isolation)
        return Answer(
            partition_index=asked.partition_index,
            timestamp=found.timestamp_ms,
            offset=found.offset,
            leader_epoch=found.leader_epoch,
        )


def _by_topic(request: ListOffsetsRequest) -> dict[str, dict[int, list[AskedPartition]]]:
    """Each topic and each partition once, with all that is asked of it; a topic without partitions is none."""
    topics: dict[str, dict[int, list[AskedPartition]]] = {}
    for topic in request.topics:
        for asked in topic.partitions:
            topics.setdefault(topic.name, {}).setdefault(asked.partition_index, []).append(asked)
    return topics


def _without_offset(asked: AskedPartition, code: ErrorCode) -> Answer:
    return Answer(
        partition_index=asked.partition_index,
        error_code=code,
        timestamp=NO_TIMESTAMP,
        offset=NO_OFFSET,
        leader_epoch=NO_EPOCH,
    )
