"""Metrics of requests: counts, versions, errors and times."""

import pytest

from broker.request.stats import ALL_TIMED, ONE_TIMED_IN, HandlerTurn, RequestStats
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest
from tests.support.batches import produced, record
from tests.support.broker import InProcessBroker
from tests.support.metrics import now, scrape, shown, up
from tests.support.requests import fetch_request, produce_request

REQUESTS = "kafka_network_requestmetrics_requests_total"
ERRORS = "kafka_network_requestmetrics_errors_total"
TIMES = (
    "kafka_network_requestmetrics_totaltimems",
    "kafka_network_requestmetrics_requestqueuetimems",
    "kafka_network_requestmetrics_localtimems",
    "kafka_network_requestmetrics_responsequeuetimems",
    "kafka_network_requestmetrics_responsesendtimems",
)
WITHOUT_DURATION = (
    "kafka_network_requestmetrics_remotetimems",
    "kafka_network_requestmetrics_throttletimems",
    "kafka_network_requestmetrics_messageconversionstimems",
    "kafka_network_requestmetrics_temporarymemorybytes",
)
QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")


def test_a_request_is_counted_in_its_version_with_its_error_code_and_what_it_took(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    changes = {
        f'{REQUESTS}{{request="Produce",version="12"}}': up(1),
        f'{ERRORS}{{request="Produce",error="NONE"}}': up(1),
        'kafka_network_requestmetrics_totaltimems_count{request="Produce"}': up(1),
        'kafka_network_requestmetrics_requestqueuetimems_count{request="Produce"}': up(1),
        'kafka_network_requestmetrics_localtimems_count{request="Produce"}': up(1),
        'kafka_network_requestmetrics_remotetimems_count{request="Produce"}': up(1),
        'kafka_network_requestmetrics_throttletimems_count{request="Produce"}': up(1),
        'kafka_network_requestmetrics_responsequeuetimems_count{request="Produce"}': up(1),
        'kafka_network_requestmetrics_responsesendtimems_count{request="Produce"}': up(1),
        'kafka_network_requestmetrics_requestbytes_count{request="Produce"}': up(1),
        'kafka_network_requestmetrics_messageconversionstimems_count{request="Produce"}': up(1),
        'kafka_network_requestmetrics_temporarymemorybytes_count{request="Produce"}': up(1),
    }

    with shown(broker, changes):
        broker.produce("orders", b"one")

    page = scrape(broker)
    for quantile in QUANTILES:
        labels = f'{{request="Produce",quantile="{quantile}"}}'
        assert all(page[f"{name}{labels}"] >= 0 for name in TIMES)
        assert page[f"kafka_network_requestmetrics_totaltimems{labels}"] > 0
        assert [page[f"{name}{labels}"] for name in WITHOUT_DURATION] == [0, 0, 0, 0]


def test_repeated_produces_are_counted_like_the_first(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    with shown(
        broker,
        {
            f'{REQUESTS}{{request="Produce",version="12"}}': up(5),
            f'{ERRORS}{{request="Produce",error="NONE"}}': up(5),
        },
    ):
        for number in range(5):
            broker.produce("orders", b"%d" % number)


def test_each_error_code_in_an_answer_is_counted(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=2)
    with shown(
        broker,
        {
            f'{ERRORS}{{request="Produce",error="UNKNOWN_TOPIC_OR_PARTITION"}}': up(1),
            f'{ERRORS}{{request="Metadata",error="NONE"}}': up(3),  # of the topic and of its two partitions
            f'{ERRORS}{{request="Metadata",error="INVALID_TOPIC_EXCEPTION"}}': up(1),
        },
    ):
        broker.ask(produce_request("nowhere", produced()), 12)
        broker.ask(MetadataRequest(topics=[MetadataRequest.Topic(name=name) for name in ("orders", "no name")]), 12)


def test_a_version_of_the_future_is_counted_as_an_error_of_api_versions(broker: InProcessBroker) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    broker.ask(request, 4)
    client = broker.connect()
    with shown(broker, {f'{ERRORS}{{request="ApiVersions",error="UNSUPPORTED_VERSION"}}': up(1)}):
        client.send_bytes(bytes.fromhex("0000000b 0012 7fff 00000001 ffff 00"))
        client.receive_payload()


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("03e7 0000", "unknown"),  # no API has the key 999
        ("fffb 0000", "unknown"),
        ("0000 0002", "Produce"),  # advertised for old librdkafka, and not served
        ("0013 0008", "CreateTopics"),
        ("003a 0000", "Envelope"),  # what only controllers are asked
        ("0046 0000", "ControllerRegistration"),
        ("0047 0000", "GetTelemetrySubscriptions"),  # served where there is a receiver
    ],
)
def test_requests_for_what_is_not_served_are_counted_and_close_their_connections(
    broker: InProcessBroker, header: str, name: str
) -> None:
    with shown(broker, {f'ottla_network_requests_not_served_total{{request="{name}"}}': up(2)}):
        for _ in range(2):
            client = broker.connect()
            client.send_bytes(bytes.fromhex(f"0000000b {header} 00000001 ffff 00"))
            assert client.is_closed()


def test_fetches_of_consumers_and_of_followers_are_told_apart_and_counted_together(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    with shown(
        broker,
        {
            f'{REQUESTS}{{request="Fetch",version="12"}}': up(3),
            f'{REQUESTS}{{request="FetchConsumer",version="12"}}': up(2),
            f'{REQUESTS}{{request="FetchFollower",version="12"}}': up(1),
            f'{ERRORS}{{request="Fetch",error="NONE"}}': up(5),  # three answers, two partitions
            f'{ERRORS}{{request="Fetch",error="NOT_LEADER_OR_FOLLOWER"}}': up(1),
            'kafka_network_requestmetrics_totaltimems_count{request="Fetch"}': up(3),
            'kafka_network_requestmetrics_totaltimems_count{request="FetchFollower"}': up(1),
        },
    ):
        for replica_id in (-1, -1, 2):
            broker.ask(fetch_request("orders", replica_id=replica_id), 12)


def test_a_fetch_that_waits_has_remote_time(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    client = broker.connect()
    waited = 'kafka_network_requestmetrics_remotetimems{request="FetchConsumer",quantile="0.99"}'
    with shown(broker, {waited: up(), f'{REQUESTS}{{request="FetchConsumer",version="12"}}': up(1)}):
        client.send(fetch_request("orders", max_wait_ms=500), 12)
        assert client.has_no_answer()
        broker.advance(500)
        client.receive()


def test_the_size_of_a_request_is_rounded_up_by_an_eighth_at_most(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    broker.produce("orders", bytes(10_000))
    size = scrape(broker)['kafka_network_requestmetrics_requestbytes{request="Produce",quantile="0.50"}']
    assert 10_000 < size < 1.125 * 10_150


def test_requests_without_answers_are_counted_and_bring_no_error_code(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    broker.produce("orders", b"one")
    before = scrape(broker)
    with shown(broker, {f'{REQUESTS}{{request="Produce",version="12"}}': up(1)}):
        broker.connect().send(produce_request("orders", produced([record()]), acks=0), 12)
        broker.wait_until(lambda: broker.log("orders").log_end_offset == 2)
        broker.settle()
    after = scrape(broker)
    none = f'{ERRORS}{{request="Produce",error="NONE"}}'
    assert before[none] == after[none]


def test_an_error_without_answer_is_counted_as_kafka_does_it(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    with shown(broker, {f'{ERRORS}{{request="Produce",error="UNKNOWN_TOPIC_OR_PARTITION"}}': up(1)}):
        client = broker.connect()
        client.send(produce_request("nowhere", produced(), acks=0), 12)
        assert client.is_closed()


def test_requests_of_a_connection_that_has_died_are_counted(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    client = broker.connect()
    with shown(broker, {f'{REQUESTS}{{request="FetchConsumer",version="12"}}': up(1)}):
        client.send(fetch_request("orders", max_wait_ms=500), 12)
        assert client.has_no_answer()
        client.connection.close()
        broker.advance(500)


class Request:
    """What is timed of a request."""

    def __init__(self, turn: HandlerTurn, *, received_us: int, filled_us: int = 0, size: int = 100) -> None:
        self.turn = turn
        self.received_us = received_us
        self.filled_us = filled_us
        self.size = size


def buckets(counts: list[int]) -> dict[int, int]:
    return {bucket: count for bucket, count in enumerate(counts) if count}


@pytest.mark.parametrize(("filled_us", "remote", "response_queue"), [(0, 0, 9), (6_005, 5, 4)])
def test_the_stages_of_a_request_are_told_apart(filled_us: int, remote: int, response_queue: int) -> None:
    stats = RequestStats()
    kind = stats.kind_of("Produce", 12)
    turn = HandlerTurn(5_003)
    turn.ended_us = 6_000
    kind.time(2, Request(turn, received_us=5_000, filled_us=filled_us), 6_009, 6_016)
    api = stats.apis["Produce"]
    assert buckets(api.queue.counts) == {3: 2}
    assert buckets(api.remote.counts) == {remote: 2}
    assert buckets(api.response_queue.counts) == {response_queue: 2}
    assert buckets(api.send.counts) == {7: 2}
    assert sum(api.local.counts) == sum(api.total.counts) == sum(api.sizes.counts) == 2


def test_what_a_minute_has_forgotten_is_still_in_the_totals(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    broker.produce("orders", b"one")
    quantile = 'kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"}'
    total = 'kafka_network_requestmetrics_totaltimems_count{request="Produce"}'
    assert scrape(broker)[quantile] > 0
    broker.advance(60_000)
    assert scrape(broker)[quantile] > 0
    broker.advance(60_000)
    page = scrape(broker)
    assert (page[quantile], page[total]) == (0, 1)


def test_of_thousands_of_requests_all_are_counted_and_some_are_timed_for_the_others(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    asked = ALL_TIMED + 10 * ONE_TIMED_IN
    with shown(broker, {f'{REQUESTS}{{request="Produce",version="12"}}': up(asked)}):
        for _ in range(asked):
            broker.produce("orders", b"one")
    counts = broker.server.registry.stats.apis["Produce"].total.counts
    assert asked - ONE_TIMED_IN <= sum(counts) <= asked


def test_quantiles_and_counts_are_of_no_type_under_the_names_of_the_rules(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    broker.produce("orders", b"one")
    page = scrape(broker)
    assert page.types["kafka_network_requestmetrics_totaltimems"] == "unknown"
    assert page.types["kafka_network_requestmetrics_totaltimems_count"] == "unknown"
    assert page.types["kafka_network_requestmetrics_requests"] == "counter"
    assert now(1).holds(None, page['kafka_network_requestmetrics_localtimems_count{request="Produce"}'])
