"""A fetch of many partitions, most of which have not changed: only the others are read (bench-kafka:
many-partitions)."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import cast

from broker.fetch.fast_read import ANSWERED, SLOW_PATH, Find, Outcome, Served, encode_unchanged, finish, read_partitions
from broker.fetch.read_rules import FetchBudget, FetchRequirements, count_fetches
from broker.fetch.unchanged_partitions import UnchangedPartitions, UnchangedTopic
from broker.replication.partition import Partition
from broker.request.context import RequestContext
from broker.request.faults import Fault
from protocol.fetch_layout import FETCH_OFFSET, FastFetchRequest, FetchAnswer, TopicEntries, fetch_layout
from storage.errors import StorageError

ReadableName = Callable[[TopicEntries, RequestContext], str | None]
"""The name of a topic; None if there is no such topic, or the client may not read it."""


class UnchangedFetch:
    """A request whose entries are looked up by their bytes. Only those that are not found are decoded."""

    __slots__ = ("_context", "_find", "_named", "_pieces", "_readable_name", "_request", "_unchanged")

    def __init__(
        self,
        request: FastFetchRequest,
        frame: memoryview,
        context: RequestContext,
        unchanged: UnchangedPartitions,
        *,
        find: Find,
        readable_name: ReadableName,
    ) -> None:
        self._request = request
        self._context = context
        self._unchanged = unchanged
        self._find = find
        self._readable_name = readable_name
        layout = fetch_layout(context.api_version)
        self._pieces: Sequence[Sequence[bytes]] = [layout.pieces(frame, topic) for topic in request.topics]
        """The entries of each topic."""
        named: dict[bytes, set[bytes]] = {}
        for topic, pieces in zip(request.topics, self._pieces, strict=True):
            named.setdefault(topic.encoded, set()).update(pieces)
        self._named: Mapping[bytes, Collection[bytes]] = named
        """The same by name or id of the topic, which the request may contain twice."""

    @property
    def repeats_itself(self) -> bool:
        """Whether the request contains an entry twice."""
        return sum(map(len, self._named.values())) < self._request.partitions

    def answer(self, requirements: FetchRequirements) -> Outcome:
        """Answer if there is enough."""
        request, context = self._request, self._context
        answer = FetchAnswer(
            context.api_version,
            len(request.topics),
            is_committed=requirements.wants_aborted,
            throttle_time_ms=context.session.throttle_time_ms,
        )
        reading = _Reading(answer, self._find, requirements, context.api_version)
        counted: list[tuple[Partition, int]] = []
        try:
            for topic, pieces in zip(request.topics, self._pieces, strict=True):
                name = self._readable_name(topic, context)
                if name is None:
                    return SLOW_PATH
                known = self._unchanged.topic(topic.encoded)
                answers = list(map(known.answers.get, pieces))
                answer.begin_topic(topic)
                behind = changed = 0
                for place in _places_of_none(answers):
                    answer.add_encoded(cast("list[bytes]", answers[behind:place]))
                    behind = place + 1
                    changed += 1
                    if not reading.read(name, pieces[place], known, self._named[topic.encoded]):
                        return SLOW_PATH
                answer.add_encoded(cast("list[bytes]", answers[behind:]))
                answer.end_topic()
                if changed < len(pieces):
                    counted.append((known.any_partition(), len(pieces) - changed))
        except (Fault, StorageError, UnicodeDecodeError):
            return SLOW_PATH
        outcome = finish(requirements, context, answer, reading.served, reading.budget.size, request.partitions)
        if outcome is ANSWERED:
            for partition, times in counted:
                # The metric is one of topics: the unchanged partitions of a topic are counted at one of them.
                count_fetches(partition, times)
        elif not reading.are_unchanged:
            return SLOW_PATH  # some of its partitions would not wake the request when they change
        return outcome


class _Reading:
    """What has been read for an answer."""

    __slots__ = ("_answer", "_find", "_layout", "_read", "_requirements", "are_unchanged", "budget", "served")

    def __init__(self, answer: FetchAnswer, find: Find, requirements: FetchRequirements, version: int) -> None:
        self._answer = answer
        self._find = find
        self._requirements = requirements
        self._layout = fetch_layout(version)
        self._read: set[tuple[str, int]] = set()
        self.budget = FetchBudget(requirements.max_bytes)
        self.served: Served = []
        self.are_unchanged = True
        """Whether all partitions that were read had nothing and are remembered as unchanged now."""

    def read(self, topic: str, piece: bytes, known: UnchangedTopic, named: Collection[bytes]) -> bool:
        """Read the partition of the entry ``piece``, one of those ``named`` of a topic. False: the slow path must."""
        entry = self._layout.entry(piece)
        index, offset = entry[0], entry[FETCH_OFFSET]
        before = known.partitions.get(index)
        if (topic, index) in self._read or (before is not None and before.piece != piece and before.piece in named):
            return False  # the request has two entries for this partition, which differ
        self._read.add((topic, index))
        next_offset = iter((offset,)).__next__
        if not read_partitions(
            self._find, topic, (entry,), next_offset, self._requirements, self.budget, self._answer, self.served
        ):
            return False
        partition, _ = self.served[-1]
        if not partition.has_nothing_for(offset, self._requirements.isolation) or not known.add(
            entry, piece, partition, self._requirements, encode_unchanged(partition, index, self._answer)
        ):
            self.are_unchanged = False
        return True


def _places_of_none(answers: Sequence[bytes | None]) -> Iterator[int]:
    """The places where there is no answer, in ascending order."""
    place = -1
    try:
        while True:
            place = answers.index(None, place + 1)
            yield place
    except ValueError:
        return
