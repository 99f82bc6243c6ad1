"""Clients: the calls that look at connections and close them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING

from broker.control.arguments import argument
from broker.control.calls import CHANGES, READS, Answer, Call, Nothing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.control.broker_host import BrokerHost
    from broker.network.connection import Connection


@dataclasses.dataclass(frozen=True)
class WhichClients:
    """Connections of clients."""

    client_id: str | None = argument("the client.id; without it every connection", None)


class Clients:
    """The connections of the broker of now."""

    def __init__(self, host: BrokerHost) -> None:
        self._host = host

    def calls(self) -> list[Call]:
        """The calls about connections."""
        return [
            Call(READS, "/clients", "How many connections each client.id has.", Nothing, self._list),
            Call(
                CHANGES,
                "/clients/close",
                "Close connections, with what is under way on them.",
                WhichClients,
                self._close,
            ),
        ]

    async def _list(self, _: Nothing) -> Answer:
        return {"connections": dict(Counter(one.session.client_id or "" for one in self._connections()))}

    async def _close(self, which: WhichClients) -> Answer:
        closed = 0
        for connection in list(self._connections()):
            if which.client_id in (None, connection.session.client_id or ""):
                connection.close()
                closed += 1
        return {"closed": closed}

    def _connections(self) -> Iterator[Connection]:
        for processor in self._host.server.socket_server.processors:
            yield from processor
