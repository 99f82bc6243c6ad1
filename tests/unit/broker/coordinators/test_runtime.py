"""CoordinatorRuntime: partitions come and go, load, and are written to by another writer."""

import errno
from pathlib import Path

import pytest

from broker.coordinators.partitioning import partition_of
from broker.request.faults import Fault
from protocol.errors import ErrorCode as E
from protocol.messages.topics import DeleteTopicsRequest
from tests.support.batches import produced, record
from tests.support.broker import InProcessBroker, running_broker
from tests.support.files import FaultyFileSystem
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


def test_a_sweep_of_nothing_ends_at_once(broker: InProcessBroker) -> None:
    toy = Toy(broker)
    toy.start()
    ended: list[bool] = []
    toy.runtime.sweep(Register.remove_all, lambda: ended.append(True))
    assert ended == [True]
