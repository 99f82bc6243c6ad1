"""What a broker that was used has on its page: all that boards and alerts ask for, labelled as declared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.messages.metadata import MetadataRequest
from tests.support.broker import InProcessBroker, running_broker
from tests.support.exported_metrics import Metrics, declared
from tests.support.groups import commit_request, create_offsets_topic
from tests.support.metrics import scrape
from tests.support.promql import Reading
from tests.support.requests import fetch_request
from tests.unit.boards.asking import ASKING, METRICS, OF_PROMETHEUS


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    """A broker with a metrics endpoint, after one round of what clients do."""
    directory: Path = tmp_path_factory.mktemp("used")
    with running_broker(directory) as broker:
        topic_id = broker.create_topic("orders", partitions=2, ottla_archive_group="archive.orders")
        broker.produce("orders", b"first")
        broker.ask(fetch_request("orders", topic_id=topic_id), 16)
        broker.ask(MetadataRequest(topics=None), 12)
        create_offsets_topic(broker)
        broker.ask(commit_request({("orders", 0): 1}), 9)
        yield broker


@pytest.fixture(scope="module")
def scraped(used: InProcessBroker) -> Metrics:
    """The labels of all that is on its page."""
    names: defaultdict[str, set[str]] = defaultdict(set)
    for name, labels in scrape(used).values:
        names[name].update(label for label, _ in labels)
    return {name: frozenset(labels) for name, labels in names.items()}


def test_what_boards_and_alerts_ask_for_is_on_the_page(scraped: Metrics) -> None:
    asked = {name for asking in ASKING for name in Reading(asking.expr, METRICS).names}

    assert asked - set(OF_PROMETHEUS) - set(scraped) == set()


def test_what_is_on_the_page_has_the_labels_that_are_declared(scraped: Metrics) -> None:
    known = declared()

    assert {name: labels for name, labels in scraped.items() if labels != known.get(name)} == {}
