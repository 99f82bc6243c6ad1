"""The description of a workload: its load, its duration, and which of its figures are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.processes import StartedBroker
from bench.side_by_side.contenders import Contender
from bench.side_by_side.verified import VerifiedBench

Figures = dict[str, float]

QUIET_CORES: Final = 0.25
"""More than this share of a processor spent on others makes a sample worth repeating, up to three times in all."""
STILL_CORES: Final = 0.005
"""The same where a sample asks for its slowest hundredth: a hundredth of the time is enough to make it. Such moments
are rare where a machine has other guests, so there are more attempts."""

PREPARED_MB_S: Final = 2_000
"""So fast what a sample has written is verified and removed."""


@dataclass(frozen=True, slots=True)
class Row:
    """A figure that is compared: its key, what a reader calls it, and whether more of it is better."""

    figure: str
    words: str
    is_more_better: bool

    def advantage(self, ours: float, theirs: float) -> float:
        """How many times better ours is: above 1 in our favour, whichever way the figure counts."""
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
    """One load that is put on one broker after the other.

    ``measure`` is handed a broker that has long been running; ``live`` starts one of its own.
    """

    name: str
    words: str
    rows: tuple[Row, ...]
    seconds: float
    """What a sample takes at full scale, without what is around it."""
    around_s: float = 0.6
    """Making the topic, verifying, removing: what it takes at any scale."""
    written_mb: float = 0.0
    """What a sample writes, at most."""
    measure: Callable[[VerifiedBench], Figures] | None = None
    live: Callable[[Birth], Figures] | None = None
    is_of_sockets: bool = False
    """Large transfers: its figures hang on settings of the sockets, and it is measured under each of them."""
    warms: bool = False
    """A part of the mixed load that comes before everything."""
    needs_java: bool = False
    is_of_moments: bool = False
    """Its figures are of the slowest requests, and need a machine without any other work."""

    @property
    def quiet_cores(self) -> float:
        """How much of a processor others may take while it is measured."""
        return STILL_CORES if self.is_of_moments else QUIET_CORES

    @property
    def attempts(self) -> int:
        """How often it is measured at most, until it is quiet enough."""
        return 5 if self.is_of_moments else 3

    def expected_s(self, scale: float) -> float:
        return self.around_s + (self.seconds + self.written_mb / PREPARED_MB_S) * scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """What a workload needs that starts a broker of its own."""

    contender: Contender
    settings: Mapping[str, str]
    directory: Path
    scale: float

    def start(self) -> StartedBroker:
        return self.contender.start(self.directory, self.settings)
