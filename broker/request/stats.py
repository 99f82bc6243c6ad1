"""What requests took and how they ended, counted where they pass.

Time is asked once a turn, never for one request:

    received_us         its connection was read
    turn.began_us       a handler took it: until here it was in the queue
    turn.ended_us       the handler's turn ended: until here it was worked on, with what else was in the turn
    filled_us           its answer was there: until here it waited; where that was in the turn, it did not
    sending_us          its processor began to send: until here its answer was in the queue
    sent_us             the last byte was handed to the system

Requests of one kind that were handled in one turn and sent in one turn are a run: they are counted together, as the
oldest of them. Where there are thousands of runs a second, not all are timed.
"""

from collections import defaultdict
from typing import Final, Protocol

from broker.runtime.histogram import RecentHistogram
from protocol.errors import ErrorCode

ALL_TIMED: Final = 1000
"""Runs of a kind that are timed in a period, each of them."""
ONE_TIMED_IN: Final = 8
"""Of the runs behind those, one in so many is timed, for itself and the others (bench: counters)."""

_NONE: Final = int(ErrorCode.NONE)


class HandlerTurn:
    """One turn of a handler: what its requests have in common."""

    __slots__ = ("began_us", "ended_us")

    def __init__(self, began_us: int) -> None:
        self.began_us = began_us
        self.ended_us = 0
        """0 while it goes on."""


class TimedRequest(Protocol):
    """A `broker.request.response.ResponseSlot`, as far as it is timed."""

    @property
    def size(self) -> int: ...
    @property
    def received_us(self) -> int: ...
    @property
    def filled_us(self) -> int: ...
    @property
    def turn(self) -> HandlerTurn | None: ...


class ApiStats:
    """What requests of one name took, in microseconds, and their sizes in bytes."""

    __slots__ = ("local", "queue", "remote", "response_queue", "send", "sizes", "throttle", "total")

    def __init__(self) -> None:
        self.queue = RecentHistogram()
        self.local = RecentHistogram()
        self.remote = RecentHistogram()
        self.response_queue = RecentHistogram()
        self.send = RecentHistogram()
        self.total = RecentHistogram()
        self.sizes = RecentHistogram()
        self.throttle = RecentHistogram()
        """For how many milliseconds clients were throttled; requests that throttle no client are not in here."""

    def rotate(self) -> None:
        """A period is over."""
        for histogram in (
            self.queue,
            self.local,
            self.remote,
            self.response_queue,
            self.send,
            self.total,
            self.sizes,
            self.throttle,
        ):
            histogram.rotate()


class RequestKind:
    """An API in one version: where its requests are counted."""

    __slots__ = ("_stats", "answered", "api", "errors", "is_error_free", "name", "runs", "version")

    def __init__(
        self, stats: "RequestStats", name: str, version: int, errors: defaultdict[int, int], *, is_error_free: bool
    ) -> None:
        self._stats = stats
        self.name = name
        """The API's, or what Kafka calls a part of its requests (FetchFollower)."""
        self.version = version
        self.is_error_free = is_error_free
        """The answers have one error code, NONE, which is not in ``errors``: ``answered`` counts it."""
        self.api = stats.apis[name]
        self.errors = errors
        """How often each code was answered by the API, whatever its parts are called."""
        self.answered = 0
        """Requests whose answers are sent, or were dropped because the connection was closed."""
        self.runs = 0
        """Answers that were sent together count once; in this period."""

    def named(self, name: str) -> "RequestKind":
        """The same under another name."""
        return self._stats.kind(name, self.version, self.errors)

    def without_errors(self) -> "RequestKind":
        """The same for requests whose answers have one error code, NONE: they are counted, not looked into."""
        return self._stats.kind(self.name, self.version, self.errors, is_error_free=True)

    def count_success(self, codes: int) -> None:
        """Count an answer whose ``codes`` error codes are all NONE (`RequestContext.count_errors` counts any other)."""
        self.errors[_NONE] += codes

    def time(self, times: int, request: TimedRequest, sending_us: int, sent_us: int) -> None:
        """``times`` requests took as long as ``request``, and were of its size."""
        turn = request.turn
        assert turn is not None, "an answer is given in a turn, or behind it"
        api = self.api
        received_us, filled_us = request.received_us, request.filled_us
        began_us, ended_us = turn.began_us, turn.ended_us
        api.queue.record(began_us - received_us, times)
        api.local.record(ended_us - began_us, times)
        api.remote.record(filled_us - ended_us if filled_us else 0, times)
        api.response_queue.record(sending_us - (filled_us or ended_us), times)
        api.send.record(sent_us - sending_us, times)
        api.total.record(sent_us - received_us, times)
        api.sizes.record(request.size, times)


class RequestStats:
    """The statistics of all APIs, each from its first request on."""

    __slots__ = ("_kinds", "apis", "errors", "not_served")

    def __init__(self) -> None:
        self.apis: dict[str, ApiStats] = {}
        """By name."""
        self.errors: dict[str, defaultdict[int, int]] = {}
        """How often each code was answered, by the API's name."""
        self.not_served: defaultdict[str, int] = defaultdict(int)
        """Requests for APIs that do not exist here, or not in that version, by the API's name; each closed its
        connection."""
        self._kinds: dict[tuple[str, int, bool], RequestKind] = {}

    def kind(
        self, name: str, version: int, errors: defaultdict[int, int], *, is_error_free: bool = False
    ) -> RequestKind:
        """Where requests of this name and version are counted."""
        known = self._kinds.get((name, version, is_error_free))
        if known is None:
            self.apis.setdefault(name, ApiStats())
            known = self._kinds[name, version, is_error_free] = RequestKind(
                self, name, version, errors, is_error_free=is_error_free
            )
        return known

    def kind_of(self, api: str, version: int, *, counted_as: str | None = None) -> RequestKind:
        """The same for an API's requests, under the API's own name or another."""
        return self.kind(counted_as or api, version, self._errors_of(api))

    def count_error(self, api: str, code: ErrorCode) -> None:
        """An answer of no version that is served carries ``code``."""
        self._errors_of(api)[int(code)] += 1

    def _errors_of(self, api: str) -> defaultdict[int, int]:
        return self.errors.setdefault(api, defaultdict(int))

    def answered(self) -> dict[tuple[str, int], int]:
        """How many have been answered, by name and version."""
        totals: dict[tuple[str, int], int] = defaultdict(int)
        for (name, version, _), kind in self._kinds.items():
            totals[name, version] += kind.answered
        return totals

    def answered_codes(self) -> dict[tuple[str, int], int]:
        """How often each code was answered, by the API's name."""
        totals: dict[tuple[str, int], int] = defaultdict(int)
        for api, codes in self.errors.items():
            for code, times in codes.items():
                totals[api, code] += times
        for (name, _, is_error_free), kind in self._kinds.items():
            if is_error_free:
                totals[name, ErrorCode.NONE] += kind.answered
        return totals

    def rotate(self) -> None:
        """A period is over."""
        for api in self.apis.values():
            api.rotate()
        for kind in self._kinds.values():
            kind.runs = 0


class AuthenticationStats:
    """The authentications of the clients of one listener."""

    __slots__ = (
        "failures",
        "failures_again",
        "sessions_expired",
        "successes",
        "successes_again",
        "successes_without_lifetime",
        "us_again",
    )

    def __init__(self) -> None:
        self.successes = 0
        """Clients that have authenticated; authenticating again is counted apart."""
        self.successes_without_lifetime = 0
        """Those of them that do not know of authenticating again (KIP-368)."""
        self.failures = 0
        self.successes_again = 0
        self.failures_again = 0
        self.us_again = 0
        """Time between handshake and last token of clients that have authenticated again, all together."""
        self.sessions_expired = 0
        """Connections closed because their client has not authenticated again in time."""
