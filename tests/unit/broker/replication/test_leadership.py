"""A partition changes from leader to follower and back: its log, its clients and its coordinators."""

from itertools import count

import pytest

from broker.replication.partition import LeaderAndIsr, Partition
from broker.request.faults import FencedLeaderEpoch, NotLeaderOrFollower, UnknownLeaderEpoch
from protocol.errors import ErrorCode as E
from protocol.messages.fetch import FetchRequest
from storage.batch.validation import validate_produced
from tests.support.batches import produced
from tests.support.broker import InProcessBroker
from tests.support.groups import Consumer, create_offsets_topic
from tests.support.leadership import follower_fetches, replicate
from tests.support.requests import fetch_request, produce_request

OTHER = 2
BOTH = frozenset({1, OTHER})
NOW_MS = 1_700_000_000_000

partition_epochs = count(1)
"""Each change of a partition is a new version of it."""


@pytest.fixture
def partition(broker: InProcessBroker) -> Partition:
    broker.create_topic("orders")
    broker.produce("orders", b"one")
    broker.produce("orders", b"two")
    return broker.server.components.replicas.partition("orders", 0)


def hand_over(
    broker: InProcessBroker, partition: Partition, leader: int, epoch: int, isr: frozenset[int] = BOTH
) -> None:
    """Let ``leader`` lead."""

    async def apply() -> None:
        state = LeaderAndIsr(leader, epoch, (1, OTHER), isr, partition_epoch=next(partition_epochs))
        broker.server.components.replicas.apply(partition, state)

    broker.run(apply())


def append_as_follower(partition: Partition, epoch: int) -> None:
    """Append a batch that the leader of ``epoch`` has numbered."""
    log = partition.log
    batch = produced(2)
    log.stage_trusted(batch, leader_epoch=epoch)
    log.append_all(0)


def test_a_follower_refuses_clients_and_keeps_its_log(broker: InProcessBroker, partition: Partition) -> None:
    hand_over(broker, partition, OTHER, 1)

    assert not partition.is_leader
    with pytest.raises(NotLeaderOrFollower, match="led by node 2"):
        partition.check_append(by_all=False)
    assert produce_error(broker) == E.NOT_LEADER_OR_FOLLOWER
    assert fetch_error(broker) == E.NOT_LEADER_OR_FOLLOWER
    assert (partition.log.log_end_offset, partition.log.high_watermark) == (2, 2)


def test_a_leader_goes_on_without_what_its_disk_has_lost(broker: InProcessBroker, partition: Partition) -> None:
    hand_over(broker, partition, OTHER, 1)
    partition.log.lost_from = 1

    hand_over(broker, partition, 1, 2)

    assert partition.log.lost_from is None
    hand_over(broker, partition, OTHER, 3)
    assert partition.log.log_end_offset == 2


def test_what_a_follower_appends_is_not_visible_by_itself(broker: InProcessBroker, partition: Partition) -> None:
    hand_over(broker, partition, OTHER, 1)
    append_as_follower(partition, epoch=1)

    assert not partition.advance_high_watermark()
    assert (partition.log.log_end_offset, partition.log.high_watermark) == (4, 2)


def test_each_epoch_begins_where_its_leader_found_the_end_of_the_log(
    broker: InProcessBroker, partition: Partition
) -> None:
    hand_over(broker, partition, OTHER, 1)
    append_as_follower(partition, epoch=1)
    hand_over(broker, partition, 1, 2, isr=frozenset({1}))
    broker.produce("orders", b"three")

    assert partition.log.leader_epochs.entries == [(0, 0), (1, 2), (2, 4)]
    assert (partition.log.log_end_offset, partition.log.high_watermark) == (5, 5), "nobody else is in sync"
    partition.check_leadership(2)
    with pytest.raises(FencedLeaderEpoch):
        partition.check_leadership(1)
    with pytest.raises(UnknownLeaderEpoch):
        partition.check_leadership(3)


def test_a_leader_that_is_not_alone_in_sync_does_not_decide_what_is_visible(
    broker: InProcessBroker, partition: Partition
) -> None:
    hand_over(broker, partition, 1, 1, isr=BOTH)
    append_as_follower(partition, epoch=1)

    assert not partition.advance_high_watermark()
    assert partition.log.high_watermark == 2

    hand_over(broker, partition, 1, 1, isr=frozenset({1}))
    assert partition.log.high_watermark == 4


def test_a_fetch_that_waits_is_told_at_once(broker: InProcessBroker, partition: Partition) -> None:
    client = broker.connect()
    client.send(fetch_request("orders", offset=2, max_wait_ms=60_000), 10)
    broker.settle()

    hand_over(broker, partition, OTHER, 1)

    assert client.receive().responses[0].partitions[0].error_code == E.NOT_LEADER_OR_FOLLOWER


def test_a_produce_that_waits_for_replicas_is_told_at_once(broker: InProcessBroker, partition: Partition) -> None:
    hand_over(broker, partition, 1, 1, isr=BOTH)
    client = broker.connect()
    client.send(produce_request("orders", produced(1), acks=-1), 9)
    broker.settle()
    assert broker.server.components.replicas.produce_purgatory.stats.pending == 1

    hand_over(broker, partition, OTHER, 2)

    answer = client.receive().responses[0].partition_responses[0]
    assert answer.error_code == E.NOT_LEADER_OR_FOLLOWER


def test_what_was_staged_in_the_old_epoch_is_refused_and_never_written(
    broker: InProcessBroker, partition: Partition
) -> None:
    outcomes: list[object] = []
    appender = broker.server.components.replicas.appender

    async def stage_and_hand_over() -> None:
        batch = memoryview(bytearray(produced(3)))
        appender.append(partition, batch, lambda staged, outcome: outcomes.append(outcome))
        state = LeaderAndIsr(1, 1, (1,), frozenset({1}))
        broker.server.components.replicas.apply(partition, state)
        appender.write_staged()

    broker.run(stage_and_hand_over())

    assert [type(outcome) for outcome in outcomes] == [NotLeaderOrFollower]
    assert partition.log.log_end_offset == 2
    broker.produce("orders", b"three")
    assert partition.log.leader_epochs.entries == [(0, 0), (1, 2)]


@pytest.mark.parametrize("fails", [False, True])
def test_an_epoch_begins_behind_a_write_that_is_under_way(partition: Partition, fails: bool) -> None:
    log = partition.log
    log.stage(validate_produced(memoryview(bytearray(produced(3))), log.rules, NOW_MS), leader_epoch=0)
    write = log.begin_write(0)
    assert write is not None

    partition.apply(LeaderAndIsr(1, 1, (1,), frozenset({1})))
    assert partition.owes_epoch_start
    assert log.take_back_unwritten() == []
    if fails:
        log.fail_write(write, OSError("no"))  # type: ignore[arg-type]
    else:
        write.perform()
        log.complete_write(write)
    partition.begin_epoch()

    end_offset = 2 if fails else 5
    assert log.leader_epochs.entries == [(0, 0), (1, end_offset)]
    assert log.high_watermark == end_offset


def test_a_batch_that_was_overwritten_is_not_acknowledged_with_another_partition_of_its_request(
    broker: InProcessBroker,
) -> None:
    """The high watermark passes the offsets of the batch again, with the records of the next leader."""
    broker.create_topic("orders", partitions=2)
    lost, kept = (replicate(broker, "orders", index) for index in range(2))
    request = produce_request("orders", produced(1), partition=0)
    request.topic_data += produce_request("orders", produced(1), partition=1).topic_data
    client = broker.connect()
    client.send(request, 12)
    broker.wait_until(lambda: (lost.log.log_end_offset, kept.log.log_end_offset) == (1, 1))

    hand_over(broker, lost, OTHER, 2)
    lost.log.truncate_to(0, NOW_MS)
    append_as_follower(lost, epoch=2)
    lost.log.advance_high_watermark(2)
    follower_fetches(broker, kept)

    answers = [answer for topic in client.receive().responses for answer in topic.partition_responses]
    assert [(answer.index, answer.error_code) for answer in answers] == [(0, E.NOT_LEADER_OR_FOLLOWER), (1, E.NONE)]


def test_coordinators_of_a_partition_come_and_go_with_its_leadership(broker: InProcessBroker) -> None:
    create_offsets_topic(broker)
    member = Consumer(broker, "group")
    member.join()
    groups = broker.server.components.group_coordinator.groups
    coordinator = groups.of("group")
    partition = coordinator.partition

    hand_over(broker, partition, OTHER, 1)
    assert coordinator not in groups.active
    assert member.heartbeat() == E.NOT_COORDINATOR

    hand_over(broker, partition, 1, 2, isr=frozenset({1}))
    broker.wait_until(lambda: partition in [one.partition for one in groups.active])
    assert groups.of("group") is not coordinator, "it has been loaded again from the log"


def produce_error(broker: InProcessBroker) -> int:
    return broker.ask(produce_request("orders", produced(1)), 9).responses[0].partition_responses[0].error_code


def fetch_error(broker: InProcessBroker) -> int:
    request: FetchRequest = fetch_request("orders")
    return broker.ask(request, 10).responses[0].partitions[0].error_code
