"""A fetch that is plain and has something to get: read from its bytes, and answered in bytes.

To make objects of what is asked of each partition and of what it gives costs more than to find its records (bench:
fetch-64kb, fetch-16x64kb, many-partitions). So a request that `protocol.fetch_layout` calls plain is first tried here:
if every partition is there and led by this node, gives records or has no more, and all together give enough to answer
at once, then this is the answer. In all other cases nothing has been done, and the general way decides as if nothing
had been tried; that one alone knows errors, sessions and waiting (docs/decisions/plain-fetch.md).
"""

from collections.abc import Sequence
from typing import Final

from broker.metadata.image import MetadataImage
from broker.replication.fetch import Isolation
from broker.replication.partition import NO_EPOCH, Partition
from broker.replication.replica_manager import ReplicaManager
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.response import ResponseSlot
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.fetch_layout import FETCH_OFFSET, FetchPattern, PlainAnswer, PlainFetch, TopicEntries, fetch_layout
from protocol.headers import RequestHeader
from storage.errors import LogDirFailed, StorageError

MOST_REMEMBERED: Final = 32
"""Partitions in a request that is remembered: bounds what a connection keeps."""

MOST_MISSES: Final = 8
"""A consumer whose requests have been so often unlike the one before is not remembered anew."""


class PlainFetches:
    """Answers what is plain."""

    def __init__(self, replicas: ReplicaManager, image: MetadataImage, *, fetch_max_bytes: int) -> None:
        self._replicas = replicas
        self._image = image
        self._fetch_max_bytes = fetch_max_bytes

    def fetch(self, frame: memoryview, position: int, context: RequestContext) -> bool:
        """Answer the request whose body begins at ``position``. False: the general way must."""
        peer = context.peer
        before = peer.repeats
        if isinstance(before, RepeatedFetch) and before.has_refused:
            before.has_refused = False
            return False
        layout = fetch_layout(context.api_version)
        request = layout.read(frame, position)
        if request is None or request.isolation_level not in (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED):
            return False
        offsets = [entry[FETCH_OFFSET] for topic in request.topics for entry in topic.entries]
        if not self.answer(request, offsets, context):
            return False
        if len(offsets) <= MOST_REMEMBERED:
            if before is None:
                peer.repeats = RepeatedFetch(self, FetchPattern(frame, layout.offsets_at(request)), request, context)
            elif isinstance(before, RepeatedFetch) and before.misses < MOST_MISSES:
                before.misses += 1
                before.learn(FetchPattern(frame, layout.offsets_at(request)), request, context)
        return True

    def answer(self, request: PlainFetch, offsets: Sequence[int], context: RequestContext) -> bool:
        """Answer ``request`` from these offsets. False: the general way must."""
        is_committed = request.isolation_level == Isolation.READ_COMMITTED
        answer = PlainAnswer(context.api_version, len(request.topics), is_committed=is_committed)
        try:
            served = self._serve(request, offsets, answer, context, is_committed=is_committed)
        except (StorageError, UnicodeDecodeError):
            return False
        if served is None:
            return False
        for partition, size in served:
            stats = partition.stats
            stats.fetches += 1
            stats.fetched_bytes += size
        kind = context.slot.kind
        if kind is not None:
            kind.errors[ErrorCode.NONE] += 1 + len(served)
        context.slot.fill(answer.finish(context.correlation_id))
        return True

    def _serve(
        self,
        request: PlainFetch,
        offsets: Sequence[int],
        answer: PlainAnswer,
        context: RequestContext,
        *,
        is_committed: bool,
    ) -> list[tuple[Partition, int]] | None:
        """Read into ``answer``; what was read, and how many bytes of each. None: the general way must answer."""
        if request.max_bytes < 0:
            return None
        find = self._replicas.find
        most_bytes = min(request.max_bytes, self._fetch_max_bytes)
        served: list[tuple[Partition, int]] = []
        total = 0
        next_offset = iter(offsets).__next__
        for topic in request.topics:
            name = self._name_of(topic)
            if name is None or not context.may(Operation.READ, ResourceType.TOPIC, name):
                return None
            answer.begin_topic(topic)
            for index, leader_epoch, _, last_fetched_epoch, partition_most_bytes, tags in topic.entries:
                fetch_offset = next_offset()
                partition = find(name, index)
                if (
                    partition is None
                    or partition.leader != partition.node_id
                    or (leader_epoch > NO_EPOCH and leader_epoch != partition.leader_epoch)
                    or last_fetched_epoch > NO_EPOCH
                    or partition_most_bytes < 0
                    or tags
                ):
                    return None
                log = partition.log
                high_watermark = log.high_watermark
                last_stable_offset = log.last_stable_offset
                try:
                    found = log.read(
                        fetch_offset,
                        max_bytes=min(partition_most_bytes, max(most_bytes - total, 0)),
                        upper_bound_offset=last_stable_offset if is_committed else high_watermark,
                        at_least_one_batch=not total,
                        in_memory_only=True,
                    )
                    if is_committed and log.aborted_transactions(fetch_offset, found):
                        return None
                except LogDirFailed as error:
                    # The disk may not say it twice.
                    partition.disk_failed(error)
                    return None
                answer.add(index, high_watermark, last_stable_offset, log.log_start_offset, found.region)
                served.append((partition, found.size))
                total += found.size
            answer.end_topic()
        is_enough = total >= min(request.min_bytes, most_bytes) or request.max_wait_ms <= 0
        return served if is_enough else None

    def _name_of(self, topic: TopicEntries) -> str | None:
        if topic.topic_id is None:
            return topic.name
        known = self._image.topics_by_id.get(topic.topic_id)
        return None if known is None else known.name


class RepeatedFetch:
    """A consumer's next request, which is most often like the last one but for its offsets: then it need not be read
    anew. A `broker.request.response.Repeats`."""

    __slots__ = (
        "_apis",
        "_client_id",
        "_fetches",
        "_kind",
        "_pattern",
        "_request",
        "_version",
        "has_refused",
        "misses",
    )

    def __init__(
        self, fetches: PlainFetches, pattern: FetchPattern, request: PlainFetch, context: RequestContext
    ) -> None:
        self._fetches = fetches
        self._apis = context.apis
        self.misses = 0
        """How many requests in a row were unlike those before them."""
        self.has_refused = False
        """The request that is looked at was like the last one and could not be answered: no need to try it again."""
        self.learn(pattern, request, context)

    def learn(self, pattern: FetchPattern, request: PlainFetch, context: RequestContext) -> None:
        """Recognise the next request like this one, which has just been answered."""
        self._pattern = pattern
        self._request = request
        self._version = context.api_version
        self._client_id = context.client_id
        self._kind = context.slot.kind

    def take(self, slot: ResponseSlot) -> bool:
        """Answer a request like the last one. False: it is not, or the general way must; nothing has been done."""
        numbers = self._pattern.numbers_in(slot.frame)
        if numbers is None:
            return False
        self.misses = 0
        slot.kind = self._kind
        header = RequestHeader(ApiKey.FETCH, self._version, numbers[0], self._client_id)
        context = RequestContext(header, slot.peer, slot, self._apis)
        self.has_refused = not self._fetches.answer(self._request, numbers[1:], context)
        return not self.has_refused
