"""Metrics of the log cleaner: how dirty compacted logs are, rounds, and logs that cannot be cleaned."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from broker.logs.cleaner import LogCleaner
from broker.logs.cleaner_stats import CleanerStats, LastRound
from broker.metrics.series import Family, Reading, Samples, count, counter, gauge, read
from broker.metrics.sources import MetricSources
from storage.errors import StorageError
from storage.log import Log
from storage.log_manager import LogManager

_MS_PER_S: Final = 1000


class _Cleaner(NamedTuple):
    """The objects that the values are read from."""

    stats: CleanerStats
    idle_ms: int
    """How long ago a cleaner has looked for a log to clean, or the broker was started, in milliseconds."""

    @property
    def last_rounds(self) -> list[LastRound]:
        return list(self.stats.last_rounds.values())


Value = Callable[[_Cleaner], float]


def _of_cleaner(name: str, help: str, value: Value) -> Reading:
    bean = f"kafka.log:type=LogCleaner,name={name}"
    return Reading(gauge(f"kafka_log_logcleaner_{_series(name)}", help, bean=bean), value)


def _of_manager(name: str, help: str, value: Value) -> Reading:
    bean = f"kafka.log:type=LogCleanerManager,name={name}"
    return Reading(gauge(f"kafka_log_logcleanermanager_{_series(name)}", help, bean=bean), value)


def _of_directory(name: str, help: str) -> Family:
    bean = f"kafka.log:type=LogCleanerManager,name={name},logDirectory=*"
    return gauge(f"kafka_log_logcleanermanager_{_series(name)}", help, "logDirectory", bean=bean)


def _series(name: str) -> str:
    return name.replace("-", "_").lower()


def _counted(what: str, help: str, value: Value) -> Reading:
    return Reading(counter(f"ottla_log_cleaner_{what}_total", help), value)


def _recopied_percent(it: _Cleaner) -> int:
    bytes_read = sum(one.bytes_read for one in it.last_rounds)
    return 100 * sum(one.bytes_written for one in it.last_rounds) // max(bytes_read, 1)


_READINGS: Final = (
    _of_cleaner(
        "max-buffer-utilization-percent",
        "Percent of the offset map that was used, at most, in the last round of each cleaner",
        lambda it: int(100 * max((one.map_utilization for one in it.last_rounds), default=0)),
    ),
    _of_cleaner(
        "cleaner-recopy-percent",
        "Bytes written in percent of bytes read, in the last round of each cleaner",
        _recopied_percent,
    ),
    _of_cleaner(
        "max-clean-time-secs",
        "Seconds that the last round of a cleaner took, at most",
        lambda it: int(max((one.seconds for one in it.last_rounds), default=0)),
    ),
    _of_cleaner(
        "max-compaction-delay-secs",
        "For how many seconds a log has been due by max.compaction.lag.ms, at most, when a cleaner last looked",
        lambda it: it.stats.max_delay_ms // _MS_PER_S,
    ),
    _of_cleaner(
        "DeadThreadCount",
        "Cleaners whose process has died in a round, and that have completed none since",
        lambda it: len(it.stats.dead_cleaners),
    ),
    _of_manager(
        "max-dirty-percent",
        "Percent of its cleanable bytes that the dirtiest log has not had cleaned, when a cleaner last looked",
        lambda it: int(100 * it.stats.max_dirty_ratio),
    ),
    _of_manager(
        "time-since-last-run-ms",
        "Milliseconds since a cleaner has last looked for a log to clean",
        lambda it: it.idle_ms,
    ),
    Reading(
        count(
            "kafka_utils_throttler_cleaner_io_count",
            "Bytes that cleaners have read and written in completed rounds since the start",
            bean="kafka.utils:type=Throttler,name=cleaner-io",
        ),
        lambda it: it.stats.bytes_moved,
    ),
    _counted("records_read", "Records that cleaners have read", lambda it: it.stats.records_read),
    _counted("records_written", "Records that cleaners have kept", lambda it: it.stats.records_written),
    _counted("bytes_read", "Bytes of the batches that cleaners have read", lambda it: it.stats.bytes_read),
    _counted("bytes_written", "Bytes of the batches that cleaners have kept", lambda it: it.stats.bytes_written),
    _counted(
        "segments_replaced", "Segments whose place a cleaned copy has taken", lambda it: it.stats.segments_replaced
    ),
)
_UNCLEANABLE: Final = _of_directory(
    "uncleanable-partitions-count", "Partitions that are not cleaned any more until the next start"
)
_UNCLEANABLE_BYTES: Final = _of_directory(
    "uncleanable-bytes", "Bytes that would be cleaned in partitions that are not cleaned any more"
)
_ROUNDS: Final = counter(
    "ottla_log_cleaner_rounds_total",
    "Rounds that were completed, that failed by an error, and in which the cleaner's process died",
    "outcome",
)


class Cleaner:
    """Reads the log cleaner. Without a cleaner there are no series, as in Kafka."""

    families: tuple[Family, ...] = (
        *[reading.family for reading in _READINGS],
        _UNCLEANABLE,
        _UNCLEANABLE_BYTES,
        _ROUNDS,
    )

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Samples]:
        cleaner, logs = self._sources.log_cleaner, self._sources.logs
        if cleaner is None or logs is None or not self._sources.settings.log_cleaner_enable:
            return
        stats, clock = cleaner.stats, self._sources.clock
        now_ms = clock.now_ms()
        idle_ms = now_ms - stats.looked_ms if stats.looked_ms else clock.monotonic_ms() - self._sources.started_ms
        yield from read(_READINGS, _Cleaner(stats, max(idle_ms, 0)))
        yield from _uncleanable(cleaner, logs, now_ms)
        outcomes = (("completed", stats.rounds), ("failed", stats.failed_rounds), ("died", stats.deaths))
        yield Samples(_ROUNDS, [((outcome,), rounds) for outcome, rounds in outcomes])


def _uncleanable(cleaner: LogCleaner, logs: LogManager, now_ms: int) -> Iterator[Samples]:
    partitions = {directory.label: 0 for directory in logs.directories}
    total_bytes = dict(partitions)
    for one in cleaner.uncleanable:
        directory = logs.directory_of(one.topic_partition)
        if directory is not None:
            partitions[directory.label] += 1
            total_bytes[directory.label] += _cleanable_bytes(one, now_ms)
    yield Samples(_UNCLEANABLE, [((label,), value) for label, value in partitions.items()])
    yield Samples(_UNCLEANABLE_BYTES, [((label,), value) for label, value in total_bytes.items()])


def _cleanable_bytes(one: Log, now_ms: int) -> int:
    from storage.cleaning.candidates import cleanable  # not at a start

    try:
        return cleanable(one, now_ms).cleanable_bytes
    except StorageError:
        return 0  # its files cannot be read, which may be why it cannot be cleaned
