"""What a broker that was used has on its page: all that boards and alerts ask for, labelled as declared."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.messages.metadata import MetadataRequest
from tests.support.broker import InProcessBroker, running_broker
from tests.support.exported_metrics import Metrics, declared, on_page
from tests.support.promql import Reading
from tests.support.requests import fetch_request
from tests.unit.boards.asking import ASKING, METRICS, OF_PROMETHEUS
from tests.unit.boards.awaited import AWAITED


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    """A broker with a metrics endpoint, after one round of what clients do."""
    directory: Path = tmp_path_factory.mktemp("used")
    with running_broker(directory, ottla_prometheus_listener="127.0.0.1:0") as broker:
        topic_id = broker.create_topic("orders", partitions=2)
        broker.produce("orders", b"first")
        broker.ask(fetch_request("orders", topic_id=topic_id), 16)
        broker.ask(MetadataRequest(topics=None), 12)
        yield broker


def page_of(broker: InProcessBroker) -> str:
    """What Prometheus gets."""

    async def get() -> bytes:
        assert broker.daemon.metrics is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.daemon.metrics.address.port)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    answer: bytes = broker.run(get())
    head, _, page = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    return page.decode()


@pytest.fixture(scope="module")
def scraped(used: InProcessBroker) -> Metrics:
    return on_page(page_of(used))


def test_what_boards_and_alerts_ask_for_is_on_the_page(scraped: Metrics) -> None:
    asked = {name for asking in ASKING for name in Reading(asking.expr, METRICS).names}
    awaited = {name for metrics in AWAITED.values() for name in metrics}

    assert asked - awaited - set(OF_PROMETHEUS) - set(scraped) == set()


def test_what_is_on_the_page_has_the_labels_that_are_declared(scraped: Metrics) -> None:
    known = declared()

    assert {name: labels for name, labels in scraped.items() if labels != known.get(name)} == {}
