"""A plain fetch: read from its bytes, and answered in bytes.

To make objects of what is asked of each partition and of what it gives costs more than to find its records (bench:
fetch-64kb, fetch-16x64kb, many-partitions). So a request that `protocol.fetch_layout` calls plain is first tried here:
if every partition is there and led by this node and gives records or has no more, then this is the answer; if none has
any, it waits for the first that gets some. In all other cases nothing has been done, and the general way decides as if
nothing had been tried; that one alone knows errors, sessions, and all else that one can wait for
(docs/decisions/plain-fetch.md).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, cast

from broker.handlers.fetch import FetchHandler
from broker.handlers.plain_reading import Outcome, PlainReading
from broker.handlers.quiet_partitions import QuietPartitions, Room
from broker.handlers.waiting_fetch import WaitingFetch
from broker.metadata.image import MetadataImage
from broker.replication.fetch import Isolation
from broker.replication.replica_manager import ReplicaManager
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.response import Peer, ResponseSlot
from protocol.api_keys import ApiKey
from protocol.fetch_layout import FETCH_OFFSET, Entry, FetchPattern, PlainFetch, TopicEntries, fetch_layout
from protocol.headers import RequestHeader
from storage.errors import StorageError

MOST_REMEMBERED: Final = 32
"""Partitions in a request that is remembered as a whole; of larger ones it is remembered which partitions are quiet."""

MOST_MISSES: Final = 8
"""A consumer whose requests have been so often unlike the one before is not remembered anew."""


class PlainFetches:
    """Answers what is plain."""

    def __init__(
        self,
        replicas: ReplicaManager,
        image: MetadataImage,
        general: FetchHandler,
        *,
        fetch_max_bytes: int,
    ) -> None:
        self._replicas = replicas
        self._image = image
        self._fetch_max_bytes = fetch_max_bytes
        self._general = general
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
        outcome = Outcome.TOO_LITTLE
        if repeated is None or request.partitions <= MOST_REMEMBERED:
            entries = layout.entries(frame, request)
            if entries is None:
                return False
            offsets = [entry[FETCH_OFFSET] for of_topic in entries for entry in of_topic]
            outcome = self.answer(request, entries, offsets, context)
            if repeated is not None and outcome is Outcome.ANSWERED and repeated.is_worth_it:
                repeated.learn(FetchPattern(frame, layout.offsets_at(request)), request, entries, position, context)
        if repeated is not None and outcome is Outcome.TOO_LITTLE:
            outcome = self.answer_or_wait(request, frame, position, context, repeated.quiet)
        return outcome is Outcome.ANSWERED

    def _repeated_of(self, peer: Peer) -> "RepeatedFetch | None":
        """What is remembered of a consumer's requests; None for a connection whose producer's are remembered."""
        if peer.repeats is None:
            peer.repeats = RepeatedFetch(self, QuietPartitions(self._replicas.fetch_purgatory, self._room))
        return peer.repeats if isinstance(peer.repeats, RepeatedFetch) else None

    def answer(
        self,
        request: PlainFetch,
        entries: Sequence[Sequence[Entry]],
        offsets: Sequence[int],
        context: RequestContext,
    ) -> Outcome:
        """Answer ``request`` from these offsets, if there is enough."""
        reading = self._reading(request, context)
        answer, read = reading.answer, reading.read
        find = self._replicas.find
        next_offset = iter(offsets).__next__
        try:
            for topic, of_topic in zip(request.topics, entries, strict=True):
                name = self._readable_name(topic, context)
                if name is None:
                    return Outcome.NOT_PLAIN
                answer.begin_topic(topic)
                for entry in of_topic:
                    if not read(find(name, entry[0]), entry, next_offset()):
                        return Outcome.NOT_PLAIN
                answer.end_topic()
        except (StorageError, UnicodeDecodeError):
            return Outcome.NOT_PLAIN
        return reading.finish(context, is_last=False)

    def answer_or_wait(
        self, request: PlainFetch, frame: memoryview, position: int, context: RequestContext, quiet: QuietPartitions
    ) -> Outcome:
        """Answer ``request``, which stands in ``frame``, when there is enough: that counts as answered, too."""
        asked = _asked(request, frame, context.api_version)
        if asked is None:
            return Outcome.NOT_PLAIN
        outcome = self._answer_beside(quiet, asked, context, is_last=False)
        if outcome is not Outcome.TOO_LITTLE:
            return outcome
        attempt = partial(self._answer_beside, quiet, asked, context)
        waiting = WaitingFetch(memoryview(bytes(frame)), position, context, quiet, attempt, self._general)
        context.slot.release_frame()
        self._replicas.fetch_purgatory.watch(waiting, (quiet,), request.max_wait_ms)
        return Outcome.ANSWERED

    def _answer_beside(
        self, quiet: QuietPartitions, asked: "_Asked", context: RequestContext, *, is_last: bool
    ) -> Outcome:
        """Answer what is asked if there is enough or, with ``is_last``, in any case. What is quiet is not read."""
        layout = fetch_layout(context.api_version)
        request, pieces, named = asked
        quiet.begin(context.api_version, request.isolation_level, request.partitions)
        reading = self._reading(request, context)
        answer = reading.answer
        read: set[tuple[str, int]] = set()
        can_wait = request.min_bytes <= 1
        try:
            for topic, of_topic in zip(request.topics, pieces, strict=True):
                name = self._readable_name(topic, context)
                if name is None:
                    return Outcome.NOT_PLAIN
                known = quiet.topic(topic.encoded)
                answer.begin_topic(topic)
                answers = list(map(known.answers.get, of_topic))
                told = count = 0
                for place in _unknown(answers):
                    answer.add_encoded(cast("list[bytes]", answers[told:place]))
                    told = place + 1
                    count += 1
                    piece = of_topic[place]
                    entry = layout.entry(piece)
                    index, fetch_offset = entry[0], entry[FETCH_OFFSET]
                    before = known.partitions.get(index)
                    if (name, index) in read or (before is not None and before.piece in named[topic.encoded]):
                        return Outcome.NOT_PLAIN  # the same partition otherwise
                    read.add((name, index))
                    partition = self._replicas.find(name, index)
                    if partition is None or not reading.read(partition, entry, fetch_offset):
                        return Outcome.NOT_PLAIN
                    nothing = reading.nothing_of(partition, index, fetch_offset)
                    if nothing is None or not known.add(index, piece, partition, nothing):
                        can_wait = False
                answer.add_encoded(cast("list[bytes]", answers[told:]))
                answer.end_topic()
                if count < len(of_topic):
                    reading.count_quiet(known.one(), len(of_topic) - count)
        except (StorageError, UnicodeDecodeError):
            return Outcome.NOT_PLAIN
        outcome = reading.finish(context, is_last=is_last)
        return Outcome.NOT_PLAIN if outcome is Outcome.TOO_LITTLE and not can_wait else outcome

    def _reading(self, request: PlainFetch, context: RequestContext) -> PlainReading:
        most_bytes = min(request.max_bytes, self._fetch_max_bytes)
        return PlainReading(request, context.api_version, most_bytes=most_bytes)

    def _readable_name(self, topic: TopicEntries, context: RequestContext) -> str | None:
        """What a topic is called; None if it is not there, or not for this client."""
        name = topic.name
        if topic.topic_id is not None:
            known = self._image.topics_by_id.get(topic.topic_id)
            name = None if known is None else known.name
        return name if name is not None and context.may(Operation.READ, ResourceType.TOPIC, name) else None


class _Asked(NamedTuple):
    """What a request names, undecoded."""

    request: PlainFetch
    pieces: Sequence[Sequence[bytes]]
    """The entries of each topic."""
    named: Mapping[bytes, Collection[bytes]]
    """The same, by the topics' names or ids: one may stand there twice."""


def _asked(request: PlainFetch, frame: memoryview, version: int) -> _Asked | None:
    """What ``request`` names, which stands in ``frame``; None if it names a partition twice."""
    layout = fetch_layout(version)
    pieces = [layout.pieces(frame, topic) for topic in request.topics]
    named: dict[bytes, set[bytes]] = {}
    for topic, of_topic in zip(request.topics, pieces, strict=True):
        named.setdefault(topic.encoded, set()).update(of_topic)
    return _Asked(request, pieces, named) if sum(map(len, named.values())) == request.partitions else None


def _unknown(answers: Sequence[bytes | None]) -> Iterator[int]:
    """Where there is none."""
    place = -1
    try:
        while True:
            place = answers.index(None, place + 1)
            yield place
    except ValueError:
        return


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

    def __init__(self, fetches: PlainFetches, quiet: QuietPartitions) -> None:
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
        entries: Sequence[Sequence[Entry]],
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
        header = RequestHeader(ApiKey.FETCH, self._version, numbers[0], self._client_id)
        context = RequestContext(header, slot.peer, slot, self._apis)
        outcome = self._fetches.answer(self._request, self._entries, numbers[1:], context)
        if outcome is Outcome.TOO_LITTLE:
            outcome = self._fetches.answer_or_wait(self._request, slot.frame, self._position, context, self.quiet)
        self.has_refused = outcome is not Outcome.ANSWERED
        return not self.has_refused

    def close(self) -> None:
        """The connection is gone: no partition is watched any more."""
        self.quiet.close()
