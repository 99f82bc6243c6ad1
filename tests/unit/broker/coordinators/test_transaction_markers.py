"""TransactionMarkers: each marker reaches the leader of its partition, wherever that is and whenever there is one."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import cast

import pytest

from broker.coordinators.marker_appender import MarkerAppender
from broker.coordinators.remote_markers import MOST_IN_A_REQUEST, RemoteMarkers
from broker.coordinators.result import Completion
from broker.coordinators.transaction.transaction import Transaction
from broker.coordinators.transaction_markers import RETRY_MS, TransactionMarkers
from broker.metadata.cache import MetadataCache
from broker.metadata.image.metadata_image import MetadataDelta
from broker.metadata.image.records import Record
from broker.metadata.topic_rules import TRANSACTION_STATE
from broker.replication.replica_manager import ReplicaManager
from broker.replication.transaction_marker import TransactionMarker
from broker.runtime.manual_clock import ManualClock
from protocol.errors import ErrorCode as E
from protocol.messages.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from protocol.records.cluster_metadata import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from protocol.records.transaction_state import TransactionStatus
from storage.topic_partition import TopicPartition
from tests.unit.broker.coordinators.brokers import Asked, Brokers, settle
from tests.unit.broker.peers.harness import by_hand

OURS, SECOND, THIRD, NOBODY = 1, 2, 3, -1
COORDINATOR_EPOCH = 7
TOPIC_IDS = {"orders": bytes(15) + b"\x01", TRANSACTION_STATE: bytes(15) + b"\x02"}


class OwnPartitions:
    """What `MarkerAppender` does with the partitions of this broker, as the test says."""

    def __init__(self) -> None:
        self.codes: dict[TopicPartition, E] = {}
        """Partitions in which a marker fails, and how."""
        self.written: list[tuple[str, int, TransactionMarker]] = []

    def append(self, topic: str, index: int, marker: TransactionMarker, then: Completion) -> None:
        code = self.codes.get(TopicPartition(topic, index), E.NONE)
        if code is E.NONE:
            self.written.append((topic, index, marker))
        then(code)


class StatePartition:
    leader_epoch = COORDINATOR_EPOCH


class Replicas:
    def partition(self, topic: str, index: int) -> StatePartition:
        assert topic == TRANSACTION_STATE
        return StatePartition()


def leads(index: int, leader: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index, topic_id=TOPIC_IDS["orders"], replicas=[1, 2, 3], isr=[1, 2, 3], leader=leader,
        leader_epoch=1, partition_epoch=1,
    )  # fmt: skip


class Exchange:
    """This broker, 1, coordinates; it leads ``orders-0``, broker 2 leads 1 and 2, broker 3 leads 3, nobody leads 4."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.brokers = Brokers(self.clock)
        self.own = OwnPartitions()
        self.metadata = MetadataCache()
        self.failures: list[BaseException] = []
        self.remote = RemoteMarkers(self.brokers.nodes("broker-1-txn-marker-sender"), on_failure=self.failures.append)
        self.markers = TransactionMarkers(
            cast(MarkerAppender, self.own),
            node_id=OURS,
            replicas=cast(ReplicaManager, Replicas()),
            metadata=self.metadata,
            later=lambda after_ms, call: self.clock.call_at(self.clock.monotonic_ms() + after_ms, call),
            remote=self.remote,
        )
        self.ended: list[str] = []
        self.publish(
            TopicRecord(name=TRANSACTION_STATE, topic_id=TOPIC_IDS[TRANSACTION_STATE]),
            PartitionRecord(
                partition_id=0, topic_id=TOPIC_IDS[TRANSACTION_STATE], replicas=[1], isr=[1], leader=1,
                leader_epoch=COORDINATOR_EPOCH, partition_epoch=1,
            ),
            TopicRecord(name="orders", topic_id=TOPIC_IDS["orders"]),
            leads(0, OURS), leads(1, SECOND), leads(2, SECOND), leads(3, THIRD), leads(4, NOBODY),
        )  # fmt: skip

    def publish(self, *records: Record) -> None:
        """The metadata changes, and its subscriber hears of it."""
        delta = MetadataDelta(self.metadata.image)
        for record in records:
            delta.replay(record)
        self.metadata.image = delta.apply(self.metadata.image.end_offset + len(records))
        self.markers.apply(delta, self.metadata.image)

    def lead(self, index: int, leader: int) -> None:
        """A partition of ``orders`` has another leader."""
        self.publish(PartitionChangeRecord(partition_id=index, topic_id=TOPIC_IDS["orders"], leader=leader))

    def end(
        self, *indexes: int, transactional_id: str = "shop", producer_id: int = 9, is_commit: bool = True,
        client_version: int = 2,
    ) -> None:  # fmt: skip
        """A transaction that has written to these partitions of ``orders`` ends."""
        transaction = Transaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=4,
            timeout_ms=60_000,
            status=TransactionStatus.PREPARE_COMMIT if is_commit else TransactionStatus.PREPARE_ABORT,
            partitions=frozenset(TopicPartition("orders", index) for index in indexes),
            updated_ms=0,
            client_version=client_version,
        )
        self.markers.send(transaction, lambda: self.ended.append(transactional_id))

    async def advance(self, by_ms: int) -> None:
        await settle()
        self.clock.advance(by_ms)
        await settle()


@asynccontextmanager
async def exchange() -> AsyncIterator[Exchange]:
    it = Exchange()
    yield it
    await it.remote.close()
    assert it.failures == []
    assert it.remote.in_flight == 0


Sent = list[tuple[int, list[int]]]


def sent(request: WriteTxnMarkersRequest) -> Sent:
    """Producer and partitions of ``orders`` of each marker in a request."""
    return [(marker.producer_id, sorted(marker.topics[0].partition_indexes)) for marker in request.markers]


def written(request: WriteTxnMarkersRequest, codes: Mapping[int, E] | None = None) -> WriteTxnMarkersResponse:
    """The answer to a request: NONE, or the code of a partition."""
    of = WriteTxnMarkersResponse.Marker
    return WriteTxnMarkersResponse(
        markers=[
            of(
                producer_id=marker.producer_id,
                topics=[
                    of.Topic(
                        name=topic.name,
                        partitions=[
                            of.Topic.Partition(partition_index=index, error_code=(codes or {}).get(index, E.NONE))
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def write(asked: Asked, codes: Mapping[int, E] | None = None) -> None:
    asked.answer(written(asked.message, codes))


# Where markers go


@by_hand
async def test_a_transaction_that_is_led_here_has_ended_before_send_returns() -> None:
    async with exchange() as it:
        it.end(0)
        assert it.ended == ["shop"]
        assert it.own.written == [("orders", 0, TransactionMarker(9, 4, True, COORDINATOR_EPOCH, 2))]
        await settle()
        assert it.brokers.asked == []


@by_hand
async def test_each_leader_gets_the_markers_of_its_partitions_in_one_request() -> None:
    async with exchange() as it:
        it.end(0, 1, 2, 3)
        assert [index for _, index, _ in it.own.written] == [0], "what is led here waits for nobody"
        await settle()

        to_second, to_third = it.brokers.asked
        assert (to_second.node_id, to_second.version, sent(to_second.message)) == (SECOND, 2, [(9, [1, 2])])
        assert (to_third.node_id, to_third.version, sent(to_third.message)) == (THIRD, 2, [(9, [3])])
        (marker,) = to_third.message.markers
        assert (marker.producer_epoch, marker.transaction_result) == (4, True)
        assert (marker.coordinator_epoch, marker.transaction_version) == (COORDINATOR_EPOCH, 2)

        write(to_second)
        await settle()
        assert it.ended == []
        write(to_third)
        await settle()
        assert it.ended == ["shop"]


@by_hand
async def test_what_a_broker_of_an_older_version_does_not_know_is_left_out() -> None:
    async with exchange() as it:
        it.brokers.known["write_txn_markers"] = (1, 1)
        it.end(3, is_commit=False)
        await settle()
        asked = it.brokers.take()
        assert asked.version == 1
        assert (asked.message.markers[0].transaction_version, asked.message.markers[0].transaction_result) == (0, False)
        write(asked)
        await settle()
        assert it.ended == ["shop"]


@by_hand
async def test_what_waits_behind_a_request_goes_in_the_next_one() -> None:
    async with exchange() as it:
        it.end(1, transactional_id="first", producer_id=1)
        it.end(1, 2, transactional_id="second", producer_id=2)
        await settle()
        asked = it.brokers.take()
        assert sent(asked.message) == [(1, [1]), (2, [1, 2])], "all of one turn"

        for number in (3, 4):
            it.end(2, transactional_id=str(number), producer_id=number)
            await settle()
        assert it.brokers.asked == [], "one request is in flight"
        assert len(it.remote) == 2

        write(asked)
        await settle()
        assert it.ended == ["first", "second"]
        following = it.brokers.take()
        assert sent(following.message) == [(3, [2]), (4, [2])]
        write(following)
        await settle()
        assert it.ended == ["first", "second", "3", "4"]


@by_hand
async def test_a_request_has_no_more_markers_than_a_leader_writes_in_one_turn() -> None:
    async with exchange() as it:
        for number in range(MOST_IN_A_REQUEST + 5):
            it.end(3, transactional_id=str(number), producer_id=number)
        await settle()
        first = it.brokers.take()
        assert len(first.message.markers) == MOST_IN_A_REQUEST
        write(first)
        await settle()
        second = it.brokers.take()
        assert len(second.message.markers) == 5
        write(second)
        await settle()
        assert len(it.ended) == MOST_IN_A_REQUEST + 5


# What is tried again


@pytest.mark.parametrize(
    "code",
    [
        E.UNKNOWN_TOPIC_OR_PARTITION, E.NOT_LEADER_OR_FOLLOWER, E.NOT_ENOUGH_REPLICAS, E.REQUEST_TIMED_OUT,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.KAFKA_STORAGE_ERROR, E.COORDINATOR_LOAD_IN_PROGRESS,
        E.CLUSTER_AUTHORIZATION_FAILED,
    ],
)  # fmt: skip
@by_hand
async def test_a_marker_that_a_leader_refuses_is_sent_again_after_the_back_off(
    code: E, caplog: pytest.LogCaptureFixture
) -> None:
    async with exchange() as it:
        it.end(1, 2)
        await settle()
        write(it.brokers.take(), {1: code})
        await settle()
        assert it.markers.waiting == 1
        await it.advance(RETRY_MS - 1)
        assert it.brokers.asked == []
        await it.advance(1)

        again = it.brokers.take()
        assert sent(again.message) == [(9, [1])], "the other partition has its marker"
        write(again, {1: code})
        await settle()
        await it.advance(RETRY_MS)
        write(it.brokers.take())
        await settle()
        assert it.ended == ["shop"]
        assert it.markers.waiting == 0
        assert caplog.text.count(code.name) == 1


@by_hand
async def test_a_marker_goes_to_the_new_leader_as_soon_as_the_metadata_names_it() -> None:
    async with exchange() as it:
        it.end(1, 3)
        await settle()
        for asked in it.brokers.asked:
            write(asked, {1: E.NOT_LEADER_OR_FOLLOWER, 3: E.NOT_LEADER_OR_FOLLOWER})
        it.brokers.asked.clear()
        await settle()
        it.lead(1, THIRD)
        await settle()
        asked = it.brokers.take()
        assert (asked.node_id, sent(asked.message)) == (THIRD, [(9, [1])])
        write(asked)
        it.lead(3, OURS)
        assert [index for _, index, _ in it.own.written] == [3], "in the turn of the metadata"
        await settle()
        assert it.ended == ["shop"]


@by_hand
async def test_a_leader_that_leads_no_more_is_not_waited_for() -> None:
    async with exchange() as it:
        it.end(1, 2, transactional_id="sent", producer_id=1)
        await settle()
        asked = it.brokers.take()
        it.end(1, 2, transactional_id="waits", producer_id=2)
        await settle()
        assert it.brokers.asked == []
        it.lead(1, THIRD)
        await settle()
        again = it.brokers.take()
        assert (again.node_id, sent(again.message)) == (THIRD, [(2, [1]), (1, [1])])
        write(again)
        await settle()
        assert it.ended == []
        write(asked, {1: E.NOT_LEADER_OR_FOLLOWER})
        await settle()
        assert it.ended == ["sent"]
        rest = it.brokers.take()
        assert (rest.node_id, sent(rest.message)) == (SECOND, [(2, [2])])
        write(rest)
        await settle()
        assert it.ended == ["sent", "waits"]


@by_hand
async def test_nothing_is_sent_where_all_that_had_waited_is_led_elsewhere() -> None:
    async with exchange() as it:
        it.end(1, transactional_id="sent", producer_id=1)
        await settle()
        it.end(1, transactional_id="waits", producer_id=2)
        it.lead(1, OURS)
        assert it.ended == ["waits", "sent"]
        write(it.brokers.take())
        await settle()
        assert it.brokers.asked == []


@by_hand
async def test_a_marker_that_was_given_back_keeps_no_later_marker_of_the_producer() -> None:
    """The transactional id could not be used again until its coordinator moved (replicated seed 230023730)."""
    async with exchange() as it:
        it.end(1, transactional_id="sent", producer_id=1)
        await settle()
        it.end(2, is_commit=False)
        it.lead(2, OURS)
        assert it.ended == ["shop"]
        it.lead(2, SECOND)
        it.end(2)
        write(it.brokers.take())
        await settle()
        following = it.brokers.take()
        assert sent(following.message) == [(9, [2])]
        write(following)
        await settle()
        assert it.ended == ["shop", "sent", "shop"]


@by_hand
async def test_a_new_epoch_of_the_same_leader_waits_for_its_answer() -> None:
    async with exchange() as it:
        it.end(1)
        await settle()
        asked = it.brokers.take()
        it.lead(1, SECOND)
        write(asked, {1: E.NOT_LEADER_OR_FOLLOWER})
        await settle()
        write(it.brokers.take())
        await settle()
        assert it.ended == ["shop"], "it was asked at once, since the metadata was ahead of the answer"


@by_hand
async def test_a_partition_without_a_leader_waits_until_it_has_one() -> None:
    async with exchange() as it:
        it.end(0, 4)
        await it.advance(10 * RETRY_MS)
        assert it.brokers.asked == []
        assert it.markers.waiting == 1
        it.lead(4, SECOND)
        await settle()
        write(it.brokers.take())
        await settle()
        assert it.ended == ["shop"]


@by_hand
async def test_a_leader_that_closes_the_connection_is_asked_again() -> None:
    async with exchange() as it:
        it.end(1)
        await settle()
        it.brokers.take().lose()
        await settle()
        assert it.markers.waiting == 1
        await it.advance(RETRY_MS)
        write(it.brokers.take())
        await settle()
        assert it.ended == ["shop"]


@by_hand
async def test_a_leader_that_cannot_be_reached_is_asked_once_it_can() -> None:
    async with exchange() as it:
        it.brokers.unreachable.add(SECOND)
        it.end(1)
        for _ in range(20):
            await it.advance(RETRY_MS)
        assert (it.ended, it.brokers.asked) == ([], [])
        it.brokers.unreachable.clear()
        for _ in range(4):
            await it.advance(RETRY_MS)
        write(it.brokers.take())
        await settle()
        assert it.ended == ["shop"]


@by_hand
async def test_a_leader_without_a_known_address_is_asked_once_it_has_one() -> None:
    async with exchange() as it:
        address = it.brokers.addresses.pop(SECOND)
        it.end(1)
        await it.advance(RETRY_MS)
        it.brokers.addresses[SECOND] = address
        await it.advance(RETRY_MS)
        write(it.brokers.take())
        await settle()
        assert it.ended == ["shop"]


@by_hand
async def test_what_the_answer_leaves_out_is_sent_again() -> None:
    async with exchange() as it:
        it.end(1)
        await settle()
        it.brokers.take().answer(WriteTxnMarkersResponse(markers=[]))
        await it.advance(RETRY_MS)
        write(it.brokers.take())
        await settle()
        assert it.ended == ["shop"]


# What counts as done


@pytest.mark.parametrize(
    "code",
    [E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED, E.UNSUPPORTED_FOR_MESSAGE_FORMAT],
)
@by_hand
async def test_a_partition_that_needs_no_marker_is_done(code: E, caplog: pytest.LogCaptureFixture) -> None:
    async with exchange() as it:
        it.end(1, 3)
        await settle()
        to_second, to_third = it.brokers.asked
        write(to_second, {1: code})
        write(to_third)
        await settle()
        assert it.ended == ["shop"]
        assert "orders-1 needs no marker of 'shop' any more" in caplog.text


@by_hand
async def test_partitions_that_are_deleted_need_no_marker() -> None:
    async with exchange() as it:
        it.end(1, 4)
        await settle()
        asked = it.brokers.take()
        it.publish(RemoveTopicRecord(topic_id=TOPIC_IDS["orders"]))
        assert it.ended == ["shop"]
        write(asked, {1: E.UNKNOWN_TOPIC_OR_PARTITION})
        await settle()
        assert it.ended == ["shop"]


# Another coordinator takes over


@by_hand
async def test_behind_cancel_nothing_more_is_sent_and_nobody_is_called(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with exchange() as it:
        it.end(1, transactional_id="in flight", producer_id=1)
        await settle()
        asked = it.brokers.take()
        it.end(1, 4, transactional_id="waits", producer_id=2)
        it.end(2, transactional_id="stays", producer_id=3)
        for transactional_id in ("in flight", "waits", "never seen"):
            it.markers.cancel(transactional_id)
        assert it.markers.waiting == 0
        write(asked)
        await settle()
        following = it.brokers.take()
        assert sent(following.message) == [(3, [2])]
        write(following)
        it.lead(4, SECOND)
        await it.advance(10 * RETRY_MS)
        assert it.brokers.asked == []
        assert it.ended == ["stays"]


@by_hand
async def test_when_the_broker_stops_nothing_is_in_flight_any_more() -> None:
    async with exchange() as it:
        it.end(1)
        await settle()
        it.end(2, transactional_id="waits", producer_id=2)
        await it.remote.close()
        await it.advance(10 * RETRY_MS)
        assert it.ended == []
        assert len(it.brokers.asked) == 1
        assert it.brokers.asked[0].wire.is_closed
