"""FollowerSession: a follower's side of an incremental fetch session, as a pure state machine (KIP-227).

    full ── the leader gives a session ──► incremental: only what has changed is named
     ▲                                          │
     └── the session is lost, or its answer ────┘

Without a session, which a leader need not give, every request is full.
"""

from collections.abc import Collection, Hashable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest

NO_SESSION: Final = 0
"""The id of a request without a session, and of an answer that gives none."""

FULL: Final = 0
"""The epoch of a request that names all partitions and asks for a session."""

_FIRST: Final = 1
_LAST: Final = 0x7FFFFFFF

LOST: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""The errors after which a full request begins another session."""

Place = tuple[bytes, int]
"""A partition: topic id (16 bytes) and index."""

T = TypeVar("T", bound=Hashable)


class _Told(NamedTuple, Generic[T]):
    """What the leader knows of one partition."""

    of: T
    wanted: FetchRequest.Topic.Partition


class FollowerSession(Generic[T]):
    """What the leader has been told of each partition, and what it is to be told next. ``T`` is the caller's object for
    a partition in one leader epoch."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FULL
        self._told: dict[Place, _Told[T]] = {}

    @property
    def is_full(self) -> bool:
        """Whether the next request names all partitions."""
        return self._epoch == FULL

    def of(self, place: Place) -> T | None:
        """The partition that the leader was last asked for at this place."""
        told = self._told.get(place)
        return None if told is None else told.of

    def told(self) -> Iterable[tuple[T, FetchRequest.Topic.Partition]]:
        """All that the leader was told."""
        return self._told.values()

    def fill(
        self,
        request: FetchRequest,
        wanted: Iterable[tuple[bytes, T, FetchRequest.Topic.Partition]],
        unwanted: Collection[Place],
    ) -> None:
        """Make ``request`` the next one.

        Args:
            request: gets session, topics and forgotten topics.
            wanted: topic id, partition and what is wanted of it: of all partitions for a full request, else of those
                of which something may have changed.
            unwanted: the places that are not to be fetched any more; of those in ``wanted`` as well, the latter count.
        """
        if self.is_full:
            self._told.clear()
        topics: dict[bytes, list[FetchRequest.Topic.Partition]] = {}
        named: set[Place] = set()
        for topic_id, of, partition in wanted:
            place = topic_id, partition.partition
            named.add(place)
            told = self._told.get(place)
            self._told[place] = _Told(of, partition)
            if told is None or told.wanted != partition:
                topics.setdefault(topic_id, []).append(partition)
        forgotten: dict[bytes, list[int]] = {}
        for place in unwanted:
            if place not in named and self._told.pop(place, None) is not None:
                forgotten.setdefault(place[0], []).append(place[1])
        request.session_id, request.session_epoch = self._id, self._epoch
        request.topics = [
            FetchRequest.Topic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()
        ]
        request.forgotten_topics_data = [
            FetchRequest.ForgottenTopic(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in forgotten.items()
        ]

    def answered(self, session_id: int) -> None:
        """The leader has answered the last request, without an error of the whole."""
        if session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, FULL
        else:
            self._id = session_id
            self._epoch = _FIRST if self._epoch == _LAST else self._epoch + 1

    def lose(self, *, may_be_there: bool) -> None:
        """The next request is a full one. ``may_be_there``: the leader may still have this session, which the request
        ends."""
        self._epoch = FULL
        if not may_be_there:
            self._id = NO_SESSION
