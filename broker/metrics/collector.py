"""The registry of prometheus-client: our families, and the library's own of the process, Python and its GC.

The library takes a fifth of what a start may cost, so this module is imported with the first page.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from broker.metrics.series import Kind, Samples, Source

_EOF: Final = b"# EOF\n"


class _Collected(Collector):
    """All sources as one collector."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self._sources = tuple(sources)

    def collect(self) -> Iterator[Metric]:
        for source in self._sources:
            for samples in source.collect():
                if samples.values:
                    yield _metric(samples)

    def describe(self) -> Iterable[Metric]:
        """Describe no family: a registration must not cost a collection."""
        return ()


class _One(Collector):
    """A collector of one family: the library's encoders write it in one piece."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


class Format(NamedTuple):
    """One of the exposition formats."""

    content_type: str
    encode: Callable[[Collector], bytes]

    @property
    def is_openmetrics(self) -> bool:
        return self.content_type.startswith("application/openmetrics-text")

    @property
    def end(self) -> bytes:
        """The text at the end of a page."""
        return _EOF if self.is_openmetrics else b""


def format_for(accept: str) -> Format:
    """The format for a client's Accept header ``accept``; the text format if it is empty."""
    encode, content_type = choose_encoder(accept)
    return Format(content_type, encode)


def make_registry(sources: Iterable[Source]) -> CollectorRegistry:
    """The registry of all families that the library writes."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(_Collected(sources))
    return registry


def write(registry: CollectorRegistry, format: Format) -> Iterator[bytes]:
    """The families in pieces of text, one each."""
    for metric in registry.collect():
        yield format.encode(_One(metric)).removesuffix(_EOF)


def _metric(samples: Samples) -> Metric:
    family = samples.family
    name = family.name.removesuffix("_total") if family.kind is Kind.COUNTER else family.name
    metric = Metric(name, family.help, family.kind.value)
    for values, value in samples.values:
        metric.add_sample(family.name, dict(zip(family.labels, values, strict=True)) if values else {}, value)
    return metric
