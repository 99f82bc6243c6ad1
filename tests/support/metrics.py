"""The page of metrics as Prometheus reads it, and the changes between two pages.

Series are written as Prometheus writes them: `kafka_server_brokertopicmetrics_messagesin_total{topic="orders"}`.
"""

import asyncio
import http.client
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.support.broker import InProcessBroker

OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_SERIES: Final = re.compile(r"(?P<name>[a-z_0-9]+)(?:\{(?P<labels>.*)\})?")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

LOOKED_AT: Final[set[str]] = set()
"""Names of metrics of which a test has read a value."""

Series = tuple[str, frozenset[tuple[str, str]]]


class Answer(NamedTuple):
    """The answer of a metrics endpoint."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


def http_get(port: int, path: str, *, accept: str = "") -> Answer:
    """Send a GET request to an endpoint of another process."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", path, headers={"Accept": accept} if accept else {})
        answer = connection.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())


def series(text: str) -> Series:
    """The series in a text with the series' name and labels."""
    parts = _SERIES.fullmatch(text)
    assert parts is not None, f"{text} is no series"
    return parts["name"], frozenset(_LABEL.findall(parts["labels"] or ""))


class Page:
    """All values of a page, parsed by prometheus-client."""

    def __init__(self, text: str, *, is_openmetrics: bool = False) -> None:
        self.types: dict[str, str] = {}
        self.helps: dict[str, str] = {}
        self.values: dict[Series, float] = {}
        for family in (parse_openmetrics if is_openmetrics else parse_text)(text):
            self.types[family.name] = family.type
            self.helps[family.name] = family.documentation
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self.values, f"{key} stands there twice"
                self.values[key] = sample.value

    def __getitem__(self, text: str) -> float:
        key = series(text)
        LOOKED_AT.add(key[0])
        return self.values[key]

    def get(self, text: str, default: float | None = None) -> float | None:
        key = series(text)
        if key in self.values:
            LOOKED_AT.add(key[0])
        return self.values.get(key, default)

    def names(self) -> set[str]:
        """The names of all samples."""
        return {name for name, _ in self.values}

    def of(self, name: str) -> dict[Series, float]:
        """All series of a name."""
        return {key: value for key, value in self.values.items() if key[0] == name}

    def labelled(self, name: str) -> list[dict[str, str]]:
        """The labels of all series of a name."""
        return [dict(labels) for found, labels in self.values if found == name]


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until ``condition`` holds."""
    for _ in range(200_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it has not come to pass")


async def ask(port: int, request: str, *, accept: str = "") -> Answer:
    """Send a request to the endpoint, and read the answer up to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    try:
        writer.write(f"{request}\r\nHost: test\r\n{f'Accept: {accept}' if accept else 'X: y'}\r\n\r\n".encode())
        return await read_answer(reader)
    finally:
        writer.close()
        await writer.wait_closed()


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """Read an answer up to the end of the connection; its content must have the announced length."""
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Answer(int(first.split(" ")[1]), headers, body)


def metrics_port(broker: InProcessBroker) -> int:
    """The port of a broker's metrics."""
    assert broker.server.metrics is not None, "it has no endpoint"
    return broker.server.metrics.address.port


def get(broker: InProcessBroker, path: str, *, accept: str = "") -> Answer:
    """Send a GET request to the metrics endpoint of a broker in the test."""
    answer: Answer = broker.run(ask(metrics_port(broker), f"GET {path} HTTP/1.1", accept=accept))
    return answer


def scrape(broker: InProcessBroker) -> Page:
    """The metrics page of a broker in the test."""
    answer = get(broker, "/metrics")
    assert answer.status == 200, answer.text
    assert int(answer.headers["content-length"]) == len(answer.body)
    return Page(answer.text)


@dataclass(frozen=True)
class Change:
    """The expected change of a series."""

    by: float | None = None
    """The growth; None: any growth."""
    to: float | None = None
    """The new value."""

    def holds(self, before: float | None, after: float | None) -> bool:
        if after is None:
            return False
        if self.to is not None:
            return after == self.to and after != before
        grown = after - (before or 0)
        return grown > 0 if self.by is None else grown == self.by


def up(by: float | None = None) -> Change:
    """The series has grown, by ``by`` if given."""
    return Change(by=by)


def now(value: float) -> Change:
    """The series has this value now, and had another before."""
    return Change(to=value)


@contextmanager
def shown(broker: InProcessBroker, changes: Mapping[str, Change]) -> Iterator[None]:
    """A context in which these series must change in this way."""
    before = scrape(broker)
    yield
    after = scrape(broker)
    wrong = {
        text: (before.get(text), after.get(text), change)
        for text, change in changes.items()
        if not change.holds(before.get(text), after.get(text))
    }
    assert not wrong, f"(before, after, expected): {wrong}"
