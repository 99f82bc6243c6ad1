"""Members of consumer groups. Each polls in a thread of its own, as a program would, and reports its events."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, NamedTuple, Protocol

from dev.waiting import until
from tests.support.clients import TIMEOUT_S, Client, Place, Received, RequestFailed

POLL_MS = 200
"""How long one poll waits for records, in milliseconds. Orders are carried out between two polls."""

QUICK_HEARTBEAT_MS = 250
"""A member learns of a rebalance from the answer to a heartbeat: with the defaults of all three clients after up to 3
s."""

RECONNECT_MS = 1_000
"""How long a member waits at most before it reconnects to a broker that has gone: by default up to 30 s."""

NO_OFFSET = -2
"""The code of a member that ends because the group has no committed offset for a partition."""

Commits = Literal["by itself", "after each poll", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The group, the topics and the settings of a member. None is the client's own default."""

    group: str
    topics: tuple[str, ...]
    protocol: Literal["classic", "consumer"] = "classic"
    """Whether the member uses the newer protocol, in which the broker sets session timeout and heartbeats (KIP-848)."""
    instance_id: str | None = None
    assignor: Literal["range", "roundrobin", "cooperative-sticky"] | None = None
    session_timeout_ms: int | None = None
    heartbeat_ms: int | None = QUICK_HEARTBEAT_MS
    rebalance_timeout_ms: int | None = None
    """How long the member may take to give partitions up; clients call it the longest time between polls."""
    commits: Commits = "by itself"
    without_offset: Literal["earliest", "fail"] = "earliest"
    """Where the member begins to read a partition without a committed offset."""


class Assigned(NamedTuple):
    """The member was assigned these partitions, beside those it has; perhaps none."""

    places: frozenset[Place]


class Revoked(NamedTuple):
    """These partitions were revoked from the member."""

    places: frozenset[Place]


class Polled(NamedTuple):
    """A poll returned these records."""

    records: tuple[Received, ...]


class CommitAnswered(NamedTuple):
    """A synchronous commit has succeeded."""

    offsets: dict[Place, int]


class CommitRefused(NamedTuple):
    """A commit failed because the group had rebalanced: the partitions' new members read the records again."""

    reason: str


class Ended(NamedTuple):
    """The member has ended: it was closed (code 0), or an error is fatal."""

    code: int
    reason: str


Event = Assigned | Revoked | Polled | CommitAnswered | CommitRefused | Ended
Tell = Callable[[Event], None]


class NotCommitted(Exception):
    """A commit failed because the group has rebalanced; the consumer goes on with its next poll."""


class GroupConsumer(Protocol):
    """A stock consumer, used by one thread."""

    def poll(self) -> list[Received]:
        """The records that come within `POLL_MS`. Raises RequestFailed where the client gives up."""
        ...

    def commit(self) -> dict[Place, int]:
        """Commit, synchronously, the offsets behind the records that were polled since the last commit, for the
        partitions that this member still has. Returns the committed offsets. Raises `NotCommitted`, RequestFailed."""
        ...

    def pause(self, places: Iterable[Place]) -> None: ...

    def resume(self, places: Iterable[Place]) -> None: ...

    def close(self) -> None:
        """Close the consumer, as a program does at its end."""
        ...


class Sightings:
    """The events of a member so far. Written by one thread, read by the test's."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.assignment: frozenset[Place] = frozenset()
        self.received: list[Received] = []
        self.committed: dict[Place, int] = {}
        """Offsets of synchronous commits."""
        self.rebalances = 0
        """How often the member was assigned partitions, the same ones included."""
        self.ended: Ended | None = None

    def note(self, event: Event) -> None:
        match event:
            case Assigned(places):
                self.assignment |= places
                self.rebalances += 1
            case Revoked(places):
                self.assignment -= places
            case Polled(records):
                self.received.extend(records)
            case CommitAnswered(offsets):
                self.committed |= offsets
            case Ended():
                self.assignment = frozenset()
                self.ended = event
            case CommitRefused():
                pass
        self.events.append(event)

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self.received]

    @property
    def has_failed(self) -> bool:
        return self.ended is not None and self.ended.code != 0

    def __str__(self) -> str:
        numbers = sorted(place.partition for place in self.assignment)
        return f"partitions {numbers}, {self.rebalances} rebalances, {len(self.received)} records, {self.ended}"


class Seen(Protocol):
    """A member that a test can look at, in this process or another."""

    @property
    def seen(self) -> Sightings: ...


class Member:
    """A consumer in a thread that polls until it is closed; its events go to `tell`."""

    def __init__(self, client: Client, membership: Membership, tell: Tell) -> None:
        self.membership = membership
        self._client = client
        self._tell = tell
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"member of {membership.group}", daemon=True)
        self._thread.start()

    def pause(self, places: Iterable[Place]) -> None:
        """Pause these partitions. Returns when they are paused."""
        self._do(lambda consumer: consumer.pause(places))

    def resume(self, places: Iterable[Place]) -> None:
        self._do(lambda consumer: consumer.resume(places))

    def commit(self) -> None:
        """Commit synchronously. Raises `NotCommitted`, RequestFailed."""
        self._do(self._commit)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def begin_closing(self) -> None:
        """Let the member close after its current poll."""
        self._is_closing.set()

    def close(self) -> None:
        """Close the member. Returns when its thread has ended."""
        self.begin_closing()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), f"a {self._client.name} consumer is not closed after {TIMEOUT_S} s"

    def _do(self, order: Callable[[GroupConsumer], None]) -> None:
        """Carry out an order between two polls, since a consumer may be used by its own thread only."""
        done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

        def obey() -> None:
            try:
                order(self._consumer)
            except BaseException as error:  # noqa: BLE001 - it is raised again by the one who has given the order
                done.put(error)
            else:
                done.put(None)

        self._orders.put(obey)
        if error := done.get(timeout=TIMEOUT_S):
            raise error

    def _run(self) -> None:
        try:
            self._consumer = self._client.group_consumer(self.membership, self._tell)
            try:
                while not self._is_closing.is_set():
                    self._poll()
            finally:
                self._consumer.close()
        except RequestFailed as error:
            self._tell(Ended(error.code, str(error)))
        except BaseException as error:
            self._tell(Ended(-1, repr(error)))
            raise
        else:
            self._tell(Ended(0, "closed"))

    def _poll(self) -> None:
        while not self._orders.empty():
            self._orders.get()()
        if records := self._consumer.poll():
            self._tell(Polled(tuple(records)))
            if self.membership.commits == "after each poll":
                try:
                    self._commit(self._consumer)
                except NotCommitted as error:
                    self._tell(CommitRefused(str(error)))

    def _commit(self, consumer: GroupConsumer) -> None:
        if offsets := consumer.commit():
            self._tell(CommitAnswered(offsets))


class SeenMember(Member):
    """A member in the test's own process, with its events."""

    def __init__(self, client: Client, membership: Membership) -> None:
        self.seen = Sightings()
        super().__init__(client, membership, self.seen.note)

    def __enter__(self) -> SeenMember:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()


def places(topic: str, partitions: int) -> frozenset[Place]:
    """All partitions of a topic."""
    return frozenset(Place(topic, number) for number in range(partitions))


def wait_for(
    what: str,
    condition: Callable[[], bool],
    members: Sequence[Seen],
    *,
    excused: Callable[[Seen], bool] = lambda member: False,
) -> None:
    """Wait until the condition holds. Fails at once if a member that is not excused ends by an error, and names the
    members' partitions."""

    def look() -> bool:
        for member in members:
            assert not member.seen.has_failed or excused(member), f"{what} can not come to pass: {member.seen.ended}"
        return condition()

    try:
        until(look, what)
    except AssertionError as error:
        for number, member in enumerate(members):
            error.add_note(f"member {number}: {member.seen}")
        raise


def wait_until_shared(client: Client, group: str, partitions: frozenset[Place], members: Sequence[Seen]) -> None:
    """Wait until the group is settled, and each member has its fair share of the partitions."""

    def is_shared() -> bool:
        sizes = [len(member.seen.assignment) for member in members]
        return max(sizes) - min(sizes) <= 1 and is_settled(client, group, partitions, members)

    wait_for(f"sharing {len(partitions)} partitions among {len(members)} members", is_shared, members)


def is_settled(client: Client, group: str, partitions: frozenset[Place], members: Sequence[Seen]) -> bool:
    """Whether each of the partitions has one member, and the broker reports the same assignment.

    Then no member is in the middle of a join. A member that is closed during a join cannot leave before the join is
    over, and a group waits a whole session timeout for a leader that was closed.
    """

    def parts() -> list[frozenset[Place]]:
        return [member.seen.assignment for member in members]

    def are_whole(parts: list[frozenset[Place]]) -> bool:
        return frozenset().union(*parts) == partitions and sum(map(len, parts)) == len(partitions)

    if not are_whole(parts()):
        return False
    seen = client.describe_group(group)
    # Looked at once more: a rebalance may have begun before the broker was asked, and be over for it alone.
    now = parts()
    return are_whole(now) and seen.state == "Stable" and Counter(seen.assignments) == Counter(now)
