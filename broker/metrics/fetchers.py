"""Metrics of the fetchers: how this node follows the leaders of its partitions, and how far behind it is."""

from collections.abc import Iterator, Mapping
from typing import Final

from broker.metrics.past import Past
from broker.metrics.series import Family, Samples, counter, gauge
from broker.metrics.sources import MetricSources
from broker.metrics.survey import Surveyor, fetcher_name
from broker.metrics.table import Column, Table
from broker.replication.replica_fetchers import RunningFetcher

_FOLLOWING: Final = "Replica"
_MOVING: Final = "ReplicaAlterLogDirs"
_MANAGERS: Final = {_FOLLOWING: "ReplicaFetcherManager", _MOVING: "ReplicaAlterLogDirsManager"}


_OF_MOVES: Final = {
    "MaxLag": "; here of a replica that moves to another log directory, behind itself",
    "MinFetchRate": "; always 0 for moves between log directories, which need no fetches",
    "FailedPartitionsCount": "; here moves to other log directories that were given up because of an error",
    "DeadThreadCount": "; always 0 for moves between log directories",
}


def _of_managers(name: str, help: str) -> Mapping[str, Family]:
    """A family for each kind of fetchers, by its client id."""
    return {
        client: gauge(
            f"kafka_server_{type_.lower()}_{name.lower()}",
            f"{help}{_OF_MOVES[name] if client == _MOVING else ''}",
            "clientId",
            bean=f"kafka.server:type={type_},name={name},clientId=*",
        )
        for client, type_ in _MANAGERS.items()
    }


MAX_LAG: Final = _of_managers("MaxLag", "Records that a followed partition is behind its leader, at most")
MIN_FETCH_RATE: Final = _of_managers("MinFetchRate", "Fetches a second of the slowest fetcher, in the last minutes")
FAILED: Final = _of_managers("FailedPartitionsCount", "Followed partitions that cannot be fetched")
DEAD: Final = _of_managers("DeadThreadCount", "Fetchers that have ended with an error")


def _of_fetchers(name: str, help: str) -> Family:
    return counter(
        f"kafka_server_fetcherstats_{name.lower()}_total",
        help,
        "clientId",
        "broker",
        bean=f"kafka.server:type=FetcherStats,name={name}PerSec,clientId=*,brokerHost=*,brokerPort=*",
    )


BYTES: Final = _of_fetchers("Bytes", "Bytes of batches that the fetcher has got from its leader")
REQUESTS: Final = _of_fetchers("Requests", "Fetches that the leader has answered")

LAG: Final = gauge(
    "kafka_server_fetcherlagmetrics_consumerlag",
    "Records that a followed partition was behind the leader's high watermark at the last answer",
    "clientId",
    "topic",
    "partition",
    bean="kafka.server:type=FetcherLagMetrics,name=ConsumerLag,clientId=*,topic=*,partition=*",
)
LAG_FAMILIES: Final = (LAG,)


def lag_tables(surveyor: Surveyor) -> tuple[Table, ...]:
    """A table with a row for each followed partition; it is left out with those of all partitions."""
    return (Table((Column(LAG, lambda row: row.lag),), lambda: surveyor.seen.followed),)


class Fetchers:
    """Reads the `ReplicaFetchers`."""

    families: tuple[Family, ...] = (
        *MAX_LAG.values(), *MIN_FETCH_RATE.values(), *FAILED.values(), *DEAD.values(), BYTES, REQUESTS,
    )  # fmt: skip

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources
        self._answered: Past[str] = Past(sources.clock, sources.started_ms, self._requests)
        sources.on_period.append(self._answered.period_is_over)

    def _running(self) -> list[RunningFetcher]:
        replication = self._sources.replicas.replication
        return [] if replication is None else replication.fetchers.running

    def _requests(self) -> dict[str, int]:
        return {fetcher_name(one.leader, one.number): one.fetcher.stats.requests for one in self._running()}

    def collect(self) -> Iterator[Samples]:
        running = self._running()
        values = (
            (MAX_LAG, max((one.fetcher.max_lag for one in running), default=0)),
            (MIN_FETCH_RATE, max(min(self._answered.rates().values(), default=0), 0)),
            (FAILED, sum(one.fetcher.failed for one in running)),
            (DEAD, sum(one.has_ended for one in running)),
        )
        moves = self._sources.replica_moves
        of_moves = {} if moves is None else {id(MAX_LAG): moves.max_lag, id(FAILED): len(moves.failed)}
        for families, value in values:
            yield Samples(families[_FOLLOWING], [((_FOLLOWING,), value)])
            yield Samples(families[_MOVING], [((_MOVING,), of_moves.get(id(families), 0))])
        labels = [
            (fetcher_name(one.leader, one.number), f"{one.peer.endpoint.host}:{one.peer.endpoint.port}")
            for one in running
        ]
        yield Samples(BYTES, [(of, one.fetcher.stats.bytes) for of, one in zip(labels, running, strict=True)])
        yield Samples(REQUESTS, [(of, one.fetcher.stats.requests) for of, one in zip(labels, running, strict=True)])
