"""Metrics of the certificates that listeners show."""

from collections.abc import Iterator

from broker.metrics.series import Family, Samples, gauge
from broker.metrics.sources import MetricSources

EXPIRY = gauge(
    "ottla_tls_certificate_expiry_timestamp_seconds",
    "When the certificate of a listener with TLS expires, as Unix time",
    "listener",
)


class Tls:
    """Reads the certificates off the listeners with TLS."""

    families: tuple[Family, ...] = (EXPIRY,)

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Samples]:
        expiry_s = self._sources.certificate_expiry_s
        if expiry_s is not None:
            yield Samples(EXPIRY, [((listener,), at_s) for listener, at_s in expiry_s().items()])
