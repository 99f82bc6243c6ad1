"""MovableTime: the calls that read and move the broker's clock (`ottla.clock=manual`).

Everything that becomes due happens at its own time, in the order of its deadline, and has come to its end before the
clock goes on: a record that a timer writes is written, a segment that retention removes is gone.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from broker.control.arguments import argument
from broker.control.calls import CHANGES, READS, Answer, Call, CannotDo, Nothing

if TYPE_CHECKING:
    from broker.control.broker_host import BrokerHost

MOST_RUNS: Final = 100
"""How often a periodic job runs at most while the clock is moved once: moved by a day, a job of every ten seconds runs
every 14 minutes. Each run of each job costs about 0.1 ms of CPU, and there are a dozen jobs."""

MOST_MS: Final = 1_000 * 365 * 86_400_000
"""The farthest that the clock is moved at once: a thousand years, behind which a time stamp of Kafka still has room."""


@dataclasses.dataclass(frozen=True)
class Step:
    """How far the clock is moved."""

    ms: int = argument("how far, in milliseconds", most=MOST_MS)


class MovableTime:
    """The clock of the broker of now."""

    def __init__(self, host: BrokerHost) -> None:
        self._host = host

    def calls(self) -> list[Call]:
        """The calls about time."""
        return [
            Call(READS, "/clock", "What time it is for the broker.", Nothing, self._tell),
            Call(
                CHANGES,
                "/clock/advance",
                "Move the broker's clock forward; what is due has happened.",
                Step,
                self._advance,
            ),
        ]

    async def _tell(self, _: Nothing) -> Answer:
        clock = self._host.clock
        return {"now_ms": clock.now_ms(), "is_manual": self._host.manual_clock is not None}

    async def _advance(self, step: Step) -> Answer:
        await self.advance(step.ms)
        return {"now_ms": self._host.clock.now_ms()}

    async def advance(self, by_ms: int) -> None:
        """Move the clock. Raises `CannotDo` where it goes by itself."""
        async with self._host.while_it_stays() as server:
            clock, services = self._host.manual_clock, server.services
            if clock is None:
                raise CannotDo("the broker's clock goes by itself: start it with the setting ottla.clock=manual")
            until_ms = clock.monotonic_ms() + by_ms
            await services.settle()
            services.scheduler.least_interval_ms = by_ms // MOST_RUNS
            try:
                while clock.ring_next(until_ms):
                    await services.settle()
                    if self._host.is_ending:
                        raise CannotDo("the broker ends")
            finally:
                services.scheduler.least_interval_ms = 0
            clock.move_to(until_ms)
