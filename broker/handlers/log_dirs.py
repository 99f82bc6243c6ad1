"""DescribeLogDirs and AlterReplicaLogDirs: data directories, and what stands in them (API keys 35 and 34; KIP-113,
KIP-827)."""

from collections.abc import Iterable

from broker.metadata.cache import MetadataCache
from broker.metadata.record_versions import CORDONED_SINCE
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import (
    ClusterAuthorizationFailed,
    Fault,
    InvalidReplicaAssignment,
    LogDirNotFound,
    UnknownTopicOrPartition,
    error_code_of,
)
from protocol.messages.log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from storage.errors import LogDirFailed, StorageError
from storage.log import Log
from storage.log_dir import LogDir
from storage.log_manager import LogManager
from storage.topic_partition import TopicPartition

Result = DescribeLogDirsResponse.Result
TopicAnswer = DescribeLogDirsResponse.Result.Topic
Answer = DescribeLogDirsResponse.Result.Topic.Partition

ERROR_SINCE_VERSION = 3


class LogDirsHandler:
    """Asks the log manager."""

    def __init__(self, logs: LogManager, metadata: MetadataCache) -> None:
        self._logs = logs
        self._metadata = metadata

    def describe_log_dirs(self, request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
        """Describe every directory, with the sizes of the partitions that are asked for, or of all."""
        if not context.may(Operation.DESCRIBE, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not describe the cluster")
        by_directory: dict[LogDir, list[Log]] = {directory: [] for directory in self._logs.directories}
        for topic_partition in self._asked(request):
            log = self._logs.get(topic_partition)
            directory = self._logs.directory_of(topic_partition)
            if log is not None and directory is not None:
                by_directory[directory].append(log)
        knows_cordoned = self._metadata.image.features.metadata_version >= CORDONED_SINCE
        results = [_result(directory, logs) for directory, logs in by_directory.items()]
        for directory, result in zip(by_directory, results, strict=True):
            result.is_cordoned = knows_cordoned and directory.is_cordoned
        return DescribeLogDirsResponse(results=results)

    def alter_replica_log_dirs(
        self, request: AlterReplicaLogDirsRequest, context: RequestContext
    ) -> AlterReplicaLogDirsResponse:
        """Say of each replica whether it is where it is wanted: none moves. Of several directories the last counts."""
        if not context.may(Operation.ALTER, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not move replicas")
        paths = {
            TopicPartition(topic.name, index): wanted.path
            for wanted in request.dirs
            for topic in wanted.topics
            for index in topic.partitions
        }
        results: dict[str, AlterReplicaLogDirsResponse.Result] = {}
        for topic_partition, path in paths.items():
            topic, index = topic_partition
            result = results.setdefault(topic, AlterReplicaLogDirsResponse.Result(topic_name=topic, partitions=[]))
            answer = AlterReplicaLogDirsResponse.Result.Partition(partition_index=index)
            result.partitions.append(answer)
            try:
                self._check_place(topic_partition, path)
            except (Fault, StorageError) as error:
                answer.error_code = error_code_of(error)
        return AlterReplicaLogDirsResponse(results=list(results.values()))

    def _check_place(self, topic_partition: TopicPartition, path: str) -> None:
        """Raise unless the replica is in the directory of this path already."""
        wanted = next((directory for directory in self._logs.directories if directory.absolute_path == path), None)
        if wanted is None:
            raise LogDirNotFound(f"there is no log directory {path}")
        if wanted.is_cordoned:
            raise InvalidReplicaAssignment(f"Log directory {path} is cordoned")
        if wanted.has_failed:
            raise LogDirFailed(f"{path} has failed")
        directory = self._logs.directory_of(topic_partition)
        if directory is None:
            raise UnknownTopicOrPartition(f"there is no {topic_partition}")
        if directory is not wanted:
            # What Kafka says where a directory takes no replicas (KIP-1066).
            raise InvalidReplicaAssignment(f"{topic_partition} stays in {directory.path}: replicas are not moved here")

    def _asked(self, request: DescribeLogDirsRequest) -> Iterable[TopicPartition]:
        if request.topics is None:
            return [log.topic_partition for log in self._logs.all()]
        return dict.fromkeys(
            TopicPartition(topic.topic, partition) for topic in request.topics for partition in topic.partitions
        )


def _result(directory: LogDir, logs: Iterable[Log]) -> Result:
    result = Result(log_dir=directory.absolute_path, topics=[])
    try:
        space = directory.space()
    except StorageError as error:
        result.error_code = error_code_of(error)
        return result
    if space.total_bytes:  # else the answer's -1 for unknown stays
        result.total_bytes = space.total_bytes
        result.usable_bytes = space.usable_bytes
    by_topic: dict[str, list[Answer]] = {}
    for log in logs:
        topic, index = log.topic_partition
        by_topic.setdefault(topic, []).append(
            Answer(partition_index=index, partition_size=log.size, offset_lag=0, is_future_key=False)
        )
    result.topics = [TopicAnswer(name=topic, partitions=partitions) for topic, partitions in by_topic.items()]
    return result
