"""MarkerAppender: a marker reaches the log of its partition, and the state of the partition's coordinator."""

import errno
from pathlib import Path

import pytest

from broker.coordinators.group.requests import Commit, OffsetToCommit
from broker.coordinators.marker_appender import TIMEOUT_MS, MarkerAppender
from broker.coordinators.partitioning import partition_of
from broker.coordinators.result import ProducerIdAndEpoch
from broker.replication.transaction_marker import TransactionMarker
from protocol.errors import ErrorCode as E
from storage.batch.markers import read_marker
from storage.batch.record_batch import read_header
from tests.support.batches import produced
from tests.support.broker import InProcessBroker, running_broker
from tests.support.files import FaultyFileSystem
from tests.support.groups import OFFSETS_TOPIC, create_offsets_topic, fetch_offsets_request
from tests.support.leadership import OTHER, OURS, hand_over
from tests.unit.broker.coordinators.toy import TOPIC, Toy

COMMIT = TransactionMarker(producer_id=12, producer_epoch=3, is_commit=True, coordinator_epoch=1)
ABORT = COMMIT._replace(is_commit=False)


@pytest.fixture
def orders(broker: InProcessBroker) -> str:
    """A topic with a transaction of producer 12 that is open."""
    broker.create_topic("orders")
    open_transaction(broker)
    return "orders"


def open_transaction(broker: InProcessBroker, topic: str = "orders") -> None:
    partition = broker.server.components.replicas.partition(topic, 0)
    batch = produced(2, producer_id=12, producer_epoch=3, base_sequence=0, is_transactional=True)
    partition.log.stage_trusted(batch, leader_epoch=partition.leader_epoch)
    partition.log.append_all(0)
    partition.advance_high_watermark()


def append(
    broker: InProcessBroker,
    marker: TransactionMarker = COMMIT,
    topic: str = "orders",
    index: int = 0,
    appender: MarkerAppender | None = None,
) -> list[E]:
    """Append a marker; the answer comes into the list."""
    answers: list[E] = []

    async def append() -> None:
        (appender or broker.server.components.transactions.get().marker_appender).append(
            topic, index, marker, answers.append
        )

    broker.run(append())
    broker.settle()
    return answers


def test_a_marker_ends_the_transaction_of_its_producer(broker: InProcessBroker, orders: str) -> None:
    log = broker.log(orders)
    assert log.last_stable_offset == 0
    assert append(broker, ABORT) == [E.NONE]
    assert (log.last_stable_offset, log.log_end_offset) == (3, 3)
    *_, (_, batch) = log.batches()
    marker = read_marker(read_header(batch), batch)
    assert marker is not None
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.is_commit) == (12, 3, 1, False)


def test_a_partition_without_a_transaction_gets_its_marker_too(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    assert append(broker) == [E.NONE]
    assert broker.log("orders").log_end_offset == 1


@pytest.mark.parametrize(("topic", "index"), [("orders", 1), ("nowhere", 0), ("", 0), ("orders", -1)])
def test_a_partition_that_does_not_exist_is_unknown(
    broker: InProcessBroker, orders: str, topic: str, index: int
) -> None:
    assert append(broker, COMMIT, topic, index) == [E.UNKNOWN_TOPIC_OR_PARTITION]


def test_markers_of_the_past_are_refused(broker: InProcessBroker, orders: str) -> None:
    assert append(broker, COMMIT._replace(producer_epoch=2)) == [E.INVALID_PRODUCER_EPOCH]
    assert append(broker, COMMIT) == [E.NONE]
    assert append(broker, COMMIT._replace(coordinator_epoch=0)) == [E.TRANSACTION_COORDINATOR_FENCED]
    assert broker.log(orders).log_end_offset == 3


def test_a_node_that_does_not_lead_writes_no_markers(broker: InProcessBroker, orders: str) -> None:
    hand_over(broker, orders, OTHER)
    assert append(broker) == [E.NOT_LEADER_OR_FOLLOWER]
    hand_over(broker, orders, OURS)
    assert append(broker) == [E.NONE]


def test_a_marker_on_a_full_disk_leaves_the_transaction_open(
    broker: InProcessBroker, orders: str, disk: FaultyFileSystem
) -> None:
    disk.fill_up()
    assert append(broker) == [E.KAFKA_STORAGE_ERROR]
    assert broker.log(orders).last_stable_offset == 0
    disk.make_room()
    assert append(broker) == [E.NONE]
    assert broker.log(orders).last_stable_offset == 3


def test_a_directory_that_has_failed_takes_no_markers(tmp_path: Path) -> None:
    disk = FaultyFileSystem()
    with running_broker(tmp_path, files=disk, log_dirs=f"{tmp_path}/a,{tmp_path}/b") as broker:
        broker.create_topic("orders", partitions=2)
        in_b = next(i for i in range(2) if Path(broker.log("orders", i).directory).parent.name == "b")
        disk.fail("write", errno.EIO, suffix=f"b/orders-{in_b}/00000000000000000000.log")
        assert append(broker, COMMIT, "orders", in_b) == [E.KAFKA_STORAGE_ERROR]
        assert append(broker, COMMIT, "orders", in_b) == [E.KAFKA_STORAGE_ERROR]
        assert append(broker, COMMIT, "orders", 1 - in_b) == [E.NONE]


class UnflushedOrders:
    """A topic whose markers wait for a flush that does not come before `flush`."""

    def __init__(self, broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        broker.create_topic("orders", flush_messages=1)
        self._broker = broker
        self._replicas = broker.server.components.replicas
        monkeypatch.setattr(self._replicas, "flush", lambda partition: None)

    def flush(self) -> None:
        async def flush() -> None:
            self._broker.log("orders").flush(0)
            self._replicas.produce_purgatory.check(self._replicas.partition("orders", 0))

        self._broker.run(flush())


def test_a_marker_is_there_when_it_is_flushed(broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = UnflushedOrders(broker, monkeypatch)
    answers = append(broker)
    broker.advance(TIMEOUT_MS - 1)
    assert answers == []
    orders.flush()
    assert answers == [E.NONE]


def test_a_marker_that_is_not_flushed_in_time_is_late(broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = UnflushedOrders(broker, monkeypatch)
    answers = append(broker)
    broker.advance(TIMEOUT_MS)
    assert answers == [E.REQUEST_TIMED_OUT]
    orders.flush()
    assert answers == [E.REQUEST_TIMED_OUT]


def test_a_marker_that_waits_is_lost_with_the_leadership(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    UnflushedOrders(broker, monkeypatch)
    answers = append(broker)
    hand_over(broker, "orders", OTHER)
    assert answers == [E.NOT_LEADER_OR_FOLLOWER]


def test_a_stop_ends_the_waiting_for_a_marker(broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    UnflushedOrders(broker, monkeypatch)
    answers = append(broker)
    broker.run(broker.server.stop())
    assert answers == [E.REQUEST_TIMED_OUT]
    broker.start()


# Partitions of coordinators


def test_a_marker_for_the_groups_topic_is_replayed_by_the_groups_coordinator(broker: InProcessBroker) -> None:
    create_offsets_topic(broker)
    broker.create_topic("stock")
    index = partition_of("readers", 5)
    coordinator = broker.server.components.group_coordinator.groups.of("readers")
    answers: list[list[E]] = []

    async def commit() -> None:
        request = Commit("readers", [OffsetToCommit("stock", 0, 7)], transaction=ProducerIdAndEpoch(12, 3))
        coordinator.write(coordinator.shard.commit(request, lambda codes: answers.append(list(codes))))

    broker.run(commit())
    broker.settle()
    assert answers == [[E.NONE]]
    assert committed(broker) == []
    assert append(broker, COMMIT, OFFSETS_TOPIC, index) == [E.NONE]
    assert committed(broker) == [7]
    assert coordinator is broker.server.components.group_coordinator.groups.of("readers"), "it was loaded again"


def committed(broker: InProcessBroker) -> list[int]:
    """What the group has committed for each partition."""
    (group,) = broker.ask(fetch_offsets_request(9), 9).groups
    assert group.error_code == E.NONE
    return [one.committed_offset for topic in group.topics for one in topic.partitions]


def test_a_marker_for_a_coordinators_partition_waits_for_the_coordinator(broker: InProcessBroker, toy: Toy) -> None:
    toy.put(("a", "1"))
    toy.stop()
    again = Toy(broker)
    appender = MarkerAppender(broker.server.components.replicas, broker.server.components.group_coordinator.groups)
    appender.route(TOPIC, again.runtime)
    assert append(broker, COMMIT, TOPIC, 0, appender) == [E.COORDINATOR_LOAD_IN_PROGRESS]
    again.start()
    assert append(broker, COMMIT, TOPIC, 0, appender) == [E.NONE]
    hand_over(broker, TOPIC, OTHER)
    assert append(broker, COMMIT, TOPIC, 0, appender) == [E.NOT_LEADER_OR_FOLLOWER]
    hand_over(broker, TOPIC, OURS)
    again.wait_until_loaded()
    assert append(broker, COMMIT, TOPIC, 0, appender) == [E.NONE]
    again.stop()
    assert append(broker, COMMIT, TOPIC, 0, appender) == [E.COORDINATOR_NOT_AVAILABLE]
    assert append(broker, COMMIT, TOPIC, 1, appender) == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert broker.log(TOPIC).log_end_offset == 3
