"""Share sessions (KIP-932): a member names its partitions once, and then only what changes.

    epoch   what the broker does
      0     begins a session with the partitions of the request, in place of the session that the member has
      n     the session's epoch: adds and forgets partitions; the next request has n + 1
     -1     ends the session: all records that the member holds are released

A session does not expire: it ends with epoch -1, or with the connection that began it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, NamedTuple

from broker.request.faults import (
    InvalidRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)

log = logging.getLogger(__name__)

INITIAL_EPOCH: Final = 0
"""The epoch of a request that begins a session."""
FINAL_EPOCH: Final = -1
"""The epoch of a request that ends the session."""
HIGHEST_EPOCH: Final = 0x7FFF_FFFF


def next_epoch(epoch: int) -> int:
    """The epoch that must follow ``epoch``; after the highest comes 1, since 0 means a new session."""
    return epoch + 1 if epoch < HIGHEST_EPOCH else 1


class Member(NamedTuple):
    """A member of a share group. It has one session at a broker at most."""

    group_id: str
    member_id: str


class TopicIdPartition(NamedTuple):
    """A partition as share groups know it: a topic that is deleted and created again is another."""

    topic_id: bytes
    partition: int


class ShareSession:
    """The partitions that a member fetches from this broker."""

    __slots__ = ("connection", "epoch", "member", "partitions", "unsettled")

    def __init__(self, member: Member, partitions: dict[TopicIdPartition, str | None], connection: Hashable) -> None:
        self.member = member
        self.partitions = partitions
        """With the topics' names, None for an id that no topic had when the partition was added."""
        self.connection = connection
        self.epoch = 1
        """The epoch of the next request."""
        self.unsettled: set[TopicIdPartition] = set()
        """Partitions that the next answer names even without records: they are new, or had an error."""


class ShareFetchContext(NamedTuple):
    """What one ShareFetch asks for, by its session."""

    session: ShareSession | None
    """None for the last request of a session, which fetches nothing."""
    partitions: Sequence[tuple[TopicIdPartition, str | None]]
    epoch: int
    """That of the session, as long as no other request comes in between."""
    is_new: bool

    @property
    def is_overtaken(self) -> bool:
        """Whether the member has sent another request since."""
        return self.session is not None and not self.is_new and self.session.epoch != self.epoch

    def names(self, partition: TopicIdPartition, *, has_records: bool, has_error: bool) -> bool:
        """Whether the answer names a partition, from which the session continues."""
        session = self.session
        if session is None or self.is_new:
            return True
        is_named = has_records or has_error or partition in session.unsettled
        session.unsettled.discard(partition)
        if has_error:
            session.unsettled.add(partition)
        if has_records and partition in session.partitions:
            # Behind those that have given nothing, which come first the next time.
            session.partitions[partition] = session.partitions.pop(partition)
        return is_named


class ShareSessionStats:
    """The counters of share sessions."""

    __slots__ = ("evicted", "partitions", "sessions")

    def __init__(self) -> None:
        self.sessions = 0
        self.partitions = 0
        self.evicted = 0
        """Sessions that have ended with their connection."""


class ShareSessions:
    """The share sessions of this broker."""

    def __init__(self, most: int, on_ended: Callable[[ShareSession], None], on_left: Callable[[str], None]) -> None:
        """``most``: ``group.share.max.share.sessions``; ``on_ended``: called with a session whose connection is closed;
        ``on_left``: called with a group that has no session here any more."""
        self._most = most
        self._on_ended = on_ended
        self._on_left = on_left
        self._sessions: dict[Member, ShareSession] = {}
        self._of_groups: dict[str, int] = {}
        self._of_connections: dict[Hashable, set[Member]] = {}
        self.stats = ShareSessionStats()

    def find(self, member: Member) -> ShareSession | None:
        """The session of a member."""
        return self._sessions.get(member)

    def begin(
        self,
        member: Member,
        epoch: int,
        asked: dict[TopicIdPartition, str | None],
        forgotten: Iterable[TopicIdPartition],
        *,
        acknowledges: bool,
        connection: Hashable,
    ) -> ShareFetchContext:
        """Take over what a ShareFetch says of its session.

        Raises:
            InvalidRequest: The first request of a session has acknowledgements.
            ShareSessionNotFound: The member has no session.
            InvalidShareSessionEpoch: The request is not the next of its session.
            ShareSessionLimitReached: There are too many sessions.
        """
        if epoch == FINAL_EPOCH:
            self._existing(member)
            return ShareFetchContext(None, (), epoch, is_new=False)
        if epoch == INITIAL_EPOCH:
            if acknowledges:
                raise InvalidRequest("the first request of a share session acknowledges records")
            return self._begin_anew(member, asked, connection)
        session = self._next(member, epoch)
        before = len(session.partitions)
        for partition, name in asked.items():
            if partition not in session.partitions:
                session.partitions[partition] = name
                session.unsettled.add(partition)
        for partition in forgotten:
            session.partitions.pop(partition, None)
            session.unsettled.discard(partition)
        self.stats.partitions += len(session.partitions) - before
        return ShareFetchContext(session, tuple(session.partitions.items()), session.epoch, is_new=False)

    def acknowledge(self, member: Member, epoch: int) -> None:
        """Take over what a ShareAcknowledge says of its session. Raises like `begin`."""
        if epoch == INITIAL_EPOCH:
            raise InvalidShareSessionEpoch("a share session does not begin with acknowledgements")
        if epoch == FINAL_EPOCH:
            self._existing(member)
        else:
            self._next(member, epoch)

    def _existing(self, member: Member) -> ShareSession:
        session = self._sessions.get(member)
        if session is None:
            raise ShareSessionNotFound(f"{member.member_id} of group {member.group_id} has no share session")
        return session

    def _next(self, member: Member, epoch: int) -> ShareSession:
        session = self._existing(member)
        if session.epoch != epoch:
            raise InvalidShareSessionEpoch(f"the share session's epoch is {session.epoch}, not {epoch}")
        session.epoch = next_epoch(epoch)
        return session

    def _begin_anew(
        self, member: Member, asked: dict[TopicIdPartition, str | None], connection: Hashable
    ) -> ShareFetchContext:
        self.remove(member)
        if len(self._sessions) >= self._most:
            raise ShareSessionLimitReached(f"there are {len(self._sessions)} share sessions")
        session = self._sessions[member] = ShareSession(member, asked, connection)
        self._of_groups[member.group_id] = self._of_groups.get(member.group_id, 0) + 1
        self._of_connections.setdefault(connection, set()).add(member)
        self.stats.sessions += 1
        self.stats.partitions += len(asked)
        return ShareFetchContext(session, tuple(asked.items()), session.epoch, is_new=True)

    def remove(self, member: Member) -> ShareSession | None:
        """End a member's session, and return it."""
        session = self._sessions.pop(member, None)
        if session is not None:
            self._of_groups[member.group_id] -= 1
            members = self._of_connections.get(session.connection)
            if members is not None:
                members.discard(member)
            self.stats.sessions -= 1
            self.stats.partitions -= len(session.partitions)
        return session

    def knows(self, connection: Hashable) -> bool:
        """Whether a session was begun over the connection."""
        return connection in self._of_connections

    def connection_closed(self, connection: Hashable) -> None:
        """End the sessions that were begun over a connection."""
        for member in sorted(self._of_connections.pop(connection, ())):
            session = self.remove(member)
            if session is not None:
                self.stats.evicted += 1
                self._on_ended(session)
        for group_id in [group_id for group_id, sessions in self._of_groups.items() if not sessions]:
            del self._of_groups[group_id]
            self._on_left(group_id)
