"""The fast path of Fetch: a request is read from its bytes, and answered in bytes.

Making an object of what is asked of each partition, and another of what it gives, costs more than finding its records
(bench-kafka: fetch-64kb, fetch-16x64kb, many-partitions). So a request that `protocol.fetch_layout` can read is
first tried here. If all of its partitions may be read from this node, and each gives records or has no more, then this
is the answer; if none of them has records, the request waits for the first that gets some. In all other cases nothing
has been done, and the slow path (`broker.handlers.fetch`) answers as if nothing had been tried: only the slow path
knows errors, sessions, and the other things that a request may wait for (docs/decisions/fast-path.md).
"""

from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.fetch.fast_read import MUST_WAIT, SLOW_PATH, Outcome, Served, finish, read_partitions
from broker.fetch.read_rules import FOLLOWERS_SERVE_SINCE_VERSION, FetchBudget, FetchRequirements
from broker.fetch.unchanged_fetch import UnchangedFetch
from broker.fetch.unchanged_partitions import MemoryBudget, UnchangedPartitions
from broker.fetch.waiting_fetch import Attempt, SlowPath, WaitingFetch
from broker.metadata.cache import MetadataCache
from broker.replication.isolation import consumer_isolation
from broker.replication.replica_manager import ReplicaManager
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import Fault
from broker.request.response import RequestStream, ResponseSlot
from protocol.fetch_layout import (
    FETCH_OFFSET,
    AskedEntries,
    FastFetchRequest,
    FetchAnswer,
    FetchPattern,
    TopicEntries,
    fetch_layout,
)
from storage.errors import StorageError

if TYPE_CHECKING:
    from broker.fetch.replica_choice import RackAwareSelector

# Looking up an attribute of an enumeration takes 50 ns in Python 3.11.
_READ: Final = Operation.READ
_TOPIC: Final = ResourceType.TOPIC

MOST_REMEMBERED: Final = 32
"""Partitions of a request that is remembered as a whole. Of a larger one the unchanged partitions are remembered."""

MOST_MISSES: Final = 8
"""When so many requests of a consumer in a row have differed from the one before, no further request is remembered."""


class FetchFastPath:
    """Answers requests from their bytes, where that is possible."""

    def __init__(
        self,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        slow_path: SlowPath,
        *,
        fetch_max_bytes: int,
        selector: "RackAwareSelector | None" = None,
    ) -> None:
        """``selector`` chooses the replicas that consumers read; None: they read from leaders."""
        self._selector = selector
        self._replicas = replicas
        self._metadata = metadata
        self._fetch_max_bytes = fetch_max_bytes
        self._slow_path = slow_path
        self._memory = MemoryBudget()

    def fetch(self, frame: memoryview, position: int, context: RequestContext) -> bool:
        """Answer the request whose body begins at ``position``, now or later. False: the slow path must."""
        before = context.slot.stream.repeats
        if isinstance(before, RepeatedFetch) and before.has_refused:
            before.has_refused = False
            return False
        layout = fetch_layout(context.api_version)
        request = layout.read(frame, position)
        isolation = None if request is None else consumer_isolation(request.isolation_level)
        if request is None or isolation is None:
            return False
        requirements = FetchRequirements(
            isolation=isolation,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            max_wait_ms=request.max_wait_ms,
            fetch_max_bytes=self._fetch_max_bytes,
            only_leader=context.api_version < FOLLOWERS_SERVE_SINCE_VERSION,
            replica_choice=None
            if self._selector is None
            else self._selector.choice(request.rack_id, context.peer.listener),
        )
        repeated = self._repeated_of(context.slot.stream)
        if repeated is not None and request.partitions > MOST_REMEMBERED:
            return self._fetch_changed(repeated.unchanged, request, requirements, frame, position, context)
        entries = layout.entries(frame, request)
        if entries is None:
            return False
        offsets = [entry[FETCH_OFFSET] for _, of_topic in entries for entry in of_topic]
        outcome = self.answer(entries, offsets, context, requirements)
        if outcome is SLOW_PATH:
            return False
        if repeated is not None and repeated.is_worth_it:
            pattern = FetchPattern(frame, layout.offsets_at(request))
            repeated.learn(pattern, entries, requirements, position, context)
        if outcome is MUST_WAIT:
            self.wait(entries, offsets, context, requirements, frame, position)
        return True

    def _repeated_of(self, stream: RequestStream) -> "RepeatedFetch | None":
        """What is remembered of a consumer's requests; None for a connection whose produce requests are remembered."""
        if stream.repeats is None:
            stream.repeats = RepeatedFetch(self, UnchangedPartitions(self._replicas.fetch_purgatory, self._memory))
        return stream.repeats if isinstance(stream.repeats, RepeatedFetch) else None

    def answer(
        self,
        entries: AskedEntries,
        offsets: Sequence[int],
        context: RequestContext,
        requirements: FetchRequirements,
    ) -> Outcome:
        """Answer a request of these entries, from these offsets, if there is enough."""
        answer = FetchAnswer(
            context.api_version,
            len(entries),
            is_committed=requirements.wants_aborted,
            throttle_time_ms=context.session.throttle_time_ms,
        )
        budget = FetchBudget(requirements.max_bytes)
        find = self._replicas.find
        next_offset = iter(offsets).__next__
        served: Served = []
        try:
            for topic, of_topic in entries:
                name = self._readable_name(topic, context)
                if name is None:
                    return SLOW_PATH
                answer.begin_topic(topic)
                if not read_partitions(find, name, of_topic, next_offset, requirements, budget, answer, served):
                    return SLOW_PATH
                answer.end_topic()
        except (Fault, StorageError, UnicodeDecodeError):
            return SLOW_PATH
        return finish(requirements, context, answer, served, budget.size, len(offsets))

    def wait(
        self,
        entries: AskedEntries,
        offsets: Sequence[int],
        context: RequestContext,
        requirements: FetchRequirements,
        frame: memoryview,
        position: int,
    ) -> None:
        """Answer the request in ``frame``, which has found nothing, when one of its partitions changes."""
        find = self._replicas.find
        partitions: list[Hashable] = []
        for topic, of_topic in entries:
            name = self._readable_name(topic, context)
            if name is not None:
                partitions += [find(name, entry[0]) for entry in of_topic]
        attempt = partial(self.answer, entries, offsets, context)
        self._wait(requirements, frame, position, context, attempt, partitions)

    def _wait(
        self,
        requirements: FetchRequirements,
        frame: memoryview,
        position: int,
        context: RequestContext,
        attempt: Attempt,
        keys: Iterable[Hashable],
    ) -> None:
        waiting = WaitingFetch(requirements, attempt, memoryview(bytes(frame)), position, context, self._slow_path)
        context.slot.release_frame()
        self._replicas.fetch_purgatory.wait(waiting, keys, requirements.max_wait_ms)

    def _fetch_changed(
        self,
        unchanged: UnchangedPartitions,
        request: FastFetchRequest,
        requirements: FetchRequirements,
        frame: memoryview,
        position: int,
        context: RequestContext,
    ) -> bool:
        """The same as `fetch` for many partitions, of which only those are read that are not in ``unchanged``."""
        if not unchanged.begin(context.api_version, request.isolation_level, request.partitions):
            return False
        fetch = UnchangedFetch(
            request,
            frame,
            context,
            unchanged,
            find=self._replicas.find,
            readable_name=self._readable_name,
        )
        if fetch.repeats_itself:
            return False
        outcome = fetch.answer(requirements)
        if outcome is MUST_WAIT:
            self._wait(requirements, frame, position, context, fetch.answer, (unchanged,))
        return outcome is not SLOW_PATH

    def _readable_name(self, topic: TopicEntries, context: RequestContext) -> str | None:
        """The name of a topic; None if there is no such topic, or the client may not read it."""
        name = topic.name
        if topic.topic_id is not None:
            known = self._metadata.image.topics.by_id.get(topic.topic_id)
            name = None if known is None else known.name
        return name if name is not None and context.sees(_READ, _TOPIC, name) else None


class RepeatedFetch:
    """A consumer's next request, which most often differs from the last one in nothing but its offsets: then only they
    are read. A `broker.request.response.Repeats`."""

    __slots__ = (
        "_apis",
        "_client_id",
        "_entries",
        "_fast_path",
        "_kind",
        "_misses",
        "_pattern",
        "_position",
        "_requirements",
        "_version",
        "has_refused",
        "unchanged",
    )

    def __init__(self, fast_path: FetchFastPath, unchanged: UnchangedPartitions) -> None:
        self._fast_path = fast_path
        self._pattern: FetchPattern | None = None
        self._misses = -1
        self.unchanged = unchanged
        """The consumer's partitions that have nothing for it, where it reads many."""
        self.has_refused = False
        """Whether the request that is being handled has been recognised here and could not be answered: then the fast
        path need not try it again."""

    @property
    def is_worth_it(self) -> bool:
        """Whether requests of this consumer have been like one another at times."""
        return self._misses < MOST_MISSES

    def learn(
        self,
        pattern: FetchPattern,
        entries: AskedEntries,
        requirements: FetchRequirements,
        position: int,
        context: RequestContext,
    ) -> None:
        """Recognise the next request like this one, which has just been answered and was unlike those before."""
        self._misses += 1
        self._pattern = pattern
        self._entries = entries
        self._requirements = requirements
        self._position = position
        self._version = context.api_version
        self._client_id = context.client_id
        self._kind = context.slot.kind
        self._apis = context.apis

    def take(self, slot: ResponseSlot) -> bool:
        """Answer a request like the last one. False: it differs, or the slow path must; nothing has been done."""
        pattern = self._pattern
        numbers = None if pattern is None else pattern.numbers_in(slot.frame)
        if numbers is None:
            return False
        self._misses = 0
        slot.kind = self._kind
        context = RequestContext(self._version, numbers[0], self._client_id, slot, self._apis)
        offsets = numbers[1:]
        outcome = self._fast_path.answer(self._entries, offsets, context, self._requirements)
        if outcome is MUST_WAIT:
            self._fast_path.wait(self._entries, offsets, context, self._requirements, slot.frame, self._position)
        self.has_refused = outcome is SLOW_PATH
        return not self.has_refused

    def close(self) -> None:
        """The connection is gone: its consumer's partitions need not say any more when they change."""
        self.unchanged.close()
