"""Clients that exceed their quotas: answered at once, told so, and not read for that long; others are undisturbed."""

from collections.abc import Mapping
from typing import Any

import pytest

from broker.security.quotas.sensors import FORGOTTEN_AFTER_MS, MOST_CLIENTS, ClientSensors
from broker.security.quotas.token_bucket import TokenBucket
from protocol.errors import ErrorCode as E
from protocol.messages.metadata import MetadataRequest
from protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from tests.support.batches import produced, record
from tests.support.broker import Client, InProcessBroker
from tests.support.quotas import limit
from tests.support.requests import fetch_request, produce_request

FIRST_SPAN_S = 10
"""A rate is taken over ten windows of a second at least."""

SLOW: Mapping[str, str | None] = {"client-id": "slow"}


def produce(client: Client, size: int, *, client_id: str = "slow", acks: int = -1) -> None:
    """Send a request with a record of so many bytes; its answer is received later."""
    batch = produced([record(bytes(size))])
    client.send(produce_request("orders", batch, acks=acks), 12, client_id)


def is_muted_for(broker: InProcessBroker, client: Client, time_ms: int, client_id: str = "slow") -> bool:
    """Whether the client's next request is answered after ``time_ms``, and not before."""
    client.send(MetadataRequest(topics=[]), 12, client_id)
    broker.advance(time_ms - 1)
    was_silent = client.has_no_answer()
    broker.advance(1)
    client.receive()
    return was_silent


def test_a_producer_above_its_rate_is_answered_at_once_and_read_again_when_the_rate_is_right(
    broker: InProcessBroker,
) -> None:
    broker.create_topic("orders")
    limit(broker, SLOW, producer_byte_rate=1_000)
    client, other = broker.connect(), broker.connect()
    produce(client, 5_000)
    assert client.receive().throttle_time_ms == 0, "5 KB in ten seconds are 500 a second"
    produce(client, 15_000)
    answer = client.receive()
    assert answer.responses[0].partition_responses[0].base_offset == 1, "it is appended all the same"
    assert answer.throttle_time_ms == pytest.approx((20_000 / FIRST_SPAN_S - 1_000) / 1_000 * 10_000, rel=0.03)
    produce(other, 50_000, client_id="other")
    assert other.receive().throttle_time_ms == 0, "nothing limits other clients"
    assert is_muted_for(broker, client, answer.throttle_time_ms)


def test_a_producer_that_wants_no_answer_is_muted_too(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    limit(broker, SLOW, producer_byte_rate=1_000)
    client = broker.connect()
    batch = produced([record(bytes(20_000))])
    client.send(produce_request("orders", batch, acks=0), 12, "slow")
    client._awaited.clear()
    broker.settle()
    client.send(MetadataRequest(topics=[]), 12, "slow")
    assert client.has_no_answer()
    broker.advance(11_000)
    client.receive()


def test_requests_like_earlier_ones_are_charged_too(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    client = broker.connect()
    for _ in range(3):  # which the connection remembers by now
        produce(client, 100)
        client.receive()
    limit(broker, SLOW, producer_byte_rate=1_000)
    produce(client, 20_000)
    assert client.receive().throttle_time_ms > 0


@pytest.mark.parametrize("in_session", [False, True])
def test_a_consumer_above_its_rate_gets_nothing_and_later_what_it_asked_for(
    broker: InProcessBroker, in_session: bool
) -> None:
    topic_id = broker.create_topic("orders")
    broker.produce("orders", bytes(9_000))
    broker.produce("orders", bytes(9_000))
    limit(broker, SLOW, consumer_byte_rate=1_000)
    client = broker.connect()

    def fetch(epoch: int, session_id: int = 0) -> Any:
        asked = fetch_request(
            topic_id=topic_id,
            partition_max_bytes=5_000,
            session_id=session_id,
            session_epoch=epoch if in_session else -1,
        )
        if session_id:
            asked.topics = []
        return client.ask(asked, 13, "slow")

    first = fetch(0)
    assert first.throttle_time_ms == 0
    assert 9_000 < len(first.responses[0].partitions[0].records) < 9_100
    second = fetch(1, first.session_id)
    assert second.throttle_time_ms == pytest.approx(8_000, rel=0.03)
    assert (second.responses, second.error_code, second.session_id) == ([], E.NONE, first.session_id)
    assert is_muted_for(broker, client, second.throttle_time_ms)
    broker.advance(5_000)
    third = fetch(2, first.session_id)
    assert third.throttle_time_ms == 0
    assert third.responses[0].partitions[0].records == first.responses[0].partitions[0].records


def test_an_answer_has_no_more_than_is_right_in_ten_seconds(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    broker.produce("orders", bytes(50_000))
    broker.produce("orders", bytes(50_000))
    limit(broker, SLOW, consumer_byte_rate=6_000)
    client = broker.connect()
    above = client.ask(fetch_request(), 12, "slow").throttle_time_ms
    assert 0 < above < 20, "for what is around the records"
    broker.advance(above)
    answer = client.ask(fetch_request(), 12, "slow")
    assert len(answer.responses[0].partitions[0].records) == 60_000


def test_of_several_quotas_that_of_the_most_specific_entity_counts(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    user, default_user = {"user": "ANONYMOUS"}, {"user": None}
    small, large = 10.0, 1e9

    def is_throttled() -> bool:
        client = broker.connect()
        produce(client, 1_000)
        answer = client.receive()
        broker.forget(client)
        broker.advance(20_000)
        return bool(answer.throttle_time_ms)

    least_specific_first: list[Mapping[str, str | None]] = [
        {"client-id": None},
        SLOW,
        default_user,
        {**default_user, "client-id": None},
        {**default_user, **SLOW},
        user,
        {**user, "client-id": None},
        {**user, **SLOW},
    ]
    for number, entity in enumerate(least_specific_first):
        rate = large if number % 2 else small
        limit(broker, entity, producer_byte_rate=rate)
        assert is_throttled() is (rate == small), entity
    limit(broker, user, producer_byte_rate=None)
    assert not is_throttled(), "the most specific is still there"


def test_clients_of_a_default_have_a_rate_each_and_those_of_a_user_share_one(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    client = broker.connect()
    limit(broker, {"client-id": None}, producer_byte_rate=1_000)
    for client_id in ("a", "b"):
        produce(client, 8_000, client_id=client_id)
        assert client.receive().throttle_time_ms == 0
    limit(broker, {"user": "ANONYMOUS"}, producer_byte_rate=1_000)
    produce(client, 8_000, client_id="a")
    assert client.receive().throttle_time_ms == 0
    produce(client, 8_000, client_id="b")
    assert client.receive().throttle_time_ms > 0


def test_a_quota_that_is_removed_limits_nobody(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    limit(broker, SLOW, producer_byte_rate=1_000)
    limit(broker, SLOW, producer_byte_rate=None)
    client = broker.connect()
    produce(client, 100_000)
    assert client.receive().throttle_time_ms == 0


def created(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    of_topic = CreateTopicsRequest.Topic
    return CreateTopicsRequest(
        topics=[
            of_topic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
            for name in names
        ],
        timeout_ms=30_000,
    )


def test_changes_of_topics_come_in_bursts_and_are_refused_beyond_them(broker: InProcessBroker) -> None:
    limit(broker, SLOW, controller_mutation_rate=1)
    client = broker.connect()
    assert client.ask(created("burst", partitions=13), 7, "slow").throttle_time_ms == 0, "eleven are saved up"
    answer = client.ask(created("late"), 7, "slow")
    assert (answer.topics[0].error_code, answer.throttle_time_ms) == (E.THROTTLING_QUOTA_EXCEEDED, 2_000)
    assert is_muted_for(broker, client, 2_000)
    answer = client.ask(created(*(f"topic-{number}" for number in range(3))), 7, "slow")
    assert [topic.error_code for topic in answer.topics] == [E.NONE, *[E.THROTTLING_QUOTA_EXCEEDED] * 2]
    assert answer.throttle_time_ms == 1_000
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsRequest.Topic(name="burst", count=14, assignments=None)],
        timeout_ms=30_000,
        validate_only=False,
    )
    deletion = DeleteTopicsRequest(topic_names=["burst"], timeout_ms=30_000)
    for request, version in ((more, 3), (deletion, 5)):
        other = broker.connect()
        answer = other.ask(request, version, "slow")
        result = answer.results[0] if version == 3 else answer.responses[0]
        assert (result.error_code, answer.throttle_time_ms) == (E.THROTTLING_QUOTA_EXCEEDED, 1_000)
    assert client.connection.session.throttle_time_ms == 1_000
    assert broker.topics() == {"burst", "topic-0"}


def test_an_old_client_is_throttled_and_its_changes_are_carried_out(broker: InProcessBroker) -> None:
    limit(broker, SLOW, controller_mutation_rate=1)
    answer = broker.connect().ask(created("many", "more", partitions=10), 5, "slow")
    assert [topic.error_code for topic in answer.topics] == [E.NONE, E.NONE]
    assert answer.throttle_time_ms == 9_000


def test_time_above_its_share_throttles_a_client_for_a_second_at_most(broker: InProcessBroker) -> None:
    limit(broker, SLOW, request_percentage=1e-9)
    client = broker.connect()
    assert client.ask(MetadataRequest(topics=[]), 12, "slow").throttle_time_ms == 1_000
    assert is_muted_for(broker, client, 1_000)


def test_time_of_the_network_counts_for_the_requests_that_follow(broker: InProcessBroker) -> None:
    limit(broker, SLOW, request_percentage=50)
    client = broker.connect()
    session = client.connection.session
    assert client.ask(MetadataRequest(topics=[]), 12, "slow").throttle_time_ms == 0
    assert session.charge_network is not None
    session.charge_network(4_000_000)
    assert client.ask(MetadataRequest(topics=[]), 12, "slow").throttle_time_ms == 0, "4 s in ten are 40 %"
    session.charge_network(1_200_000)
    assert client.ask(MetadataRequest(topics=[]), 12, "slow").throttle_time_ms == pytest.approx(400, abs=100)
    limit(broker, SLOW, request_percentage=None, producer_byte_rate=1_000)
    broker.advance(1_000)
    client.ask(MetadataRequest(topics=[]), 12, "slow")
    assert session.charge_network is None


def test_topics_that_are_created_because_a_client_asks_are_changes_of_that_client(broker: InProcessBroker) -> None:
    limit(broker, SLOW, controller_mutation_rate=0.01)

    def ask(client: Client, name: str) -> int:
        asked = MetadataRequest(topics=[MetadataRequest.Topic(name=name)], allow_auto_topic_creation=True)
        throttle_time_ms: int = client.ask(asked, 12, "slow").throttle_time_ms
        return throttle_time_ms

    assert ask(broker.connect(), "first") == 0
    assert ask(broker.connect(), "second") == 0, "as in Kafka, the answer to the question throttles nobody"
    broker.wait_until(lambda: bool(broker.topics()))
    assert broker.topics() == {"first"}
    answer = broker.connect().ask(created("second"), 7, "slow")
    assert (answer.topics[0].error_code, answer.throttle_time_ms) == (E.THROTTLING_QUOTA_EXCEEDED, 89_000)


def test_the_addresses_of_a_host_have_the_quota_of_its_name(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.network.host_addresses.resolved", {"printer.example": "10.1.1.1"}.get)
    limit(broker, {"ip": "printer.example"}, connection_creation_rate=1)
    limits = broker.server.socket_server.limits

    def is_refused(address: str) -> bool:
        assert limits.of_addresses is not None
        return limits.of_addresses.delay_ms(address, broker.clock.monotonic_ms()) > 0

    broker.wait_until(lambda: is_refused("10.1.1.1"))
    assert not is_refused("10.1.1.2")
    limit(broker, {"ip": "printer.example"}, connection_creation_rate=None)
    assert limits.of_addresses is None


def test_clients_that_use_nothing_are_forgotten_and_never_more_remembered_than_so_many() -> None:
    sensors: ClientSensors[str, TokenBucket] = ClientSensors(TokenBucket)
    for number in range(MOST_CLIENTS + 5):
        sensors.use(f"client {number}", number)
    assert len(sensors) == MOST_CLIENTS
    sensors.use("client 5", MOST_CLIENTS + 5)
    sensors.use("another", FORGOTTEN_AFTER_MS + MOST_CLIENTS)
    assert {sharer for sharer, _ in sensors} >= {"client 5", "another"}
    assert "client 6" not in {sharer for sharer, _ in sensors}
