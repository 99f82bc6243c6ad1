"""Metrics of loading the logs, which may take minutes after an unclean stop."""

from collections.abc import Iterator
from typing import Final

from broker.metrics.series import Samples, counter, gauge
from broker.metrics.sources import MetricSources

LOGS_LOADED: Final = counter(
    "kafka_log_logmanager_logsloaded_total",
    "Logs opened since the start",
    "dir",
    bean="kafka.log:type=LogManager,name=LogsLoadedPerSec,dir=*",
)
LOGS_LEFT: Final = gauge(
    "kafka_log_logmanager_remaininglogstorecover",
    "Logs that are still to be opened",
    "dir",
    bean="kafka.log:type=LogManager,name=remainingLogsToRecover,dir=*",
)
BYTES_LEFT: Final = gauge(
    "ottla_log_recovery_remaining_bytes", "Bytes of batches that are still to be checked after an unclean stop", "dir"
)


class Loading:
    """Reads the `LogLoading`."""

    families = (LOGS_LOADED, LOGS_LEFT, BYTES_LEFT)

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Samples]:
        if self._sources.loading is None:
            return
        stats = self._sources.loading.stats
        yield Samples(LOGS_LOADED, [((path,), one.logs_loaded) for path, one in stats.items()])
        yield Samples(LOGS_LEFT, [((path,), one.logs_total - one.logs_loaded) for path, one in stats.items()])
        yield Samples(BYTES_LEFT, [((path,), one.bytes_to_check - one.bytes_checked) for path, one in stats.items()])
