"""Deleted partitions whose offsets may still stand in checkpoints; a new log of the same name would be given these."""

from collections.abc import Set

from storage.log_dir import LogDir
from storage.topic_partition import TopicPartition


class ForgetDeleted:
    """Takes deleted partitions out of the checkpoints, so that new logs of their names do not get their offsets."""

    __slots__ = ("directory", "partitions")

    def __init__(self, directory: LogDir, partitions: frozenset[TopicPartition]) -> None:
        self.directory = directory
        self.partitions = partitions

    def perform(self) -> None:
        """Write and sync the checkpoints that name the deleted partitions.

        Raises DiskFull, TooManyOpenFiles, LogDirFailed. May run in another thread, after earlier `CheckpointWrite`s.
        """
        self.directory.forget(self.partitions)


class DeletedPartitions:
    """The deleted partitions that checkpoints may still name; no new log may have their names yet."""

    __slots__ = ("_partitions", "_to_forget")

    def __init__(self) -> None:
        self._partitions: set[TopicPartition] = set()
        self._to_forget: dict[LogDir, set[TopicPartition]] = {}
        """The partitions that no `ForgetDeleted` under way takes out of the checkpoints."""

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._partitions

    def add(self, directory: LogDir, partitions: Set[TopicPartition]) -> None:
        """Note that partitions are deleted which the checkpoints of ``directory`` may name."""
        self._partitions |= partitions
        self._to_forget.setdefault(directory, set()).update(partitions)

    def begin_to_forget(self) -> list[ForgetDeleted]:
        """The checkpoint writes that are due; perform them once, then hand them to `forgotten`."""
        to_forget, self._to_forget = self._to_forget, {}
        return [ForgetDeleted(directory, frozenset(partitions)) for directory, partitions in to_forget.items()]

    def forgotten(self, done: ForgetDeleted) -> None:
        """Note that no checkpoint names the partitions of ``done`` any more."""
        self._partitions -= done.partitions
