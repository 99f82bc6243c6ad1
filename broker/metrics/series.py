"""Families of series, each declared once, and their values at a moment."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from broker.runtime.histogram import percentiles

_QUANTILES: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
"""The quantile labels that the JMX exporter's rules give Kafka's histograms; boards query these strings."""

_QUANTILE: Final = "quantile"
_SHARES: Final = tuple(map(float, _QUANTILES))

US_PER_MS: Final = 1000


class Kind(Enum):
    """What the values of a family are, in the words of the exposition formats."""

    COUNTER = "counter"
    GAUGE = "gauge"
    UNKNOWN = "unknown"
    """The kind of families with a name ending in ``_count`` or ``_sum``, or with the label ``quantile``: these belong
    to histograms and summaries, which such families are not. A counter's name must end in ``_total``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The series of one name."""

    name: str
    """The name on the page; the name of a counter ends in ``_total``."""
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    bean: str = ""
    """The bean of Kafka with this value; empty for a family of Ottla or of another exporter."""


def counter(name: str, help: str, *labels: str, bean: str = "") -> Family:
    """A family of values that only grow while the process lives."""
    assert name.endswith("_total"), f"{name} is a counter"
    return Family(name=name, kind=Kind.COUNTER, help=help, labels=labels, bean=bean)


def count(name: str, help: str, *labels: str, bean: str = "") -> Family:
    """A family of growing values whose name, by the JMX exporter's rules, ends in ``_count``."""
    return Family(name=name, kind=Kind.UNKNOWN, help=help, labels=labels, bean=bean)


def gauge(name: str, help: str, *labels: str, bean: str = "") -> Family:
    """A family of values that go up and down."""
    kind = Kind.UNKNOWN if name.endswith(("_count", "_sum")) or _QUANTILE in labels else Kind.GAUGE
    return Family(name=name, kind=kind, help=help, labels=labels, bean=bean)


class Samples(NamedTuple):
    """The values of a family, each with its label values in the family's order; a family without labels has none."""

    family: Family
    values: Sequence[tuple[tuple[str, ...], float]]


def one(family: Family, value: float) -> Samples:
    """The value of a family without labels."""
    return Samples(family, [((), value)])


class Reading(NamedTuple):
    """A family without labels, and where its value is read."""

    family: Family
    value: Callable[[Any], float]


def read(readings: Iterable[Reading], subject: object) -> Iterator[Samples]:
    """The values of all readings for ``subject``."""
    for family, value in readings:
        yield one(family, value(subject))


class Source(Protocol):
    """A subject: the families about it, and where their values come from."""

    @property
    def families(self) -> Sequence[Family]:
        """All families that `collect` may give."""

    def collect(self) -> Iterator[Samples]:
        """The values now; the loop may turn between two families."""


def quantiles(counts: Sequence[int]) -> Iterator[tuple[str, int]]:
    """The percentiles of a histogram's counts with their labels: each is the largest value of its bucket."""
    for quantile, bound in zip(_QUANTILES, percentiles(counts, _SHARES), strict=True):
        yield quantile, max(bound - 1, 0)


class Counted(NamedTuple):
    """The figures of a histogram for one series."""

    labels: tuple[str, ...]
    recent: Sequence[int]
    """The counts of its buckets in the last minutes."""
    total: int
    """How many values have been recorded since the start."""


class Distribution(NamedTuple):
    """The two families that the rules make of a histogram or timer of Kafka: its percentiles, and its count."""

    quantiles: Family
    totals: Family

    def collect(self, counted: Iterable[Counted], *, divisor: int = 1) -> Iterator[Samples]:
        """The samples of both families. A percentile is the largest value of its bucket, divided by ``divisor``."""
        counted = list(counted)
        yield Samples(
            self.quantiles,
            [
                ((*series.labels, quantile), value / divisor)
                for series in counted
                for quantile, value in quantiles(series.recent)
            ],
        )
        yield Samples(self.totals, [(series.labels, series.total) for series in counted])


def distribution(name: str, help: str, *labels: str, bean: str = "") -> Distribution:
    """The families of a histogram whose bean has the attributes Count and 50thPercentile to 999thPercentile."""
    return Distribution(
        gauge(name, f"{help}: percentiles of the last minutes", *labels, _QUANTILE, bean=bean),
        count(f"{name}_count", f"{help}: number of values since the start", *labels, bean=bean),
    )
