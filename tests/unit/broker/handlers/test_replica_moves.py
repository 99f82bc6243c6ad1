"""Replicas move between data directories while they are written and read (AlterReplicaLogDirs; KIP-113)."""

import errno
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.serving import assert_served, serves
from protocol.errors import ErrorCode as E
from protocol.messages.configs import IncrementalAlterConfigsRequest
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from protocol.messages.topics import DeleteTopicsRequest
from storage.flushing import FlushTarget
from storage.future_logs import LogExchange
from tests.support.batches import produced, record
from tests.support.broker import InProcessBroker, running_broker
from tests.support.files import FaultyFileSystem
from tests.support.logs import values_in
from tests.support.requests import fetch_request, produce_request
from tests.unit.broker.handlers.transactional_client import TransactionalClient, with_coordinators

QUOTA = "replica.alter.log.dirs.io.max.bytes.per.second"
SET, DELETE = 0, 1
BROKER = 4
LARGE = b"." * 300_000
"""A few records of this size are more than what is copied at a time."""


@pytest.fixture
def files() -> FaultyFileSystem:
    return FaultyFileSystem()


@pytest.fixture
def broker(tmp_path: Path, files: FaultyFileSystem, request: pytest.FixtureRequest) -> Iterator[InProcessBroker]:
    paths = ",".join(str(tmp_path / name) for name in ("one", "two", "three"))
    with running_broker(
        tmp_path / "one", files=files, log_dirs=paths, log_segment_bytes=1 << 20, log_segment_delete_delay_ms=0
    ) as broker:
        yield broker
        assert_served(request.node, broker.answered)


def move(broker: InProcessBroker, name: str, topic: str = "orders", partition: int = 0) -> E:
    """Ask for a move; the answer's error."""
    of_dir = AlterReplicaLogDirsRequest.Dir
    path = str(broker.directory.parent / name)
    request = AlterReplicaLogDirsRequest(
        dirs=[of_dir(path=path, topics=[of_dir.Topic(name=topic, partitions=[partition])])]
    )
    (result,) = broker.ask(request, 2).results
    return E(result.partitions[0].error_code)


def limit(broker: InProcessBroker, bytes_per_second: int | None) -> None:
    """Set the quota of moves, or take it back."""
    of_request = IncrementalAlterConfigsRequest.Resource
    operation = DELETE if bytes_per_second is None else SET
    value = None if bytes_per_second is None else str(bytes_per_second)
    change = of_request.Config(name=QUOTA, config_operation=operation, value=value)
    request = IncrementalAlterConfigsRequest(
        resources=[of_request(resource_type=BROKER, resource_name="1", configs=[change])], validate_only=False
    )
    assert broker.ask(request, 1).responses[0].error_code == E.NONE


def until(broker: InProcessBroker, condition: Callable[[], bool]) -> None:
    """Let time pass until the condition holds."""

    def holds() -> bool:
        broker.advance(100)
        return condition()

    broker.wait_until(holds)


def place(broker: InProcessBroker, topic: str = "orders") -> str:
    """The name of the directory in which the partition's log stands."""
    return Path(broker.log(topic).directory).parent.name


def moved(broker: InProcessBroker, name: str, topic: str = "orders") -> None:
    """Move the replica, and wait until it is moved."""
    assert move(broker, name, topic) == E.NONE
    until(broker, lambda: place(broker, topic) == name)


def described(broker: InProcessBroker) -> dict[str, list[tuple[int, bool]]]:
    """Lag, and whether it is a copy, of each log that DescribeLogDirs tells of, by the name of its directory."""
    return {
        Path(result.log_dir).name: [
            (one.offset_lag, one.is_future_key) for topic in result.topics for one in topic.partitions
        ]
        for result in broker.ask(DescribeLogDirsRequest(topics=None), 4).results
    }


def half_way(broker: InProcessBroker, name: str = "two", topic: str = "orders") -> None:
    """Begin a move that the quota stops after its first chunk."""
    limit(broker, 1)
    assert move(broker, name, topic) == E.NONE
    futures = broker.server.components.logs.futures
    broker.wait_until(lambda: any(one.log.log_end_offset > 0 for one in futures.all()))


def directories(broker: InProcessBroker, topic: str = "orders") -> dict[str, list[str]]:
    """What stands of the topic in each data directory: the ends of the names behind the last point or the name."""
    found = {}
    for name in ("one", "two", "three"):
        names = sorted(path.name for path in (broker.directory.parent / name).glob(f"{topic}-0*"))
        found[name] = [one.rpartition("-")[2] if "." in one else one for one in names]
    return found


def fetched(broker: InProcessBroker, offset: int, topic: str = "orders") -> Any:
    return broker.ask(fetch_request(topic, offset=offset), 12).responses[0].partitions[0]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Directories are renamed once it is set."""
    gate, perform = threading.Event(), LogExchange.perform

    def wait(exchange: LogExchange) -> None:
        assert gate.wait(60)
        perform(exchange)

    monkeypatch.setattr(LogExchange, "perform", wait)
    yield gate
    gate.set()


def test_a_replica_moves_with_all_that_it_has(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    for number in range(20):
        broker.produce("orders", b"%d" % number)
    assert place(broker) == "one"

    moved(broker, "two")

    log = broker.log("orders")
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 20, 20)
    assert directories(broker)["two"] == ["orders-0"]
    broker.produce("orders", b"more")
    assert fetched(broker, 20).error_code == E.NONE
    topics = broker.server.components.metadata.image.topics.by_name
    in_metadata = topics["orders"].partitions[0].directory_of(1)
    assert broker.server.log_dirs.by_id[in_metadata].path.endswith("two")
    broker.restart()
    assert place(broker) == "two"
    assert broker.log("orders").log_end_offset == 21


def test_the_old_directory_is_removed(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    broker.produce("orders", b"first")

    moved(broker, "two")

    until(broker, lambda: directories(broker) == {"one": [], "two": ["orders-0"], "three": []})


def test_a_move_is_told_of_while_it_goes_on(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    for _ in range(10):
        broker.produce("orders", LARGE)

    half_way(broker)

    assert described(broker) == {"one": [(0, False)], "two": [(7, True)], "three": []}
    assert directories(broker)["two"] == ["future"]
    broker.produce("orders", b"meanwhile")
    assert described(broker)["two"] == [(8, True)]
    limit(broker, None)
    until(broker, lambda: described(broker) == {"one": [], "two": [(0, False)], "three": []})
    assert broker.log("orders").log_end_offset == 11


def test_the_rate_of_moves_is_taken_over_the_windows_that_are_set(tmp_path: Path) -> None:
    with running_broker(
        tmp_path / "one",
        log_dirs=f"{tmp_path / 'one'},{tmp_path / 'two'}",
        alter_log_dirs_replication_quota_window_num=2,
        alter_log_dirs_replication_quota_window_size_seconds=3,
    ) as broker:
        broker.create_topic("orders")
        for _ in range(10):
            broker.produce("orders", LARGE)
        half_way(broker)
        for _ in range(5):
            broker.advance(1_000)
        broker.advance(999)
        assert described(broker)["two"] == [(7, True)]
        broker.advance(1)
        broker.wait_until(lambda: described(broker)["two"] == [(4, True)])


def test_a_move_elsewhere_ends_the_one_before(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    for _ in range(10):
        broker.produce("orders", LARGE)
    half_way(broker, "two")

    assert move(broker, "two") == E.NONE, "nothing new is wanted"
    assert described(broker)["two"] == [(7, True)]
    assert move(broker, "three") == E.NONE

    assert described(broker) == {"one": [(0, False)], "two": [], "three": [(10, True)]}
    assert move(broker, "one") == E.NONE
    assert described(broker) == {"one": [(0, False)], "two": [], "three": []}
    broker.produce("orders", b"goes on")
    limit(broker, None)
    moved(broker, "three")
    until(broker, lambda: directories(broker) == {"one": [], "two": [], "three": ["orders-0"]})


def test_a_topic_is_deleted_while_its_replica_moves(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    for _ in range(10):
        broker.produce("orders", LARGE)
    half_way(broker)

    broker.ask(
        DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="orders", topic_id=bytes(16))], timeout_ms=1000), 6
    )

    until(broker, lambda: directories(broker) == {"one": [], "two": [], "three": []})
    limit(broker, None)
    broker.create_topic("orders")
    assert broker.produce("orders", b"of the new topic") == 0


def test_records_that_are_deleted_meanwhile_stay_deleted(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    for _ in range(10):
        broker.produce("orders", LARGE)
    half_way(broker)
    of_topic = DeleteRecordsRequest.Topic
    deletion = of_topic(name="orders", partitions=[of_topic.Partition(partition_index=0, offset=8)])
    assert (
        broker.ask(DeleteRecordsRequest(topics=[deletion], timeout_ms=1000), 2).topics[0].partitions[0].low_watermark
        == 8
    )

    limit(broker, None)
    until(broker, lambda: place(broker) == "two")

    log = broker.log("orders")
    assert (log.log_start_offset, log.log_end_offset) == (8, 10)
    broker.restart()
    assert broker.log("orders").log_start_offset == 8


def test_a_log_that_begins_inside_of_a_batch_moves(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    broker.produce("orders", *[b"%d" % number for number in range(10)])
    of_topic = DeleteRecordsRequest.Topic
    deletion = of_topic(name="orders", partitions=[of_topic.Partition(partition_index=0, offset=4)])
    broker.ask(DeleteRecordsRequest(topics=[deletion], timeout_ms=1000), 2)

    moved(broker, "two")

    log = broker.log("orders")
    assert (log.log_start_offset, log.log_end_offset) == (4, 10)
    assert fetched(broker, 4).records


def test_an_empty_log_moves(broker: InProcessBroker) -> None:
    broker.create_topic("orders")

    moved(broker, "two")

    assert broker.produce("orders", b"first") == 0


def test_a_producer_keeps_its_sequences(broker: InProcessBroker) -> None:
    broker.create_topic("orders")

    def produce(sequence: int) -> tuple[int, int]:
        batch = produced([record(b"x")], producer_id=7, producer_epoch=0, base_sequence=sequence)
        answer = broker.ask(produce_request("orders", batch), 9).responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    assert [produce(number) for number in range(3)] == [(E.NONE, 0), (E.NONE, 1), (E.NONE, 2)]

    moved(broker, "two")

    assert produce(2) == (E.NONE, 2), "it is known already"
    assert produce(4)[0] == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    broker.restart()
    assert produce(2) == (E.NONE, 2)
    assert produce(3) == (E.NONE, 3)


def test_aborted_transactions_are_told_of_behind_a_move(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    with_coordinators(broker)
    client = TransactionalClient(broker).begun()
    client.add(3, ("orders", [0]))
    client.produce(9)
    assert client.end(3, commit=False) is E.NONE
    broker.wait_until(lambda: broker.log("orders").log_end_offset == 2)
    client.add(3, ("orders", [0]))
    client.produce(9)

    moved(broker, "two")

    log = broker.log("orders")
    assert (log.log_end_offset, log.last_stable_offset) == (3, 2)
    read = broker.ask(fetch_request("orders", isolation_level=1), 12).responses[0].partitions[0]
    assert [one.first_offset for one in read.aborted_transactions] == [0]
    assert client.end(3, commit=True) is E.NONE
    broker.wait_until(lambda: broker.log("orders").last_stable_offset == 4)


def test_leader_epochs_without_records_come_along(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    broker.produce("orders", b"first")
    log = broker.log("orders")
    log.assign_epoch_start(5)

    moved(broker, "two")

    assert log.leader_epochs.entries == [(0, 0), (5, 1)]
    written = (broker.directory.parent / "two" / "orders-0" / "leader-epoch-checkpoint").read_text()
    assert written.split("\n")[2:4] == ["0 0", "5 1"]


def test_a_restart_goes_on_with_the_copy(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    for _ in range(10):
        broker.produce("orders", LARGE)
    half_way(broker)

    broker.restart()

    ((lag, is_copy),) = described(broker)["two"]
    assert is_copy
    assert lag <= 7
    limit(broker, None)
    until(broker, lambda: place(broker) == "two")
    assert broker.log("orders").log_end_offset == 10


def test_what_is_appended_during_the_exchange_waits(broker: InProcessBroker, gate: threading.Event) -> None:
    broker.create_topic("orders")
    broker.produce("orders", b"first")
    logs = broker.server.components.logs
    assert move(broker, "two") == E.NONE
    until(broker, lambda: bool(logs.exchanged))
    client = broker.connect()
    client.send(produce_request("orders", produced([record(b"second")])), 9)
    broker.settle()
    assert client.has_no_answer()

    gate.set()
    until(broker, lambda: place(broker) == "two")

    (answer,) = client.receive().responses[0].partition_responses
    assert (answer.error_code, answer.base_offset) == (E.NONE, 1)
    assert broker.log("orders").log_end_offset == 2


@pytest.mark.parametrize("step", [FlushTarget, LogExchange])
@pytest.mark.parametrize("cut_to", [3, 0])
def test_a_log_that_is_cut_during_the_exchange_takes_nothing_from_its_copy_that_was_cut_off(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, step: type[FlushTarget | LogExchange], cut_to: int
) -> None:
    """While the copy is flushed, and while the directories are renamed."""
    has_begun, may_go_on, perform = threading.Event(), threading.Event(), step.perform

    broker.create_topic("orders")
    for number in range(5):
        broker.produce("orders", b"old-%d" % number)
    log, logs = broker.log("orders"), broker.server.components.logs

    def wait(self: Any) -> None:
        if logs.exchanged:
            has_begun.set()
            assert may_go_on.wait(60)
        perform(self)

    with monkeypatch.context() as patched:
        patched.setattr(step, "perform", wait)
        assert move(broker, "two") == E.NONE
        until(broker, has_begun.is_set)
        cut = logs.truncate_to if cut_to else logs.truncate_fully_to
        cut(log.topic_partition, cut_to, broker.clock.now_ms())
        may_go_on.set()
        until(broker, lambda: place(broker) == "two")

    assert (log.log_end_offset, log.high_watermark) == (cut_to, cut_to)
    assert broker.produce("orders", b"new") == cut_to
    broker.restart()
    assert values_in(broker.log("orders")) == [*(b"old-%d" % number for number in range(cut_to)), b"new"]
    until(broker, lambda: directories(broker) == {"one": [], "two": ["orders-0"], "three": []})


def test_a_topic_that_is_deleted_during_the_exchange_goes_when_it_is_over(
    broker: InProcessBroker, gate: threading.Event
) -> None:
    broker.create_topic("orders")
    broker.produce("orders", b"first")
    logs = broker.server.components.logs
    assert move(broker, "two") == E.NONE
    until(broker, lambda: bool(logs.exchanged))

    broker.ask(
        DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="orders", topic_id=bytes(16))], timeout_ms=1000), 6
    )
    broker.begin_topic("orders")
    gate.set()

    until(broker, lambda: broker.server.components.replicas.find("orders", 0) is not None)
    assert broker.produce("orders", b"of the new topic") == 0
    until(broker, lambda: sum(map(len, directories(broker).values())) == 1)


@pytest.mark.parametrize("operation", ["write", "fsync", "rename"])
def test_a_directory_that_fails_ends_the_move_to_it(
    broker: InProcessBroker, files: FaultyFileSystem, operation: str
) -> None:
    broker.create_topic("orders")
    broker.produce("orders", b"first")
    suffix = {"write": "two", "fsync": "two", "rename": "-future"}[operation]
    if operation == "write":
        suffix = "00000000000000000000.log"
    files.fail(operation, errno.EIO, suffix=suffix)

    assert move(broker, "two") == E.NONE
    until(broker, lambda: not broker.server.components.logs.futures.all())

    assert place(broker) == "one"
    broker.produce("orders", b"second")
    assert directories(broker)["one"] == ["orders-0"]
    codes = [one.error_code for one in broker.ask(DescribeLogDirsRequest(topics=None), 4).results]
    assert codes == [E.NONE, E.KAFKA_STORAGE_ERROR, E.NONE]
    assert move(broker, "two") == E.KAFKA_STORAGE_ERROR
    moved(broker, "three")
    assert broker.log("orders").log_end_offset == 2


@pytest.mark.parametrize(("operation", "suffix"), [("rename", "two/orders-0"), ("fsync", "two")])
def test_a_directory_that_fails_when_the_replica_leaves_it_fails_and_not_the_other_one(
    broker: InProcessBroker, files: FaultyFileSystem, operation: str, suffix: str
) -> None:
    """The other one may have the metadata, and would end the broker (replicated seed 80002107)."""
    broker.create_topic("orders")
    broker.produce("orders", b"first")
    moved(broker, "two")
    files.fail(operation, errno.EIO, suffix=suffix)

    assert move(broker, "one") == E.NONE
    until(broker, lambda: not broker.server.components.logs.futures.all())

    codes = [one.error_code for one in broker.ask(DescribeLogDirsRequest(topics=None), 4).results]
    assert codes == [E.NONE, E.KAFKA_STORAGE_ERROR, E.NONE]
    answer = broker.ask(produce_request("orders", produced([record(b"second")])), 9)
    assert answer.responses[0].partition_responses[0].error_code == E.KAFKA_STORAGE_ERROR


def test_a_directory_that_fails_behind_an_exchange_that_waited_for_space_is_the_one_that_fails(
    broker: InProcessBroker, files: FaultyFileSystem
) -> None:
    broker.create_topic("orders")
    broker.produce("orders", b"first")
    moved(broker, "two")
    files.fail("rename", errno.ENOSPC, suffix="two/orders-0")
    assert move(broker, "three") == E.NONE
    until(broker, lambda: not files.disk.faults)

    broker.produce("orders", b"second")
    files.fail("fsync", errno.EIO, suffix="00000000000000000000.log")  # of the copy, before the next exchange
    until(broker, lambda: not broker.server.components.logs.futures.all())

    codes = [one.error_code for one in broker.ask(DescribeLogDirsRequest(topics=None), 4).results]
    assert codes == [E.NONE, E.NONE, E.KAFKA_STORAGE_ERROR]
    assert broker.produce("orders", b"third") == 2


def test_a_directory_that_fails_behind_the_assignment_takes_no_replica_with_it(
    broker: InProcessBroker, files: FaultyFileSystem
) -> None:
    broker.create_topic("orders")
    broker.produce("orders", b"first")
    broker.create_topic("letters")
    assert place(broker, "letters") == "two"
    log = broker.log("orders")
    log.is_being_cleaned = True  # so that the exchange has to wait
    assert move(broker, "two") == E.NONE
    moves = broker.server.components.replica_moves._moves
    until(broker, lambda: next(iter(moves.values())).is_assigned)

    files.fail("write", errno.EIO, suffix="00000000000000000000.log")
    batch = produced([record(b"x")])
    answer = broker.ask(produce_request("letters", batch), 9)
    assert answer.responses[0].partition_responses[0].error_code == E.KAFKA_STORAGE_ERROR

    until(broker, lambda: not moves)
    assert broker.produce("orders", b"second") == 1

    def assigned() -> str:
        partition = broker.server.components.metadata.image.topics.by_name["orders"].partitions[0]
        assert partition.leader == 1
        return str(broker.server.log_dirs.by_id[partition.directory_of(1)].path)

    until(broker, lambda: assigned().endswith("one"))


@serves(AlterReplicaLogDirsRequest, E.KAFKA_STORAGE_ERROR, versions=[2])
def test_a_replica_of_a_directory_that_has_failed_does_not_move(
    broker: InProcessBroker, files: FaultyFileSystem
) -> None:
    broker.create_topic("orders", partitions=2)
    files.fail("write", errno.EIO, suffix="00000000000000000000.log")
    broker.ask(produce_request("orders", produced([record(b"x")]), partition=1), 9)

    assert move(broker, "three", partition=1) == E.KAFKA_STORAGE_ERROR


def test_a_copy_whose_log_cannot_be_read_does_not_take_its_place(
    broker: InProcessBroker, gate: threading.Event, tmp_path: Path
) -> None:
    broker.create_topic("letters")
    broker.create_topic("orders")
    assert place(broker) == "two"
    broker.produce("orders", b"first")
    assert move(broker, "three") == E.NONE
    until(broker, lambda: bool(broker.server.components.logs.exchanged))
    left = tmp_path / "left"
    for name in ("one", "three"):
        shutil.copytree(tmp_path / name, left / name)
    gate.set()
    (left / "two").write_text("no directory")

    paths = ",".join(str(left / name) for name in ("one", "two", "three"))
    with running_broker(left / "one", log_dirs=paths) as next_broker:
        answer = next_broker.ask(produce_request("orders", produced([record(b"x")])), 9)
        assert answer.responses[0].partition_responses[0].error_code != E.NONE
        assert directories(next_broker)["three"] == ["future"]


def test_a_full_disk_is_waited_for(broker: InProcessBroker, files: FaultyFileSystem) -> None:
    broker.create_topic("orders")
    for _ in range(10):
        broker.produce("orders", LARGE)
    files.fail("write", errno.ENOSPC, suffix="00000000000000000003.log")

    moved(broker, "two")

    assert broker.log("orders").log_end_offset == 10


@serves(AlterReplicaLogDirsRequest, E.INVALID_REPLICA_ASSIGNMENT, versions=[2])
def test_a_cordoned_directory_takes_no_replica(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    paths = [str(tmp_path / name) for name in ("one", "two")]
    cordoned = {"log_dirs": ",".join(paths), "cordoned_log_dirs": "*"}
    # At this level a topic is made all the same.
    with running_broker(tmp_path / "one", ottla_release_version="4.0", **cordoned) as broker:
        broker.create_topic("orders")
        assert move(broker, "two") == E.INVALID_REPLICA_ASSIGNMENT
        assert move(broker, "one") == E.INVALID_REPLICA_ASSIGNMENT
        assert move(broker, "two", "nowhere") == E.INVALID_REPLICA_ASSIGNMENT
        assert move(broker, "three") == E.LOG_DIR_NOT_FOUND
        assert_served(request.node, broker.answered)


def test_cold_segments_are_read_behind_a_move(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    for number in range(12):
        broker.produce("orders", b"%d" % number + LARGE)

    moved(broker, "two")
    moved(broker, "three")

    for number in range(12):
        (batch,) = [fetched(broker, number)]
        assert batch.error_code == E.NONE
        assert b"%d..." % number in bytes(batch.records)


@pytest.mark.parametrize("renamed", [0, 1, 2])
def test_a_crash_between_the_renames_leaves_one_log(
    broker: InProcessBroker, gate: threading.Event, tmp_path: Path, renamed: int
) -> None:
    broker.create_topic("orders")
    for _ in range(5):
        broker.produce("orders", LARGE)
    assert move(broker, "two") == E.NONE
    until(broker, lambda: bool(broker.server.components.logs.exchanged))
    until(broker, lambda: broker.server.components.logs.futures.all()[0].log.recovery_point == 5)

    # What a killed process leaves.
    left = tmp_path / "left"
    for name in ("one", "two", "three"):
        shutil.copytree(tmp_path / name, left / name)
    gate.set()
    if renamed > 0:
        (left / "one" / "orders-0").rename(left / "one" / f"orders-0.{'a' * 32}-delete")
    if renamed > 1:
        (copy,) = (left / "two").glob("orders-0.*-future")
        copy.rename(left / "two" / "orders-0")

    paths = ",".join(str(left / name) for name in ("one", "two", "three"))
    with running_broker(left / "one", log_dirs=paths, log_segment_delete_delay_ms=0) as next_broker:
        assert next_broker.log("orders").log_end_offset == 5
        until(next_broker, lambda: place(next_broker) == "two")
        until(next_broker, lambda: directories(next_broker) == {"one": [], "two": ["orders-0"], "three": []})
        assert next_broker.produce("orders", b"next") == 5
        for offset in range(5):
            assert fetched(next_broker, offset).error_code == E.NONE


def test_an_interrupted_move_that_was_assigned_already_is_registered_where_the_log_is(
    broker: InProcessBroker, gate: threading.Event, tmp_path: Path
) -> None:
    broker.create_topic("orders")
    broker.produce("orders", b"first")
    assert move(broker, "two") == E.NONE
    until(broker, lambda: bool(broker.server.components.logs.exchanged))
    left = tmp_path / "left"
    for name in ("one", "two", "three"):
        shutil.copytree(tmp_path / name, left / name)
    gate.set()
    (copy,) = (left / "two").glob("orders-0.*-future")
    shutil.rmtree(copy)

    paths = ",".join(str(left / name) for name in ("one", "two", "three"))
    with running_broker(left / "one", log_dirs=paths) as next_broker:
        known = next_broker.server.components.metadata.image.topics.by_name["orders"].partitions[0].directory_of(1)
        assert next_broker.server.log_dirs.by_id[known].path.endswith("one")


def test_a_compacted_log_moves_with_its_gaps(broker: InProcessBroker) -> None:
    broker.create_topic("table", cleanup_policy="compact", min_cleanable_dirty_ratio="0", segment_ms="1")
    for number in range(6):
        batch = produced([record(b"%d" % number, key=b"k", timestamp=broker.clock.now_ms())])
        broker.ask(produce_request("table", batch), 9)
        broker.log("table").roll(broker.clock.now_ms())
    until(broker, lambda: broker.log("table").cleaned_to == 6)

    moved(broker, "two", "table")

    log = broker.log("table")
    assert (log.log_start_offset, log.log_end_offset, log.cleaned_to) == (0, 6, 6)
    assert [header.base_offset for header, _ in log.batches()][-1] == 5
    broker.restart()
    assert broker.log("table").log_end_offset == 6


def test_a_log_whose_end_was_compacted_away_moves(broker: InProcessBroker) -> None:
    """Its last batches are gone, and its end is told by its empty last segment."""
    broker.create_topic("orders")
    broker.produce("orders", b"first")
    log = broker.log("orders")
    log.skip_to(9, broker.clock.now_ms())
    log.advance_high_watermark(9)

    moved(broker, "two")

    assert broker.produce("orders", b"next") == 9


def test_segments_roll_as_the_topic_says_on_both_sides(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    for _ in range(9):
        broker.produce("orders", LARGE)
    before = len(broker.log("orders").segments)

    moved(broker, "two")

    assert len(broker.log("orders").segments) == before == 3


def test_a_flush_is_waited_for_on_either_side(broker: InProcessBroker) -> None:
    broker.create_topic("orders", flush_messages="1")
    for number in range(5):
        assert broker.produce("orders", b"%d" % number) == number

    moved(broker, "two")

    log = broker.log("orders")
    assert log.recovery_point == 5
    assert broker.produce("orders", b"next") == 5
    assert log.recovery_point == 6


def test_retention_goes_on_while_a_replica_moves(broker: InProcessBroker) -> None:
    broker.create_topic("orders", retention_bytes="1000000")
    for _ in range(12):
        broker.produce("orders", LARGE)
    half_way(broker)

    until(broker, lambda: broker.log("orders").log_start_offset > 0)
    limit(broker, None)
    until(broker, lambda: place(broker) == "two")

    log = broker.log("orders")
    assert log.log_end_offset == 12
    assert 0 < log.log_start_offset < 12
    assert fetched(broker, log.log_start_offset).error_code == E.NONE
