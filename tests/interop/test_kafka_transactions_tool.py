"""`kafka-transactions`, Kafka's own tool that looks at transactions, and finds and ends those that hang (KIP-664)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from dev.broker_process import RETENTION_COMES_LATER, BrokerProcess
from dev.brokers import broker_for_tests
from dev.waiting import until
from protocol.messages.init_producer_id import InitProducerIdRequest
from tests.interop import programs
from tests.interop.conftest import FEW_INTERNAL_PARTITIONS, installed
from tests.interop.java_tools import JavaTools
from tests.support.batches import produced, record
from tests.support.clients import Client, Place, Record, connect
from tests.support.clients.transactions import FENCE, ConfluentProducer, Fenced, read
from tests.support.raw_client import RawClient
from tests.support.requests import fetch_request, produce_request

TOOL = "kafka-transactions"
LISTED = ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
DESCRIBED = [
    *("CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs"),
    *("CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions"),
]
PRODUCERS = [
    *("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp"),
    "CurrentTransactionStartOffset",
]
HANGING = [
    *("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp"),
    "Duration(min)",
]

INIT, PRODUCE, FETCH = 4, 11, 11
"""Versions that clients of transaction version 1 use, in which a batch adds no partition to its transaction."""
TIMEOUT_MS = 600_000
UNKNOWN_PRODUCER_ID = 4711
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that does not ask the coordinator before it takes a batch of a transaction, as before KIP-890."""
    settings = {
        **RETENTION_COMES_LATER, **FEW_INTERNAL_PARTITIONS, "transaction.partition.verification.enable": "false",
    }  # fmt: skip
    with broker_for_tests(tmp_path_factory.mktemp("unverified"), settings=settings) as process:
        yield process


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Client:
    client = connect("confluent-kafka", broker.bootstrap)
    until(lambda: client.cluster().brokers != (), "a broker in the metadata")
    return client


@pytest.fixture(scope="module")
def node_id(client: Client) -> str:
    return str(client.cluster().controller_id)


@pytest.fixture(scope="module")
def java(broker: BrokerProcess) -> JavaTools:
    return JavaTools(installed(programs.java), broker.bootstrap)


@pytest.fixture
def open_one(broker: BrokerProcess, client: Client, topic: str) -> Iterator[ConfluentProducer]:
    """A producer with the topic's name as its transactional id, and a record of its transaction in partition 1."""
    client.create_topic(topic, partitions=2)
    with closing(ConfluentProducer(broker.bootstrap, topic, TIMEOUT_MS)) as producer:
        producer.begin()
        producer.send(Place(topic, 1), b"open")
        producer.flush()
        yield producer


def rows(lines: list[str], headings: list[str]) -> list[dict[str, str]]:
    """The rows of a table that has these headings; a cell may be empty."""
    first, *others = ([cell.strip() for cell in line.rstrip("\n").split("\t")][:-1] for line in lines)
    assert first == headings
    return [dict(zip(headings, cells, strict=True)) for cells in others]


def listed(java: JavaTools, *filters: str) -> dict[str, str]:
    """The states of the transactional ids that the filters let through."""
    found = rows(java.lines(TOOL, "list", *filters), LISTED)
    return {row["TransactionalId"]: row["TransactionState"] for row in found}


def described(java: JavaTools, transactional_id: str) -> dict[str, str]:
    [row] = rows(java.lines(TOOL, "describe", "--transactional-id", transactional_id), DESCRIBED)
    return row


def producers(java: JavaTools, topic: str, partition: int, *options: str) -> list[dict[str, str]]:
    words = ("--topic", topic, "--partition", str(partition), *options)
    return rows(java.lines(TOOL, "describe-producers", *words), PRODUCERS)


def hanging(java: JavaTools, *options: str) -> list[dict[str, str]]:
    return rows(java.lines(TOOL, "find-hanging", *options), HANGING)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# Looking


def test_transactions_are_listed_by_id_and_duration(
    java: JavaTools, broker: BrokerProcess, topic: str, open_one: ConfluentProducer
) -> None:
    for fate in ("committed", "aborted", "empty"):
        with closing(ConfluentProducer(broker.bootstrap, f"{topic}-{fate}", TIMEOUT_MS)) as producer:
            if fate != "empty":
                producer.begin()
                producer.send(Place(topic, 0), fate.encode())
                producer.flush()
                (producer.commit if fate == "committed" else producer.abort)()
    empty, ended = (
        {f"{topic}-empty": "Empty"},
        {f"{topic}-committed": "CompleteCommit", f"{topic}-aborted": "CompleteAbort"},
    )
    everything = {topic: "Ongoing", **ended, **empty}

    assert listed(java).items() >= everything.items()
    assert listed(java, "--transactional-id-pattern", f"{topic}.*") == everything
    assert listed(java, "--transactional-id-pattern", f"{topic}-(committed|empty)").keys() == {
        f"{topic}-committed",
        f"{topic}-empty",
    }
    assert listed(java, "--transactional-id-pattern", topic[:-1]) == {}
    assert listed(java, "--transactional-id-pattern", f"{topic}.*", "--duration-filter", "0") == everything
    # What has never begun has, for Kafka, lasted since 1970.
    assert listed(java, "--transactional-id-pattern", f"{topic}.*", "--duration-filter", str(HOUR_MS)) == empty


def test_a_pattern_that_is_none_is_refused(java: JavaTools) -> None:
    refused = java.run(TOOL, "list", "--transactional-id-pattern", "(shop").refused()
    assert "Failed to list transactions" in refused.said
    assert "INVALID_REGULAR_EXPRESSION" in refused.said


def test_an_open_transaction_is_described_and_an_ended_one(
    java: JavaTools, node_id: str, topic: str, open_one: ConfluentProducer
) -> None:
    before = described(java, topic)

    assert before["CoordinatorId"] == node_id
    assert (before["TransactionalId"], before["ProducerEpoch"]) == (topic, "0")
    assert (before["TransactionState"], before["TransactionTimeoutMs"]) == ("Ongoing", str(TIMEOUT_MS))
    assert before["TopicPartitions"] == f"{topic}-1"
    assert now_ms() - 10 * HOUR_MS < int(before["CurrentTransactionStartTimeMs"]) <= now_ms()
    assert int(before["TransactionDurationMs"]) >= 0

    open_one.commit()

    after = described(java, topic)
    assert (after["TransactionState"], after["TopicPartitions"]) == ("CompleteCommit", "")
    assert after["ProducerId"] == before["ProducerId"]


def test_an_id_that_no_producer_has_is_refused(java: JavaTools, topic: str) -> None:
    refused = java.run(TOOL, "describe", "--transactional-id", topic).refused()
    assert f"Failed to describe transaction state of transactional-id `{topic}`" in refused.said
    assert "the ID could not be found" in refused.said


def test_the_producers_of_a_partition_are_described(
    java: JavaTools, node_id: str, topic: str, open_one: ConfluentProducer
) -> None:
    assert producers(java, topic, 0) == []
    [during] = producers(java, topic, 1)
    assert (during["ProducerEpoch"], during["LatestCoordinatorEpoch"], during["LastSequence"]) == ("0", "-1", "0")
    assert during["CurrentTransactionStartOffset"] == "0"

    open_one.commit()

    [after] = producers(java, topic, 1, "--broker-id", node_id)
    assert after["ProducerId"] == during["ProducerId"] == described(java, topic)["ProducerId"]
    assert (after["LatestCoordinatorEpoch"], after["LastSequence"]) == ("0", "0")
    assert after["CurrentTransactionStartOffset"] == "None"


# Transactions that hang


def leave_hanging(broker: BrokerProcess, topic: str, producer_id: int, *, timestamp_ms: int) -> None:
    """A batch of a transaction that came late: its coordinator does not have the partition in any transaction."""
    fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    batch = produced([record(b"late", timestamp=timestamp_ms)], **fields)
    with RawClient(broker.bootstrap) as raw:
        [answer] = (
            raw.ask(produce_request(topic, batch, transactional_id=topic), PRODUCE).responses[0].partition_responses
        )
        assert answer.error_code == 0


def last_stable_offset(broker: BrokerProcess, topic: str) -> int:
    with RawClient(broker.bootstrap) as raw:
        [partition] = raw.ask(fetch_request(topic, isolation_level=1), FETCH).responses[0].partitions
        offset: int = partition.last_stable_offset
        return offset


def test_a_hanging_transaction_is_found_and_aborted_by_its_first_offset(
    java: JavaTools, broker: BrokerProcess, client: Client, node_id: str, topic: str, open_one: ConfluentProducer
) -> None:
    """Its producer is known to the coordinator, and has no transaction."""
    with RawClient(broker.bootstrap) as raw:
        known = InitProducerIdRequest(transactional_id=f"{topic}-late", transaction_timeout_ms=TIMEOUT_MS)
        producer_id = raw.ask(known, INIT).producer_id
    client.produce(topic, [Record(value=b"before", partition=0)])
    an_hour_ago = now_ms() - HOUR_MS
    leave_hanging(broker, topic, producer_id, timestamp_ms=an_hour_ago)
    client.produce(topic, [Record(value=b"behind", partition=0), Record(value=FENCE, partition=0)])
    assert last_stable_offset(broker, topic) == 1

    [found] = hanging(java, "--topic", topic)

    assert 60 <= int(found.pop("Duration(min)")) < 120
    assert found == {
        "Topic": topic,
        "Partition": "0",
        "ProducerId": str(producer_id),
        "ProducerEpoch": "0",
        "CoordinatorEpoch": "-1",
        "StartOffset": "1",
        "LastTimestamp": str(an_hour_ago),
    }
    assert topic in {row["Topic"] for row in hanging(java, "--broker-id", node_id)}

    place = ("--topic", topic, "--partition", "0")
    assert java.lines(TOOL, "abort", *place, "--start-offset", "1") == []

    assert hanging(java, "--topic", topic) == []
    assert last_stable_offset(broker, topic) == 5
    seen = read(broker.bootstrap, "confluent-kafka", [Place(topic, 0)], isolation="read_committed")
    assert seen == [b"before", b"behind"]
    refused = java.run(TOOL, "abort", *place, "--start-offset", "1").refused()
    assert f"Could not find any open transactions starting at offset 1 on partition {topic}-0" in refused.said


def test_a_hanging_transaction_is_aborted_by_its_producer_as_on_older_brokers(
    java: JavaTools, broker: BrokerProcess, client: Client, topic: str
) -> None:
    """No coordinator knows its producer, and it is young."""
    client.create_topic(topic)
    leave_hanging(broker, topic, UNKNOWN_PRODUCER_ID, timestamp_ms=now_ms())
    place = ("--topic", topic, "--partition", "0")
    assert hanging(java, *place) == []
    [found] = hanging(java, *place, "--max-transaction-timeout", "0")
    assert (found["ProducerId"], found["StartOffset"]) == (str(UNKNOWN_PRODUCER_ID), "0")

    form = ("--producer-id", str(UNKNOWN_PRODUCER_ID), "--producer-epoch", "0")
    assert "Missing required argument --coordinator-epoch" in java.run(TOOL, "abort", *place, *form).refused().said
    assert java.lines(TOOL, "abort", *place, *form, "--coordinator-epoch", "0") == []

    assert hanging(java, *place, "--max-transaction-timeout", "0") == []
    [after] = producers(java, topic, 0)
    assert (after["LatestCoordinatorEpoch"], after["CurrentTransactionStartOffset"]) == ("0", "None")
    assert last_stable_offset(broker, topic) == 2


def test_a_transaction_that_its_coordinator_will_end_does_not_hang(
    java: JavaTools, topic: str, open_one: ConfluentProducer
) -> None:
    assert hanging(java, "--topic", topic, "--max-transaction-timeout", "0") == []


# Transactions that are ended by force


def test_a_transaction_is_aborted_and_its_producer_fenced(
    java: JavaTools, broker: BrokerProcess, client: Client, topic: str, open_one: ConfluentProducer
) -> None:
    before = described(java, topic)

    assert java.lines(TOOL, "forceTerminateTransaction", "--transactionalId", topic) == []

    after = described(java, topic)
    assert (after["TransactionState"], after["TopicPartitions"]) == ("Empty", "")
    assert after["ProducerId"] == before["ProducerId"]
    assert int(after["ProducerEpoch"]) > int(before["ProducerEpoch"])
    with pytest.raises(Fenced):
        open_one.commit()
    client.produce(topic, [Record(value=FENCE, partition=1)])
    assert read(broker.bootstrap, "confluent-kafka", [Place(topic, 1)], isolation="read_committed") == []
