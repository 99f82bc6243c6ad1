"""Metrics of traffic into topics and out of them."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.topics import DeleteTopicsRequest
from storage.batch.record_batch import HEADER_SIZE
from tests.support.batches import T, changed, produced, record, records
from tests.support.broker import InProcessBroker, running_broker
from tests.support.files import FaultyFileSystem
from tests.support.metrics import now, scrape, shown, up
from tests.support.requests import fetch_request, produce_request


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with running_broker(tmp_path) as broker:
        broker.create_topic("orders", partitions=2)
        broker.create_topic("latest", cleanup_policy="compact")
        yield broker


def test_records_and_bytes_that_go_in_are_counted_for_the_topic_and_for_all(broker: InProcessBroker) -> None:
    batch = produced(3)
    with shown(
        broker,
        {
            'kafka_server_brokertopicmetrics_messagesin_total{topic="orders"}': up(6),
            "kafka_server_brokertopicmetrics_messagesin_total": up(6),
            'kafka_server_brokertopicmetrics_bytesin_total{topic="orders"}': up(2 * len(batch)),
            "kafka_server_brokertopicmetrics_bytesin_total": up(2 * len(batch)),
            'kafka_server_brokertopicmetrics_totalproducerequests_total{topic="orders"}': up(2),
            "kafka_server_brokertopicmetrics_totalproducerequests_total": up(2),
        },
    ):
        for partition in (0, 1):
            broker.ask(produce_request("orders", produced(3), partition=partition), 12)


def test_bytes_that_go_out_are_counted_and_partitions_that_are_asked_for(broker: InProcessBroker) -> None:
    batch = produced(3)
    broker.ask(produce_request("orders", batch), 12)
    with shown(
        broker,
        {
            'kafka_server_brokertopicmetrics_bytesout_total{topic="orders"}': up(2 * len(batch)),
            "kafka_server_brokertopicmetrics_bytesout_total": up(2 * len(batch)),
            'kafka_server_brokertopicmetrics_totalfetchrequests_total{topic="orders"}': up(3),
            "kafka_server_brokertopicmetrics_totalfetchrequests_total": up(3),
        },
    ):
        for offset in (0, 0, 3):
            broker.ask(fetch_request("orders", offset=offset), 12)


def test_a_fetch_that_waits_is_one(broker: InProcessBroker) -> None:
    client = broker.connect()
    with shown(broker, {'kafka_server_brokertopicmetrics_totalfetchrequests_total{topic="orders"}': up(1)}):
        client.send(fetch_request("orders", max_wait_ms=500), 12)
        broker.settle()
        broker.produce("orders", b"one")
        client.receive()


def test_bytes_of_batches_that_are_too_large_are_counted(broker: InProcessBroker) -> None:
    batch = produced([record(bytes(2_000_000))])
    with shown(
        broker,
        {
            'kafka_server_brokertopicmetrics_bytesrejected_total{topic="orders"}': up(len(batch)),
            "kafka_server_brokertopicmetrics_bytesrejected_total": up(len(batch)),
            'kafka_server_brokertopicmetrics_totalproducerequests_total{topic="orders"}': up(1),
        },
    ):
        broker.ask(produce_request("orders", batch), 12)
    assert scrape(broker)['kafka_server_brokertopicmetrics_failedproducerequests_total{topic="orders"}'] == 0


def test_records_that_break_a_rule_are_failures(broker: InProcessBroker) -> None:
    with shown(
        broker,
        {
            'kafka_server_brokertopicmetrics_failedproducerequests_total{topic="orders"}': up(1),
            'kafka_server_brokertopicmetrics_failedproducerequests_total{topic="latest"}': up(1),
            "kafka_server_brokertopicmetrics_failedproducerequests_total": up(2),
            "kafka_server_brokertopicmetrics_nokeycompactedtopicrecords_total": up(2),
        },
    ):
        broker.ask(produce_request("orders", produced([record(timestamp=T + 10**10)])), 12)
        broker.ask(produce_request("latest", produced([record(key=None), record(), record(key=None)])), 12)


def test_damaged_batches_are_counted_and_are_no_failures_of_ours(broker: InProcessBroker) -> None:
    with shown(
        broker,
        {
            "kafka_server_brokertopicmetrics_invalidmessagecrcrecords_total": up(1),
            'kafka_server_brokertopicmetrics_totalproducerequests_total{topic="orders"}': up(1),
        },
    ):
        broker.ask(produce_request("orders", changed(produced(), crc=1)), 12)
    assert scrape(broker)["kafka_server_brokertopicmetrics_failedproducerequests_total"] == 0


def test_wrong_offsets_and_sequences_are_counted(broker: InProcessBroker) -> None:
    with shown(broker, {"kafka_server_brokertopicmetrics_invalidoffsetorsequencerecords_total": up(2)}):
        broker.ask(produce_request("orders", changed(produced(2), last_offset_delta=7)), 12)
        broker.ask(produce_request("orders", changed(produced(2), producer_id=5, producer_epoch=0)), 12)


def test_a_fetch_of_less_than_nothing_is_a_failure(broker: InProcessBroker) -> None:
    broker.produce("orders", b"one")
    with shown(
        broker,
        {
            'kafka_server_brokertopicmetrics_failedfetchrequests_total{topic="orders"}': up(1),
            "kafka_server_brokertopicmetrics_failedfetchrequests_total": up(1),
        },
    ):
        broker.ask(fetch_request("orders", partition_max_bytes=-1), 12)
        broker.ask(fetch_request("orders", offset=1_000), 12)  # anybody may ask for what is not there


def test_what_is_sent_twice_is_counted_twice(broker: InProcessBroker) -> None:
    producer = broker.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4)
    state = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch, "base_sequence": 0}
    with shown(
        broker,
        {
            'kafka_server_brokertopicmetrics_messagesin_total{topic="orders"}': up(4),
            'kafka_server_brokertopicmetrics_bytesin_total{topic="orders"}': up(2 * len(produced(2, **state))),
            "kafka_server_replicamanager_produceridcount": now(1),
        },
    ):
        for _ in range(2):
            broker.ask(produce_request("orders", produced(2, **state)), 12)
    assert broker.log("orders").log_end_offset == 2


def test_what_a_deleted_topic_has_had_stays_in_the_sum_of_all(broker: InProcessBroker) -> None:
    broker.produce("orders", b"one", b"two")
    broker.ask(fetch_request("orders"), 12)
    before = scrape(broker)
    broker.ask(
        DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="orders", topic_id=bytes(16))], timeout_ms=1), 6
    )
    broker.settle()
    page = scrape(broker)
    for name in ("messagesin", "bytesin", "bytesout", "totalproducerequests", "totalfetchrequests"):
        series = f"kafka_server_brokertopicmetrics_{name}_total"
        assert page[series] == before[series] > 0
        assert page.get(f'{series}{{topic="orders"}}') is None
    broker.create_topic("orders")
    assert scrape(broker)['kafka_server_brokertopicmetrics_messagesin_total{topic="orders"}'] == 0


def test_a_batch_that_the_disk_refuses_was_to_be_appended(tmp_path: Path) -> None:
    files = FaultyFileSystem()
    with running_broker(tmp_path / "full", files=files) as broker:
        broker.create_topic("orders")
        broker.produce("orders", b"one")
        with shown(broker, {'kafka_server_brokertopicmetrics_totalproducerequests_total{topic="orders"}': up(1)}):
            files.fail("write", errno.ENOSPC, suffix="orders-0/00000000000000000000.log")
            broker.ask(produce_request("orders", produced()), 12)
        assert scrape(broker)["kafka_server_brokertopicmetrics_messagesin_total"] == 1


def test_rolled_and_removed_segments_and_flushes_are_counted(tmp_path: Path) -> None:
    with running_broker(tmp_path / "rolled", log_initial_task_delay_ms=1_000_000) as broker:
        broker.create_topic("orders", segment_bytes=1_048_576, retention_bytes=1_000, flush_messages=5)
        with shown(
            broker,
            {
                'ottla_log_rolls_total{topic="orders"}': up(1),
                'ottla_log_flushes_total{topic="orders"}': up(),
                "kafka_log_logflushstats_logflushrateandtimems_count": up(),
                'kafka_log_log_numlogsegments{topic="orders",partition="0"}': now(2),
            },
        ):
            for _ in range(2):
                broker.produce("orders", bytes(600_000))
            for _ in range(5):
                broker.produce("orders", b"small")
            broker.wait_until(lambda: broker.log("orders").stats.flushes > 1)
            broker.settle()
        assert scrape(broker)['kafka_log_logflushstats_logflushrateandtimems{quantile="0.99"}'] > 0
        with shown(
            broker,
            {
                'ottla_log_segments_removed_total{topic="orders"}': up(1),
                'kafka_log_log_logstartoffset{topic="orders",partition="0"}': now(1),
                'kafka_topic_partition_oldest_offset{topic="orders",partition="0"}': now(1),
            },
        ):
            broker.advance(1_000_000)


def test_topics_have_as_many_partitions_as_they_have(broker: InProcessBroker) -> None:
    page = scrape(broker)
    assert (page['kafka_topic_partitions{topic="orders"}'], page['kafka_topic_partitions{topic="latest"}']) == (2, 1)
    with shown(broker, {'kafka_topic_partitions{topic="more"}': up(5)}):
        broker.create_topic("more", partitions=5)


def test_these_stay_0_on_a_single_node_that_converts_nothing(broker: InProcessBroker) -> None:
    broker.ask(produce_request("orders", memoryview(bytes(records_of_magic_1()))), 3)
    page = scrape(broker)
    for name in (
        "kafka_server_brokertopicmetrics_invalidmagicnumberrecords_total",
        "kafka_server_brokertopicmetrics_producemessageconversions_total",
        "kafka_server_brokertopicmetrics_fetchmessageconversions_total",
        "kafka_server_brokertopicmetrics_replicationbytesin_total",
        "kafka_server_brokertopicmetrics_replicationbytesout_total",
        "kafka_server_brokertopicmetrics_reassignmentbytesin_total",
        "kafka_server_brokertopicmetrics_reassignmentbytesout_total",
    ):
        assert page[name] == 0


def records_of_magic_1() -> bytes:
    """Whatever an old producer sends: only the magic is looked at."""
    batch = bytearray(produced(records(1)))
    batch[16] = 1
    assert len(batch) > HEADER_SIZE
    return bytes(batch)
