"""The HTML page of `stats`, with plots."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from markupsafe import Markup

from pipeline.reports.page import page
from pipeline.reports.plots import SERIES_COLORS, areas, bars, short_size
from pipeline.reports.text import bytes_as_text, count_text
from pipeline.stats.counts import Powers, Times
from pipeline.stats.report import PartitionStats, Stats, TopicStats
from pipeline.stats.scan import Counts

_MOST_SHOWN: Final = 25
"""The most topics that get a section of their own."""
_MOST_LISTED: Final = 500
_MOST_PARTITIONS: Final = 24
_MOST_LAGS: Final = 200
_TOP_KEYS: Final = 10
_MOST_BINS: Final = 240
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MINUTE: Final = int((datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH) / timedelta(minutes=1))
_BIN_MINUTES: Final = (
    1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720,
    *(days * 1440 for days in (1, 2, 7, 14, 30, 90, 366, 3660, 36600)),
)  # fmt: skip


class _Rates(NamedTuple):
    """Records a minute, over time."""

    plot: Markup
    legend: Sequence[tuple[str, int]]
    """Pairs of a name and the number of its colour."""
    bin_text: str


class _Key(NamedTuple):
    text: str
    records: int
    share: float


class _Section(NamedTuple):
    """The data of a topic's section."""

    topic: TopicStats
    rates: _Rates | None
    record_sizes: Markup | None
    batch_records: Markup | None
    keys: Sequence[_Key]
    keys_about: str
    partitions: Sequence[PartitionStats]


def stats_page(stats: Stats) -> str:
    """Render the page: all topics together, then topic by topic, the largest first."""
    shown = [topic for topic in stats.topics if topic.counts.records][:_MOST_SHOWN]
    largest, others = stats.topics[: SERIES_COLORS - 1], stats.topics[SERIES_COLORS - 1 :]
    series = [(topic.name, topic.counts.times) for topic in largest if topic.counts.records]
    if others:
        rest = Times()
        for topic in others:
            rest.merge(topic.counts.times)
        series.append((f"{len(others)} others", rest))
    return page(
        "stats.html",
        {
            "stats": stats,
            "rates": _rates(series, others=bool(others)),
            "record_sizes": _powers(stats.counts.record_sizes, "records by size"),
            "batch_sizes": _powers(stats.counts.batch_sizes, "batches by size"),
            "batch_records": _powers(stats.counts.batch_records, "batches by records"),
            "codecs": _codecs(stats.counts),
            "listed": stats.topics[:_MOST_LISTED],
            "most_bytes": max((topic.counts.batch_bytes for topic in stats.topics), default=0) or 1,
            "sections": [_section(topic) for topic in shown],
            "lags": stats.lags[:_MOST_LAGS],
        },
    )


def _section(topic: TopicStats) -> _Section:
    counts = topic.counts
    partitions = sorted(topic.partitions, key=lambda partition: -partition.counts.batch_bytes)
    return _Section(
        topic=topic,
        rates=_rates([(topic.name, counts.times)]),
        record_sizes=_powers(counts.record_sizes, "records by size"),
        batch_records=_powers(counts.batch_records, "batches by records"),
        keys=[
            _Key(bytes_as_text(key) or "(empty)", count, count / counts.records)
            for key, count in counts.keys.top(_TOP_KEYS)
        ],
        keys_about=_keys_about(counts),
        partitions=partitions[:_MOST_PARTITIONS],
    )


def _keys_about(counts: Counts) -> str:
    if counts.keys.distinct is None:
        missed = count_text(counts.keys.most_missed)
        return f"Too many different keys to keep all; each count may be up to {missed} too low."
    about = f"{count_text(counts.keys.distinct)} different keys"
    return f"{about}; {count_text(counts.without_key)} records have none." if counts.without_key else f"{about}."


def _codecs(counts: Counts) -> list[dict[str, Any]]:
    stored = counts.stored_bytes or 1
    found = sorted(counts.codecs.items(), key=lambda item: -item[1].stored_bytes)
    return [
        {
            "name": name,
            "batches": codec.batches,
            "stored": codec.stored_bytes,
            "share": codec.stored_bytes / stored,
            "ratio": codec.opened_bytes / codec.stored_bytes if codec.stored_bytes else None,
        }
        for name, codec in found
    ]


def _powers(powers: Powers, label: str) -> Markup | None:
    ranges = powers.ranges()
    return bars([short_size(first) for first, _, _ in ranges], [n for _, _, n in ranges], label) if ranges else None


def _rates(series: Sequence[tuple[str, Times]], *, others: bool = False) -> _Rates | None:
    starts = [start for _, times in series for start in times.buckets if 0 <= start <= _LAST_MINUTE]
    if not starts:
        return None
    first, last = min(starts), max(starts)
    finest = max(times.width_minutes for _, times in series)
    width = next(
        width for width in (*_BIN_MINUTES, _LAST_MINUTE)
        if width >= finest and (last - first) // width < _MOST_BINS
    )  # fmt: skip
    first -= first % width
    count = (last - first) // width + 1
    numbers = []
    for _, times in series:
        bins = [0.0] * count
        for start, (records, _) in times.buckets.items():
            if first <= start <= _LAST_MINUTE:
                bins[(start - first) // width] += records / width
        numbers.append(bins)
    ends = [_EPOCH + timedelta(minutes=min(first + number * width, _LAST_MINUTE)) for number in range(count + 1)]
    colors = [SERIES_COLORS - 1 if others and number == len(series) - 1 else number for number in range(len(series))]
    # Each number stands until the next time.
    plot = areas(ends, [[*bins, bins[-1]] for bins in numbers], colors, "records per minute over time")
    return _Rates(plot, [(name, color) for (name, _), color in zip(series, colors, strict=True)], _width_text(width))


def _width_text(minutes: int) -> str:
    for size, name in ((1440, "day"), (60, "hour"), (1, "minute")):
        if minutes >= size:
            number = minutes // size
            return f"each {name}" if number == 1 else f"every {number} {name}s"
    raise AssertionError(minutes)
