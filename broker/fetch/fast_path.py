"""A plain fetch: read from its bytes, and answered in bytes.

To make objects of what is asked of each partition and of what it gives costs more than to find its records (bench:
fetch-64kb, fetch-16x64kb). So a request that `protocol.fetch_layout` calls plain is first tried here:
if every partition is there and led by this node and gives records or has no more, then this is the answer; if none has
any, it waits for the first that gets some. In all other cases nothing has been done, and the general way decides as if
nothing had been tried; that one alone knows errors, sessions, and all else that one can wait for
(docs/decisions/plain-fetch.md).
"""

from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from typing import Final

from broker.fetch.fast_read import Outcome, Served, finish, read_partitions
from broker.fetch.unchanged_fetch import UnchangedFetch
from broker.fetch.unchanged_partitions import Room, UnchangedPartitions
from broker.fetch.waiting_fetch import Attempt, SlowPath, WaitingFetch
from broker.metadata.cache import MetadataCache
from broker.replication.isolation import Isolation
from broker.replication.replica_manager import ReplicaManager
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.response import Peer, ResponseSlot
from protocol.fetch_layout import (
    FETCH_OFFSET,
    AskedEntries,
    FetchPattern,
    PlainAnswer,
    PlainFetch,
    TopicEntries,
    fetch_layout,
)
from storage.errors import StorageError

MOST_REMEMBERED: Final = 32
"""Partitions in a request that is remembered as a whole; of larger ones it is remembered which partitions are quiet."""

MOST_MISSES: Final = 8
"""A consumer whose requests have been so often unlike the one before is not remembered anew."""


class FetchFastPath:
    """Answers what is plain."""

    def __init__(
        self,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        slow_path: SlowPath,
        *,
        fetch_max_bytes: int,
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._fetch_max_bytes = fetch_max_bytes
        self._slow_path = slow_path
        self._room = Room()

    def fetch(self, frame: memoryview, position: int, context: RequestContext) -> bool:
        """Answer the request whose body begins at ``position``, now or later. False: the general way must."""
        before = context.peer.repeats
        if isinstance(before, RepeatedFetch) and before.has_refused:
            before.has_refused = False
            return False
        layout = fetch_layout(context.api_version)
        request = layout.read(frame, position)
        if (
            request is None
            or request.isolation_level not in (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED)
            or request.max_bytes < 0
        ):
            return False
        repeated = self._repeated_of(context.peer)
        if repeated is not None and request.partitions > MOST_REMEMBERED:
            return self._fetch_beside(repeated.quiet, request, frame, position, context)
        entries = layout.entries(frame, request)
        if entries is None:
            return False
        offsets = [entry[FETCH_OFFSET] for _, of_topic in entries for entry in of_topic]
        outcome = self.answer(entries, offsets, context, request)
        if outcome is Outcome.NOT_PLAIN:
            return False
        if repeated is not None and repeated.is_worth_it:
            repeated.learn(FetchPattern(frame, layout.offsets_at(request)), request, entries, position, context)
        if outcome is Outcome.TOO_LITTLE:
            self.wait(entries, offsets, context, request, frame, position)
        return True

    def _repeated_of(self, peer: Peer) -> "RepeatedFetch | None":
        """What is remembered of a consumer's requests; None for a connection whose producer's are remembered."""
        if peer.repeats is None:
            peer.repeats = RepeatedFetch(self, UnchangedPartitions(self._replicas.fetch_purgatory, self._room))
        return peer.repeats if isinstance(peer.repeats, RepeatedFetch) else None

    def answer(
        self,
        entries: AskedEntries,
        offsets: Sequence[int],
        context: RequestContext,
        request: PlainFetch,
    ) -> Outcome:
        """Answer ``request``, of these entries, from these offsets, if there is enough."""
        is_committed = request.isolation_level == Isolation.READ_COMMITTED
        most_bytes = min(request.max_bytes, self._fetch_max_bytes)
        answer = PlainAnswer(context.api_version, len(request.topics), is_committed=is_committed)
        find = self._replicas.find
        next_offset = iter(offsets).__next__
        served: Served = []
        size = 0
        try:
            for topic, of_topic in entries:
                name = self._readable_name(topic, context)
                if name is None:
                    return Outcome.NOT_PLAIN
                answer.begin_topic(topic)
                size = read_partitions(
                    find, name, of_topic, next_offset, answer, served, size, most_bytes, is_committed
                )
                if size < 0:
                    return Outcome.NOT_PLAIN
                answer.end_topic()
        except (StorageError, UnicodeDecodeError):
            return Outcome.NOT_PLAIN
        return finish(request, context, answer, served, size, most_bytes)

    def wait(
        self,
        entries: AskedEntries,
        offsets: Sequence[int],
        context: RequestContext,
        request: PlainFetch,
        frame: memoryview,
        position: int,
    ) -> None:
        """Answer ``request``, which stands in ``frame`` and has found nothing, when one of its partitions changes."""
        find = self._replicas.find
        partitions: list[Hashable] = []
        for topic, of_topic in entries:
            name = self._readable_name(topic, context)
            if name is not None:
                partitions += [find(name, entry[0]) for entry in of_topic]
        self._wait(request, frame, position, context, partial(self.answer, entries, offsets, context), partitions)

    def _wait(
        self,
        request: PlainFetch,
        frame: memoryview,
        position: int,
        context: RequestContext,
        attempt: Attempt,
        keys: Iterable[Hashable],
    ) -> None:
        waiting = WaitingFetch(request, attempt, memoryview(bytes(frame)), position, context, self._slow_path)
        context.slot.release_frame()
        self._replicas.fetch_purgatory.wait(waiting, keys, request.max_wait_ms)

    def _fetch_beside(
        self, quiet: UnchangedPartitions, request: PlainFetch, frame: memoryview, position: int, context: RequestContext
    ) -> bool:
        """The same as `fetch` for many partitions."""
        if not quiet.begin(context.api_version, request.isolation_level, request.partitions):
            return False
        fetch = UnchangedFetch(
            request,
            frame,
            context,
            quiet,
            find=self._replicas.find,
            readable_name=self._readable_name,
            most_bytes=min(request.max_bytes, self._fetch_max_bytes),
        )
        if fetch.repeats_itself:
            return False
        outcome = fetch.answer(request)
        if outcome is Outcome.TOO_LITTLE:
            self._wait(request, frame, position, context, fetch.answer, (quiet,))
        return outcome is not Outcome.NOT_PLAIN

    def _readable_name(self, topic: TopicEntries, context: RequestContext) -> str | None:
        """What a topic is called; None if it is not there, or not for this client."""
        name = topic.name
        if topic.topic_id is not None:
            known = self._metadata.image.topics.by_id.get(topic.topic_id)
            name = None if known is None else known.name
        return name if name is not None and context.may(Operation.READ, ResourceType.TOPIC, name) else None


class RepeatedFetch:
    """A consumer's next request, which is most often like the last one but for its offsets: then it need not be read
    anew. A `broker.request.response.Repeats`."""

    __slots__ = (
        "_apis",
        "_client_id",
        "_entries",
        "_fetches",
        "_kind",
        "_misses",
        "_pattern",
        "_position",
        "_request",
        "_version",
        "has_refused",
        "quiet",
    )

    def __init__(self, fetches: FetchFastPath, quiet: UnchangedPartitions) -> None:
        self._fetches = fetches
        self._pattern: FetchPattern | None = None
        self._misses = -1
        self.quiet = quiet
        """What is known of its partitions, where they are many or have nothing for it."""
        self.has_refused = False
        """The request that is looked at was like the last one and could not be answered: no need to try it again."""

    @property
    def is_worth_it(self) -> bool:
        """Whether requests have been like one another, at times."""
        return self._misses < MOST_MISSES

    def learn(
        self,
        pattern: FetchPattern,
        request: PlainFetch,
        entries: AskedEntries,
        position: int,
        context: RequestContext,
    ) -> None:
        """Recognise the next request like this one, which has just been answered and was unlike those before."""
        self._misses += 1
        self._pattern = pattern
        self._request = request
        self._entries = entries
        self._position = position
        self._version = context.api_version
        self._client_id = context.client_id
        self._kind = context.slot.kind
        self._apis = context.apis

    def take(self, slot: ResponseSlot) -> bool:
        """Answer a request like the last one. False: it is not, or the general way must; nothing has been done."""
        pattern = self._pattern
        numbers = None if pattern is None else pattern.numbers_in(slot.frame)
        if numbers is None:
            return False
        self._misses = 0
        slot.kind = self._kind
        context = RequestContext(self._version, numbers[0], self._client_id, slot, self._apis)
        offsets = numbers[1:]
        outcome = self._fetches.answer(self._entries, offsets, context, self._request)
        if outcome is Outcome.TOO_LITTLE:
            self._fetches.wait(self._entries, offsets, context, self._request, slot.frame, self._position)
        self.has_refused = outcome is Outcome.NOT_PLAIN
        return not self.has_refused

    def close(self) -> None:
        """The connection is gone: no partition is watched any more."""
        self.quiet.close()
