"""How long requests took inside the broker, as a line in the log on demand (SIGUSR1)."""

import logging
from collections.abc import Sequence
from operator import add, sub

from broker.network.processor import Processor
from broker.runtime.counted import counted
from broker.runtime.histogram import BUCKETS, percentiles

log = logging.getLogger(__name__)


class LatencyReport:
    """Reports, listener by listener, how long the requests took that were answered since the last report."""

    def __init__(self, processors: Sequence[Processor]) -> None:
        self._processors = processors
        self._reported: dict[str, list[int]] = {}

    def log(self) -> None:
        """Write one line for each listener that has answered anything."""
        for listener, counts in sorted(self._totals().items()):
            new = list(map(sub, counts, self._reported.get(listener, [0] * BUCKETS)))
            self._reported[listener] = counts
            p50, p90, p99, p999, most = percentiles(new, (0.5, 0.9, 0.99, 0.999, 1))
            log.info(
                "%s answered %s since the last such line: p50 %d us, p90 %d us, p99 %d us, p99.9 %d us, most %d us",
                listener,
                counted(sum(new), "request"),
                p50,
                p90,
                p99,
                p999,
                most,
            )

    def _totals(self) -> dict[str, list[int]]:
        totals: dict[str, list[int]] = {}
        for processor in self._processors:
            for listener, stats in processor.stats.listeners.items():
                so_far = totals.get(listener, [0] * BUCKETS)
                totals[listener] = list(map(add, so_far, stats.latencies.counts))
        return totals
