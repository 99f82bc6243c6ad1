"""CoordinatorRuntime: partitions come and go, load, and are written to by another writer."""

import errno
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.coordinators.loading import PartitionLoading
from broker.coordinators.partitioning import partition_of
from broker.coordinators.result import ProducerIdAndEpoch
from broker.replication.partition import Partition
from broker.replication.transaction_marker import TransactionMarker
from broker.request.faults import Fault
from protocol.errors import ErrorCode as E
from protocol.messages.topics import DeleteTopicsRequest
from tests.support.batches import produced, record
from tests.support.broker import InProcessBroker, running_broker
from tests.support.files import FaultyFileSystem
from tests.support.leadership import OTHER, OURS, follower_fetches, hand_over, hand_over_now, replicate
from tests.support.requests import produce_request
from tests.unit.broker.coordinators.toy import TOPIC, Register, Toy


def refused_with(toy: Toy, key: str = "a") -> E:
    """The error with which nobody answers for a key."""
    with pytest.raises(Fault) as raised:
        toy.runtime.of(key)
    return raised.value.code


def delete(broker: InProcessBroker, topic: str = TOPIC) -> None:
    topics = [DeleteTopicsRequest.Topic(name=topic, topic_id=bytes(16))]
    answer = broker.ask(DeleteTopicsRequest(topics=topics, timeout_ms=1000), 6)
    assert answer.responses[0].error_code == E.NONE


def write_as_a_stranger(broker: InProcessBroker, key: bytes, value: bytes) -> None:
    """What Kafka lets only its own tools do."""
    request = produce_request(TOPIC, produced([record(value, key=key)]))
    answer = broker.ask(request, 12, client_id="__admin_client")
    assert answer.responses[0].partition_responses[0].error_code == E.NONE


def test_without_the_topic_nobody_coordinates(broker: InProcessBroker) -> None:
    toy = Toy(broker)
    toy.start()
    assert refused_with(toy) is E.NOT_COORDINATOR
    assert toy.runtime.all() == []


def test_a_topic_that_is_made_later_is_ready_at_once(broker: InProcessBroker) -> None:
    toy = Toy(broker)
    toy.start()
    broker.create_topic(TOPIC, partitions=50)
    assert toy.put(("a", "1")) == [E.NONE]
    assert broker.log(TOPIC, partition_of("a", 50)).log_end_offset == 1
    assert len(toy.runtime.all()) == 50


def test_keys_are_spread_over_the_partitions_there_are(broker: InProcessBroker) -> None:
    broker.create_topic(TOPIC, partitions=3)
    toy = Toy(broker)
    toy.start()
    keys = [f"key-{number}" for number in range(30)]
    toy.put(*[(key, "x") for key in keys])
    assert [len(one.shard.values) for one in toy.runtime.all()] == [
        sum(partition_of(key, 3) == partition for key in keys) for partition in range(3)
    ]


def test_a_deleted_topic_is_unloaded_and_a_new_one_begins_empty(broker: InProcessBroker, toy: Toy) -> None:
    toy.put(("a", "1"))
    delete(broker)
    assert toy.shards[0].unloaded_with is E.NOT_COORDINATOR
    assert refused_with(toy) is E.NOT_COORDINATOR
    broker.create_topic(TOPIC)
    assert toy.put(("b", "2")) == [E.NONE]
    assert toy.values == {"b": "2"}


def test_a_directory_that_fails_takes_its_partitions_along_and_no_others(tmp_path: Path) -> None:
    disk = FaultyFileSystem()
    with running_broker(tmp_path, files=disk, log_dirs=f"{tmp_path}/a,{tmp_path}/b") as broker:
        broker.create_topic(TOPIC, partitions=4)
        toy = Toy(broker)
        toy.start()
        keys = {partition_of(key, 4): key for key in (f"key-{number}" for number in range(50))}
        toy.put(*[(key, "1") for key in keys.values()])
        in_b = [index for index in keys if Path(broker.log(TOPIC, index).directory).parent.name == "b"]
        assert len(in_b) == 2
        disk.fail("write", errno.EIO, suffix=f"b/{TOPIC}-{in_b[0]}/00000000000000000000.log")
        assert toy.put((keys[in_b[0]], "2")) == [E.KAFKA_STORAGE_ERROR]
        for index, key in keys.items():
            if index in in_b:
                assert refused_with(toy, key) is E.NOT_COORDINATOR
            else:
                assert toy.put((key, "2")) == [E.NONE]
        assert len(toy.runtime.all()) == 2
        toy.stop()


def test_somebody_elses_record_is_noticed_at_the_next_change_and_the_partition_loaded_again(
    broker: InProcessBroker, toy: Toy, caplog: pytest.LogCaptureFixture
) -> None:
    toy.put(("a", "1"))
    write_as_a_stranger(broker, b"stranger", b"here")
    assert toy.value("stranger") is None
    assert toy.put(("b", "2")) == [E.NOT_COORDINATOR]
    toy.wait_until_loaded()
    assert toy.shards[0].unloaded_with is E.NOT_COORDINATOR
    assert toy.values == {"a": "1", "stranger": "here"}
    assert toy.put(("b", "2")) == [E.NONE]
    assert any("is 2 instead of 1: another writer" in line for line in caplog.messages)


def test_a_stop_writes_what_is_staged_and_then_nobody_answers(broker: InProcessBroker, toy: Toy) -> None:
    answers: list[E] = []

    async def write_and_stop() -> None:
        coordinator = toy.runtime.of("a")
        coordinator.write(coordinator.shard.put("a", "1", answers.append))
        toy.runtime.stop()

    broker.run(write_and_stop())
    assert answers == [E.NONE]
    assert toy.shards[0].unloaded_with is E.NOT_COORDINATOR
    assert refused_with(toy) is E.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(Fault, match="stops"):
        toy.runtime.all()


def test_a_stop_while_it_loads_ends_the_loading(broker: InProcessBroker, toy: Toy) -> None:
    toy.put(*[(f"key-{number}", "x") for number in range(100)])
    toy.stop()
    again = Toy(broker)
    again.begin()
    again.stop()
    broker.settle()
    assert not again.shards[0].is_loaded
    assert refused_with(again) is E.COORDINATOR_NOT_AVAILABLE


def test_a_sweep_goes_through_every_shard(broker: InProcessBroker) -> None:
    broker.create_topic(TOPIC, partitions=4)
    toy = Toy(broker)
    toy.start()
    toy.put(*[(f"key-{number}", "x") for number in range(100)])

    ended: list[bool] = []

    async def sweep() -> None:
        toy.runtime.sweep(Register.remove_all, lambda: ended.append(True))

    broker.run(sweep())
    broker.wait_until(lambda: bool(ended))
    broker.settle()
    assert toy.values == {}
    toy.stop()
    again = Toy(broker)
    again.start()
    assert again.values == {}


def test_a_sweep_waits_for_what_is_still_loading(broker: InProcessBroker, toy: Toy) -> None:
    toy.put(("a", "1"))
    toy.stop()
    again = Toy(broker)

    ended: list[bool] = []

    async def sweep() -> None:
        again.runtime.sweep(Register.remove_all, lambda: ended.append(True))

    broker.run(sweep())
    again.start()
    broker.wait_until(lambda: bool(ended))
    broker.settle()
    assert again.values == {}
    assert broker.log(TOPIC).log_end_offset == 2


def test_a_sweep_ends_where_the_partition_is_gone(broker: InProcessBroker, toy: Toy) -> None:
    toy.put(*[(f"key-{number}", "x") for number in range(10)])

    ended: list[bool] = []

    async def sweep() -> None:
        toy.runtime.sweep(Register.remove_all, lambda: ended.append(True))
        toy.runtime.stop()

    broker.run(sweep())
    broker.settle()
    assert len(toy.shards[0].values) == 10
    assert ended == [True]


def test_a_sweeping_job_is_left_out_while_its_last_sweep_goes_on(broker: InProcessBroker, toy: Toy) -> None:
    begun: list[Register] = []

    def pieces(shard: Register) -> Iterator[None]:
        begun.append(shard)
        yield None

    job = toy.runtime.sweeping(pieces)

    async def twice() -> None:
        job()
        job()

    for times in (1, 2):
        broker.run(twice())
        broker.settle()
        assert begun == toy.shards * times


def test_a_sweep_of_nothing_ends_at_once(broker: InProcessBroker) -> None:
    toy = Toy(broker)
    toy.start()
    ended: list[bool] = []
    toy.runtime.sweep(Register.remove_all, lambda: ended.append(True))
    assert ended == [True]


# Another node leads


def append_as_follower(partition: Partition, *keys: bytes) -> None:
    """Append what the leader would have sent."""
    batch = produced([record(b"theirs", key=key) for key in keys])
    partition.log.stage_trusted(batch, leader_epoch=partition.leader_epoch)
    partition.log.append_all(0)


def test_a_partition_that_another_node_leads_is_unloaded(broker: InProcessBroker, toy: Toy) -> None:
    toy.put(("a", "1"))
    hand_over(broker, TOPIC, OTHER)
    assert toy.shards[0].unloaded_with is E.NOT_COORDINATOR
    assert refused_with(toy) is E.NOT_COORDINATOR
    assert toy.end_transaction(TransactionMarker(12, 3, True, 1)) == [E.NOT_COORDINATOR]
    assert (toy.runtime.all(), toy.runtime.active, toy.runtime.loading) == ([], [], 0)


def test_a_partition_that_comes_back_is_loaded_with_what_others_have_written(broker: InProcessBroker, toy: Toy) -> None:
    toy.put(("a", "1"))
    toy.put_in_transaction(ProducerIdAndEpoch(12, 3), ("a", "2"))
    append_as_follower(hand_over(broker, TOPIC, OTHER), b"b")
    hand_over(broker, TOPIC, OURS)
    toy.wait_until_loaded()
    assert len(toy.shards) == 2
    assert (toy.values, toy.shards[1].in_transactions) == ({"a": "1", "b": "theirs"}, {12: {"a": "2"}})
    assert toy.put(("c", "3")) == [E.NONE]
    assert toy.end_transaction(TransactionMarker(12, 3, True, 1)) == [E.NONE]
    assert toy.values == {"a": "2", "b": "theirs", "c": "3"}


def test_a_new_epoch_of_the_same_leader_changes_nothing(broker: InProcessBroker, toy: Toy) -> None:
    toy.put(("a", "1"))
    hand_over(broker, TOPIC, OURS)
    assert toy.put(("b", "2")) == [E.NONE]
    assert (len(toy.shards), toy.values) == (1, {"a": "1", "b": "2"})


def test_a_change_that_is_staged_when_the_leadership_goes_is_refused(broker: InProcessBroker, toy: Toy) -> None:
    answers: list[E] = []

    async def write() -> None:
        coordinator = toy.runtime.of("a")
        coordinator.write(coordinator.shard.put("a", "1", answers.append))
        coordinator.writer.append_marker(TransactionMarker(12, 3, True, 1), answers.append)
        hand_over_now(broker, TOPIC, OTHER)

    broker.run(write())
    assert answers == [E.NOT_LEADER_OR_FOLLOWER] * 2
    hand_over(broker, TOPIC, OURS)
    toy.wait_until_loaded()
    assert (toy.values, broker.log(TOPIC).log_end_offset) == ({}, 0)


def test_a_change_that_waits_for_a_flush_when_the_leadership_goes_is_answered(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic(TOPIC, flush_messages=1)
    toy = Toy(broker)
    toy.start()
    monkeypatch.setattr(broker.server.components.replicas, "flush", lambda partition: None)
    waiting = toy.put(("a", "1"), ("b", "2"))
    ended = toy.end_transaction(TransactionMarker(12, 3, True, 1))
    hand_over(broker, TOPIC, OTHER)
    assert (waiting, ended) == ([E.NOT_COORDINATOR] * 2, [E.NOT_COORDINATOR])
    # What is in the log is in the log: the next coordinator finds it there.
    hand_over(broker, TOPIC, OURS)
    toy.wait_until_loaded()
    assert toy.values == {"a": "1", "b": "2"}


def test_the_leadership_may_go_while_the_partition_is_loading(
    broker: InProcessBroker, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.put(*[(f"key-{number}", "x") for number in range(100)])
    hand_over(broker, TOPIC, OTHER)
    begin = PartitionLoading.begin
    monkeypatch.setattr(PartitionLoading, "begin", lambda loading, slices: None)
    hand_over(broker, TOPIC, OURS)
    assert refused_with(toy) is E.COORDINATOR_LOAD_IN_PROGRESS
    hand_over(broker, TOPIC, OTHER)
    assert (refused_with(toy), toy.runtime.loading) == (E.NOT_COORDINATOR, 0)
    monkeypatch.setattr(PartitionLoading, "begin", begin)
    hand_over(broker, TOPIC, OURS)
    toy.wait_until_loaded()
    assert len(toy.values) == 100
    assert [shard.is_loaded for shard in toy.shards] == [True, False, True]


def test_loading_that_waits_for_the_disk_ends_when_the_leadership_goes(
    broker: InProcessBroker, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.put(("a", "1"))
    hand_over(broker, TOPIC, OTHER)
    submitted = []
    monkeypatch.setattr(toy.reader, "submit", lambda *job: submitted.append(job))
    hand_over(broker, TOPIC, OURS)
    broker.wait_until(lambda: bool(submitted))
    hand_over(broker, TOPIC, OTHER)
    monkeypatch.undo()

    async def read() -> None:
        for job in submitted:
            toy.reader.submit(*job)

    broker.run(read())
    hand_over(broker, TOPIC, OURS)
    toy.wait_until_loaded()
    assert [shard.is_loaded for shard in toy.shards] == [True, False, True]
    assert toy.values == {"a": "1"}


def test_a_sweep_ends_where_another_node_leads_by_now(broker: InProcessBroker, toy: Toy) -> None:
    toy.put(*[(f"key-{number}", "x") for number in range(10)])
    ended: list[bool] = []

    async def sweep() -> None:
        toy.runtime.sweep(Register.remove_all, lambda: ended.append(True))

    broker.run(sweep())
    hand_over(broker, TOPIC, OTHER)
    broker.wait_until(lambda: bool(ended))
    assert refused_with(toy) is E.NOT_COORDINATOR


def test_an_alarm_of_an_unloaded_shard_writes_nothing_even_where_another_shard_is_loaded(
    broker: InProcessBroker, toy: Toy
) -> None:
    old = toy.shards[0]
    answers: list[E] = []

    async def ring() -> None:
        old.submit(old.put("a", "late", answers.append))

    hand_over(broker, TOPIC, OTHER)
    broker.run(ring())
    hand_over(broker, TOPIC, OURS)
    toy.wait_until_loaded()
    broker.run(ring())
    broker.settle()
    assert answers == [E.NOT_COORDINATOR] * 2
    assert (toy.values, broker.log(TOPIC).log_end_offset) == ({}, 0)


def test_of_an_unloaded_shard_nothing_is_kept(broker: InProcessBroker, toy: Toy) -> None:
    toy.put(("a", "1"))
    toy.put_in_transaction(ProducerIdAndEpoch(12, 3), ("a", "2"))
    shard = weakref.ref(toy.shards.pop())
    assert shard() is not None
    hand_over(broker, TOPIC, OTHER)
    broker.settle()
    gc.collect()
    assert shard() is None


# Another node follows


def test_a_change_is_made_and_answered_once_the_followers_have_it(broker: InProcessBroker, toy: Toy) -> None:
    partition = replicate(broker, TOPIC)
    first, second = toy.put(("a", "1")), toy.put(("b", "2"))
    assert (first, second, toy.values, partition.log.log_end_offset) == ([], [], {}, 2)
    follower_fetches(broker, partition, 1)
    assert (first, second, toy.values) == ([E.NONE], [], {"a": "1"})
    follower_fetches(broker, partition)
    assert (first, second, toy.values) == ([E.NONE], [E.NONE], {"a": "1", "b": "2"})


def test_what_the_followers_do_not_have_in_time_is_made_when_they_have_it(broker: InProcessBroker, toy: Toy) -> None:
    partition = replicate(broker, TOPIC)
    answers = toy.put(("a", "1"))
    broker.advance(5_000)
    assert (answers, toy.values) == ([E.REQUEST_TIMED_OUT], {})
    follower_fetches(broker, partition)
    assert (answers, toy.values) == ([E.REQUEST_TIMED_OUT], {"a": "1"})


def test_a_change_that_waits_for_followers_when_the_leadership_goes_is_answered_and_not_made(
    broker: InProcessBroker, toy: Toy
) -> None:
    partition = replicate(broker, TOPIC)
    answers = toy.put(("a", "1"))
    replicate(broker, TOPIC, leader=OTHER)
    assert answers == [E.NOT_COORDINATOR]
    # The other node did not have it, and this node has removed it.
    partition.log.truncate_to(0, broker.clock.now_ms())
    replicate(broker, TOPIC)
    follower_fetches(broker, partition)
    toy.wait_until_loaded()
    assert toy.values == {}
    assert [shard.replayed for shard in toy.shards] == [[], []]


def test_a_change_outlives_a_new_epoch_of_the_same_leader(broker: InProcessBroker, toy: Toy) -> None:
    partition = replicate(broker, TOPIC)
    answers = toy.put(("a", "1"))
    replicate(broker, TOPIC)
    assert answers == []
    follower_fetches(broker, partition)
    assert (answers, toy.values, len(toy.shards)) == ([E.NONE], {"a": "1"}, 1)


def test_a_partition_is_loaded_once_all_of_it_is_committed(
    broker: InProcessBroker, toy: Toy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    toy.put(("a", "1"))
    partition = replicate(broker, TOPIC, leader=OTHER)
    append_as_follower(partition, b"b", b"c")
    replicate(broker, TOPIC)
    broker.wait_until(lambda: "is read up to offset 3" in caplog.text)
    assert (refused_with(toy), toy.runtime.loading) == (E.COORDINATOR_LOAD_IN_PROGRESS, 1)
    assert toy.end_transaction(TransactionMarker(12, 3, True, 1)) == [E.COORDINATOR_LOAD_IN_PROGRESS]
    follower_fetches(broker, partition, 2)
    assert refused_with(toy) is E.COORDINATOR_LOAD_IN_PROGRESS
    follower_fetches(broker, partition, 3)
    assert (toy.runtime.loading, [shard.is_loaded for shard in toy.shards]) == (0, [True, True])
    assert toy.values == {"a": "1", "b": "theirs", "c": "theirs"}
    assert partition.watchers is None


@pytest.mark.parametrize("how", ["goes", "stop", "new epoch"])
def test_the_leadership_may_change_while_the_end_of_what_was_loaded_is_not_committed(
    broker: InProcessBroker, toy: Toy, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    caplog.set_level("INFO")
    partition = replicate(broker, TOPIC, leader=OTHER)
    append_as_follower(partition, b"b")
    replicate(broker, TOPIC)
    broker.wait_until(lambda: "is read up to offset 1" in caplog.text)
    if how == "goes":
        replicate(broker, TOPIC, leader=OTHER)
        assert refused_with(toy) is E.NOT_COORDINATOR
    elif how == "stop":
        toy.stop()
        assert refused_with(toy) is E.COORDINATOR_NOT_AVAILABLE
    else:
        replicate(broker, TOPIC)
        assert refused_with(toy) is E.COORDINATOR_LOAD_IN_PROGRESS
        follower_fetches(broker, partition)
        assert toy.values == {"b": "theirs"}
    assert partition.watchers is None
    assert [shard.is_loaded for shard in toy.shards] == [True, how == "new epoch"]


def test_a_sweep_reaches_what_is_loaded_once_it_is_committed(broker: InProcessBroker, toy: Toy) -> None:
    partition = replicate(broker, TOPIC, leader=OTHER)
    append_as_follower(partition, b"b")
    replicate(broker, TOPIC)
    ended: list[bool] = []

    async def sweep() -> None:
        toy.runtime.sweep(Register.remove_all, lambda: ended.append(True))

    broker.run(sweep())
    broker.settle()
    assert ended == []
    broker.wait_until(lambda: partition.watchers is not None)
    follower_fetches(broker, partition)
    broker.wait_until(lambda: bool(ended))
