"""Groups in a whole broker: restarts, full disks, damaged records, and expiry."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.coordinators.loading import PartitionLoading
from broker.coordinators.partitioning import partition_of
from broker.runtime.time_slices import TimeSlices
from protocol.errors import ErrorCode as E
from protocol.messages.committed_offsets import OffsetCommitRequest
from protocol.messages.groups import DescribeGroupsRequest, ListGroupsRequest
from protocol.messages.topics import DeleteTopicsRequest
from protocol.records.group_metadata import (
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_record,
    encode_group_key,
    encode_group_value,
)
from storage.batch.records import Record, iterate_records
from tests.support.batches import T, end_marker, stored
from tests.support.broker import InProcessBroker
from tests.support.files import FaultyFileSystem
from tests.support.groups import (
    OFFSETS_TOPIC,
    Consumer,
    commit_request,
    create_offsets_topic,
    fetch_offsets_request,
    join_request,
    leave_request,
)

RETENTION_MS = 600_000
CHECK_MS = 10_000
expires_soon = pytest.mark.settings(
    offsets_retention_minutes=RETENTION_MS // 60_000, offsets_retention_check_interval_ms=CHECK_MS
)


@pytest.fixture
def disk() -> FaultyFileSystem:
    return FaultyFileSystem()


@pytest.fixture
def broker(tmp_path: Path, disk: FaultyFileSystem, request: pytest.FixtureRequest) -> Iterator[InProcessBroker]:
    """A broker with a topic to read, and that of the groups; `@pytest.mark.settings(key=value)` sets it."""
    mark = request.node.get_closest_marker("settings")
    broker = InProcessBroker(tmp_path / "data", files=disk, **(mark.kwargs if mark else {}))
    create_offsets_topic(broker)
    broker.create_topic("orders", partitions=3)
    yield broker
    broker.close()


def commit(broker: InProcessBroker, offset: int, partition: int = 0, **fields: Any) -> int:
    """The error code of one commit."""
    (topic,) = broker.ask(commit_request({("orders", partition): offset}, **fields), 9).topics
    code: int = topic.partitions[0].error_code
    return code


def offsets(broker: InProcessBroker, group_id: str = "readers") -> dict[int, int]:
    """What a group has committed, by partition, once it is loaded."""
    (group,) = broker.ask(fetch_offsets_request(9, group_id=group_id), 9).groups
    while group.error_code == E.COORDINATOR_LOAD_IN_PROGRESS:
        broker.settle()
        (group,) = broker.ask(fetch_offsets_request(9, group_id=group_id), 9).groups
    assert group.error_code == E.NONE
    return {one.partition_index: one.committed_offset for topic in group.topics for one in topic.partitions}


def states(broker: InProcessBroker) -> dict[str, str]:
    """Every group's state."""
    return {group.group_id: group.group_state for group in broker.ask(ListGroupsRequest(), 4).groups}


def log_of(broker: InProcessBroker, group_id: str = "readers") -> Any:
    """Where a group's records stand."""
    return broker.log(OFFSETS_TOPIC, partition_of(group_id, 5))


def stable_member(broker: InProcessBroker, **fields: Any) -> Consumer:
    consumer = Consumer(broker, **fields)
    consumer.join()
    consumer.sync({consumer.joined.member_id: b"all"})
    return consumer


def as_member(consumer: Consumer) -> dict[str, Any]:
    return {
        "member_id": consumer.joined.member_id,
        "generation_id_or_member_epoch": consumer.joined.generation_id,
    }


# Restarts


def test_offsets_outlive_a_restart(broker: InProcessBroker) -> None:
    for offset in (5, 6, 7):
        assert commit(broker, offset) == E.NONE
    assert commit(broker, 1, partition=2, group_id="others") == E.NONE
    broker.restart()
    assert offsets(broker) == {0: 7}
    assert offsets(broker, "others") == {2: 1}


def test_a_member_goes_on_after_a_restart_as_if_nothing_had_been(broker: InProcessBroker) -> None:
    consumer = stable_member(broker)
    broker.restart()
    assert offsets(broker) == {}
    assert states(broker) == {"readers": "Stable"}
    consumer.client = broker.connect()
    assert consumer.heartbeat() == E.NONE
    assert commit(broker, 5, **as_member(consumer)) == E.NONE
    assert consumer.sync().assignment == b"all"


def test_who_does_not_come_back_after_a_restart_is_removed_when_its_session_is_over(broker: InProcessBroker) -> None:
    stable_member(broker, session_timeout_ms=10_000)
    broker.restart()
    assert offsets(broker) == {}
    broker.advance(9_999)
    assert states(broker) == {"readers": "Stable"}
    broker.advance(1)
    assert states(broker) == {"readers": "Empty"}
    broker.restart()
    assert offsets(broker) == {}
    assert states(broker) == {"readers": "Empty"}


def test_a_stop_answers_who_waits(broker: InProcessBroker) -> None:
    Consumer(broker).join()
    waiting = Consumer(broker)
    waiting.begin_join()
    broker.settle()
    broker.run(broker.server.stop())
    assert waiting.end_join().error_code == E.NOT_COORDINATOR
    broker.start()


# Damage


def append(broker: InProcessBroker, *batches: bytes | bytearray, group_id: str = "readers") -> None:
    """Put batches into a group's log as an adopted directory may have them, and start on it."""
    log = log_of(broker, group_id)
    for batch in batches:
        log.stage_trusted(bytearray(batch))
    log.append_all(T)
    broker.restart()


def offset_record(partition: int, offset: int, group_id: str = "readers") -> Record:
    value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=T)
    key = OffsetCommitKey(group=group_id, topic="orders", partition=partition)
    return Record(timestamp=T, key=encode_group_key(key), value=encode_group_value(value, 3))


def test_a_corrupt_record_is_passed_over_and_the_groups_other_state_kept(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = stable_member(broker)
    assert commit(broker, 5, **as_member(consumer)) == E.NONE
    torn = offset_record(1, 7)
    assert torn.value is not None
    torn.value = torn.value[:-1]
    no_key = Record(timestamp=T, key=b"\x00", value=b"")
    append(broker, stored([offset_record(1, 6)]), stored([torn, no_key]), stored([offset_record(2, 8)]))
    assert offsets(broker) == {0: 5, 1: 6, 2: 8}
    assert states(broker) == {"readers": "Stable"}
    lines = [line for line in caplog.messages if "which cannot be read" in line]
    assert len(lines) == 2
    assert f"skipping offset 4 of {OFFSETS_TOPIC}-{partition_of('readers', 5)}" in lines[0]
    assert commit(broker, 9, **as_member(consumer)) == E.NONE


@expires_soon
def test_records_of_an_unknown_kind_are_passed_over_and_kept(broker: InProcessBroker) -> None:
    unknown = Record(timestamp=T, key=b"\x00\x63whatever", value=b"\x00\x00x")
    append(broker, stored([unknown, offset_record(1, 6)]))
    assert offsets(broker) == {1: 6}
    broker.advance(2 * RETENTION_MS)
    assert offsets(broker) == {}
    values = [record.value for _, batch in log_of(broker).batches() for record in iterate_records(batch)]
    assert values.count(unknown.value) == 1
    assert values.count(None) == 2, "the tombstones of the offset and of the group that the commit has made"


def test_offsets_of_transactions_count_once_they_are_committed(broker: InProcessBroker) -> None:
    def in_transaction(partition: int, producer_id: int) -> bytes:
        record = offset_record(partition, 100 + partition)
        return stored([record], producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)

    append(
        broker,
        in_transaction(0, 1),
        in_transaction(1, 2),
        in_transaction(2, 3),
        end_marker(commit=True, producer_id=1, producer_epoch=0),
        end_marker(commit=False, producer_id=2, producer_epoch=0),
    )
    assert offsets(broker) == {0: 100}
    request = fetch_offsets_request(9, ("orders", [0, 1, 2]), require_stable=True)
    (topic,) = broker.ask(request, 9).groups[0].topics
    assert [one.error_code for one in topic.partitions] == [E.NONE, E.NONE, E.UNSTABLE_OFFSET_COMMIT]


# The disk


def test_without_room_a_commit_is_refused_and_the_next_one_works(
    broker: InProcessBroker, disk: FaultyFileSystem
) -> None:
    assert commit(broker, 5) == E.NONE
    disk.fill_up()
    assert commit(broker, 6) == E.NOT_COORDINATOR
    assert offsets(broker) == {0: 5}
    disk.make_room()
    assert commit(broker, 7) == E.NONE
    broker.restart()
    assert offsets(broker) == {0: 7}


@pytest.mark.settings(log_flush_interval_messages=1)
def test_where_every_record_is_flushed_a_commit_is_answered_behind_its_flush(
    broker: InProcessBroker, disk: FaultyFileSystem
) -> None:
    synced = len(disk.disk.synced)
    assert commit(broker, 5) == E.NONE
    assert disk.disk.synced[synced:].count("00000000000000000000.log") >= 1
    log = log_of(broker)
    assert log.recovery_point == log.log_end_offset == 1
    assert offsets(broker) == {0: 5}


def test_a_commit_larger_than_a_batch_may_be_is_an_error_of_the_server(broker: InProcessBroker) -> None:
    log_of(broker).config = log_of(broker).config.with_overrides({"max.message.bytes": "100"})
    assert commit(broker, 5, metadata="x" * 100) == E.UNKNOWN_SERVER_ERROR
    assert commit(broker, 6) == E.UNKNOWN_SERVER_ERROR
    log_of(broker).config = log_of(broker).config.with_overrides({"max.message.bytes": "1000"})
    assert commit(broker, 7) == E.NONE


@pytest.mark.settings(offsets_topic_compression_codec=4)
def test_commits_can_be_compressed(broker: InProcessBroker) -> None:
    topic = OffsetCommitRequest.Topic
    partitions = [topic.Partition(partition_index=0, committed_offset=offset) for offset in range(50)]
    request = OffsetCommitRequest(group_id="readers", topics=[topic(name="orders", partitions=partitions)])
    assert broker.ask(request, 9).topics[0].partitions[49].error_code == E.NONE
    ((header, batch),) = log_of(broker).batches()
    assert header.attributes == 4
    assert len(batch) < 500
    broker.restart()
    assert offsets(broker) == {0: 49}


# Time


def keys_in_the_log(broker: InProcessBroker, group_id: str = "readers") -> list[tuple[str, bool]]:
    """What a group's log says, record by record: the kind of its key, and whether it is a tombstone."""
    found = []
    for _, batch in log_of(broker, group_id).batches():
        for record in iterate_records(batch):
            decoded = decode_group_record(record.key or b"", record.value)
            found.append((type(decoded.key).__name__, decoded.value is None))  # type: ignore[union-attr]
    return found


@expires_soon
def test_offsets_of_nobody_expire(broker: InProcessBroker) -> None:
    assert commit(broker, 5) == E.NONE
    broker.advance(RETENTION_MS // 2)
    assert commit(broker, 6, partition=1) == E.NONE
    broker.advance(RETENTION_MS // 2 - 2 * CHECK_MS)
    assert offsets(broker) == {0: 5, 1: 6}
    broker.advance(4 * CHECK_MS)
    assert offsets(broker) == {1: 6}
    broker.advance(RETENTION_MS // 2)
    assert offsets(broker) == {}
    assert states(broker) == {}
    expired = [("OffsetCommitKey", True)] * 2 + [("GroupMetadataKey", True)]
    assert keys_in_the_log(broker) == [("OffsetCommitKey", False)] * 2 + expired


@expires_soon
def test_offsets_of_a_group_expire_from_when_it_is_empty_and_the_group_goes_with_them(
    broker: InProcessBroker,
) -> None:
    consumer = stable_member(broker, session_timeout_ms=RETENTION_MS)
    assert commit(broker, 5, **as_member(consumer)) == E.NONE
    for _ in range(4):
        broker.advance(RETENTION_MS // 2)
        assert consumer.heartbeat() == E.NONE
    assert offsets(broker) == {0: 5}
    broker.ask(leave_request(consumer.joined.member_id), 5)
    broker.advance(RETENTION_MS - 2 * CHECK_MS)
    assert offsets(broker) == {0: 5}
    broker.advance(4 * CHECK_MS)
    assert offsets(broker) == {}
    assert states(broker) == {}
    assert keys_in_the_log(broker)[-2:] == [("OffsetCommitKey", True), ("GroupMetadataKey", True)]


def test_what_has_expired_stays_away_after_a_restart(broker: InProcessBroker) -> None:
    assert commit(broker, 5, retention_time_ms=-1) == E.NONE
    request = commit_request({("orders", 1): 6}, retention_time_ms=1000)
    assert broker.ask(request, 4).topics[0].partitions[0].error_code == E.NONE
    broker.advance(600_000)
    assert offsets(broker) == {0: 5}
    broker.restart()
    assert offsets(broker) == {0: 5}


# Topics that go


def delete_topic(broker: InProcessBroker, name: str) -> None:
    topics = [DeleteTopicsRequest.Topic(name=name, topic_id=bytes(16))]
    assert broker.ask(DeleteTopicsRequest(topics=topics, timeout_ms=1000), 6).responses[0].error_code == E.NONE


def test_a_topic_that_is_made_anew_under_its_name_has_no_offsets(broker: InProcessBroker) -> None:
    assert commit(broker, 5) == E.NONE
    delete_topic(broker, "orders")
    broker.create_topic("orders", partitions=3)
    assert offsets(broker) == {}
    assert commit(broker, 0) == E.NONE
    broker.restart()
    assert offsets(broker) == {0: 0}


def test_a_topic_that_is_deleted_while_groups_are_loaded_is_forgotten_all_the_same(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert commit(broker, 5) == E.NONE
    begin = PartitionLoading.begin
    held: list[tuple[PartitionLoading, TimeSlices]] = []
    monkeypatch.setattr(PartitionLoading, "begin", lambda loading, slices: held.append((loading, slices)))
    broker.restart()
    delete_topic(broker, "orders")
    assert commit(broker, 6) == E.UNKNOWN_TOPIC_OR_PARTITION

    async def load() -> None:
        for loading, slices in held:
            begin(loading, slices)

    broker.run(load())
    # Loading goes on in slices of time: how many turns of the loop these are is up to the machine.
    forgotten = [("OffsetCommitKey", False), ("OffsetCommitKey", True)]
    broker.wait_until(lambda: keys_in_the_log(broker) == forgotten)
    assert offsets(broker) == {}


def test_many_topics_that_go_at_once_are_forgotten_together(broker: InProcessBroker) -> None:
    names = [f"short-lived-{number}" for number in range(30)]
    for name in names:
        broker.create_topic(name)
    broker.ask(commit_request({(name, 0): 1 for name in names} | {("orders", 0): 5}), 9)
    topics = [DeleteTopicsRequest.Topic(name=name, topic_id=bytes(16)) for name in names]
    broker.ask(DeleteTopicsRequest(topics=topics, timeout_ms=1000), 6)
    broker.settle()
    assert offsets(broker) == {0: 5}


def test_ten_thousand_groups_stand_beside_each_other(broker: InProcessBroker) -> None:
    consumer = stable_member(broker)
    joining, committing = broker.connect(), broker.connect()
    for first in range(0, 5_000, 50):
        names = [f"group-{number}" for number in range(first, first + 50)]
        for name in names:
            joining.send(join_request(name), 3)
            committing.send(commit_request({("orders", 0): 7}, group_id=f"simple-{name}"), 8)
        assert {joining.receive().error_code for _ in names} == {E.NONE}
        answers = [committing.receive() for _ in names]
        assert {answer.topics[0].partitions[0].error_code for answer in answers} == {E.NONE}
    found = states(broker)
    assert (len(found), found["group-77"], found["simple-group-77"]) == (10_001, "CompletingRebalance", "Empty")
    assert consumer.heartbeat() == E.NONE
    broker.restart()
    assert offsets(broker, "simple-group-4999") == {0: 7}
    while broker.server.components.group_coordinator.groups.loading_stats.partitions_loaded < 5:
        broker.settle()
    assert sum(name.startswith("simple-") for name in states(broker)) == 5_000


def test_the_groups_topic_may_be_deleted_and_all_groups_are_gone(broker: InProcessBroker) -> None:
    waiting = Consumer(broker)
    stable_member(broker)
    waiting.begin_join()
    broker.settle()
    delete_topic(broker, OFFSETS_TOPIC)
    assert waiting.end_join().error_code == E.NOT_COORDINATOR
    create_offsets_topic(broker)
    assert states(broker) == {}
    assert commit(broker, 5) == E.NONE


# What an operator reads


def test_a_rebalance_can_be_followed_in_the_log(broker: InProcessBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "broker.coordinators")
    first = stable_member(broker)
    second = Consumer(broker)
    second.begin_join()
    broker.advance(700)
    first.join()
    second.end_join()
    broker.ask(leave_request(first.joined.member_id, second.joined.member_id), 5)
    lines = [line for line in caplog.messages if "group readers" in line.lower()]
    assert "Group readers forms generation 2 of 2 members with protocol range, 0 ms after" in "\n".join(lines)
    assert lines[0].startswith("Group readers rebalances, generation 0 of 1 member ends: member test-")
    assert any(line.startswith("Group readers is stable: the assignment of generation") for line in lines)
    assert lines[-1] == "Group readers is empty from generation 3 on"


def test_an_absurdly_long_name_does_not_fill_the_log(broker: InProcessBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "broker.coordinators")
    Consumer(broker, "g" * 30_000).join()
    assert any("… (30000 characters)" in line for line in caplog.messages)
    assert max(map(len, caplog.messages)) < 1000


def test_the_broker_counts_what_happens_to_groups(broker: InProcessBroker) -> None:
    stable_member(broker)
    counts = broker.server.components.group_coordinator.trace.counts
    assert (counts["rebalance_began"], counts["generation_formed"], counts["assignment_stored"]) == (1, 1, 1)


def test_a_group_is_described_by_whoever_asks_after_a_restart(broker: InProcessBroker) -> None:
    consumer = stable_member(broker)
    broker.restart()
    assert offsets(broker) == {}
    (group,) = broker.ask(DescribeGroupsRequest(groups=["readers"]), 5).groups
    assert [(member.member_id, member.member_assignment) for member in group.members] == [
        (consumer.joined.member_id, b"all")
    ]
