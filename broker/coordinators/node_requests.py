"""NodeRequests: what waits for another broker goes to it in one request; each broker has one request in flight."""

import asyncio
import logging
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from broker.peers.errors import PeerError, PeerUnreachable
from broker.peers.nodes import Nodes
from protocol.errors import ErrorCode

log = logging.getLogger(__name__)

Content = TypeVar("Content")
Answer = TypeVar("Answer")

Failed = Callable[[BaseException], None]
"""Called with what a task has raised, which is a bug."""


class NodeRequest(NamedTuple, Generic[Content]):
    """A request to a broker, and what was taken into it."""

    message: object
    content: Content


class NodeRequests(Generic[Content, Answer]):
    """Sends requests to brokers while something waits for them.

    A broker has a task while something waits for it or is asked. The task begins in the next turn of the loop, so that
    everything of one turn goes in one request.
    """

    def __init__(
        self,
        nodes: Nodes,
        answer: type[Answer],
        *,
        take: Callable[[int], NodeRequest[Content] | None],
        settle: Callable[[Content, Answer | PeerError], None],
        on_failure: Failed,
    ) -> None:
        """``take`` gives the next request for a broker, None if nothing waits for it. ``settle`` is called once for
        each request that was taken, with the answer, or with the reason why there is none."""
        self._nodes = nodes
        self._answer = answer
        self._take = take
        self._settle = settle
        self._on_failure = on_failure
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self.is_closed = False
        """Whether nothing is asked any more."""

    @property
    def in_flight(self) -> int:
        """How many brokers are being asked."""
        return len(self._tasks)

    def wake(self, node_id: int) -> None:
        """Something waits for this broker."""
        if node_id not in self._tasks and not self.is_closed:
            task = asyncio.get_running_loop().create_task(self._run(node_id), name=f"requests to node {node_id}")
            self._tasks[node_id] = task
            task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Ask nothing any more: requests in flight are settled with `PeerUnreachable`, and nothing more is taken."""
        self.is_closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._nodes.close()

    async def _run(self, node_id: int) -> None:
        try:
            while (request := self._take(node_id)) is not None:
                self._settle(request.content, await self._ask(node_id, request))
        finally:
            del self._tasks[node_id]

    async def _ask(self, node_id: int, request: NodeRequest[Content]) -> Answer | PeerError:
        peer = self._nodes.peer(node_id)
        if peer is None:
            return PeerUnreachable(f"node {node_id} has no known address")
        try:
            return await peer.ask(request.message, self._answer)
        except PeerError as problem:
            return problem
        except asyncio.CancelledError:
            self._settle(request.content, PeerUnreachable("this broker stops"))
            raise

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("the task of %s has ended", task.get_name(), exc_info=error)
            self._on_failure(error)


def code_of(number: int) -> ErrorCode:
    """The error code of another broker's answer; UNKNOWN_SERVER_ERROR, as in Kafka, for a number that has no name."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
