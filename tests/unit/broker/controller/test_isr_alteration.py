"""AlterPartition: each answer to a leader that asks for other replicas in sync."""

import asyncio

import pytest

from broker.controller.local_channel import LocalChannel
from broker.membership.alter_partition import AlterPartitionSender
from broker.replication.isr_alteration import IsrCommitted, IsrRefused, WantedIsr
from protocol.errors import ErrorCode as E
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.records.cluster_metadata import PartitionChangeRecord
from storage.errors import DiskFull
from tests.unit.broker.controller.cluster import OWN, Cluster, directory

Topic = AlterPartitionRequest.Topic


@pytest.fixture
def cluster():
    """Partition orders-0 has replicas on 2, 3 and the controller's own broker; broker 4 has none."""
    cluster = Cluster()
    for number in (2, 3, 4):
        cluster.broker(number)
    cluster.topic("orders", [2, 3, OWN])
    return cluster


def result(answer):
    return E(answer.error_code), answer.leader_epoch, answer.partition_epoch, answer.isr


def test_an_isr_shrinks_and_grows_in_the_same_leader_epoch(cluster):
    assert result(cluster.alter_isr([2, 3])) == (E.NONE, 0, 1, [2, 3])
    assert result(cluster.alter_isr([2])) == (E.NONE, 0, 2, [2])
    assert result(cluster.alter_isr([2, OWN])) == (E.NONE, 0, 3, [2, OWN])
    assert cluster.leader_and_isr() == (2, 0, [2, OWN])


def test_the_isr_that_is_there_already_changes_nothing(cluster):
    end_offset = cluster.log.end_offset

    assert result(cluster.alter_isr([2, 3, OWN])) == (E.NONE, 0, 0, [2, 3, OWN])

    assert cluster.log.end_offset == end_offset


def test_before_3_6_a_shrunk_isr_begins_a_leader_epoch():
    cluster = Cluster(metadata_version=11)
    cluster.broker(2)
    cluster.topic("orders", [2, OWN])

    assert result(cluster.alter_isr([2])) == (E.NONE, 1, 1, [2])
    assert result(cluster.alter_isr([2, OWN])) == (E.NONE, 1, 2, [2, OWN])


@pytest.mark.parametrize(
    ("isr", "options", "error"),
    [
        ([2, 3], {"leader_epoch": 5}, E.FENCED_LEADER_EPOCH),
        ([2, 3], {"partition_epoch": 5}, E.INVALID_UPDATE_VERSION),
        ([2, 3], {"leader_epoch": 7}, E.NOT_CONTROLLER),
        ([2, 3], {"partition_epoch": 9}, E.NOT_CONTROLLER),
        ([2, 3], {"by": 3}, E.INVALID_REQUEST),
        ([3, OWN], {}, E.INVALID_REQUEST),
        ([2, 4], {}, E.INVALID_REQUEST),
        ([2, 3, 3], {}, E.INVALID_REQUEST),
        ([], {}, E.INVALID_REQUEST),
        ([2], {"recovery_state": 1}, E.INVALID_REQUEST),
        ([2], {"recovery_state": 5}, E.INVALID_REQUEST),
        ([2, 3], {"epochs": {3: 1}}, E.INELIGIBLE_REPLICA),
        ([2, 3], {"epochs": {2: 1}}, E.INELIGIBLE_REPLICA),
        ([2, 3], {"epochs": {3: -1}}, E.NONE),
    ],
)
def test_a_change_is_checked(cluster, isr, options, error):
    topic_id = cluster.image.topics.by_name["orders"].topic_id
    for _ in range(6):
        cluster.controller.append([PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=2)])
    assert (cluster.partition().leader_epoch, cluster.partition().partition_epoch) == (6, 6)

    assert E(cluster.alter_isr(isr, **options).error_code) is error


def test_a_broker_that_is_fenced_gets_into_no_isr():
    cluster = Cluster()
    cluster.broker(2)
    third = cluster.broker(3)
    cluster.topic("orders", [2, 3])
    third.heartbeat(fence=True)
    assert cluster.leader_and_isr() == (2, 0, [2])

    assert result(cluster.alter_isr([2, 3]))[0] is E.INELIGIBLE_REPLICA
    third.heartbeat()
    assert result(cluster.alter_isr([2, 3]))[0] is E.NONE


def test_a_replica_whose_directory_has_failed_gets_into_no_isr():
    """A fetch that was on its way told the leader that it has caught up (replicated seeds 80000491 and 80001680)."""
    cluster = Cluster()
    cluster.broker(2)
    third = cluster.broker(3, directories=2)
    topic_id = cluster.topic("orders", [2, 3]).topic_id
    assert third.assign(directory(3, 1), (topic_id, 0)) == [E.NONE]
    third.heartbeat(offline=[directory(3, 1)])
    assert cluster.leader_and_isr() == (2, 0, [2])

    assert result(cluster.alter_isr([2, 3]))[0] is E.INELIGIBLE_REPLICA
    assert cluster.leader_and_isr() == (2, 0, [2])


def test_a_broker_that_shuts_down_gets_into_no_isr(cluster_of_two):
    cluster, second = cluster_of_two
    assert not second.heartbeat(shutdown=True).should_shut_down
    assert cluster.leader_and_isr() == (OWN, 1, [OWN])

    assert result(cluster.alter_isr([OWN, 2]))[0] is E.INELIGIBLE_REPLICA


@pytest.fixture
def cluster_of_two():
    """Broker 2 leads orders-0, and the controller's own broker follows; broker 3 has not applied all metadata."""
    cluster = Cluster()
    second, third = cluster.broker(2), cluster.broker(3)
    cluster.topic("orders", [2, OWN])
    third.heartbeat(offset=0)
    return cluster, second


def test_unknown_topics_and_partitions_have_errors_of_their_own(cluster):
    topic_id = cluster.image.topics.by_name["orders"].topic_id

    def partition(index):
        return Topic.Partition(partition_index=index, leader_epoch=0, partition_epoch=0)

    request = AlterPartitionRequest(
        broker_id=2,
        broker_epoch=cluster.image.cluster.brokers[2].broker_epoch,
        topics=[
            Topic(topic_id=topic_id, partitions=[partition(7)]),
            Topic(topic_id=bytes(15) + b"x", partitions=[partition(0), partition(1)]),
        ],
    )

    response = cluster.ask(cluster.requests.alter_partition, request)

    assert [[(one.partition_index, E(one.error_code)) for one in topic.partitions] for topic in response.topics] == [
        [(7, E.UNKNOWN_TOPIC_OR_PARTITION)],
        [(0, E.UNKNOWN_TOPIC_ID), (1, E.UNKNOWN_TOPIC_ID)],
    ]


@pytest.mark.parametrize(("broker_id", "off_by"), [(2, -1), (2, 1), (9, 0)])
def test_a_broker_of_another_epoch_changes_nothing(cluster, broker_id, off_by):
    epoch = cluster.image.cluster.brokers[2].broker_epoch + off_by

    response = cluster.ask(
        cluster.requests.alter_partition,
        AlterPartitionRequest(broker_id=broker_id, broker_epoch=epoch, topics=[]),
    )

    assert (E(response.error_code), response.topics) == (E.STALE_BROKER_EPOCH, [])


def test_a_request_of_version_2_has_no_epochs_of_brokers(cluster):
    topic = cluster.image.topics.by_name["orders"]
    asked = Topic.Partition(partition_index=0, leader_epoch=0, partition_epoch=0, new_isr=[2, OWN])
    request = AlterPartitionRequest(
        broker_id=2,
        broker_epoch=cluster.image.cluster.brokers[2].broker_epoch,
        topics=[Topic(topic_id=topic.topic_id, partitions=[asked])],
    )

    response = cluster.ask(cluster.requests.alter_partition, request)

    assert result(response.topics[0].partitions[0]) == (E.NONE, 0, 1, [2, OWN])


def with_own_isrs(cluster, test):
    """Run a test with the controller's own broker's wishes for ISRs, which takes a function that lets them be asked."""

    async def run():
        isrs = AlterPartitionSender(
            LocalChannel(cluster.requests), node_id=OWN, broker_epoch=cluster.own_epoch, clock=cluster.clock
        )
        asking = asyncio.create_task(isrs.run())
        await asyncio.sleep(0)

        async def turn():
            for _ in range(5):
                await asyncio.sleep(0)

        await test(isrs, turn)
        asking.cancel()
        await asyncio.wait([asking])

    asyncio.run(run())


def wanted_isr(cluster, topic, index, epochs):
    partition = topic.partition(index)
    return WantedIsr(topic.topic_id, index, partition.leader_epoch, partition.partition_epoch, epochs)


def test_a_follower_that_has_registered_anew_does_not_get_into_an_isr_of_the_controllers_own_broker_by_an_old_fetch():
    cluster = Cluster()
    follower = cluster.broker(2)
    cluster.topic("orders", [OWN, 2])
    epoch = follower.epoch
    cluster.clock.advance(10_000)
    cluster.check_sessions()
    assert follower.register() is E.NONE
    follower.heartbeat()
    assert cluster.leader_and_isr()[2] == [OWN]

    async def test(isrs, turn):
        outcomes = []
        for epoch_of_2 in (epoch, follower.epoch):
            topic = cluster.image.topics.by_name["orders"]
            assert isrs.submit(
                wanted_isr(cluster, topic, 0, {OWN: cluster.own_epoch(), 2: epoch_of_2}), outcomes.append
            )
            await turn()
            if epoch_of_2 == epoch:
                assert outcomes.pop() == IsrRefused()
                assert cluster.leader_and_isr()[2] == [OWN]
        assert isinstance(outcomes.pop(), IsrCommitted)

    with_own_isrs(cluster, test)
    assert cluster.leader_and_isr()[2] == [OWN, 2]


def test_what_the_own_broker_asks_for_in_one_turn_is_one_change_of_the_metadata():
    cluster = Cluster()
    epoch_of_2 = cluster.broker(2).epoch
    topic = cluster.topic("orders", *[[OWN, 2]] * 100)
    before = len(cluster.log.batches)

    async def test(isrs, turn):
        outcomes = []

        def submit(index, *isr):
            epochs = {broker: epoch_of_2 if broker == 2 else cluster.own_epoch() for broker in isr}
            topic = cluster.image.topics.by_name["orders"]
            return isrs.submit(
                wanted_isr(cluster, topic, index, epochs), lambda outcome: outcomes.append((index, outcome))
            )

        for index in range(100):
            assert submit(index, OWN)
        assert not submit(7, OWN)
        isrs.withdraw(topic.topic_id, 8)
        assert outcomes == []
        await turn()

        assert len(cluster.log.batches) == before + 1
        assert [index for index, outcome in outcomes if outcome.isr == (OWN,)] == [*range(8), *range(9, 100)]
        assert submit(7, OWN, 2)

    with_own_isrs(cluster, test)


def test_a_metadata_log_without_space_refuses_the_own_brokers_wishes():
    cluster = Cluster()
    cluster.broker(2)
    topic = cluster.topic("orders", [OWN, 2])

    def full(records, then):
        raise DiskFull("no space")

    async def test(isrs, turn):
        outcomes = []
        assert isrs.submit(wanted_isr(cluster, topic, 0, {OWN: cluster.own_epoch()}), outcomes.append)
        await turn()
        assert outcomes == [IsrRefused()]

    cluster.log.append = full
    with_own_isrs(cluster, test)
    assert cluster.leader_and_isr()[2] == [OWN, 2]


def test_of_two_changes_of_one_partition_in_one_request_the_second_is_too_late(cluster):
    topic = cluster.image.topics.by_name["orders"]
    asked = [
        Topic.Partition(partition_index=0, leader_epoch=0, partition_epoch=0, new_isr=isr) for isr in ([2], [2, 3])
    ]
    request = AlterPartitionRequest(
        broker_id=2,
        broker_epoch=cluster.image.cluster.brokers[2].broker_epoch,
        topics=[Topic(topic_id=topic.topic_id, partitions=asked)],
    )

    response = cluster.ask(cluster.requests.alter_partition, request)

    assert [E(one.error_code) for one in response.topics[0].partitions] == [E.NONE, E.INVALID_UPDATE_VERSION]
    assert cluster.leader_and_isr() == (2, 0, [2])


def test_a_leader_tells_that_it_has_recovered(cluster):
    recovering = PartitionChangeRecord(
        partition_id=0,
        topic_id=cluster.image.topics.by_name["orders"].topic_id,
        isr=[2],
        leader=2,
        leader_recovery_state=1,
    )
    cluster.controller.append([recovering])

    assert result(cluster.alter_isr([2, 3], recovery_state=1))[0] is E.INVALID_REQUEST
    answer = cluster.alter_isr([2, 3], recovery_state=0)

    assert (E(answer.error_code), answer.leader_recovery_state, answer.isr) == (E.NONE, 0, [2, 3])


def test_a_leader_that_completes_a_reassignment_away_from_it_is_told_so(cluster):
    assert cluster.reassign(("orders", 0, [4, 3])) == [E.NONE]

    answer = cluster.alter_isr([2, 3, 4])

    assert E(answer.error_code) is E.NEW_LEADER_ELECTED
    partition = cluster.partition()
    assert (partition.leader, partition.replicas, set(partition.isr)) == (4, (4, 3), {3, 4})


def test_below_min_insync_replicas_who_leaves_is_eligible_to_lead():
    cluster = Cluster(elr=True)
    for number in (2, 3):
        cluster.broker(number)
    cluster.topic("orders", [2, 3, OWN], min_insync_replicas="2")

    cluster.alter_isr([2, 3])
    assert cluster.partition().eligible_leader_replicas == ()
    cluster.alter_isr([2])
    assert cluster.partition().eligible_leader_replicas == (3,)
    cluster.alter_isr([2, OWN])
    assert cluster.partition().eligible_leader_replicas == ()
