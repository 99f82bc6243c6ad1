"""AlterPartitionSender: asks the controller for changes of ISRs, all that wait in one request at a time (KIP-497)."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from broker.membership.controller_channel import ControllerChannel
from broker.replication.isr_alteration import IsrRefused, Outcome, Then, WantedIsr, alteration_request, outcome_of
from broker.runtime.clock import Clock
from broker.runtime.waiting import pause_until
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import AlterPartitionResponse
from storage.errors import StorageError

log = logging.getLogger(__name__)

RETRY_MS: Final = 50
"""The pause before what failed is sent again, as in Kafka."""


class AlterPartitionSender:
    """The `IsrAlterer` of a broker: sends the wishes of all its leaders. `run` is a task of the broker.

    A broker that comes back joins thousands of ISRs: wishes of one turn of the loop are one change of the metadata.
    """

    def __init__(
        self, channel: ControllerChannel, *, node_id: int, broker_epoch: Callable[[], int], clock: Clock
    ) -> None:
        """``channel`` is for these requests alone; ``broker_epoch`` is that of this broker's registration."""
        self._channel = channel
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._waiting: dict[tuple[bytes, int], tuple[WantedIsr, Then]] = {}
        self._is_wanted = asyncio.Event()

    def submit(self, wanted: WantedIsr, then: Then) -> bool:
        """Ask for a change; ``then`` is called on the loop with the outcome. False, and nothing is done, while another
        change of the partition has no outcome yet."""
        place = wanted.topic_id, wanted.partition
        if place in self._waiting:
            return False
        self._waiting[place] = wanted, then
        self._is_wanted.set()
        return True

    def withdraw(self, topic_id: bytes, partition: int) -> None:
        """Forget a partition that this broker leads no more: its change has no outcome."""
        self._waiting.pop((topic_id, partition), None)

    async def run(self) -> None:
        """Send until the task is cancelled."""
        try:
            while True:
                await self._is_wanted.wait()
                if not self._waiting:
                    self._is_wanted.clear()
                elif not await self._send(list(self._waiting.values())):
                    await pause_until(self._clock, self._clock.monotonic_ms() + RETRY_MS)
        finally:
            self._channel.close()

    async def _send(self, sent: list[tuple[WantedIsr, Then]]) -> bool:
        """Send these wishes. False if some of them are to be sent again."""
        request = alteration_request([wanted for wanted, _ in sent], self._node_id, self._broker_epoch())
        try:
            answer = await self._channel.ask(request, AlterPartitionResponse)
        except StorageError as error:
            log.warning("the replicas in sync cannot be changed now: %s", error)
            for entry in sent:
                self._settle(entry, IsrRefused())  # the leaders ask again
            return True
        if answer is None or answer.error_code != ErrorCode.NONE:
            # With STALE_BROKER_EPOCH the broker registers anew, and has another epoch then.
            return False
        answered = {
            (bytes(topic.topic_id), partition.partition_index): partition
            for topic in answer.topics
            for partition in topic.partitions
        }
        is_all_settled = True
        for entry in sent:
            found = answered.get((entry[0].topic_id, entry[0].partition))
            outcome = None if found is None else outcome_of(found)
            if outcome is None:
                is_all_settled = False
            else:
                self._settle(entry, outcome)
        return is_all_settled

    def _settle(self, entry: tuple[WantedIsr, Then], outcome: Outcome) -> None:
        wanted, then = entry
        place = wanted.topic_id, wanted.partition
        if self._waiting.get(place) is entry:
            del self._waiting[place]
            then(outcome)
