"""What a broker that was used, and a member of its cluster, have on their pages.

That is all that boards and alerts ask for, labelled as declared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.coordinators.share.persister import SharePartitionKey
from broker.coordinators.share_coordinator import coordinator_key
from config.resources import ConfigResource
from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest
from protocol.messages.topics import CreateTopicsRequest
from tests.support.altered_configs import configure
from tests.support.batches import produced, record
from tests.support.broker import InProcessBroker, running_broker, running_member
from tests.support.certificates import CLOCK_BEGINS, Authority, tls_of_listeners
from tests.support.exported_metrics import Metrics, declared
from tests.support.groups import commit_request, create_offsets_topic
from tests.support.leadership import create_replicated_topic
from tests.support.metrics import scrape
from tests.support.promql import Reading
from tests.support.quotas import limit
from tests.support.requests import fetch_request, produce_request
from tests.support.share_groups import ShareMember, codes
from tests.unit.boards.asking import ASKING, METRICS, OF_PROMETHEUS
from tests.unit.broker.handlers.share_groups import joined
from tests.unit.broker.handlers.share_states import find as find_share_coordinator
from tests.unit.broker.handlers.share_states import initialize


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    """A broker with a metrics endpoint, after one round of what clients do."""
    directory: Path = tmp_path_factory.mktemp("used")
    listeners = "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
    tls = tls_of_listeners(tmp_path_factory.mktemp("keys"), Authority().issue(since=CLOCK_BEGINS))
    with running_broker(directory, listeners=listeners, controller_listener_names="CONTROLLER", **tls) as broker:
        topic_id = broker.create_topic("orders", partitions=2, ottla_archive_group="archive.orders")
        broker.produce("orders", b"first")
        broker.ask(fetch_request("orders", topic_id=topic_id), 16)
        broker.ask(MetadataRequest(topics=None), 12)
        create_offsets_topic(broker)
        broker.ask(commit_request({("orders", 0): 1}), 9)
        use_quotas(broker, topic_id)
        use_share_groups(broker, topic_id)
        yield broker


def use_share_groups(broker: InProcessBroker, topic_id: bytes) -> None:
    """A member of a share group acquires records, and acknowledges the first, and one that it does not have. Another
    group finds no record to begin with."""
    key = coordinator_key(SharePartitionKey("workers", topic_id, 0))
    broker.wait_until(lambda: find_share_coordinator(broker, key) == ErrorCode.NONE)
    configure(broker, ConfigResource.GROUP, "workers", "share.auto.offset.reset", "earliest")
    joined(broker)
    anna = ShareMember(broker, topic_id)
    broker.wait_until(lambda: bool(anna.acquire()))
    for offset in (0, 99):
        anna.acknowledge({(topic_id, 0): [(offset, offset, 1)]})
    configure(broker, ConfigResource.GROUP, "others", "share.auto.offset.reset", "by_duration:PT1S")
    empty_id = broker.create_topic("empty")
    broker.ask(initialize(empty_id, start_offset=-1, group_id="others"), 0)
    bert = ShareMember(broker, empty_id, group_id="others", member_id="bert")
    broker.wait_until(lambda: ErrorCode.OFFSET_NOT_AVAILABLE in codes(bert.fetch()))


def use_quotas(broker: InProcessBroker, topic_id: bytes) -> None:
    """A client with all quotas uses each of them."""
    rates = {"producer_byte_rate": 1e9, "consumer_byte_rate": 1e9, "request_percentage": 1e9}
    limit(broker, {"client-id": "limited"}, **rates, controller_mutation_rate=1e9)
    client = broker.connect()
    client.ask(produce_request("orders", produced([record(b"second")])), 12, "limited")
    client.ask(fetch_request("orders", topic_id=topic_id), 16, "limited")
    of_topic = CreateTopicsRequest.Topic
    topic = of_topic(name="more", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    client.ask(CreateTopicsRequest(topics=[topic]), 7, "limited")


@pytest.fixture(scope="module")
def member(used: InProcessBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    """A broker that follows a partition of the other one, which is its controller."""
    with running_member(tmp_path_factory.mktemp("member"), used) as broker:
        create_replicated_topic(used, "replicated", (1, 2))
        used.wait_until(lambda: has_followed(used, broker))
        yield broker


def has_followed(used: InProcessBroker, member: InProcessBroker) -> bool:
    used.advance(20)
    replication = member.server.components.replicas.replication
    return replication is not None and any(one.fetcher.stats.requests > 1 for one in replication.fetchers.running)


@pytest.fixture(scope="module")
def scraped(used: InProcessBroker, member: InProcessBroker) -> Metrics:
    """The labels of all that is on their pages."""
    names: defaultdict[str, set[str]] = defaultdict(set)
    for broker in (used, member):
        for name, labels in scrape(broker).values:
            names[name].update(label for label, _ in labels)
    return {name: frozenset(labels) for name, labels in names.items()}


def test_what_boards_and_alerts_ask_for_is_on_the_page(scraped: Metrics) -> None:
    asked = {name for asking in ASKING for name in Reading(asking.expr, METRICS).names}

    assert asked - set(OF_PROMETHEUS) - set(scraped) == set()


def test_what_is_on_the_page_has_the_labels_that_are_declared(scraped: Metrics) -> None:
    known = declared()

    assert {name: labels for name, labels in scraped.items() if labels != known.get(name)} == {}
