"""LocalChannel: this node's own broker asks the controller in the same process what other brokers ask over the wire."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from broker.controller.cluster_requests import ClusterRequests
from protocol.messages.alter_partition import AlterPartitionRequest

Answer = TypeVar("Answer")

_Method = Callable[[ClusterRequests, Any, Callable[[Any], None]], None]

_METHODS: Final[Mapping[type[Any], _Method]] = {AlterPartitionRequest: ClusterRequests.alter_partition}
"""What the own broker asks, by the class of the request."""


class LocalChannel:
    """The `ControllerChannel` of a broker whose controller is in its process: no frame, no socket, the same loop."""

    def __init__(self, requests: ClusterRequests) -> None:
        self._requests = requests

    async def ask(self, request: object, answer: type[Answer]) -> Answer | None:
        """Ask the controller; return its answer once it is durable. Raises StorageError, and nothing has changed."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def then(found: Answer) -> None:
            if not answered.done():  # who asked may be cancelled
                answered.set_result(found)

        _METHODS[type(request)](self._requests, request, then)
        return await answered

    def close(self) -> None:
        """There is nothing to close."""
