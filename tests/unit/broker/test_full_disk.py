"""A disk without room: appends of clients are refused, all else goes on, and nobody has to start anew afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode as E
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from storage.file_info import DiskSpace
from storage.files import FileSystem
from tests.support.batches import produced, record
from tests.support.broker import InProcessBroker, running_broker
from tests.support.files import FaultyFileSystem
from tests.support.requests import fetch_request, produce_request

MB = 1 << 20
RESERVE = 64 * MB


class SmallDisk(FaultyFileSystem):
    """A file system that is as full as the test says."""

    usable_bytes = 1000 * MB

    def space(self, path: str) -> DiskSpace:
        return DiskSpace(10_000 * MB, self.usable_bytes)


@pytest.fixture
def disk() -> SmallDisk:
    return SmallDisk()


@pytest.fixture
def broker(tmp_path: Path, disk: FileSystem) -> Iterator[InProcessBroker]:
    with running_broker(tmp_path / "data", files=disk, log_segment_delete_delay_ms=0) as broker:
        broker.create_topic("orders")
        broker.produce("orders", b"first")
        yield broker


def produce(broker: InProcessBroker, topic: str = "orders", client_id: str = "test") -> int:
    answer = broker.ask(produce_request(topic, produced([record()])), 12, client_id)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def create(broker: InProcessBroker, topic: str) -> int:
    wanted = CreateTopicsRequest.Topic(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    code: int = broker.ask(CreateTopicsRequest(topics=[wanted]), 7).topics[0].error_code
    return code


def lines(caplog: pytest.LogCaptureFixture, words: str) -> int:
    return len([line for line in caplog.messages if words in line])


def test_at_the_reserve_producing_stops_with_one_line_and_the_rest_goes_on(
    broker: InProcessBroker, disk: SmallDisk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.usable_bytes = RESERVE
    broker.advance(1_000)
    assert [produce(broker) for _ in range(5)] == [E.KAFKA_STORAGE_ERROR] * 5
    assert lines(caplog, "is full") == 1

    read = broker.ask(fetch_request(), 12).responses[0].partitions[0]
    assert (read.error_code, read.high_watermark, bool(read.records)) == (E.NONE, 1, True)
    assert create(broker, "another") == E.NONE
    deletion = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=1)
    deletions = DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.Topic(name="orders", partitions=[deletion])], timeout_ms=1000
    )
    assert broker.ask(deletions, 2).topics[0].partitions[0].low_watermark == 1
    topics = [DeleteTopicsRequest.Topic(name="another", topic_id=bytes(16))]
    assert broker.ask(DeleteTopicsRequest(topics=topics, timeout_ms=1000), 6).responses[0].error_code == E.NONE


def test_the_brokers_own_topics_may_use_the_reserve(broker: InProcessBroker, disk: SmallDisk) -> None:
    broker.create_topic("__consumer_offsets")
    disk.usable_bytes = RESERVE // 2
    broker.advance(1_000)
    assert produce(broker) == E.KAFKA_STORAGE_ERROR
    assert produce(broker, "__consumer_offsets", client_id="__admin_client") == E.NONE


def test_producing_works_again_once_there_is_room(broker: InProcessBroker, disk: SmallDisk) -> None:
    disk.usable_bytes = RESERVE
    broker.advance(1_000)
    assert produce(broker) == E.KAFKA_STORAGE_ERROR
    disk.usable_bytes = RESERVE + 100 * MB
    broker.advance(100)
    assert produce(broker) == E.NONE
    assert broker.log("orders").log_end_offset == 2


def test_retention_goes_on(broker: InProcessBroker, disk: SmallDisk) -> None:
    broker.create_topic("old", retention_ms=1)
    broker.produce("old", b"value")
    disk.usable_bytes = 0
    broker.advance(600_000)
    assert broker.log("old").log_start_offset == 1
    broker.wait_until(lambda: not list((broker.directory / "old-0").glob("*.deleted")))


@pytest.fixture
def without_metadata(broker: InProcessBroker, disk: SmallDisk) -> InProcessBroker:
    """A broker whose metadata log finds no room."""
    disk.fill_up()
    return broker


def test_without_room_for_metadata_topics_are_refused_until_there_is(
    without_metadata: InProcessBroker, disk: SmallDisk, caplog: pytest.LogCaptureFixture
) -> None:
    broker = without_metadata
    assert [create(broker, "another") for _ in range(3)] == [E.KAFKA_STORAGE_ERROR] * 3
    assert lines(caplog, "metadata log cannot be written now") == 1
    assert lines(caplog, "creating topic another") == 0
    disk.make_room()
    assert create(broker, "another") == E.NONE
    assert broker.topics() == {"orders", "another"}


def test_a_topic_that_cannot_be_created_by_itself_is_unknown(without_metadata: InProcessBroker) -> None:
    request = MetadataRequest(topics=[MetadataRequest.Topic(name=name) for name in ("orders", "another")])
    codes = {topic.name: topic.error_code for topic in without_metadata.ask(request, 12).topics}
    assert codes == {"orders": E.NONE, "another": E.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_producer_id_that_cannot_be_written_down_is_refused(
    without_metadata: InProcessBroker, disk: SmallDisk
) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    assert without_metadata.ask(request, 4).error_code == E.KAFKA_STORAGE_ERROR
    disk.make_room()
    answer = without_metadata.ask(request, 4)
    assert (answer.error_code, answer.producer_id) == (E.NONE, 0)


def test_a_stop_without_room_leaves_no_marker_and_loses_nothing(
    without_metadata: InProcessBroker, disk: SmallDisk, caplog: pytest.LogCaptureFixture
) -> None:
    broker = without_metadata
    broker.stop()
    assert not (broker.directory / ".kafka_cleanshutdown").exists()
    assert "stopped cleanly" not in caplog.messages
    disk.make_room()
    broker.start()
    assert broker.log("orders").log_end_offset == 1
    assert produce(broker) == E.NONE


def test_without_room_to_register_the_node_does_not_start_and_says_why(
    without_metadata: InProcessBroker, disk: SmallDisk
) -> None:
    without_metadata.stop()
    with pytest.raises(Exception, match="No space left"):
        without_metadata.start()
    disk.make_room()
    without_metadata.start()
    assert produce(without_metadata) == E.NONE
