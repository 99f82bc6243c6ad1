"""ProducerIdBlocks: takes blocks of producer ids from the controller (KIP-730)."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from broker.membership.controller_channel import ControllerChannel
from broker.runtime.backoff import Backoff
from broker.runtime.clock import Clock
from broker.runtime.waiting import pause_until
from protocol.errors import ErrorCode, described
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from storage.errors import StorageError

log = logging.getLogger(__name__)


class ProducerIdBlocks:
    """The blocks that one broker asks for. `run` is a task of the broker."""

    def __init__(
        self,
        channel: ControllerChannel,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        clock: Clock,
        backoff: Backoff,
    ) -> None:
        self._channel = channel
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._backoff = backoff
        self._wanted: deque[tuple[Callable[[range], None], Callable[[StorageError], None]]] = deque()
        self._is_wanted = asyncio.Event()

    def allocate(self, then: Callable[[range], None], failed: Callable[[StorageError], None]) -> None:
        """Take the next block; ``then`` gets it once the controller has given it. It is asked for until then.

        ``failed`` is called instead where the controller in this process cannot write its metadata log.
        """
        self._wanted.append((then, failed))
        self._is_wanted.set()

    async def run(self) -> None:
        """Ask until the task is cancelled."""
        try:
            while True:
                await self._is_wanted.wait()
                while self._wanted:
                    if await self._take():
                        self._backoff.reset()
                    else:
                        await pause_until(self._clock, self._clock.monotonic_ms() + self._backoff.next_ms())
                self._is_wanted.clear()
        finally:
            self._channel.close()

    async def _take(self) -> bool:
        """Ask for one block. False if it is to be asked for again."""
        request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
        try:
            answer = await self._channel.ask(request, AllocateProducerIdsResponse)
        except StorageError as error:
            self._wanted.popleft()[1](error)
            return True
        if answer is None:
            return False
        if answer.error_code != ErrorCode.NONE or answer.producer_id_len < 1:
            log.warning("the controller gives no producer ids, asking again: %s", described(answer.error_code))
            return False
        first = answer.producer_id_start
        self._wanted.popleft()[0](range(first, first + answer.producer_id_len))
        return True
