"""Jobs: the calls that let the broker do now what it does every few minutes or hours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.control.calls import CHANGES, Answer, Call, Nothing
from broker.control.sealing import seal

if TYPE_CHECKING:
    from broker.control.broker_host import BrokerHost
    from broker.server.startup import ServerComponents


class Jobs:
    """The periodic work of the broker of now."""

    def __init__(self, host: BrokerHost) -> None:
        self._host = host

    def calls(self) -> list[Call]:
        """A call for each job."""
        return [
            self._call(
                "retention", "Delete the segments that retention.ms or retention.bytes is over for.", _retention
            ),
            Call(
                CHANGES, "/jobs/compaction", "Compact the topics with cleanup.policy=compact.", Nothing, self._compact
            ),
            self._call("offset-expiry", "Delete committed offsets that nobody has needed for too long.", _offsets),
            self._call("transaction-timeouts", "Abort the transactions that are open for too long.", _transactions),
            self._call("transactional-id-expiry", "Forget the transactional ids that were idle for too long.", _ids),
            self._call("producer-id-expiry", "Forget the producers that were silent for too long.", _producers),
        ]

    async def _compact(self, _: Nothing) -> Answer:
        async with self._host.while_it_stays() as server:
            await server.services.settle()
            compacted = [one for one in server.components.replicas.partitions() if one.log.config.is_compacted]
            for partition in compacted:
                # The segment that is written to is never cleaned, nor what is not on the disk.
                seal(partition, server.services.clock.now_ms())
            await server.components.log_cleaner.clean_now(one.log for one in compacted)
            await server.services.settle()
        return {}

    def _call(self, name: str, summary: str, begin: Callable[[ServerComponents, Callable[[], None]], None]) -> Call:
        async def run(_: Nothing) -> Answer:
            async with self._host.while_it_stays() as server:
                is_over = asyncio.Event()
                begin(server.components, is_over.set)
                await is_over.wait()
                await server.services.settle()
            return {}

        return Call(CHANGES, f"/jobs/{name}", summary, Nothing, run)


def _retention(components: ServerComponents, finished: Callable[[], None]) -> None:
    components.background_tasks.apply_retention()
    finished()


def _producers(components: ServerComponents, finished: Callable[[], None]) -> None:
    components.background_tasks.forget_silent_producers()
    finished()


def _offsets(components: ServerComponents, finished: Callable[[], None]) -> None:
    components.group_coordinator.groups.sweep(lambda shard: shard.expire_offsets(), finished)


def _transactions(components: ServerComponents, finished: Callable[[], None]) -> None:
    components.transaction_coordinator.transactions.sweep(lambda shard: shard.abort_timed_out(), finished)


def _ids(components: ServerComponents, finished: Callable[[], None]) -> None:
    components.transaction_coordinator.transactions.sweep(lambda shard: shard.forget_expired(), finished)
