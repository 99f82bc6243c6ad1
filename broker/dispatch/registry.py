"""Which APIs are served, in which versions and by whom."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Generic, TypeVar

from broker.request.context import ApiVersionRange, RequestContext
from broker.request.stats import RequestKind, RequestStats
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


class Registry:
    """Every API that is served: what ApiVersions tells is read off it. A `broker.request.context.ServedApis`."""

    def __init__(self) -> None:
        self._apis: dict[int, tuple[tuple[int, int], Callable[[int], Route[Any, Any]]]] = {}
        self._routes: dict[tuple[int, int], Route[Any, Any]] = {}
        self._advertised: tuple[ApiVersionRange, ...] = ()
        self.stats = RequestStats()
        """What the requests of each API took."""

    def serve(
        self,
        request_class: type[Request],
        response_class: type[Response],
        handler: Handler[Request, Response],
        *,
        refuse: Refuse[Request, Response],
        advertised: tuple[int, int] | None = None,
        keeps_frame: bool = False,
        shortcut: Shortcut | None = None,
        counted_as: str | None = None,
    ) -> None:
        """Serve an API in every version that its messages declare.

        ``advertised`` names another range to the clients (Produce: from 0, though 0 to 2 close the connection).
        ``keeps_frame``: the handler's work looks into the frame after it has returned None. ``shortcut`` is asked
        before the request is decoded. ``counted_as``: another name than the API's for what its requests take. Raises
        `ValueError` where request and response do not belong together, or the API is served already.
        """
        self._announce(
            request_class, response_class, lambda: (handler, refuse), advertised, keeps_frame, shortcut, counted_as
        )

    def serve_late(self, responses: Mapping[type[Any], type[Any]], make: Callable[[], Handlers]) -> None:
        """Serve APIs, given by their requests and responses, whose handlers are made with the first request to one of
        them: a start need not import what it does not need."""
        handlers = cache(make)

        def handler_of(request_class: type[Any]) -> Callable[[], tuple[Handler[Any, Any], Refuse[Any, Any]]]:
            return lambda: handlers()[request_class]

        for request_class, response_class in responses.items():
            self._announce(request_class, response_class, handler_of(request_class))

    def _announce(
        self,
        request_class: type[Request],
        response_class: type[Response],
        handlers: Callable[[], tuple[Handler[Request, Response], Refuse[Request, Response]]],
        advertised: tuple[int, int] | None = None,
        keeps_frame: bool = False,
        shortcut: Shortcut | None = None,
        counted_as: str | None = None,
    ) -> None:
        info, answer = describe(request_class), describe(response_class)
        if (info.key, info.versions) != (answer.key, answer.versions):
            raise ValueError(
                f"{info.name} is API {info.key} in versions {info.versions}, "
                f"{answer.name} is API {answer.key} in versions {answer.versions}"
            )
        if info.key in self._apis:
            raise ValueError(f"API {info.key} ({info.name}) is served already")

        def route(version: int) -> Route[Request, Response]:
            api = info.name.removesuffix("Request")
            handler, refuse = handlers()
            kind = self.stats.kind_of(api, version, counted_as=counted_as)
            return Route(
                f"{api} v{version}", decoder(request_class, version), handler, refuse, keeps_frame, shortcut, kind
            )

        self._apis[info.key] = info.versions, route
        first, last = advertised or info.versions
        self._advertised = tuple(sorted((*self._advertised, ApiVersionRange(info.key, first, last))))

    def advertised(self) -> tuple[ApiVersionRange, ...]:
        """Every API served, by ascending key."""
        return self._advertised

    def route(self, key: int, version: int) -> Route[Any, Any] | None:
        """How a request is served; None if it is not. Its codec is made at the first request."""
        known = self._routes.get((key, version))
        if known is None and key in self._apis:
            (first, last), make = self._apis[key]
            if first <= version <= last:
                known = self._routes[key, version] = make(version)
        return known
