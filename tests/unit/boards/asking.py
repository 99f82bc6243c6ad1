"""What boards and alerts ask of Prometheus, and the metrics that they may ask for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from boards.all_boards import BOARDS
from boards.panels import BROKER
from boards.promql import filled_in
from tests.support.exported_metrics import Metrics, declared

PROMETHEUS = Path(__file__).parents[3] / "docker" / "prometheus"
OF_PROMETHEUS: Metrics = {"up": frozenset()}
"""What Prometheus itself says of a scrape."""

EVERYTHING = {"__rate_interval": "1m", **dict.fromkeys(("instance", "topic", "group", "request"), ".+")}

METRICS: Metrics = {**declared(), **OF_PROMETHEUS}


class Asking(NamedTuple):
    """A query, where it stands, and the texts beside it that name labels of its result."""

    where: str
    expr: str
    texts: tuple[str, ...]


def rules(name: str) -> Any:
    return yaml.safe_load((PROMETHEUS / name).read_text())


def of_boards() -> Iterator[Asking]:
    for board in BOARDS:
        for panel in board.panels:
            for query in panel.queries:
                yield Asking(f"{board.title}: {panel.title}", filled_in(query.expr, EVERYTHING), (query.legend,))
        for choice in (BROKER, *board.choices):
            found = re.fullmatch(r"label_values\((.+), (\w+)\)", choice.query)
            assert found is not None, choice.query
            yield Asking(f"{board.title}: ${choice.name}", filled_in(found[1], EVERYTHING), (f"{{{{{found[2]}}}}}",))


def of_alerts() -> Iterator[Asking]:
    for group in rules("alerts.yml")["groups"]:
        for rule in group["rules"]:
            yield Asking(rule["alert"], rule["expr"], tuple(rule["annotations"].values()))


ASKING = [*of_boards(), *of_alerts()]
