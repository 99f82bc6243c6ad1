"""DescribeLogDirs and AlterReplicaLogDirs: data directories, and what stands in them (API keys 35 and 34; KIP-113,
KIP-827)."""

from collections.abc import Iterable
from typing import NamedTuple

from broker.logs.replica_moves import ReplicaMoves
from broker.metadata.cache import MetadataCache
from broker.metadata.record_versions import CORDONED_SINCE
from broker.replication.replica_manager import ReplicaManager
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import (
    ClusterAuthorizationFailed,
    Fault,
    InvalidReplicaAssignment,
    InvalidTopic,
    LogDirNotFound,
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
from storage.topic_partition import FUTURE, TopicPartition

Result = DescribeLogDirsResponse.Result
TopicAnswer = DescribeLogDirsResponse.Result.Topic
Answer = DescribeLogDirsResponse.Result.Topic.Partition


class Described(NamedTuple):
    """A log in a directory, as DescribeLogDirs tells it."""

    log: Log
    offset_lag: int = 0
    is_future: bool = False
    """Whether the log is the copy of a replica that is moved to the directory."""


class LogDirsHandler:
    """Asks the log manager, and moves replicas."""

    def __init__(
        self, logs: LogManager, replicas: ReplicaManager, moves: ReplicaMoves, metadata: MetadataCache
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._moves = moves
        self._metadata = metadata

    def describe_log_dirs(self, request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
        """Describe every directory, with the sizes of the partitions that are asked for, or of all."""
        if not context.may(Operation.DESCRIBE, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not describe the cluster")
        by_directory: dict[LogDir, list[Described]] = {directory: [] for directory in self._logs.directories}
        for topic_partition in self._asked(request):
            log = self._logs.get(topic_partition)
            directory = self._logs.directory_of(topic_partition)
            if log is not None and directory is not None:
                by_directory[directory].append(Described(log))
                future = self._logs.futures.get(topic_partition)
                if future is not None:
                    by_directory[future.directory].append(Described(future.log, future.missing(log), is_future=True))
        knows_cordoned = self._metadata.image.features.metadata_version >= CORDONED_SINCE
        results = [_result(directory, logs) for directory, logs in by_directory.items()]
        for directory, result in zip(by_directory, results, strict=True):
            result.is_cordoned = knows_cordoned and directory.is_cordoned
        return DescribeLogDirsResponse(results=results)

    def alter_replica_log_dirs(
        self, request: AlterReplicaLogDirsRequest, context: RequestContext
    ) -> AlterReplicaLogDirsResponse:
        """Begin to move replicas, each with its own success or error. Of several directories the last counts.

        A move to another directory ends; wanted where it is, a replica stays there.
        """
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
                self._move(topic_partition, path)
            except (Fault, StorageError) as error:
                answer.error_code = error_code_of(error)
        return AlterReplicaLogDirsResponse(results=list(results.values()))

    def _move(self, topic_partition: TopicPartition, path: str) -> None:
        """Begin to move a replica to the directory of this path. Raises a `Fault` or StorageError."""
        if not topic_partition.suffixed_dir_name("0" * 32, FUTURE).startswith(f"{topic_partition}."):
            raise InvalidTopic("The topic name is too long.")  # Kafka does not cut the name of the copy's directory
        wanted = next((directory for directory in self._logs.directories if directory.absolute_path == path), None)
        if wanted is None:
            raise LogDirNotFound(f"there is no log directory {path}")
        if wanted.is_cordoned:
            raise InvalidReplicaAssignment(f"Log directory {path} is cordoned")
        if wanted.has_failed:
            raise LogDirFailed(f"{path} has failed")
        self._moves.move(self._replicas.partition(*topic_partition).log, wanted)

    def _asked(self, request: DescribeLogDirsRequest) -> Iterable[TopicPartition]:
        if request.topics is None:
            return [log.topic_partition for log in self._logs.all()]
        return dict.fromkeys(
            TopicPartition(topic.topic, partition) for topic in request.topics for partition in topic.partitions
        )


def _result(directory: LogDir, logs: Iterable[Described]) -> Result:
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
    for log, offset_lag, is_future in logs:
        topic, index = log.topic_partition
        by_topic.setdefault(topic, []).append(
            Answer(partition_index=index, partition_size=log.size, offset_lag=offset_lag, is_future_key=is_future)
        )
    result.topics = [TopicAnswer(name=topic, partitions=partitions) for topic, partitions in by_topic.items()]
    return result
