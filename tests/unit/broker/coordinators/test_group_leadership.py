"""Another node leads a partition of ``__consumer_offsets`` for a while: its groups are unloaded, and loaded again."""

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.coordinators.partitioning import partition_of
from protocol.errors import ErrorCode as E
from protocol.messages.committed_offsets import OffsetDeleteRequest
from protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from storage.batch.records import Record
from tests.support.batches import end_marker, stored
from tests.support.broker import InProcessBroker
from tests.support.groups import (
    OFFSETS_TOPIC,
    Consumer,
    commit_request,
    create_offsets_topic,
    fetch_offsets_request,
    join_request,
    leave_request,
    sync_request,
)
from tests.support.leadership import OTHER, OURS, follower_fetches, hand_over, replicate
from tests.unit.broker.coordinators.test_group_coordinator import (
    as_member,
    commit,
    offset_record,
    offsets,
    stable_member,
    states,
)

READERS = partition_of("readers", 5)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    broker = InProcessBroker(tmp_path / "data")
    create_offsets_topic(broker)
    broker.create_topic("orders", partitions=3)
    yield broker
    broker.close()


def goes(broker: InProcessBroker) -> Any:
    """Another node leads the groups' partition from now on; the partition."""
    return hand_over(broker, OFFSETS_TOPIC, OTHER, READERS)


def comes_back(broker: InProcessBroker) -> None:
    hand_over(broker, OFFSETS_TOPIC, OURS, READERS)
    groups = broker.server.components.group_coordinator.groups
    broker.wait_until(lambda: not groups.loading)


def append_as_follower(partition: Any, *batches: bytes | bytearray) -> None:
    """Append what the leader has written meanwhile."""
    for batch in batches:
        partition.log.stage_trusted(bytearray(batch), leader_epoch=partition.leader_epoch)
    partition.log.append_all(0)


def in_transaction(*records: Record) -> bytes | bytearray:
    return stored(records, producer_id=12, producer_epoch=0, base_sequence=0, is_transactional=True)


def fetched(broker: InProcessBroker, *, require_stable: bool = False) -> list[tuple[int, int, int]]:
    """Partition, error and offset of what the group has committed."""
    (group,) = broker.ask(fetch_offsets_request(9, ("orders", [0, 1, 2]), require_stable=require_stable), 9).groups
    assert group.error_code == E.NONE
    return [(one.partition_index, one.error_code, one.committed_offset) for one in group.topics[0].partitions]


def test_every_request_is_answered_that_this_node_does_not_coordinate_the_group(broker: InProcessBroker) -> None:
    consumer = stable_member(broker)
    assert commit(broker, 5, **as_member(consumer)) == E.NONE
    goes(broker)

    assert consumer.heartbeat() == E.NOT_COORDINATOR
    assert consumer.sync().error_code == E.NOT_COORDINATOR
    assert broker.ask(join_request(), 5).error_code == E.NOT_COORDINATOR
    assert broker.ask(leave_request(consumer.joined.member_id), 2).error_code == E.NOT_COORDINATOR
    assert commit(broker, 6, **as_member(consumer)) == E.NOT_COORDINATOR
    (group,) = broker.ask(fetch_offsets_request(9), 9).groups
    assert group.error_code == E.NOT_COORDINATOR
    (described,) = broker.ask(DescribeGroupsRequest(groups=["readers"]), 5).groups
    assert described.error_code == E.NOT_COORDINATOR
    (deleted,) = broker.ask(DeleteGroupsRequest(groups_names=["readers"]), 2).results
    assert deleted.error_code == E.NOT_COORDINATOR
    assert broker.ask(OffsetDeleteRequest(group_id="readers", topics=[]), 0).error_code == E.NOT_COORDINATOR
    assert broker.ask(ListGroupsRequest(), 4).groups == []


def test_other_partitions_groups_go_on(broker: InProcessBroker) -> None:
    others = next(name for name in map(str, range(99)) if partition_of(name, 5) != READERS)
    goes(broker)
    assert commit(broker, 5, group_id=others) == E.NONE
    assert offsets(broker, others) == {0: 5}


def test_members_that_wait_are_answered_and_no_timer_is_left(broker: InProcessBroker) -> None:
    wheel = broker.server.services.wheel
    before = len(wheel)
    leader = stable_member(broker)
    syncing = Consumer(broker)
    syncing.begin_join()
    broker.settle()
    leader.join()
    syncing.end_join()
    syncing.begin_sync()
    handed_out = broker.ask(join_request(), 5)
    assert handed_out.error_code == E.MEMBER_ID_REQUIRED
    broker.settle()
    assert len(wheel) > before
    end_offset = broker.log(OFFSETS_TOPIC, READERS).log_end_offset

    goes(broker)

    assert syncing.client.receive().error_code == E.NOT_COORDINATOR
    assert len(wheel) == before
    broker.advance(600_000)
    assert broker.log(OFFSETS_TOPIC, READERS).log_end_offset == end_offset


def test_offsets_and_members_are_there_again_when_it_comes_back(broker: InProcessBroker) -> None:
    consumer = stable_member(broker, session_timeout_ms=10_000)
    assert commit(broker, 5, **as_member(consumer)) == E.NONE
    goes(broker)
    broker.advance(60_000)
    comes_back(broker)

    assert states(broker) == {"readers": "Stable"}
    assert offsets(broker) == {0: 5}
    assert consumer.heartbeat() == E.NONE
    broker.advance(9_999)
    assert states(broker) == {"readers": "Stable"}
    broker.advance(1)
    assert states(broker) == {"readers": "Empty"}


def test_what_the_other_leader_has_written_counts(broker: InProcessBroker) -> None:
    assert commit(broker, 5) == E.NONE
    partition = goes(broker)
    append_as_follower(partition, stored([offset_record(0, 6), offset_record(1, 7)]))
    comes_back(broker)
    assert offsets(broker) == {0: 6, 1: 7}


def test_a_transaction_that_is_open_is_pending_again_and_ended_by_the_marker(broker: InProcessBroker) -> None:
    assert commit(broker, 5) == E.NONE
    partition = goes(broker)
    append_as_follower(partition, in_transaction(offset_record(0, 6), offset_record(1, 7)))
    comes_back(broker)
    assert fetched(broker) == [(0, E.NONE, 5), (1, E.NONE, -1), (2, E.NONE, -1)]
    assert fetched(broker, require_stable=True) == [
        (0, E.UNSTABLE_OFFSET_COMMIT, -1),
        (1, E.UNSTABLE_OFFSET_COMMIT, -1),
        (2, E.NONE, -1),
    ]

    partition = goes(broker)
    append_as_follower(partition, end_marker(producer_id=12, producer_epoch=0, commit=True))
    comes_back(broker)
    assert fetched(broker, require_stable=True) == [(0, E.NONE, 6), (1, E.NONE, 7), (2, E.NONE, -1)]


def test_of_an_unloaded_shard_nothing_is_kept(broker: InProcessBroker) -> None:
    consumer = stable_member(broker)
    waiting = Consumer(broker)
    waiting.begin_join()
    broker.settle()
    assert broker.ask(commit_request({("orders", 0): 5}, **as_member(consumer)), 9)
    shard = weakref.ref(broker.server.components.group_coordinator.groups.of("readers").shard)
    goes(broker)
    assert waiting.end_join().error_code == E.NOT_COORDINATOR
    broker.settle()
    gc.collect()
    assert shard() is None


# Another node follows


def test_offsets_are_seen_once_the_followers_have_them(broker: InProcessBroker) -> None:
    assert commit(broker, 5) == E.NONE
    partition = replicate(broker, OFFSETS_TOPIC, READERS)
    client = broker.connect()
    client.send(commit_request({("orders", 0): 6}), 9)
    assert client.has_no_answer()
    assert offsets(broker) == {0: 5}
    follower_fetches(broker, partition)
    assert client.receive().topics[0].partitions[0].error_code == E.NONE
    assert offsets(broker) == {0: 6}


def test_what_the_followers_do_not_have_is_not_committed_when_the_leadership_goes(broker: InProcessBroker) -> None:
    assert commit(broker, 5) == E.NONE
    partition = replicate(broker, OFFSETS_TOPIC, READERS)
    committing, member = broker.connect(), Consumer(broker)
    committing.send(commit_request({("orders", 0): 6}), 9)
    member.join()
    member.client.send(sync_request(member.joined, {member.joined.member_id: b"all"}), 3)
    assert committing.has_no_answer()
    assert member.client.has_no_answer()

    replicate(broker, OFFSETS_TOPIC, READERS, leader=OTHER)

    assert committing.receive().topics[0].partitions[0].error_code == E.NOT_COORDINATOR
    assert member.client.receive().error_code == E.NOT_COORDINATOR
    partition.log.truncate_to(1, broker.clock.now_ms())
    comes_back(broker)
    assert offsets(broker) == {0: 5}


def test_a_group_is_served_once_what_was_loaded_is_committed(broker: InProcessBroker) -> None:
    assert commit(broker, 5) == E.NONE
    partition = replicate(broker, OFFSETS_TOPIC, READERS, leader=OTHER)
    append_as_follower(partition, stored([offset_record(0, 6)]))
    replicate(broker, OFFSETS_TOPIC, READERS)
    broker.wait_until(lambda: partition.watchers is not None)
    assert commit(broker, 7) == E.COORDINATOR_LOAD_IN_PROGRESS
    (group,) = broker.ask(fetch_offsets_request(9), 9).groups
    assert group.error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    follower_fetches(broker, partition)
    assert offsets(broker) == {0: 6}


def test_records_of_groups_that_are_not_known_here_are_kept(broker: InProcessBroker) -> None:
    partition = goes(broker)
    consumer_group = Record(timestamp=0, key=b"\x00\x03\x08readers", value=b"\x00\x00\x00\x00\x00\x01\x00")
    append_as_follower(partition, stored([consumer_group, offset_record(0, 6)]))
    comes_back(broker)
    assert offsets(broker) == {0: 6}
    assert commit(broker, 7) == E.NONE
    kept = [bytes(batch) for _, batch in partition.log.batches()]
    assert b"\x00\x03\x08readers" in kept[0]
    assert b"\x00\x03\x08readers" not in b"".join(kept[1:]), "no tombstone"
