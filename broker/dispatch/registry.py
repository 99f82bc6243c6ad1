"""Which APIs are served, in which versions and by whom."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from broker.request.context import ApiVersionRange, RequestContext
from broker.request.stats import RequestKind, RequestStats
from protocol.api_keys import ApiKey
from protocol.codec import decoder
from protocol.schema import describe, request_class

Request = TypeVar("Request")
Response = TypeVar("Response")

Handler = Callable[[Request, RequestContext], Response | None]
"""Answers at once, or returns None: the answer comes later, through the context."""

Shortcut = Callable[[memoryview, int, RequestContext], bool]
"""Answers a request straight from its bytes, whose body begins at the position. False: it does not, and nothing has
been done."""


class Route(Generic[Request, Response]):
    """One API in one version: how its requests are read, and who handles them."""

    __slots__ = ("decode", "handler", "keeps_frame", "kind", "name", "shortcut")

    def __init__(
        self,
        name: str,
        decode: Callable[[memoryview, int], tuple[Request, int]],
        handler: Handler[Request, Response],
        keeps_frame: bool,
        shortcut: Shortcut | None,
        kind: RequestKind,
    ) -> None:
        self.name = name
        self.decode = decode
        self.handler = handler
        self.keeps_frame = keeps_frame
        """Its requests are looked into until they are answered; those of others only until the handler returns."""
        self.shortcut = shortcut
        """What is asked before the request is decoded."""
        self.kind = kind
        """Where its requests are counted."""


class Service(NamedTuple):
    """How the requests of one API are answered."""

    load: Callable[[], Handler[Any, Any]]
    keeps_frame: bool
    load_shortcut: Callable[[], Shortcut] | None
    counted_as: str | None


class Registry:
    """Every API that is served: what ApiVersions tells is read off it. A `broker.request.context.ServedApis`."""

    def __init__(self, stats: RequestStats | None = None) -> None:
        """``stats``: another registry's, to count the requests of both together."""
        self._services: dict[ApiKey, Service] = {}
        self._routes: dict[tuple[int, int], Route[Any, Any]] = {}
        self._advertised: list[ApiVersionRange] = []
        self.stats = stats or RequestStats()
        """What the requests of each API took."""

    def serve(
        self,
        key: ApiKey,
        load: Callable[[], Handler[Any, Any]],
        *,
        advertised_since: int | None = None,
        keeps_frame: bool = False,
        load_shortcut: Callable[[], Shortcut] | None = None,
        counted_as: str | None = None,
    ) -> None:
        """Serve an API in every version that it has.

        Args:
            key: the API.
            load: gives its handler with the first request, and imports the module of its messages by then.
            advertised_since: another first version is named to the clients than the first that is served.
            keeps_frame: the handler's work looks into the frame after it has returned None.
            load_shortcut: gives what is asked before the request is decoded.
            counted_as: another name than the API's for what its requests take.

        Raises:
            ValueError: the API is served already.
        """
        if key in self._services:
            raise ValueError(f"API {key} ({key.name}) is served already")
        self._services[key] = Service(load, keeps_frame, load_shortcut, counted_as)
        first, last = key.versions
        self._advertised.append(ApiVersionRange(key, first if advertised_since is None else advertised_since, last))
        self._advertised.sort()

    def advertised(self) -> Sequence[ApiVersionRange]:
        """Every API served, by ascending key."""
        return self._advertised

    def route(self, key: int, version: int) -> Route[Any, Any] | None:
        """How a request is served; None if it is not. Its codec is made at the first request."""
        known = self._routes.get((key, version))
        if known is None and key in self._services:
            api = ApiKey(key)
            first, last = api.versions
            if first <= version <= last:
                known = self._routes[key, version] = self._make_route(api, version)
        return known

    def _make_route(self, key: ApiKey, version: int) -> Route[Any, Any]:
        load, keeps_frame, load_shortcut, counted_as = self._services[key]
        handler = load()
        cls = request_class(key)
        api = describe(cls).name.removesuffix("Request")
        kind = self.stats.kind_of(api, version, counted_as=counted_as)
        shortcut = None if load_shortcut is None else load_shortcut()
        return Route(f"{api} v{version}", decoder(cls, version), handler, keeps_frame, shortcut, kind)
