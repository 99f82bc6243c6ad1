"""A plain fetch of many partitions, most of which are unchanged: only the others are read (bench-kafka:
many-partitions)."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import cast

from broker.fetch.fast_read import Find, Outcome, Served, finish, nothing_of, read_partitions
from broker.fetch.unchanged_partitions import UnchangedPartitions, UnchangedTopic
from broker.replication.isolation import Isolation
from broker.replication.partition import Partition
from broker.request.context import RequestContext
from protocol.fetch_layout import FETCH_OFFSET, PlainAnswer, PlainFetch, TopicEntries, fetch_layout
from storage.errors import StorageError

ReadableName = Callable[[TopicEntries, RequestContext], str | None]
"""What a topic is called; None if it is not there, or not for this client."""


class UnchangedFetch:
    """A request whose entries stay bytes, to be looked up: decoded are those that are not quiet."""

    __slots__ = ("_context", "_find", "_most_bytes", "_named", "_pieces", "_quiet", "_readable_name", "_request")

    def __init__(
        self,
        request: PlainFetch,
        frame: memoryview,
        context: RequestContext,
        quiet: UnchangedPartitions,
        *,
        find: Find,
        readable_name: ReadableName,
        most_bytes: int,
    ) -> None:
        self._request = request
        self._context = context
        self._quiet = quiet
        self._find = find
        self._readable_name = readable_name
        self._most_bytes = most_bytes
        layout = fetch_layout(context.api_version)
        self._pieces: Sequence[Sequence[bytes]] = [layout.pieces(frame, topic) for topic in request.topics]
        """The entries of each topic."""
        named: dict[bytes, set[bytes]] = {}
        for topic, pieces in zip(request.topics, self._pieces, strict=True):
            named.setdefault(topic.encoded, set()).update(pieces)
        self._named: Mapping[bytes, Collection[bytes]] = named
        """The same, by the topics' names or ids: one may stand there twice."""

    @property
    def repeats_itself(self) -> bool:
        """Whether an entry comes twice."""
        return sum(map(len, self._named.values())) < self._request.partitions

    def answer(self, request: PlainFetch) -> Outcome:
        """Answer if there is enough. ``request`` is this one, which may have lost its patience."""
        version = self._context.api_version
        is_committed = request.isolation_level == Isolation.READ_COMMITTED
        answer = PlainAnswer(version, len(request.topics), is_committed=is_committed)
        reading = _Reading(answer, self._find, self._most_bytes, version, is_committed=is_committed)
        counted: list[tuple[Partition, int]] = []
        try:
            for topic, pieces in zip(request.topics, self._pieces, strict=True):
                name = self._readable_name(topic, self._context)
                if name is None:
                    return Outcome.NOT_PLAIN
                known = self._quiet.topic(topic.encoded)
                answers = list(map(known.answers.get, pieces))
                answer.begin_topic(topic)
                behind = unknown = 0
                for place in _places_of_none(answers):
                    answer.add_encoded(cast("list[bytes]", answers[behind:place]))
                    behind = place + 1
                    unknown += 1
                    if not reading.read(name, pieces[place], known, self._named[topic.encoded]):
                        return Outcome.NOT_PLAIN
                answer.add_encoded(cast("list[bytes]", answers[behind:]))
                answer.end_topic()
                if unknown < len(pieces):
                    counted.append((known.one(), len(pieces) - unknown))
        except (StorageError, UnicodeDecodeError):
            return Outcome.NOT_PLAIN
        outcome = finish(request, self._context, answer, reading.served, reading.size, self._most_bytes)
        if outcome is Outcome.ANSWERED:
            for partition, times in counted:
                # What was not read of a topic is counted at one of its partitions: it is told by topic.
                partition.stats.fetches += times
        elif not reading.are_quiet:
            return Outcome.NOT_PLAIN  # nobody would be told when these change
        return outcome


class _Reading:
    """What has been read for an answer."""

    __slots__ = ("_answer", "_find", "_is_committed", "_layout", "_most_bytes", "_read", "are_quiet", "served", "size")

    def __init__(self, answer: PlainAnswer, find: Find, most_bytes: int, version: int, *, is_committed: bool) -> None:
        self._answer = answer
        self._find = find
        self._most_bytes = most_bytes
        self._layout = fetch_layout(version)
        self._is_committed = is_committed
        self._read: set[tuple[str, int]] = set()
        self.served: Served = []
        self.size = 0
        """Bytes of records."""
        self.are_quiet = True
        """Whether all that was read had nothing and is remembered so."""

    def read(self, topic: str, piece: bytes, known: UnchangedTopic, named: Collection[bytes]) -> bool:
        """Read the partition of ``piece``, one of those ``named`` of a topic. False: it is not plain."""
        entry = self._layout.entry(piece)
        index, offset = entry[0], entry[FETCH_OFFSET]
        before = known.partitions.get(index)
        if (topic, index) in self._read or (before is not None and before.piece in named):
            return False  # it is named twice, in different ways
        self._read.add((topic, index))
        self.size = read_partitions(
            self._find, topic, (entry,), iter((offset,)).__next__, self._answer, self.served, self.size,
            self._most_bytes, self._is_committed,
        )  # fmt: skip
        if self.size < 0:
            return False
        partition, _ = self.served[-1]
        nothing = nothing_of(partition, index, offset, self._answer, is_committed=self._is_committed)
        if nothing is None or not known.add(index, piece, partition, nothing):
            self.are_quiet = False
        return True


def _places_of_none(answers: Sequence[bytes | None]) -> Iterator[int]:
    """Where there is no answer."""
    place = -1
    try:
        while True:
            place = answers.index(None, place + 1)
            yield place
    except ValueError:
        return
