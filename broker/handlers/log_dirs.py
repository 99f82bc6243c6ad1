"""DescribeLogDirs: which data directories there are, and what stands in them (API key 35; KIP-113, KIP-827)."""

from collections.abc import Iterable

from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import ClusterAuthorizationFailed, error_code_of
from protocol.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from storage.errors import StorageError
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

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs

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
        return DescribeLogDirsResponse(results=[_result(directory, logs) for directory, logs in by_directory.items()])

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
