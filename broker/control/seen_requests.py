"""SeenRequests: what clients have asked, so that a test can say what its program did."""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.control.arguments import argument
from broker.control.calls import CHANGES, Answer, Call
from broker.control.own_client import CLIENT_ID
from broker.control.places import coordinated_in, places_of, topic_name
from protocol.api_keys import ApiKey
from protocol.headers import decode_request_header
from protocol.primitives import Malformed

if TYPE_CHECKING:
    from broker.control.broker_host import BrokerHost
    from broker.control.happenings import Handle
    from broker.request.response import ResponseSlot

MOST_KEPT: Final = 10_000
"""How many requests are kept; the oldest are forgotten first."""

API_NAMES: Final = tuple(key.title for key in ApiKey)
"""The names of all APIs."""

MOST_TOLD: Final = 100
"""How many requests an answer names."""


class SeenRequest(NamedTuple):
    """One request that a client has sent."""

    api: str
    version: int
    client_id: str
    principal: str
    topics: tuple[str, ...]
    """The topics that it names."""
    group: str
    """The group or transactional id that it names; empty where it names none."""
    at_ms: int
    """When, by the broker's wall clock, in milliseconds since 1970."""


@dataclasses.dataclass(frozen=True)
class WhichRequests:
    """Requests that a test asks for: all that is given has to fit."""

    api: str | None = argument("an API's name, such as Produce", None, choices=API_NAMES)
    client_id: str | None = argument("the client.id of the client", None)
    topic: str | None = argument("a topic that the request names", None)
    group: str | None = argument("the group or transactional id that the request names", None)

    def fits(self, seen: SeenRequest) -> bool:
        """Whether the request is among those that are asked for."""
        return (
            self.api in (None, seen.api)
            and self.client_id in (None, seen.client_id)
            and (self.topic is None or self.topic in seen.topics)
            and self.group in (None, seen.group)
        )


class SeenRequests:
    """The last requests of the broker of now."""

    def __init__(self, host: BrokerHost) -> None:
        self._host = host
        self._kept: deque[SeenRequest] = deque(maxlen=MOST_KEPT)

    def forget(self) -> None:
        """Another broker begins."""
        self._kept.clear()

    def handling(self, handle: Handle) -> Handle:
        """``handle``, and every request is seen before."""

        def see_and_handle(slot: ResponseSlot) -> None:
            if not slot.stream.session.is_on_controller_listener:
                self._see(slot)
            handle(slot)

        return see_and_handle

    def calls(self) -> list[Call]:
        """The calls about requests."""
        return [
            Call(
                CHANGES,
                "/requests",
                f"How many requests fit, of the last {MOST_KEPT} that clients have sent, and the last {MOST_TOLD}.",
                WhichRequests,
                self._find,
            )
        ]

    async def _find(self, which: WhichRequests) -> Answer:
        found = [seen for seen in self._kept if which.fits(seen)]
        return {"count": len(found), "requests": [seen._asdict() for seen in found[-MOST_TOLD:]]}

    def _see(self, slot: ResponseSlot) -> None:
        server = self._host.requested
        session = slot.stream.session
        try:
            header, position = decode_request_header(slot.frame)
            route = server.registry.route(header.api_key, header.api_version)
            request = None if route is None else route.decode(slot.frame, position)[0]
        except Malformed:
            return  # which the broker refuses
        if header.client_id == CLIENT_ID:
            return
        api = ApiKey(header.api_key).title if route is not None else str(header.api_key)
        coordinated = coordinated_in(request)
        self._kept.append(
            SeenRequest(
                api=api,
                version=header.api_version,
                client_id=header.client_id or "",
                principal=session.principal,
                topics=tuple(places_of(request, topic_name(server.metadata.image.topics))),
                group=coordinated[0].key if coordinated else "",
                at_ms=self._host.clock.now_ms(),
            )
        )
