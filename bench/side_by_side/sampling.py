"""Two running brokers, and how one sample is taken from one of them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from bench.limits import SocketOptions
from bench.processes import Disturbance, StartedBroker
from bench.rival import Rival
from bench.side_by_side.contenders import Contender
from bench.side_by_side.journal import Sample
from bench.side_by_side.order import Step
from bench.side_by_side.verified import VerifiedBench
from bench.side_by_side.workload import Birth, Figures, Workload

WARMING_SCALE: Final = 0.1


class Arena:
    """A running broker of each contender, for as long as this context lasts; each is started when it is first
    needed."""

    def __init__(
        self,
        contenders: Sequence[Contender],
        settings: Mapping[str, str],
        directory: Path,
        *,
        scale: float,
        libraries: Path | None,
    ) -> None:
        self._contenders = {contender.key: contender for contender in contenders}
        self._settings = settings
        self._directory = directory
        self._scale = scale
        self._libraries = libraries
        self._benches: dict[str, VerifiedBench] = {}
        self._brokers: dict[str, StartedBroker] = {}
        self._stack = ExitStack()
        self._births = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def warm_up(self, seconds: float, workloads: Sequence[Workload]) -> None:
        """Put mixed load on each broker for so long, one after the other, without measuring."""
        cases = [workload.measure for workload in workloads if workload.warms and workload.measure is not None]
        for key in self._contenders:
            small = replace(self.bench(key), scale=WARMING_SCALE * min(1.0, self._scale))
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                for case in cases:
                    case(small)
                    if time.monotonic() > end:
                        break

    def sample(self, step: Step) -> Sample:
        """Take a sample while no other process has much work; after some attempts, the least disturbed sample."""
        take = self._taking(step)
        quietest: tuple[float, Figures] | None = None
        attempts = 0
        began = time.monotonic()
        while attempts < step.workload.attempts:
            attempts += 1
            with self._alone(step):
                disturbance = Disturbance(*self._brokers.values())
                figures = take()
                others = disturbance.processors()
            if quietest is None or others < quietest[0]:
                quietest = others, figures
            if others <= step.workload.quiet_cores:
                break
        assert quietest is not None
        return Sample(
            table=step.table.key,
            workload=step.workload.name,
            round=step.round,
            contender=step.contender,
            figures=quietest[1],
            others_cores=quietest[0],
            attempts=attempts,
            seconds=time.monotonic() - began,
        )

    @contextmanager
    def _alone(self, step: Step) -> Iterator[None]:
        """A context in which the other brokers are stopped (SIGSTOP), since a user has one broker on a machine.

        An idle Apache Kafka writes and flushes its metadata log twice a second, and compiles code that it has just
        run.
        """
        with ExitStack() as held:
            for key, broker in self._brokers.items():
                if key != step.contender or step.workload.measure is None:
                    held.enter_context(broker.held())
                else:
                    broker.settle()
            yield

    def _taking(self, step: Step) -> Callable[[], Figures]:
        measure, live = step.workload.measure, step.workload.live
        if measure is not None:
            bench = self.bench(step.contender)
            return lambda: measure(bench)
        assert live is not None
        return lambda: self._born(step, live)

    def _born(self, step: Step, live: Callable[[Birth], Figures]) -> Figures:
        self._births += 1
        home = self._directory / f"born-{self._births}"
        contender = self._contenders[step.contender]
        try:
            return live(Birth(contender=contender, settings=self._settings, directory=home, scale=self._scale))
        finally:
            shutil.rmtree(home, ignore_errors=True)

    def bench(self, key: str) -> VerifiedBench:
        """The bench of a contender's broker."""
        if key not in self._benches:
            home = self._directory / f"{key}-{len(self._settings)}"
            broker = self._contenders[key].start(home, self._settings)
            self._stack.callback(shutil.rmtree, home, ignore_errors=True)
            self._stack.callback(broker.close)
            self._brokers[key] = broker
            self._benches[key] = VerifiedBench(
                broker=broker,
                rival=Rival(home / "rival"),  # it is not asked, and does not start
                options=SocketOptions(),
                directory=home,
                scale=self._scale,
                data_directory=broker.data_directory,
                libraries=self._libraries,
            )
        return self._benches[key]
