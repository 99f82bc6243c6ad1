"""The description of a workload: its load, its duration, and which of its figures are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.processes import StartedBroker
from bench.side_by_side.contenders import Contender
from bench.side_by_side.verified import VerifiedBench
from protocol.api_keys import ApiKey

Figures = dict[str, float]

QUIET_CORES: Final = 0.25
"""If other processes take more than this share of a processor, the sample is repeated, up to three samples in all."""
STILL_CORES: Final = 0.005
"""The same share for samples of the slowest hundredth of requests, to which a hundredth of the time is enough. Such
quiet moments are rare on a machine with other guests, so there are more attempts."""

PREPARED_MB_S: Final = 2_000
"""The speed at which the topics of a sample are verified and removed."""


@dataclass(frozen=True, slots=True)
class Row:
    """A figure that is compared: its key, its name for readers, and whether more of it is better."""

    figure: str
    words: str
    is_more_better: bool

    def advantage(self, ours: float, theirs: float) -> float:
        """How many times better ours is; above 1 in our favour for every kind of figure."""
        return ours / theirs if self.is_more_better else theirs / ours


MB_S: Final = Row("mb_s", "MB/s", True)
RECORDS_S: Final = Row("records_s", "records/s", True)
REQUESTS_S: Final = Row("requests_s", "requests/s", True)
CPU_S_GB: Final = Row("cpu_s_gb", "broker CPU-s/GB", False)
CPU_US: Final = Row("cpu_us", "broker CPU µs/request", False)
CPU_US_RECORD: Final = Row("cpu_us_record", "broker CPU µs/record", False)
PERCENTILES: Final = (
    Row("p50_us", "p50 µs", False),
    Row("p99_us", "p99 µs", False),
    Row("p999_us", "p99.9 µs", False),
)
ECHO_PERCENTILES: Final = (
    Row("echo_p50_us", "p50 µs of a bare echo beside it", False),
    Row("echo_p99_us", "p99 µs of a bare echo beside it", False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A load that is put on one broker after the other.

    ``measure`` gets a broker that has been running for long; ``live`` starts a broker of its own.
    """

    name: str
    words: str
    rows: tuple[Row, ...]
    seconds: float
    """Seconds of a sample at full scale, without preparation and verification."""
    around_s: float = 0.6
    """Seconds for making the topic, verifying and removing it, at any scale."""
    written_mb: float = 0.0
    """The most MB that a sample writes."""
    measure: Callable[[VerifiedBench], Figures] | None = None
    live: Callable[[Birth], Figures] | None = None
    is_of_sockets: bool = False
    """Whether the workload's figures depend on socket settings (large transfers). It is measured under each congestion
    control."""
    warms: bool = False
    """Whether the workload is part of the mixed load for warming up."""
    needs_java: bool = False
    needs: frozenset[ApiKey] = frozenset()
    """APIs beyond those that every broker has: an older commit may lack them, and is not measured then."""
    is_of_moments: bool = False
    """Whether the figures are of the slowest requests, and need a machine without other work."""

    @property
    def quiet_cores(self) -> float:
        """The share of a processor that other processes may take during a sample."""
        return STILL_CORES if self.is_of_moments else QUIET_CORES

    @property
    def attempts(self) -> int:
        """The most samples that are taken until one is quiet enough."""
        return 5 if self.is_of_moments else 3

    def expected_s(self, scale: float) -> float:
        return self.around_s + (self.seconds + self.written_mb / PREPARED_MB_S) * scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """The arguments of a workload that starts a broker of its own."""

    contender: Contender
    settings: Mapping[str, str]
    directory: Path
    scale: float

    def start(self) -> StartedBroker:
        return self.contender.start(self.directory, self.settings)
