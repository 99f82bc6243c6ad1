"""Which APIs are served, in which versions and by whom."""

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

from broker.request.context import ApiVersionRange, RequestContext
from broker.request.stats import RequestKind, RequestStats
from protocol.api_keys import VERSIONS, ApiKey, Versions
from protocol.codec import decoder
from protocol.errors import ErrorCode
from protocol.schema import describe

Request = TypeVar("Request")
Response = TypeVar("Response")

Handler = Callable[[Request, RequestContext], Response | None]
"""Answers at once, or returns None: the answer comes later, through the context."""

Refuse = Callable[[Request, ErrorCode, str], Response | None]
"""What a request is answered that failed as a whole; None where it can only be answered by closing (acks=0)."""


Shortcut = Callable[[memoryview, int, RequestContext], bool]
"""Answers a request straight from its bytes, whose body begins at the position. False: it does not, and nothing has
been done."""


Handlers = Mapping[type[Any], tuple[Handler[Any, Any], Refuse[Any, Any]]]
"""Of several APIs, by the classes of their requests."""


class Route(Generic[Request, Response]):
    """One API in one version: how its requests are read, who handles them and how they are refused."""

    __slots__ = ("decode", "handler", "keeps_frame", "kind", "name", "refuse", "shortcut")

    def __init__(
        self,
        name: str,
        decode: Callable[[memoryview, int], tuple[Request, int]],
        handler: Handler[Request, Response],
        refuse: Refuse[Request, Response],
        keeps_frame: bool,
        shortcut: Shortcut | None,
        kind: RequestKind,
    ) -> None:
        self.name = name
        self.decode = decode
        self.handler = handler
        self.refuse = refuse
        self.keeps_frame = keeps_frame
        """Its requests are looked into until they are answered; those of others only until the handler returns."""
        self.shortcut = shortcut
        """What is asked before the request is decoded."""
        self.kind = kind
        """Where its requests are counted."""


class Service(NamedTuple):
    """How the requests of one API are answered."""

    request_class: type[Any]
    handler: Handler[Any, Any]
    refuse: Refuse[Any, Any]
    keeps_frame: bool = False
    shortcut: Shortcut | None = None
    counted_as: str | None = None


class Registry:
    """Every API that is served: what ApiVersions tells is read off it. A `broker.request.context.ServedApis`."""

    def __init__(self) -> None:
        self._services: dict[ApiKey, Callable[[], Service]] = {}
        self._routes: dict[tuple[int, int], Route[Any, Any]] = {}
        self._advertised: tuple[ApiVersionRange, ...] = ()
        self.stats = RequestStats()
        """What the requests of each API took."""

    def serve(
        self,
        request_class: type[Request],
        handler: Handler[Request, Response],
        *,
        refuse: Refuse[Request, Response],
        advertised: Versions | None = None,
        keeps_frame: bool = False,
        shortcut: Shortcut | None = None,
        counted_as: str | None = None,
    ) -> None:
        """Serve an API in every version that it has.

        ``advertised`` names another range to the clients (Produce: from 0, though 0 to 2 close the connection).
        ``keeps_frame``: the handler's work looks into the frame after it has returned None. ``shortcut`` is asked
        before the request is decoded. ``counted_as``: another name than the API's for what its requests take. Raises
        `ValueError` where the API is served already.
        """
        service = Service(request_class, handler, refuse, keeps_frame, shortcut, counted_as)
        self._announce(ApiKey(describe(request_class).key), lambda: service, advertised)

    def serve_late(self, keys: Collection[ApiKey], make: Callable[[], Handlers]) -> None:
        """Serve APIs whose messages and handlers are loaded with the first request to one of them: a start need not
        import what it does not need."""

        @cache
        def services() -> dict[ApiKey, Service]:
            return {ApiKey(describe(request).key): Service(request, *handlers) for request, handlers in make().items()}

        def service_of(key: ApiKey) -> Callable[[], Service]:
            return lambda: services()[key]

        for key in keys:
            self._announce(key, service_of(key))

    def _announce(self, key: ApiKey, service: Callable[[], Service], advertised: Versions | None = None) -> None:
        if key in self._services:
            raise ValueError(f"API {key} ({key.name}) is served already")
        self._services[key] = service
        first, last = advertised or VERSIONS[key]
        self._advertised = tuple(sorted((*self._advertised, ApiVersionRange(key, first, last))))

    def advertised(self) -> tuple[ApiVersionRange, ...]:
        """Every API served, by ascending key."""
        return self._advertised

    def route(self, key: int, version: int) -> Route[Any, Any] | None:
        """How a request is served; None if it is not. Its codec is made at the first request."""
        known = self._routes.get((key, version))
        if known is None and key in self._services:
            api = ApiKey(key)
            first, last = VERSIONS[api]
            if first <= version <= last:
                known = self._routes[key, version] = self._make_route(self._services[api](), version)
        return known

    def _make_route(self, service: Service, version: int) -> Route[Any, Any]:
        request_class, handler, refuse, keeps_frame, shortcut, counted_as = service
        api = describe(request_class).name.removesuffix("Request")
        kind = self.stats.kind_of(api, version, counted_as=counted_as)
        return Route(f"{api} v{version}", decoder(request_class, version), handler, refuse, keeps_frame, shortcut, kind)
