"""What a transaction writes is seen whole and once when it is committed, and not at all when it is not."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dev.broker_process import BrokerProcess
from dev.brokers import broker_for_tests
from dev.waiting import until
from tests.support.clients import Client, Place, Record, connect
from tests.support.clients.transactions import FENCE, PRODUCERS, Fenced, TransactionalProducer, read
from tests.support.clients.transforming import SETTINGS, Transformation, worker_command

Begin = Callable[..., TransactionalProducer]

PARTITIONS = 3


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that aborts transactions soon after their timeout."""
    process = broker_for_tests(
        tmp_path, settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    )
    with process:
        yield process


@pytest.fixture
def its_broker(request: pytest.FixtureRequest) -> BrokerProcess:
    """The broker that the test names: a process of its own, or an empty broker."""
    broker: BrokerProcess = request.getfixturevalue(
        "own_broker" if "own_broker" in request.fixturenames else "empty_broker"
    )
    return broker


@pytest.fixture
def begin(client_name: str, its_broker: BrokerProcess, request: pytest.FixtureRequest) -> Begin:
    """Begins producers of the client."""

    def begin(transactional_id: str, **arguments: int) -> TransactionalProducer:
        producer = PRODUCERS[client_name](its_broker.bootstrap, transactional_id, **arguments)
        request.addfinalizer(producer.close)
        return producer

    return begin


@pytest.fixture
def own_client(client_name: str, its_broker: BrokerProcess, topic: str) -> Client:
    client = connect(client_name, its_broker.bootstrap)
    client.create_topic(topic, partitions=PARTITIONS)
    return client


def places(topic: str) -> list[Place]:
    return [Place(topic, partition) for partition in range(PARTITIONS)]


def write(producer: TransactionalProducer, topic: str, name: str) -> list[bytes]:
    """A record for each partition."""
    values = []
    for place in places(topic):
        values.append(f"{name}-{place.partition}".encode())
        producer.send(place, values[-1])
    producer.flush()
    return values


def seen(client: Client, client_name: str, broker: BrokerProcess, topic: str, isolation: str) -> list[bytes]:
    """All values that a reader sees, and that no value is seen twice."""
    client.produce(topic, [Record(value=FENCE, partition=partition) for partition in range(PARTITIONS)])
    values = read(broker.bootstrap, client_name, places(topic), isolation=isolation)
    assert max(Counter(values).values(), default=1) == 1
    return sorted(values)


def test_committed_records_are_seen_and_aborted_ones_are_not(
    begin: Begin, own_client: Client, client_name: str, empty_broker: BrokerProcess, topic: str
) -> None:
    producer = begin("shop")
    committed, aborted = [], []
    for number in range(6):
        producer.begin()
        if number % 2:
            aborted += write(producer, topic, f"aborted {number}")
            producer.abort()
        else:
            committed += write(producer, topic, f"committed {number}")
            producer.commit()
    assert seen(own_client, client_name, empty_broker, topic, "read_committed") == sorted(committed)


def test_uncommitted_records_are_seen_by_readers_that_ask_for_them(
    begin: Begin, own_client: Client, client_name: str, empty_broker: BrokerProcess, topic: str
) -> None:
    producer = begin("shop")
    producer.begin()
    aborted = write(producer, topic, "aborted")
    producer.abort()
    producer.begin()
    committed = write(producer, topic, "committed")
    producer.commit()
    assert seen(own_client, client_name, empty_broker, topic, "read_uncommitted") == sorted(aborted + committed)


def test_a_producer_is_fenced_by_the_next_one_with_its_id(
    begin: Begin, own_client: Client, client_name: str, empty_broker: BrokerProcess, topic: str
) -> None:
    first = begin("shop")
    first.begin()
    write(first, topic, "of the first")
    second = begin("shop")
    with pytest.raises(Fenced):
        first.commit()
    second.begin()
    expected = write(second, topic, "of the second")
    second.commit()
    assert seen(own_client, client_name, empty_broker, topic, "read_committed") == sorted(expected)


def test_a_committed_transaction_survives_the_broker(
    begin: Begin, own_client: Client, client_name: str, own_broker: BrokerProcess, topic: str
) -> None:
    producer = begin("shop")
    expected = []
    for number in range(5):
        producer.begin()
        expected += write(producer, topic, f"transaction {number}")
        producer.commit()
        own_broker.kill()
        own_broker.start()
    assert seen(own_client, client_name, own_broker, topic, "read_committed") == sorted(expected)


@pytest.mark.parametrize("commit", [True, False])
def test_an_open_transaction_goes_on_after_the_broker_was_killed(
    begin: Begin, own_client: Client, client_name: str, own_broker: BrokerProcess, topic: str, commit: bool
) -> None:
    producer = begin("shop")
    producer.begin()
    written = write(producer, topic, "before")
    own_broker.kill()
    own_broker.start()
    written += write(producer, topic, "behind")
    if commit:
        producer.commit()
    else:
        producer.abort()
    expected = sorted(written) if commit else []
    assert seen(own_client, client_name, own_broker, topic, "read_committed") == expected


def test_a_transaction_that_nobody_ends_is_aborted_after_its_timeout(
    begin: Begin, own_client: Client, client_name: str, own_broker: BrokerProcess, topic: str
) -> None:
    producer = begin("shop", timeout_ms=1_000)
    producer.begin()
    write(producer, topic, "left alone")
    own_broker.kill()
    own_broker.start()
    # The reader gets past the open transaction only once it is aborted.
    assert seen(own_client, client_name, own_broker, topic, "read_committed") == []


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_are_committed_with_the_transaction(
    begin: Begin, own_client: Client, topic: str, group: str, commit: bool
) -> None:
    producer = begin("shop")
    producer.begin()
    write(producer, topic, "consumed")
    producer.send_offsets(group, {place: 7 + place.partition for place in places(topic)})
    if commit:
        producer.commit()
    else:
        producer.abort()

    def offsets() -> dict[Place, int]:
        return {place: found.offset for place, found in own_client.committed(group, places(topic)).items()}

    expected = {place: 7 + place.partition for place in places(topic)} if commit else {}
    until(lambda: offsets() == expected)


@pytest.mark.parametrize("client", ["confluent-kafka", "aiokafka", "kafka-python"])
def test_what_is_transformed_in_transactions_is_there_once_though_everything_is_killed(
    tmp_path: Path, client: str
) -> None:
    with (
        broker_for_tests(tmp_path, settings=SETTINGS) as broker,
        Transformation(broker, worker_command(client), tmp_path, random.Random(28)) as transformation,
    ):
        for _ in range(10):
            transformation.kill_something()
        assert transformation.finish() == []
