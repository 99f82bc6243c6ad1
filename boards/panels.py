"""The parts of a board, and the JSON of a board for Grafana."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

Json = dict[str, Any]

COLUMNS: Final = 24
"""The width of a board, in Grafana's own measure."""

_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


class Unit(Enum):
    """The unit of values, by Grafana's name for it."""

    COUNT = "short"
    BYTES = "bytes"
    BYTES_PER_S = "Bps"
    REQUESTS_PER_S = "reqps"
    MS = "ms"
    SECONDS = "s"
    SHARE = "percentunit"
    """0 to 1."""


@dataclass(frozen=True, slots=True)
class Query:
    """An expression, and how its series are called."""

    expr: str
    legend: str = ""
    """With labels in two braces, as Grafana has it."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A diagram or a number."""

    title: str
    about: str
    """The panel's description: what the panel shows, and what a rise or fall means."""
    unit: Unit
    queries: Sequence[Query]
    height: int
    look: Json
    """What makes it what it is."""


def lines(title: str, about: str, unit: Unit, *queries: Query, is_stacked: bool = False) -> Panel:
    """How values went."""
    custom = {
        "fillOpacity": 30 if is_stacked else 8,
        "showPoints": "never",
        "stacking": {"mode": "normal" if is_stacked else "none"},
    }
    look: Json = {
        "type": "timeseries",
        "fieldConfig": {"defaults": {"unit": unit.value, "min": 0, "custom": custom}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }
    return Panel(title, about, unit, queries, 8, look)


def number(
    title: str,
    about: str,
    unit: Unit,
    *queries: Query,
    is_bad_from: float | None = None,
    words: Sequence[tuple[int, str]] = (),
) -> Panel:
    """One value as it is now; red from ``is_bad_from`` on. ``words``: what some values are called."""
    steps: list[Json] = [{"color": "green", "value": None}]
    if is_bad_from is not None:
        steps.append({"color": "red", "value": is_bad_from})
    called = {str(value): {"text": text, "index": index} for index, (value, text) in enumerate(words)}
    defaults = {
        "unit": unit.value,
        "mappings": [{"type": "value", "options": called}] if called else [],
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    look: Json = {
        "type": "stat",
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "none" if is_bad_from is None else "value",
            "graphMode": "none",
            "textMode": "value",
        },
    }
    return Panel(title, about, unit, queries, 4, look)


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading, so many beside each other."""

    title: str
    panels: Sequence[Panel]
    columns: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A list at the top of a board: its value stands in queries as ``$name``."""

    name: str
    title: str
    query: str
    is_one: bool = False
    """One value at a time; else any number, and all of them to begin with."""

    def json(self) -> Json:
        # All are `.+`, and not one behind the other: a thousand topics would not fit into a query, and the series of a
        # whole broker, which have no topic, are to stay out.
        several = {} if self.is_one else {"multi": True, "includeAll": True, "allValue": ".+"}
        everything = {} if self.is_one else {"current": {"selected": True, "text": ["All"], "value": ["$__all"]}}
        return {
            "name": self.name,
            "label": self.title,
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": self.query, "refId": self.name},
            "refresh": 2,
            "sort": 1,
            **several,
            **everything,
        }


BROKER: Final = Choice(
    name="instance", title="Broker", query="label_values(kafka_server_kafkaserver_brokerstate, instance)", is_one=True
)
"""One at a time: two brokers have nothing to do with each other."""

_DATA_SOURCE: Final[Json] = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A page of panels."""

    name: str
    """Of its file, and in its address."""
    title: str
    rows: Sequence[Row]
    choices: Sequence[Choice] = ()

    @property
    def panels(self) -> Iterator[Panel]:
        """All of them."""
        for row in self.rows:
            yield from row.panels

    def json(self) -> Json:
        """The content of the board's JSON file."""
        return {
            "uid": f"ottla-{self.name}",
            "title": f"Ottla: {self.title}",
            "tags": ["ottla", "kafka"],
            "editable": True,
            "graphTooltip": 1,
            "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"},
            "schemaVersion": 39,
            "links": [
                {"type": "dashboards", "title": "Boards", "tags": ["ottla"], "asDropdown": True, "keepTime": True}
            ],
            "templating": {"list": [_DATA_SOURCE, *(choice.json() for choice in (BROKER, *self.choices))]},
            "panels": list(self._placed()),
        }

    def _placed(self) -> Iterator[Json]:
        number, y = 0, 0
        for row in self.rows:
            number += 1
            yield {
                "id": number,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
                "panels": [],
            }
            y += 1
            width = COLUMNS // row.columns
            height = max(panel.height for panel in row.panels)
            for index, panel in enumerate(row.panels):
                number += 1
                column = index % row.columns
                if index and not column:
                    y += height
                yield {
                    "id": number,
                    "title": panel.title,
                    "description": panel.about,
                    "datasource": _SOURCE,
                    "gridPos": {"x": column * width, "y": y, "w": width, "h": height},
                    "targets": [_target(index, query) for index, query in enumerate(panel.queries)],
                    **panel.look,
                }
            y += height


def _target(index: int, query: Query) -> Json:
    return {
        "refId": chr(ord("A") + index),
        "datasource": _SOURCE,
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "range": True,
    }
