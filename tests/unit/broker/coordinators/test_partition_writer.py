"""PartitionWriter: one batch for each result, replayed and answered once it is acknowledged."""

import errno

import pytest

from broker.coordinators.result import CoordinatorResult, ProducerIdAndEpoch
from broker.replication.transaction_marker import TransactionMarker
from protocol.errors import ErrorCode as E
from storage.batch.record_batch import Codec, TimestampType, read_header
from storage.batch.records import iterate_records
from tests.support.broker import InProcessBroker
from tests.support.files import FaultyFileSystem
from tests.unit.broker.coordinators.toy import TOPIC, UNENCODABLE, Entry, Toy

SHOP = ProducerIdAndEpoch(12, 3)
COMMIT = TransactionMarker(12, 3, is_commit=True, coordinator_epoch=1)
ABORT = COMMIT._replace(is_commit=False)
FIRST_SEGMENT = f"{TOPIC}-0/00000000000000000000.log"


def batches(broker: InProcessBroker) -> list[bytes]:
    """Everything that stands in the topic."""
    return [bytes(data) for _, data in broker.log(TOPIC).batches()]


def test_a_change_is_written_replayed_and_answered(broker: InProcessBroker, toy: Toy) -> None:
    assert toy.put(("a", "1")) == [E.NONE]
    assert toy.values == {"a": "1"}
    assert broker.log(TOPIC).log_end_offset == 1


def test_a_batch_has_the_shape_that_kafkas_coordinators_give_it(broker: InProcessBroker, toy: Toy) -> None:
    toy.put(("a", "1"))
    (batch,) = batches(broker)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, 0)
    assert (header.codec, header.timestamp_type) == (Codec.NONE, TimestampType.CREATE_TIME)
    assert (header.is_transactional, header.is_control) == (False, False)
    assert header.partition_leader_epoch == broker.server.components.replicas.partition(TOPIC, 0).leader_epoch
    assert header.base_timestamp == header.max_timestamp == broker.clock.now_ms()
    (record,) = iterate_records(batch)
    assert (record.key, record.value, record.headers) == (b"a", b"1", [])


def test_the_records_of_a_change_stand_in_one_batch(broker: InProcessBroker, toy: Toy) -> None:
    answers: list[E] = []

    async def write() -> None:
        toy.runtime.of("a").write(
            CoordinatorResult([Entry("a", "1"), Entry("b", "2"), Entry("a", None)], answers.append)
        )

    broker.run(write())
    broker.settle()
    assert answers == [E.NONE]
    assert toy.values == {"b": "2"}
    assert [read_header(batch).record_count for batch in batches(broker)] == [3]


def test_the_changes_of_one_turn_go_out_in_one_write(broker: InProcessBroker, toy: Toy) -> None:
    writes = broker.server.components.replicas.appender.stats.writes
    assert toy.put(*[(f"key-{number}", "x") for number in range(20)]) == [E.NONE] * 20
    assert len(batches(broker)) == 20
    assert broker.server.components.replicas.appender.stats.writes == writes + 1


def test_records_can_be_compressed(broker: InProcessBroker) -> None:
    broker.create_topic(TOPIC)
    toy = Toy(broker, codec=Codec.ZSTD)
    toy.start()
    assert toy.put(("a", "1" * 1000)) == [E.NONE]
    (batch,) = batches(broker)
    assert read_header(batch).codec is Codec.ZSTD
    assert len(batch) < 200


def test_on_a_full_disk_nothing_is_replayed_and_later_changes_work_again(
    broker: InProcessBroker, toy: Toy, disk: FaultyFileSystem
) -> None:
    toy.put(("a", "1"))
    disk.fill_up()
    assert toy.put(("a", "2"), ("b", "2")) == [E.KAFKA_STORAGE_ERROR] * 2
    assert toy.values == {"a": "1"}
    disk.make_room()
    assert toy.put(("b", "3")) == [E.NONE]
    assert toy.values == {"a": "1", "b": "3"}
    assert broker.log(TOPIC).log_end_offset == 2
    assert len(toy.shards) == 1, "there was no reason to load it again"


def test_a_change_that_is_too_large_is_refused_alone(broker: InProcessBroker) -> None:
    broker.create_topic(TOPIC, max_message_bytes=200)
    toy = Toy(broker)
    toy.start()
    answers = toy.put(("a", "1"), ("b", "x" * 200), ("c", "3"))
    assert sorted(answers) == [E.NONE, E.NONE, E.MESSAGE_TOO_LARGE]
    assert toy.values == {"a": "1", "c": "3"}


def test_a_change_that_has_no_bytes_is_refused_alone(toy: Toy, caplog: pytest.LogCaptureFixture) -> None:
    answers = toy.put(("a", "1"), (UNENCODABLE, "2"), ("c", "3"))
    assert sorted(answers) == [E.UNKNOWN_SERVER_ERROR, E.NONE, E.NONE]
    assert toy.values == {"a": "1", "c": "3"}
    assert toy.put(("d", "4")) == [E.NONE]
    assert [record.getMessage() for record in caplog.records if "written" in record.msg] == [
        "1 record not written: a key that has no bytes"
    ]


def test_a_change_that_no_segment_holds_is_refused(broker: InProcessBroker) -> None:
    broker.create_topic(TOPIC, segment_bytes=1 << 20, max_message_bytes=10 << 20)
    toy = Toy(broker)
    toy.start()
    assert toy.put(("a", "x" * (2 << 20))) == [E.RECORD_LIST_TOO_LARGE]
    assert toy.put(("b", "2")) == [E.NONE]


def test_where_flush_messages_asks_for_it_the_answer_waits_for_the_flush(
    broker: InProcessBroker, disk: FaultyFileSystem
) -> None:
    broker.create_topic(TOPIC, flush_messages=1)
    toy = Toy(broker)
    toy.start()
    synced = len(disk.disk.synced)
    answers = toy.put(("a", "1"))
    broker.wait_until(lambda: bool(answers))
    assert answers == [E.NONE]
    assert toy.values == {"a": "1"}
    assert "00000000000000000000.log" in disk.disk.synced[synced:]
    assert broker.log(TOPIC).recovery_point == 1


class HeldFlushes:
    """Keeps flushes from being made until the test says so."""

    def __init__(self, broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        self._broker = broker
        self._replicas = broker.server.components.replicas
        monkeypatch.setattr(self._replicas, "flush", lambda partition: None)

    def flush(self) -> None:
        async def flush() -> None:
            self._broker.log(TOPIC).flush(0)
            self._replicas.produce_purgatory.check(self._replicas.partition(TOPIC, 0))

        self._broker.run(flush())


def test_what_is_flushed_late_is_answered_in_time_and_replayed_all_the_same(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic(TOPIC, flush_messages=1)
    toy = Toy(broker)
    toy.start()
    held = HeldFlushes(broker, monkeypatch)
    answers = toy.put(("a", "1"))
    broker.advance(4_999)
    assert answers == []
    broker.advance(1)
    assert answers == [E.REQUEST_TIMED_OUT]
    assert toy.values == {}
    held.flush()
    assert toy.values == {"a": "1"}
    assert answers == [E.REQUEST_TIMED_OUT]


def test_what_was_loaded_and_is_not_flushed_is_waited_for_where_flush_messages_asks_for_it(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker was killed before the flush: the power may be cut next."""
    broker.create_topic(TOPIC, flush_messages=1)
    first = Toy(broker)
    first.start()
    held = HeldFlushes(broker, monkeypatch)
    assert first.put(("a", "1")) == []
    first.stop()
    second = Toy(broker)
    second.start()
    assert second.values == {"a": "1"}
    answers: list[E] = []

    async def ask() -> None:
        second.runtime.of("a").write(CoordinatorResult([], answers.append))

    broker.run(ask())
    broker.advance(10_000)
    assert answers == []
    held.flush()
    assert answers == [E.NONE]


def test_changes_are_replayed_in_the_order_of_the_log_whichever_needs_a_flush(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic(TOPIC, flush_messages=2)
    toy = Toy(broker)
    toy.start()
    held = HeldFlushes(broker, monkeypatch)
    assert toy.put(("a", "1")) == [E.NONE]
    waiting = toy.put(("a", "2"))
    log = broker.log(TOPIC)
    log.config = log.config.with_overrides({"flush.messages": "1000"})
    behind = toy.put(("a", "3"))
    assert (waiting, behind, toy.values) == ([], [], {"a": "1"})
    held.flush()
    assert (waiting, behind, toy.values) == ([E.NONE], [E.NONE], {"a": "3"})


def test_a_change_without_records_is_answered_behind_those_before_it(broker: InProcessBroker, toy: Toy) -> None:
    told: list[str] = []

    async def write() -> None:
        coordinator = toy.runtime.of("a")
        coordinator.write(CoordinatorResult([Entry("a", "1")], lambda code: told.append(f"written {toy.value('a')}")))
        coordinator.write(CoordinatorResult([], lambda code: told.append("nothing to write")))

    broker.run(write())
    broker.settle()
    assert told == ["written 1", "nothing to write"]


def test_a_failing_directory_fails_the_change_and_unloads_the_shard(
    broker: InProcessBroker, toy: Toy, disk: FaultyFileSystem
) -> None:
    disk.fail("write", errno.EIO, suffix=FIRST_SEGMENT)
    assert toy.put(("a", "1"), ("b", "2")) == [E.KAFKA_STORAGE_ERROR] * 2
    assert toy.shards[0].values == {}
    assert toy.shards[0].unloaded_with is E.NOT_COORDINATOR


def test_a_change_that_wants_another_one_written_gets_it_written(broker: InProcessBroker, toy: Toy) -> None:
    answers: list[E] = []

    async def write() -> None:
        coordinator = toy.runtime.of("a")
        second = coordinator.shard.put("a", "2", answers.append)
        coordinator.write(coordinator.shard.put("a", "1", lambda _: coordinator.write(second)))

    broker.run(write())
    broker.settle()
    assert answers == [E.NONE]
    assert toy.values == {"a": "2"}


def test_what_an_alarm_wants_written_needs_no_request_to_take_it_along(broker: InProcessBroker, toy: Toy) -> None:
    shard = toy.shards[0]
    answers: list[E] = []
    broker.clock.call_at(
        broker.clock.monotonic_ms() + 100, lambda: shard.submit(shard.put("rung", "yes", answers.append))
    )
    broker.advance(100)
    assert answers == [E.NONE]
    assert toy.values == {"rung": "yes"}


# Transactions


def test_a_batch_in_a_transaction_has_the_producers_id_and_waits_for_the_marker(
    broker: InProcessBroker, toy: Toy
) -> None:
    assert toy.put_in_transaction(SHOP, ("a", "1"), ("b", "2")) == [E.NONE, E.NONE]
    # Every batch begins with sequence 0, as Kafka's coordinator writes it.
    for header in map(read_header, batches(broker)):
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (12, 3, 0)
        assert (header.is_transactional, header.is_control) == (True, False)
    assert (toy.values, broker.log(TOPIC).last_stable_offset) == ({}, 0)
    assert toy.end_transaction(COMMIT) == [E.NONE]
    assert (toy.values, broker.log(TOPIC).last_stable_offset) == ({"a": "1", "b": "2"}, 3)
    marker = read_header(batches(broker)[-1])
    assert (marker.producer_id, marker.producer_epoch, marker.is_control) == (12, 3, True)


def test_an_abort_drops_what_the_transaction_has_written_and_nothing_else(broker: InProcessBroker, toy: Toy) -> None:
    toy.put_in_transaction(SHOP, ("a", "1"))
    toy.put_in_transaction(ProducerIdAndEpoch(13, 0), ("b", "2"))
    toy.put(("c", "3"))
    assert toy.end_transaction(ABORT) == [E.NONE]
    assert toy.values == {"c": "3"}
    assert broker.log(TOPIC).last_stable_offset == 1
    assert toy.end_transaction(COMMIT._replace(producer_id=13, producer_epoch=0)) == [E.NONE]
    assert toy.values == {"b": "2", "c": "3"}


def test_what_is_loaded_again_is_what_was_replayed(broker: InProcessBroker, toy: Toy) -> None:
    toy.put_in_transaction(SHOP, ("a", "1"))
    toy.end_transaction(COMMIT)
    toy.put_in_transaction(SHOP, ("a", "2"), ("b", "2"))
    toy.stop()
    again = Toy(broker)
    again.start()
    assert (again.values, again.shards[0].in_transactions) == ({"a": "1"}, {12: {"a": "2", "b": "2"}})
    assert again.end_transaction(COMMIT) == [E.NONE]
    assert again.values == {"a": "2", "b": "2"}
    again.stop()


def test_a_marker_is_replayed_behind_the_records_that_wait_for_a_flush(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic(TOPIC, flush_messages=2)
    toy = Toy(broker)
    toy.start()
    held = HeldFlushes(broker, monkeypatch)
    toy.put(("a", "0"))
    waiting = toy.put_in_transaction(SHOP, ("a", "1"))
    log = broker.log(TOPIC)
    log.config = log.config.with_overrides({"flush.messages": "1000"})
    ended = toy.end_transaction(COMMIT)
    assert (waiting, ended, toy.values) == ([], [], {"a": "0"})
    held.flush()
    assert (waiting, ended, toy.values) == ([E.NONE], [E.NONE], {"a": "1"})


def test_a_marker_that_is_flushed_late_ends_the_transaction_all_the_same(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic(TOPIC, flush_messages=2)
    toy = Toy(broker)
    toy.start()
    toy.put_in_transaction(SHOP, ("a", "1"))
    held = HeldFlushes(broker, monkeypatch)
    ended = toy.end_transaction(COMMIT)
    broker.advance(5_000)
    assert (ended, toy.values) == ([E.REQUEST_TIMED_OUT], {})
    held.flush()
    assert (ended, toy.values) == ([E.REQUEST_TIMED_OUT], {"a": "1"})


def test_a_marker_that_cannot_be_written_leaves_the_transaction_open(
    broker: InProcessBroker, toy: Toy, disk: FaultyFileSystem
) -> None:
    toy.put_in_transaction(SHOP, ("a", "1"))
    disk.fill_up()
    assert toy.end_transaction(COMMIT) == [E.KAFKA_STORAGE_ERROR]
    assert (toy.values, broker.log(TOPIC).last_stable_offset) == ({}, 0)
    disk.make_room()
    assert toy.end_transaction(COMMIT) == [E.NONE]
    assert toy.values == {"a": "1"}
    assert len(toy.shards) == 1, "there was no reason to load it again"


def test_markers_of_the_past_are_refused(broker: InProcessBroker, toy: Toy) -> None:
    toy.put_in_transaction(SHOP, ("a", "1"))
    assert toy.end_transaction(COMMIT._replace(producer_epoch=2)) == [E.INVALID_PRODUCER_EPOCH]
    assert toy.end_transaction(COMMIT) == [E.NONE]
    toy.put_in_transaction(SHOP, ("a", "2"))
    assert toy.end_transaction(ABORT._replace(coordinator_epoch=0)) == [E.TRANSACTION_COORDINATOR_FENCED]
    assert toy.values == {"a": "1"}
    assert toy.end_transaction(COMMIT) == [E.NONE]
    assert toy.values == {"a": "2"}


def test_an_older_epoch_writes_nothing_after_a_newer_one(broker: InProcessBroker, toy: Toy) -> None:
    toy.end_transaction(COMMIT._replace(producer_epoch=4))
    assert toy.put_in_transaction(SHOP, ("a", "1")) == [E.INVALID_PRODUCER_EPOCH]
    assert broker.log(TOPIC).log_end_offset == 1
    assert toy.put_in_transaction(ProducerIdAndEpoch(12, 4), ("a", "2")) == [E.NONE]


def test_an_unloaded_shard_takes_no_markers(broker: InProcessBroker, toy: Toy) -> None:
    writer = toy.runtime.of("a").writer
    toy.stop()
    answers: list[E] = []
    writer.append_marker(COMMIT, answers.append)
    assert answers == [E.NOT_COORDINATOR]
    assert toy.end_transaction(COMMIT) == [E.COORDINATOR_NOT_AVAILABLE]
    assert broker.log(TOPIC).log_end_offset == 0


def test_a_marker_behind_another_writers_batch_has_the_shard_loaded_again(broker: InProcessBroker, toy: Toy) -> None:
    toy.put_in_transaction(SHOP, ("a", "1"))

    async def write_past_the_writer() -> None:
        replicas = broker.server.components.replicas
        replicas.appender.append_marker(replicas.partition(TOPIC, 0), ABORT, lambda staged, outcome: None)

    broker.run(write_past_the_writer())
    broker.settle()
    assert toy.end_transaction(COMMIT) == [E.NOT_COORDINATOR]
    toy.wait_until_loaded()
    assert toy.values == {}
    assert toy.end_transaction(COMMIT) == [E.NONE]
    assert toy.values == {}
