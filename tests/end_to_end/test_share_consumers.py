"""What a share consumer may rely on: how records are acknowledged, delivered again, counted and given up."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from dev.broker_process import BrokerProcess
from dev.brokers import broker_for_tests
from dev.waiting import until
from protocol.errors import ErrorCode
from tests.support.clients import Client, Place, Record, connect
from tests.support.clients.transactions import ConfluentProducer
from tests.support.sharing import (
    QUICK,
    ShareTaker,
    WireMember,
    configure_group,
    from_the_beginning,
)

confluent_kafka = pytest.importorskip("confluent_kafka")
if not hasattr(confluent_kafka, "ShareConsumer"):
    pytest.skip("this librdkafka has no share consumer", allow_module_level=True)

ACCEPT, RELEASE = 1, 2


@pytest.fixture(scope="module")
def sharing_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose share groups notice changes soon; each test keeps to topics and groups of its own."""
    with broker_for_tests(tmp_path_factory.mktemp("sharing"), settings=QUICK) as process:
        yield process


@pytest.fixture
def client(sharing_broker: BrokerProcess) -> Client:
    return connect("confluent-kafka", sharing_broker.bootstrap)


@pytest.fixture
def bootstrap(sharing_broker: BrokerProcess) -> str:
    return sharing_broker.bootstrap


@pytest.fixture
def jobs(client: Client) -> str:
    """A topic of one partition with the records 0 to 9."""
    client.create_topic(name := f"jobs-{uuid.uuid4().hex[:8]}")
    produce(client, name, range(10))
    return name


@pytest.fixture
def group(bootstrap: str) -> str:
    """A group that begins with the first record."""
    from_the_beginning(bootstrap, name := f"workers-{uuid.uuid4().hex[:8]}")
    return name


def produce(client: Client, topic: str, numbers: range) -> None:
    client.produce(topic, [Record(value=b"%d" % number, partition=0) for number in numbers])


def counts(numbers: range, count: int) -> dict[bytes, int]:
    return {b"%d" % number: count for number in numbers}


def test_the_next_poll_accepts_what_the_last_one_gave(client: Client, bootstrap: str, jobs: str, group: str) -> None:
    with ShareTaker(bootstrap, group, jobs, mode="implicit") as taker:
        assert {one.value: one.delivery_count for one in taker.take()} == counts(range(10), 1)
        produce(client, jobs, range(10, 12))
        assert [one.value for one in taker.take()] == [b"10", b"11"]
    # The end of the consumer may release what the last poll gave, and nothing of what an earlier poll gave.
    produce(client, jobs, range(12, 13))
    with ShareTaker(bootstrap, group, jobs) as taker:
        done: dict[bytes, int] = {}
        while b"12" not in done:
            done |= taker.work_off(1)
        assert done.keys() <= {b"10", b"11", b"12"}


def test_each_record_is_accepted_released_or_rejected(client: Client, bootstrap: str, jobs: str, group: str) -> None:
    with ShareTaker(bootstrap, group, jobs) as taker:
        taken = taker.take()
        taker.acknowledge(taken[:3], "ACCEPT")
        taker.acknowledge(taken[3:6], "RELEASE")
        taker.acknowledge(taken[6:], "REJECT")
        taker.commit()
        assert taker.work_off(3) == counts(range(3, 6), 2)
        produce(client, jobs, range(10, 11))
        assert taker.work_off(1) == {b"10": 1}


def test_what_a_member_holds_too_long_goes_to_another_and_is_no_longer_its_own(
    bootstrap: str, jobs: str, group: str
) -> None:
    configure_group(bootstrap, group, record_lock_duration_ms="1000")
    with WireMember(bootstrap, group, jobs) as slow, WireMember(bootstrap, group, jobs, member_id="bert") as bert:
        slow.join()
        assert slow.take(10) == [(0, 9, 1)]
        bert.join()
        assert bert.take(10) == [(0, 9, 2)]
        late = slow.acknowledge(slow.said((0, 9, ACCEPT))).responses[0].partitions[0]
        assert late.error_code == ErrorCode.INVALID_RECORD_STATE
        done = bert.acknowledge(bert.said((0, 9, ACCEPT))).responses[0].partitions[0]
        assert done.error_code == ErrorCode.NONE


def test_a_record_is_delivered_as_often_as_the_limit_says(
    client: Client, bootstrap: str, jobs: str, group: str
) -> None:
    configure_group(bootstrap, group, delivery_count_limit="3")
    with ShareTaker(bootstrap, group, jobs) as taker:
        seen: dict[bytes, list[int]] = {}
        while sum(map(len, seen.values())) < 30:
            taken = taker.take()  # not all at once: what was delivered often may be what a consumer cannot bear
            for one in taken:
                seen.setdefault(one.value, []).append(one.delivery_count)
            taker.acknowledge(taken, "RELEASE")
            taker.commit()
        assert seen == {value: [1, 2, 3] for value in counts(range(10), 3)}
        produce(client, jobs, range(10, 11))
        assert taker.work_off(1) == {b"10": 1}


def test_configs_of_a_group_change_while_its_consumers_run(
    client: Client, bootstrap: str, jobs: str, group: str
) -> None:
    """The limit of deliveries holds from the next release on, the lock's duration from the next delivery on."""
    with WireMember(bootstrap, group, jobs) as member:
        member.join()
        assert member.take(10) == [(0, 9, 1)]
        member.acknowledge(member.said((0, 9, RELEASE)))
        configure_group(bootstrap, group, delivery_count_limit="2", record_lock_duration_ms="1000")
        assert member.take(10) == [(0, 9, 2)]
        # Nothing is said: the lock expires after a second, and the second delivery was the last.
        produce(client, jobs, range(10, 11))
        assert member.take(1) == [(10, 10, 1)]
        until(lambda: member.acquire() == [(10, 10, 2)], "the lock of the last record has expired")


def test_groups_and_topics_do_not_know_each_other(client: Client, bootstrap: str, jobs: str, group: str) -> None:
    client.create_topic(others := f"others-{uuid.uuid4().hex[:8]}", partitions=2)
    client.produce(others, [Record(value=b"o%d" % number, partition=number % 2) for number in range(6)])
    from_the_beginning(bootstrap, second := f"{group}-too")
    with ShareTaker(bootstrap, group, jobs, others) as one, ShareTaker(bootstrap, second, jobs) as two:
        assert one.work_off(16) == {**counts(range(10), 1), **{b"o%d" % number: 1 for number in range(6)}}
        assert two.work_off(10) == counts(range(10), 1)


def test_aborted_records_are_for_groups_that_read_uncommitted_only(client: Client, bootstrap: str, group: str) -> None:
    client.create_topic(topic := f"transactions-{uuid.uuid4().hex[:8]}")
    configure_group(bootstrap, group, isolation_level="read_committed")
    from_the_beginning(bootstrap, careless := f"{group}-too")
    producer = ConfluentProducer(bootstrap, f"id-of-{topic}")
    for number in range(6):
        producer.begin()
        producer.send(Place(topic, 0), b"%d" % number)
        producer.flush()
        if number % 2:
            producer.abort()
        else:
            producer.commit()
    producer.close()
    with ShareTaker(bootstrap, group, topic) as careful, ShareTaker(bootstrap, careless, topic) as other:
        assert careful.work_off(3) == {b"0": 1, b"2": 1, b"4": 1}
        assert other.work_off(6) == counts(range(6), 1)
        produce(client, topic, range(6, 7))
        assert careful.work_off(1) == {b"6": 1}


def test_a_topic_that_is_deleted_in_flight_leaves_the_others(
    client: Client, bootstrap: str, jobs: str, group: str
) -> None:
    client.create_topic(doomed := f"doomed-{uuid.uuid4().hex[:8]}")
    produce(client, doomed, range(100, 105))
    with WireMember(bootstrap, group, doomed) as member:
        member.join()
        member.take(5)
        client.delete_topic(doomed)
        with ShareTaker(bootstrap, group, jobs, doomed) as taker:
            assert taker.work_off(10) == counts(range(10), 1)
        [answer] = member.acknowledge(member.said((0, 4, ACCEPT))).responses
        assert answer.partitions[0].error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
