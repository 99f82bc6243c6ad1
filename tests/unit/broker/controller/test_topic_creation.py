"""Creating topics: each check of CreateTopics, its error code, and the records of accepted topics."""

import pytest

from broker.controller.placement import Placement
from broker.controller.topic_creation import CreationDefaults, NewTopic, TopicPlanner
from config.log_config import LogConfig
from protocol.errors import ErrorCode
from protocol.records.cluster_metadata import (
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    TopicRecord,
)
from protocol.schema import NO_UUID
from tests.support.metadata import image_of
from tests.unit.broker.metadata.metadata_node import CountedIds

A, B = bytes(15) + b"\x0a", bytes(15) + b"\x0b"


def planner_on(*existing, directories=(A,), records=(), partitions=1, replication_factor=1):
    there = [TopicRecord(name=name, topic_id=number.to_bytes(16, "big")) for number, name in enumerate(existing, 1000)]
    image = image_of(*there, *records)
    return TopicPlanner(
        image,
        ids=CountedIds(),
        placement=Placement(image, broker_id=1, directories=directories),
        defaults=CreationDefaults(partitions=partitions, replication_factor=replication_factor, log_config=LogConfig()),
    )


def outcome(topic, *existing, **options):
    planner = planner_on(*existing, **options)
    (result,) = planner.plan([topic])
    if result.error is not ErrorCode.NONE:
        assert planner.records == []
        assert (result.topic_id, result.partitions, result.replication_factor) == (NO_UUID, -1, -1)
        assert result.message
    return result


def test_a_topic_becomes_its_record_its_configs_and_its_partitions():
    planner = planner_on()

    (result,) = planner.plan(
        [NewTopic(name="orders", partitions=2, replication_factor=1, configs=[("retention.ms", "5")])]
    )

    assert (result.error, result.partitions, result.replication_factor) == (ErrorCode.NONE, 2, 1)
    assert result.configs == {"retention.ms": "5"}
    topic_id = result.topic_id

    def partition(index):
        return PartitionRecord(
            partition_id=index, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0,
            directories=[A],
        )  # fmt: skip

    assert planner.records == [
        TopicRecord(name="orders", topic_id=topic_id),
        ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="5"),
        partition(0),
        partition(1),
    ]


def test_minus_one_leaves_the_numbers_to_the_broker():
    result = outcome(NewTopic(name="orders"), partitions=3)

    assert (result.partitions, result.replication_factor) == (3, 1)


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a b", "ä", "a/b", "a\n"])
def test_a_name_that_no_topic_may_have_is_refused(name):
    assert outcome(NewTopic(name=name)).error is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["a" * 249, "...", "A-z_0.9", "__transaction_state"])
def test_a_name_that_a_topic_may_have_is_taken(name):
    assert outcome(NewTopic(name=name)).error is ErrorCode.NONE


def test_a_topic_that_exists_is_not_created_again():
    result = outcome(NewTopic(name="orders", partitions=0), "orders")

    assert result.error is ErrorCode.TOPIC_ALREADY_EXISTS
    assert result.message == "Topic 'orders' already exists."


def test_names_that_differ_only_in_dots_and_underscores_collide():
    result = outcome(NewTopic(name="c.1_x"), "c_1.x")

    assert result.error is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "c_1.x" in result.message


def test_two_new_names_in_one_request_do_not_collide():
    results = planner_on().plan([NewTopic(name="a.b"), NewTopic(name="a_b")])

    assert [result.error for result in results] == [ErrorCode.NONE, ErrorCode.NONE]


def test_a_name_that_comes_twice_gets_one_error_behind_the_others():
    planner = planner_on()

    results = planner.plan([NewTopic(name="twice"), NewTopic(name="once"), NewTopic(name="twice")])

    assert [(result.name, result.error) for result in results] == [
        ("once", ErrorCode.NONE),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]
    assert [record.name for record in planner.records if isinstance(record, TopicRecord)] == ["once"]


def test_the_metadata_log_can_not_be_created_as_a_topic():
    assert outcome(NewTopic(name="__cluster_metadata")).error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("partitions", [0, -2])
def test_a_number_of_partitions_that_is_none_is_refused(partitions):
    assert outcome(NewTopic(name="t", partitions=partitions)).error is ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("factor", [0, -2, 2])
def test_a_replication_factor_that_one_broker_can_not_give_is_refused(factor):
    result = outcome(NewTopic(name="t", partitions=1, replication_factor=factor))

    assert result.error is ErrorCode.INVALID_REPLICATION_FACTOR


def test_the_brokers_own_replication_factor_is_checked_too():
    result = outcome(NewTopic(name="t"), replication_factor=3)

    assert result.error is ErrorCode.INVALID_REPLICATION_FACTOR


def test_partitions_are_checked_before_a_replication_factor_that_is_too_large():
    result = outcome(NewTopic(name="t", partitions=0, replication_factor=3))

    assert result.error is ErrorCode.INVALID_PARTITIONS


def test_replicas_may_be_assigned_by_hand():
    result = outcome(NewTopic(name="t", assignments=[(1, [1]), (0, [1])]))

    assert (result.error, result.partitions, result.replication_factor) == (ErrorCode.NONE, 2, 1)


@pytest.mark.parametrize("numbers", [{"partitions": 1}, {"replication_factor": 1}])
def test_assignments_and_numbers_exclude_each_other(numbers):
    assert outcome(NewTopic(name="t", assignments=[(0, [1])], **numbers)).error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "assignments",
    [
        [(0, [1]), (2, [1])],
        [(1, [1])],
        [(-1, [1])],
        [(0, [1]), (0, [1])],
        [(0, [])],
        [(0, [1, 1])],
        [(0, [2])],
        [(0, [1]), (1, [1, 2])],
    ],
)
def test_an_assignment_that_makes_no_sense_is_refused(assignments):
    assert outcome(NewTopic(name="t", assignments=assignments)).error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention.ms", None),
        ("retention.ms", "soon"),
        ("segment.bytes", "1024"),
        ("nope", "1"),
        ("message.format.version", "2.8"),
        ("message.downconversion.enable", "true"),
        ("remote.storage.enable", "true"),
        ("compression.type", "brotli"),
    ],
)
def test_a_config_that_is_wrong_is_refused(key, value):
    result = outcome(NewTopic(name="t", configs=[(key, value)]))

    assert result.error is ErrorCode.INVALID_CONFIG
    assert key in result.message


@pytest.mark.parametrize(
    "configs",
    [
        [("cleanup.policy", "")],
        [("cleanup.policy", "compact,compact")],
        [("retention.ms", "1"), ("retention.ms", "2")],
        [("local.retention.ms", "99999999999")],
    ],
)
def test_configs_that_only_look_wrong_are_taken(configs):
    assert outcome(NewTopic(name="t", configs=configs)).error is ErrorCode.NONE


def test_of_a_config_that_comes_twice_the_last_value_counts():
    result = outcome(NewTopic(name="t", configs=[("retention.ms", "1"), ("retention.ms", "2")]))

    assert result.configs == {"retention.ms": "2"}


def test_ten_thousand_partitions_are_the_most_in_one_request():
    planner = planner_on()
    results = planner.plan([NewTopic(name="a", partitions=10_000), NewTopic(name="b", partitions=-1)])

    assert [result.error for result in results] == [ErrorCode.POLICY_VIOLATION] * 2
    assert planner.records == []
    assert outcome(NewTopic(name="a", partitions=10_000)).error is ErrorCode.NONE


def test_partitions_are_spread_over_the_log_directories():
    planner = planner_on(directories=(A, B))

    planner.plan([NewTopic(name="a", partitions=3), NewTopic(name="b", partitions=1)])

    placed = [record.directories for record in planner.records if isinstance(record, PartitionRecord)]
    assert placed == [[A], [B], [A], [B]]


def test_partitions_that_are_there_count_when_directories_are_chosen():
    old = bytes(15) + b"\x63"
    there = PartitionRecord(partition_id=0, topic_id=old, replicas=[1], isr=[1], leader=1, directories=[A])
    planner = planner_on(directories=(A, B), records=(TopicRecord(name="old", topic_id=old), there))

    planner.plan([NewTopic(name="new")])

    assert planner.records[-1].directories == [B]


def test_eligible_leaders_are_cleared_where_the_feature_is_on_and_min_isr_is_set():
    feature = FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)
    planner = planner_on(records=(feature,))

    planner.plan([NewTopic(name="a", configs=[("min.insync.replicas", "1")]), NewTopic(name="b")])

    cleared = [record for record in planner.records if isinstance(record, ClearElrRecord)]
    assert cleared == [ClearElrRecord(topic_name="a")]
