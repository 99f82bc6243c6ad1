"""The brokers of a run: each on its machine, started, killed, cut from the power, and started again on its disk."""

import asyncio
from collections.abc import Mapping
from functools import cache
from typing import Final

from broker.server.broker_server import BrokerServer
from config.broker_settings import BrokerSettings
from config.parse import load_settings
from tests.simulation.chance import SeededIds
from tests.simulation.clock import MS_PER_HOUR, SimulatedClock
from tests.simulation.disk import SimulatedDisk, SimulatedFileSystem
from tests.simulation.network import SimulatedConnector
from tests.simulation.process import SimulatedProcess
from tests.simulation.simulation import Broken, Simulation
from tests.simulation.worker import Pace, simulated_workers

PORT: Final = 9092

MOST_HOURS_WRONG: Final = 6
"""How far a machine's wall clock may be from the right time, fast or slow."""

LOSABLE: Final = "/more"
"""The data directory that may be lost: the other one has the metadata, too."""

LOG_DIRS: Final = ("/data", f"/data,{LOSABLE}")
"""The data directories of a broker, as a setting."""

COMMON: Final = {
    "log.dirs": LOG_DIRS[0],
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "num.io.threads": "2",
    "num.network.threads": "1",
    "log.cleaner.backoff.ms": "700",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.message.timestamp.after.max.ms": "9223372036854775807",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "log.index.size.max.bytes": "4096",
    "auto.create.topics.enable": "false",
    "ottla.prometheus.listener": "",
}


@cache
def settings_of(given: tuple[tuple[str, str], ...]) -> BrokerSettings:
    """Settings are immutable, and parsing them takes longer than many a run."""
    return load_settings(None, list(given)).settings


class SimulatedBroker:
    """A machine with its disk, and the broker process on it, if it runs."""

    def __init__(
        self, simulation: Simulation, name: str, settings: Mapping[str, str], *, segment_bytes: int = 1 << 20
    ) -> None:
        """``segment_bytes`` may be smaller than a user may set them: a run writes little."""
        self.name = name
        self._simulation = simulation
        self._skew = simulation.chance.of(f"clock of {name}")
        self.clock = SimulatedClock(simulation.loop)
        self.set_clock()
        self.pace = Pace()
        self.disk = SimulatedDisk(name, simulation.trace, self.clock.now_ms)
        given = {**COMMON, "listeners": f"PLAINTEXT://{name}:{PORT}", **settings}
        self.settings = settings_of(tuple(given.items())).replace(log_segment_bytes=segment_bytes)
        self.node_id = self.settings.node_id
        self._ids = SeededIds(simulation.chance.of(f"ids of {name}"))
        self._work = simulation.chance.of(f"threads of {name}")
        self._power = simulation.chance.of(f"power of {name}")
        self.server: BrokerServer | None = None
        self._process: SimulatedProcess | None = None
        self._files: SimulatedFileSystem | None = None
        self._stop = asyncio.Event()
        self._gone: asyncio.Future[None] | None = None
        self.failure: BaseException | None = None
        """Why the broker has ended by itself, which it must not do."""
        self.starting: asyncio.Task[None] | None = None
        """The last start that nobody waits for."""

    def set_clock(self) -> None:
        """Somebody sets the machine's wall clock, by hours forward or back."""
        self.clock.skew_ms = self._skew.randint(-MOST_HOURS_WRONG, MOST_HOURS_WRONG) * MS_PER_HOUR
        self._simulation.trace.add(f"{self.name}: its clock is fast by {self.clock.skew_ms} ms")

    @property
    def is_running(self) -> bool:
        """Whether there is a process, ready or still starting."""
        return self._process is not None

    async def start(self) -> None:
        """Start a broker on the disk, and return once it accepts requests or has been killed meanwhile."""
        assert self._process is None, f"{self.name} runs already"
        self._simulation.network.without_power.discard(self.name)
        process = self._process = SimulatedProcess(self.name)
        files = self._files = process.files = SimulatedFileSystem(self.disk)
        self._simulation.trace.add(f"{self.name} starts")
        ready: asyncio.Future[None] = self._simulation.loop.create_future()

        async def live() -> None:
            server = self.server = BrokerServer(
                self.settings,
                clock=self.clock,
                files=files,
                ids=self._ids,
                worker=simulated_workers(self._work, self._simulation.trace, self.pace),
                bind=self._simulation.network.bind,
                connector=SimulatedConnector(self._simulation.network),
            )
            await server.start()
            if not ready.done():
                ready.set_result(None)
            await server.wait(stop)
            await server.stop()

        stop = self._stop = asyncio.Event()
        task = process.spawn(live(), name=f"{self.name} lives")
        task.add_done_callback(self._has_ended, context=process.context)
        self._gone = self._simulation.loop.create_future()
        await asyncio.wait((ready, self._gone), return_when=asyncio.FIRST_COMPLETED)
        self.check()

    async def stop(self) -> None:
        """Ask the broker to stop in order, and return once it has, or has been killed over it."""
        gone = self.begin_stop()
        await asyncio.wait((gone,))
        self.check()

    def begin_stop(self) -> "asyncio.Future[None]":
        """Ask the broker to stop in order; the future is done once there is no process any more."""
        assert self._gone is not None
        self._simulation.trace.add(f"{self.name} stops")
        self._stop.set()
        return self._gone

    def kill(self) -> None:
        """Kill the process: nothing of it runs any more. What it has written is in the page cache, and stays."""
        self.check()
        self._simulation.trace.add(f"{self.name} is killed")
        self._is_gone(has_power=True)

    def cut_power(self) -> None:
        """The machine loses its power: what was not synced is lost, wholly or in part."""
        self.check()
        self._simulation.network.without_power.add(self.name)
        if self._process is not None:
            self._is_gone(has_power=False)
        self.disk.cut_power(self._power)

    def _is_gone(self, *, has_power: bool) -> None:
        process, files = self._process, self._files
        assert process is not None
        assert files is not None
        files.die()
        self._simulation.network.process_died(process, has_power=has_power)
        process.die()
        self._process = self._files = self.server = None
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def _has_ended(self, task: "asyncio.Task[None]") -> None:
        """The broker has come to its end, in order or not."""
        error = None if task.cancelled() else task.exception()
        failure = error or (self.server.failure if self.server is not None else None)
        self.failure = failure
        self._is_gone(has_power=True)

    def check(self) -> None:
        """Raise `Broken` if the broker has ended by itself."""
        if self.failure is not None:
            raise Broken(f"{self.name} has failed: {self.failure!r}") from self.failure


def require(holds: bool, sentence: str) -> None:
    """Raise `Broken` with the sentence unless it holds."""
    if not holds:
        raise Broken(sentence)
