"""Topics of requests about committed offsets: looked up by name or by id, and merged again for the answer."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from broker.coordinators.group.requests import OffsetToCommit
from broker.metadata.cache import MetadataCache
from broker.metadata.image.topics import TopicImage
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import Fault, TopicAuthorizationFailed, UnknownTopicOrPartition
from protocol.errors import ErrorCode
from storage.sentinels import NO_TIMESTAMP

TopicKey: TypeAlias = tuple[str, bytes]
"""A topic as the request names it: by name, or by id."""

PartitionErrors: TypeAlias = list[tuple[int, ErrorCode]]
"""Partitions by number, each with its error."""


class _Partition(Protocol):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class _Topic(Protocol):
    """A topic of OffsetCommit or of TxnOffsetCommit."""

    name: str
    topic_id: bytes

    @property
    def partitions(self) -> Sequence[_Partition]: ...


class OffsetsByTopic(NamedTuple):
    """The offsets of a request: those of partitions that exist, and the errors of the others."""

    taken: Sequence[tuple[TopicKey, Sequence[OffsetToCommit]]]
    refused: dict[TopicKey, PartitionErrors]

    @property
    def offsets(self) -> Sequence[OffsetToCommit]:
        """The offsets to commit, in the order of the request."""
        return [offset for _, offsets in self.taken for offset in offsets]

    def merge(self, codes: Iterable[ErrorCode]) -> Iterable[tuple[TopicKey, PartitionErrors]]:
        """The topics of the answer, given the coordinator's code for each of the `offsets`."""
        in_order = iter(codes)
        taken = [(key, [(offset.partition, next(in_order)) for offset in offsets]) for key, offsets in self.taken]
        return merge(self.refused, taken)


class OffsetTopics:
    """Looks topics up in the published metadata."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def split(
        self, topics: Iterable[_Topic], context: RequestContext, *, by_id: bool, expire_timestamp: int = NO_TIMESTAMP
    ) -> OffsetsByTopic:
        """Separate the offsets of partitions that exist from those that are refused."""
        taken: list[tuple[TopicKey, list[OffsetToCommit]]] = []
        refused: dict[TopicKey, PartitionErrors] = {}
        for topic in topics:
            key = topic.name, topic.topic_id
            try:
                known = self.topic(*key, context, by_id=by_id)
            except Fault as fault:
                refused.setdefault(key, []).extend((one.partition_index, fault.code) for one in topic.partitions)
                continue
            offsets = []
            for one in topic.partitions:
                if known.partition(one.partition_index) is None:
                    unknown = one.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    refused.setdefault(key, []).append(unknown)
                    continue
                offsets.append(
                    OffsetToCommit(
                        known.name,
                        one.partition_index,
                        one.committed_offset,
                        one.committed_leader_epoch,
                        one.committed_metadata or "",
                        expire_timestamp,
                        known.topic_id,
                    )
                )
            if offsets:
                taken.append((key, offsets))
        return OffsetsByTopic(taken, refused)

    def topic(self, name: str, topic_id: bytes, context: RequestContext, *, by_id: bool) -> TopicImage:
        """A topic that exists. Raises `UnknownTopicId`, `TopicAuthorizationFailed`, `UnknownTopicOrPartition`."""
        name = self.name(name, topic_id, Operation.READ, context, by_id=by_id)
        known = self._metadata.image.topics.by_name.get(name)
        if known is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        return known

    def name(self, name: str, topic_id: bytes, operation: Operation, context: RequestContext, *, by_id: bool) -> str:
        """The name of a topic, there or not. Raises `UnknownTopicId`, `TopicAuthorizationFailed`."""
        if by_id:
            name = self._metadata.image.topics.of_id(topic_id).name
        if not context.may(operation, ResourceType.TOPIC, name):
            raise TopicAuthorizationFailed(f"{context.session.principal} may not {operation.name} topic {name}")
        return name


def merge(
    refused: dict[TopicKey, PartitionErrors], taken: Iterable[tuple[TopicKey, PartitionErrors]]
) -> Iterable[tuple[TopicKey, PartitionErrors]]:
    """The topics of an answer: first those with refused partitions, then the others, as Kafka answers. A topic with
    both has its refused partitions first."""
    behind = []
    for key, errors in taken:
        if key in refused:
            refused[key] += errors
        else:
            behind.append((key, errors))
    return [*refused.items(), *behind]
