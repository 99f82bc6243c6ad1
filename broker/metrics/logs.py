"""Metrics of the data directories: flushes, failed directories, free space."""

from collections.abc import Iterator
from operator import add
from typing import Final

from broker.metrics.series import US_PER_MS, Counted, Family, Samples, distribution, gauge, one
from broker.metrics.sources import MetricSources
from broker.runtime.histogram import BUCKETS
from storage.errors import StorageError
from storage.log_dir import LogDir

FLUSHES: Final = distribution(
    "kafka_log_logflushstats_logflushrateandtimems",
    "How long a flush took, in milliseconds",
    bean="kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
)
OFFLINE: Final = gauge(
    "kafka_log_logmanager_offlinelogdirectorycount",
    "Data directories that cannot be used",
    bean="kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
)
IS_OFFLINE: Final = gauge(
    "kafka_log_logmanager_logdirectoryoffline",
    "1 if the data directory cannot be used",
    "logDirectory",
    bean="kafka.log:type=LogManager,name=LogDirectoryOffline,logDirectory=*",
)
CORDONED: Final = gauge(
    "kafka_log_logmanager_cordonedlogdirectorycount",
    "Data directories that take no new replicas (`cordoned.log.dirs`)",
    bean="kafka.log:type=LogManager,name=CordonedLogDirectoryCount",
)
IS_CORDONED: Final = gauge(
    "kafka_log_logmanager_logdirectorycordoned",
    "1 if the data directory takes no new replicas (`cordoned.log.dirs`)",
    "logDirectory",
    bean="kafka.log:type=LogManager,name=LogDirectoryCordoned,logDirectory=*",
)
DISK_FREE: Final = gauge(
    "ottla_log_directory_free_bytes", "Bytes that are free on the file system of the data directory", "logDirectory"
)
DISK_TOTAL: Final = gauge(
    "ottla_log_directory_total_bytes", "Bytes of the file system of the data directory", "logDirectory"
)


class Logs:
    """Reads the flushers and the data directories."""

    families: tuple[Family, ...] = (*FLUSHES, OFFLINE, IS_OFFLINE, CORDONED, IS_CORDONED, DISK_FREE, DISK_TOTAL)

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Samples]:
        recent = [0] * BUCKETS
        total = 0
        for stats in self._sources.flushers():
            recent = list(map(add, recent, stats.durations.recent()))
            total += stats.flushes
        yield from FLUSHES.collect([Counted((), recent, total)], divisor=US_PER_MS)
        if self._sources.logs is None:
            return
        directories = self._sources.logs.directories
        yield one(OFFLINE, sum(directory.has_failed for directory in directories))
        yield Samples(IS_OFFLINE, [((directory.label,), directory.has_failed) for directory in directories])
        yield one(CORDONED, sum(directory.is_cordoned for directory in directories))
        yield Samples(IS_CORDONED, [((directory.label,), directory.is_cordoned) for directory in directories])
        yield from self._disk_space(directories)

    def _disk_space(self, directories: tuple[LogDir, ...]) -> Iterator[Samples]:
        free: list[tuple[tuple[str, ...], float]] = []
        total: list[tuple[tuple[str, ...], float]] = []
        for directory in directories:
            if directory.has_failed:
                continue
            try:
                space = directory.space()
            except StorageError:
                continue  # the next write there finds the failure and logs it
            free.append(((directory.label,), space.usable_bytes))
            total.append(((directory.label,), space.total_bytes))
        yield Samples(DISK_FREE, free)
        yield Samples(DISK_TOTAL, total)
