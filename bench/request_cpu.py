"""The CPU of a one-record request to two kinds of our broker, "with" something and "without", in interleaved pairs.

Each sample has a broker of its own: the addresses of a process's objects in memory are worth several percent.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from bench.conversation import produce_frame
from bench.limits import SocketOptions
from bench.load import run_load
from bench.processes import OwnBroker, cpu_seconds
from bench.raw_cases import Bench, check_produced
from bench.rival import Rival

PAIRS = 9
"""At a scale of 1."""
SHAPES = {"": (8, 8, 60_000), "ping_pong_": (1, 1, 20_000)}
"""Connections, requests in flight on each, requests in a sample; by the prefix of the figures."""
WARMING = 4_000
"""Requests before those of a sample."""

NAMES: Final = ("with", "without")

Sample: TypeAlias = dict[str, float]
"""The CPU of a request, for each of `SHAPES`."""


def in_pairs(take: Callable[[str, Path], Sample], directory: Path, scale: float) -> dict[str, float]:
    """The figures of samples that ``take`` takes of "with" and "without", each in a directory of its own."""
    samples: dict[str, list[Sample]] = {name: [] for name in NAMES}
    for pair in range(max(1, int(PAIRS * scale))):
        for name in NAMES if pair % 2 else reversed(NAMES):
            samples[name].append(take(name, directory / f"{name}-data-{pair}"))
    return {f"{shape}{key}": value for shape in SHAPES for key, value in _compared(samples, shape).items()}


def sample(broker: OwnBroker, directory: Path) -> Sample:
    """Take a sample."""
    for connections, in_flight, _ in SHAPES.values():
        _cpu_us(broker, directory, (connections, in_flight, WARMING))
    return {name: _cpu_us(broker, directory, shape) for name, shape in SHAPES.items()}


def _compared(samples: dict[str, list[Sample]], shape: str) -> dict[str, float]:
    mine, others = ([sample[shape] for sample in samples[name]] for name in NAMES)
    ratios = [one / other for one, other in zip(mine, others, strict=True)]
    return {
        "ratio": statistics.median(ratios),
        "least_ratio": min(ratios),
        "most_ratio": max(ratios),
        "cpu_us": statistics.median(mine),
        "without_cpu_us": statistics.median(others),
    }


def _cpu_us(broker: OwnBroker, directory: Path, shape: tuple[int, int, int]) -> float:
    connections, in_flight, requests = shape
    rival = Rival(directory / "kafka")  # it is not asked, and does not start
    bench = Bench(broker=broker, rival=rival, options=SocketOptions(), directory=directory, scale=1.0)
    with bench.topic(connections) as topic:
        frames = [produce_frame(topic, number, records=1, value_bytes=100) for number in range(connections)]
        before = cpu_seconds(broker.pid)
        load = run_load(broker.bootstrap, frames, in_flight=in_flight, requests=requests, check=check_produced)
        return (cpu_seconds(broker.pid) - before) / load.requests * 1e6
