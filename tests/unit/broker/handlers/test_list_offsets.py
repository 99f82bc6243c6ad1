"""ListOffsets through the codec."""

from typing import Any

import pytest

from broker.replication.partition import LeaderAndIsr
from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from storage.log import Log
from tests.support.batches import T, end_marker, produced, record
from tests.support.broker import InProcessBroker
from tests.support.leadership import follower_fetches
from tests.support.requests import produce_request

Answer = ListOffsetsResponse.Topic.Partition

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6


def request(timestamp: int, *, topic: str = "orders", partitions: tuple[int, ...] = (0,), **fields: Any) -> Any:
    """Ask for the offset of a time."""
    epoch = fields.pop("current_leader_epoch", -1)
    return ListOffsetsRequest(
        replica_id=fields.pop("replica_id", -1),
        topics=[
            ListOffsetsRequest.Topic(
                name=topic,
                partitions=[
                    ListOffsetsRequest.Topic.Partition(
                        partition_index=index, timestamp=timestamp, current_leader_epoch=epoch
                    )
                    for index in partitions
                ],
            )
        ],
        **fields,
    )


def offset_of(broker: InProcessBroker, timestamp: int, version: int = 11, **fields: Any) -> Answer:
    """Ask for partition 0 of `orders`."""
    of_partition: Answer = broker.ask(request(timestamp, **fields), version).topics[0].partitions[0]
    return of_partition


@pytest.fixture(autouse=True)
def orders(broker: InProcessBroker) -> None:
    """Offsets 0, 1 | 2, 3 | 4, with the times T, T+10 | T+50, T+30 | T+40."""
    broker.create_topic("orders")
    for times in ((0, 10), (50, 30), (40,)):
        batch = produced([record(timestamp=T + time) for time in times])
        assert broker.ask(produce_request("orders", batch), 12).responses[0].partition_responses[0].error_code == 0


@serves(ListOffsetsRequest)
@every_version(ListOffsetsRequest)
def test_latest_is_one_past_the_last_record_and_earliest_the_first(broker: InProcessBroker, version: int) -> None:
    latest, earliest = offset_of(broker, LATEST, version), offset_of(broker, EARLIEST, version)
    assert (latest.error_code, latest.timestamp, latest.offset) == (E.NONE, -1, 5)
    assert (earliest.error_code, earliest.timestamp, earliest.offset) == (E.NONE, -1, 0)
    assert latest.leader_epoch == earliest.leader_epoch == (0 if version >= 4 else -1)


@serves(ListOffsetsRequest)
@every_version(ListOffsetsRequest)
@pytest.mark.parametrize(
    ("asked", "offset", "timestamp"),
    [(0, 0, T), (T, 0, T), (T + 1, 1, T + 10), (T + 11, 2, T + 50), (T + 50, 2, T + 50)],
)
def test_a_time_finds_the_first_record_that_is_not_older(
    broker: InProcessBroker, version: int, asked: int, offset: int, timestamp: int
) -> None:
    found = offset_of(broker, asked, version)
    assert (found.error_code, found.offset, found.timestamp) == (E.NONE, offset, timestamp)


def test_a_time_after_the_last_record_finds_nothing(broker: InProcessBroker) -> None:
    found = offset_of(broker, T + 51)
    assert (found.error_code, found.offset, found.timestamp, found.leader_epoch) == (E.NONE, -1, -1, -1)


@serves(ListOffsetsRequest)
@every_version(ListOffsetsRequest, since=7)
def test_the_largest_timestamp_is_found_with_its_record(broker: InProcessBroker, version: int) -> None:
    found = offset_of(broker, MAX_TIMESTAMP, version)
    assert (found.offset, found.timestamp) == (2, T + 50)


def test_an_empty_partition_has_no_largest_timestamp(broker: InProcessBroker) -> None:
    broker.create_topic("empty")
    found = offset_of(broker, MAX_TIMESTAMP, topic="empty")
    assert (found.error_code, found.offset, found.timestamp) == (E.NONE, -1, -1)


def test_nothing_is_tiered(broker: InProcessBroker) -> None:
    assert offset_of(broker, EARLIEST_LOCAL).offset == 0
    for named in (LATEST_TIERED, EARLIEST_PENDING):
        found = offset_of(broker, named)
        assert (found.error_code, found.offset, found.leader_epoch) == (E.NONE, -1, -1)


@serves(ListOffsetsRequest, E.UNSUPPORTED_VERSION, versions=[6, 7, 8, 10, 11])
def test_names_that_a_version_does_not_know_are_refused(broker: InProcessBroker) -> None:
    for named, version in (
        (MAX_TIMESTAMP, 6),
        (EARLIEST_LOCAL, 7),
        (LATEST_TIERED, 8),
        (EARLIEST_PENDING, 10),
        (-7, 11),
    ):
        refused = offset_of(broker, named, version)
        assert (refused.error_code, refused.offset, refused.timestamp) == (E.UNSUPPORTED_VERSION, -1, -1)


@serves(ListOffsetsRequest, E.UNKNOWN_TOPIC_OR_PARTITION, versions=[11])
def test_an_unknown_partition_is_named_so(broker: InProcessBroker) -> None:
    assert offset_of(broker, LATEST, topic="nowhere").error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert offset_of(broker, LATEST, partitions=(1,)).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert offset_of(broker, LATEST, topic="a/b").error_code == E.UNKNOWN_TOPIC_OR_PARTITION


@serves(ListOffsetsRequest, E.INVALID_REQUEST, versions=[11])
def test_a_partition_listed_twice_is_refused_by_itself(broker: InProcessBroker) -> None:
    broker.create_topic("bills", partitions=2)
    answers = broker.ask(request(LATEST, topic="bills", partitions=(0, 1, 0)), 11).topics[0].partitions
    assert [(answer.partition_index, answer.error_code) for answer in answers] == [(0, E.INVALID_REQUEST), (1, E.NONE)]


def test_a_topic_is_answered_once_and_not_at_all_without_partitions(broker: InProcessBroker) -> None:
    broker.create_topic("bills", partitions=2)
    asked = request(LATEST, topic="bills")
    asked.topics += [*request(LATEST, topic="bills", partitions=(1,)).topics, *request(LATEST, partitions=()).topics]
    (answer,) = broker.ask(asked, 11).topics
    assert (answer.name, [found.partition_index for found in answer.partitions]) == ("bills", [0, 1])


def test_a_timestamp_that_means_nothing_is_refused_before_anything_is_looked_up(broker: InProcessBroker) -> None:
    assert offset_of(broker, -9, current_leader_epoch=77).error_code == E.UNSUPPORTED_VERSION
    assert offset_of(broker, -9, topic="nope").error_code == E.UNSUPPORTED_VERSION


def test_records_without_a_time_have_the_largest_one_at_their_first(broker: InProcessBroker) -> None:
    broker.create_topic("timeless")
    broker.ask(produce_request("timeless", produced([record(timestamp=-1)] * 2)), 12)
    found = offset_of(broker, MAX_TIMESTAMP, topic="timeless")
    assert (found.error_code, found.offset, found.timestamp, found.leader_epoch) == (E.NONE, 0, -1, 0)


@serves(ListOffsetsRequest, E.FENCED_LEADER_EPOCH, E.UNKNOWN_LEADER_EPOCH, versions=[4])
def test_another_leader_epoch_is_refused(broker: InProcessBroker) -> None:
    broker.server.components.replicas.partition("orders", 0).leader_epoch = 5
    assert offset_of(broker, LATEST, 4, current_leader_epoch=4).error_code == E.FENCED_LEADER_EPOCH
    assert offset_of(broker, LATEST, 4, current_leader_epoch=6).error_code == E.UNKNOWN_LEADER_EPOCH
    assert offset_of(broker, LATEST, 4, current_leader_epoch=5).leader_epoch == 5


@serves(ListOffsetsRequest, E.NOT_LEADER_OR_FOLLOWER, versions=[11])
def test_who_does_not_lead_does_not_know(broker: InProcessBroker) -> None:
    broker.server.components.replicas.partition("orders", 0).leader = 2
    assert offset_of(broker, LATEST).error_code == E.NOT_LEADER_OR_FOLLOWER


@serves(ListOffsetsRequest, E.UNKNOWN_SERVER_ERROR, versions=[11])
def test_a_strange_isolation_level_is_refused_as_kafka_does(broker: InProcessBroker) -> None:
    assert offset_of(broker, LATEST, isolation_level=7).error_code == E.UNKNOWN_SERVER_ERROR


@pytest.fixture
def two_open(broker: InProcessBroker) -> Log:
    """Behind the five records: transactions of the producers 7 and 8 with one record each, at T+60 and T+70, and a
    record at T+90 outside of them."""
    log: Log = broker.log("orders")
    for number, producer_id in enumerate((7, 8)):
        fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
        log.stage_trusted(bytearray(produced([record(timestamp=T + 60 + 10 * number)], **fields)))
    log.stage_trusted(bytearray(produced([record(timestamp=T + 90)])))
    log.append_all(T)
    log.advance_high_watermark(8)
    return log


def end(log: Log, producer_id: int, *, commit: bool) -> None:
    """Write the marker of a transaction, at T+100."""
    log.stage_trusted(
        bytearray(end_marker(commit=commit, producer_id=producer_id, producer_epoch=0, timestamp=T + 100))
    )
    log.append_all(T)
    log.advance_high_watermark(log.log_end_offset)


def both_levels(broker: InProcessBroker, timestamp: int) -> tuple[int, int]:
    """The offsets of READ_UNCOMMITTED and of READ_COMMITTED."""
    uncommitted, committed = (offset_of(broker, timestamp, isolation_level=level).offset for level in (0, 1))
    return uncommitted, committed


def test_read_committed_ends_at_the_last_stable_offset(broker: InProcessBroker, two_open: Log) -> None:
    """A transaction that has ended is stable once all that began before it have ended."""
    assert both_levels(broker, LATEST) == (8, 5)
    end(two_open, 8, commit=True)
    assert both_levels(broker, LATEST) == (9, 5)
    end(two_open, 7, commit=False)
    assert both_levels(broker, LATEST) == (10, 10)


def test_read_committed_finds_no_time_behind_the_last_stable_offset(broker: InProcessBroker, two_open: Log) -> None:
    """Records of aborted transactions are found like all others."""
    assert [both_levels(broker, T + after_ms) for after_ms in (35, 55, 65, 90)] == [(2, 2), (5, -1), (6, -1), (7, -1)]
    end(two_open, 7, commit=False)
    assert [both_levels(broker, T + after_ms) for after_ms in (55, 65, 90)] == [(5, 5), (6, -1), (7, -1)]
    end(two_open, 8, commit=True)
    assert [both_levels(broker, T + after_ms) for after_ms in (55, 65, 90)] == [(5, 5), (6, 6), (7, 7)]


def test_read_committed_has_no_largest_time_behind_the_last_stable_offset(
    broker: InProcessBroker, two_open: Log
) -> None:
    """Markers have times, too."""
    assert both_levels(broker, MAX_TIMESTAMP) == (7, -1)
    end(two_open, 7, commit=False)
    assert both_levels(broker, MAX_TIMESTAMP) == (8, -1)
    end(two_open, 8, commit=True)
    assert both_levels(broker, MAX_TIMESTAMP) == (8, 8)
    assert offset_of(broker, MAX_TIMESTAMP, isolation_level=1).timestamp == T + 100


REPLICAS = (0, 2, -2)  # a follower that is node 0, another one, and the id for debugging


@pytest.fixture
def ahead(broker: InProcessBroker) -> None:
    """Offset 5, with the time T+90, is in the log of the leader and not yet in that of node 2, which is in sync."""
    partition = broker.server.components.replicas.partition("orders", 0)
    partition.apply(LeaderAndIsr(1, 1, (1, 2), frozenset((1, 2))))
    batch = produced([record(timestamp=T + 90)])
    broker.ask(produce_request("orders", batch, acks=1), 12)
    assert (partition.log.high_watermark, partition.log.log_end_offset) == (5, 6)


@pytest.mark.usefixtures("ahead")
@every_version(ListOffsetsRequest)
def test_latest_is_the_log_end_for_a_replica_and_the_high_watermark_for_a_consumer(
    broker: InProcessBroker, version: int
) -> None:
    assert offset_of(broker, LATEST, version).offset == 5
    assert {offset_of(broker, LATEST, version, replica_id=replica).offset for replica in REPLICAS} == {6}


@pytest.mark.usefixtures("ahead")
@every_version(ListOffsetsRequest, since=2)
def test_the_isolation_level_of_a_replica_means_nothing(broker: InProcessBroker, version: int) -> None:
    assert offset_of(broker, LATEST, version, isolation_level=1).offset == 5
    assert offset_of(broker, LATEST, version, replica_id=2, isolation_level=1).offset == 6


@pytest.mark.usefixtures("ahead")
def test_a_time_finds_what_is_not_replicated_for_a_replica_only(broker: InProcessBroker) -> None:
    for timestamp in (T + 90, MAX_TIMESTAMP):
        assert offset_of(broker, timestamp).offset == -1
        assert offset_of(broker, timestamp, replica_id=2).offset == 5


@pytest.mark.usefixtures("ahead")
@serves(ListOffsetsRequest, E.LEADER_NOT_AVAILABLE, versions=[1, 2, 3, 4])
@serves(ListOffsetsRequest, E.OFFSET_NOT_AVAILABLE, versions=[5, 6, 7, 8, 9, 10, 11])
def test_a_new_leader_tells_consumers_no_end_before_its_followers_have_fetched(broker: InProcessBroker) -> None:
    """The leader before may have told a later end (KIP-207)."""
    partition = broker.server.components.replicas.partition("orders", 0)
    partition.apply(LeaderAndIsr(1, 2, (1, 2), frozenset((1, 2)), 1))

    for version in range(1, 12):
        refusal = E.LEADER_NOT_AVAILABLE if version < 5 else E.OFFSET_NOT_AVAILABLE
        for timestamp in (LATEST, T + 90):
            answer = offset_of(broker, timestamp, version)
            assert (answer.error_code, answer.offset, answer.timestamp) == (refusal, -1, -1)
    assert offset_of(broker, EARLIEST).offset == 0
    assert offset_of(broker, T).offset == 0
    assert offset_of(broker, LATEST, replica_id=2).offset == 6

    follower_fetches(broker, partition)
    assert offset_of(broker, LATEST).offset == 6
