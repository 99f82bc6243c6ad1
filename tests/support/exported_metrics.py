"""The metrics that the broker exports, as their families are declared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from broker.metrics.subjects import FAMILIES

Metrics = Mapping[str, frozenset[str]]
"""The labels of each metric, by name. If series of a metric have different labels, all labels."""


def declared() -> Metrics:
    """The metrics by the declarations in `broker.metrics`, and prometheus-client's own metrics of the process."""
    names: defaultdict[str, set[str]] = defaultdict(set)
    for family in FAMILIES:
        names[family.name].update(family.labels)
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    for metric in registry.collect():
        for sample in metric.samples:
            names[sample.name].update(sample.labels)
    return {name: frozenset(labels) for name, labels in names.items()}
