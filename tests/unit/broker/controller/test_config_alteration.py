"""Altering configs: the configs that a resource has afterwards, and the records that set them."""

import pytest

from broker.controller.config_alteration import Alteration, ConfigChange, ConfigPlanner, Replacement, Resource
from broker.metadata.cache import MetadataCache
from broker.metadata.configs import ConfigView
from config.broker_settings import BrokerSettings
from protocol.errors import ErrorCode
from protocol.records.cluster_metadata import ClearElrRecord, ConfigRecord, FeatureLevelRecord, TopicRecord
from tests.support.metadata import image_of

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
ORDERS, BROKER, EVERY_BROKER = Resource(2, "orders"), Resource(4, "1"), Resource(4, "")
ELIGIBLE_LEADERS = FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)


def said(resource, name, value):
    return ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)


def planner_on(*records, **settings):
    metadata = MetadataCache()
    metadata.image = image_of(TopicRecord(name="orders", topic_id=bytes(15) + b"\x01"), *records)
    return ConfigPlanner(metadata.image, ConfigView(metadata, BrokerSettings(**settings)))


def alteration(resource, *changes):
    return Alteration(resource=resource, changes=[ConfigChange(*change) for change in changes])


def plan(wanted, *records, **settings):
    """The result, and the records of it."""
    planner = planner_on(*records, **settings)
    result = planner.plan(wanted)
    if result.error is not ErrorCode.NONE:
        assert planner.records == []
        assert result.message
    return result, planner.records


def test_what_is_set_and_deleted_becomes_a_record_each():
    result, records = plan(
        alteration(ORDERS, ("flush.ms", SET, "7"), ("retention.ms", DELETE, None), ("segment.ms", DELETE, None)),
        said(ORDERS, "retention.ms", "5"),
    )

    assert result.error is ErrorCode.NONE
    assert set(result.changed) == {"flush.ms", "retention.ms"}
    assert sorted(records, key=lambda record: record.name) == [
        said(ORDERS, "flush.ms", "7"),
        said(ORDERS, "retention.ms", None),
    ]


def test_what_stays_as_it_is_needs_no_record():
    result, records = plan(
        alteration(ORDERS, ("retention.ms", SET, "5"), ("cleanup.policy", SUBTRACT, "compact")),
        said(ORDERS, "retention.ms", "5"),
        said(ORDERS, "cleanup.policy", "delete"),
    )

    assert (result.error, result.changed, records) == (ErrorCode.NONE, [], [])


def test_a_replacement_deletes_what_it_does_not_name():
    _, records = plan(
        Replacement(resource=ORDERS, configs=[("flush.ms", "7"), ("segment.ms", "9")]),
        said(ORDERS, "retention.ms", "5"),
        said(ORDERS, "segment.ms", "9"),
    )

    assert sorted(records, key=lambda record: record.name) == [
        said(ORDERS, "flush.ms", "7"),
        said(ORDERS, "retention.ms", None),
    ]


@pytest.mark.parametrize(
    ("operation", "before", "parts", "after"),
    [
        (APPEND, None, "compact", "delete,compact"),
        (APPEND, "", "compact", "compact"),
        (APPEND, "compact", "compact,delete", "compact,delete"),
        (SUBTRACT, None, "delete", ""),
        (SUBTRACT, "compact,delete", "compact", "delete"),
        (SUBTRACT, "compact, delete", "compact", " delete"),
    ],
)
def test_lists_are_taken_apart_at_their_commas_only(operation, before, parts, after):
    records = [] if before is None else [said(ORDERS, "cleanup.policy", before)]

    _, records = plan(alteration(ORDERS, ("cleanup.policy", operation, parts)), *records)

    assert records == [said(ORDERS, "cleanup.policy", after)]


def test_values_are_checked_together_with_what_is_there_and_what_the_broker_says():
    too_short = alteration(ORDERS, ("max.compaction.lag.ms", SET, "5"))

    result, _ = plan(too_short, said(ORDERS, "min.compaction.lag.ms", "10"))
    assert result.error is ErrorCode.INVALID_CONFIG
    result, _ = plan(too_short, said(BROKER, "log.cleaner.min.compaction.lag.ms", "10"))
    assert result.error is ErrorCode.INVALID_CONFIG
    result, _ = plan(too_short)
    assert result.error is ErrorCode.NONE


def test_a_setting_that_needs_a_restart_is_named_as_kafka_names_it():
    result, _ = plan(alteration(BROKER, ("num.partitions", SET, "3"), ("log.dirs", SET, "x"), ("a", SET, "b")))

    assert result.error is ErrorCode.INVALID_REQUEST
    assert result.message == "Cannot update these configs dynamically: [num.partitions, log.dirs]"


def test_what_somebody_else_has_left_there_is_nobodys_fault_and_can_be_deleted():
    left = said(BROKER, "listeners", "PLAINTEXT://:1"), said(BROKER, "log.segment.bytes", "12")

    result, records = plan(alteration(BROKER, ("log.roll.ms", SET, "9")), *left)
    assert (result.error, records) == (ErrorCode.NONE, [said(BROKER, "log.roll.ms", "9")])
    result, records = plan(alteration(BROKER, ("listeners", DELETE, None)), *left)
    assert (result.error, records) == (ErrorCode.NONE, [said(BROKER, "listeners", None)])


def test_threads_are_at_most_doubled_and_at_least_halved_from_what_counts_now():
    def code(resource, threads, *records):
        return plan(alteration(resource, ("num.io.threads", SET, threads)), *records, num_io_threads=8)[0].error

    refused = ErrorCode.INVALID_REQUEST
    assert [code(BROKER, threads) for threads in ("3", "4", "16", "17")] == [refused, 0, 0, refused]
    five = said(BROKER, "num.io.threads", "5")
    assert code(BROKER, "10", five) == ErrorCode.NONE
    assert code(BROKER, "11", five) == refused
    # What the broker says itself counts, so what all brokers get does nothing here.
    assert code(EVERY_BROKER, "100", five) == ErrorCode.NONE


def test_without_eligible_leaders_min_insync_replicas_is_a_setting_like_any_other():
    change = ("min.insync.replicas", SET, "2")
    for resource in (BROKER, EVERY_BROKER, ORDERS):
        result, records = plan(alteration(resource, change))
        assert (result.error, records) == (ErrorCode.NONE, [said(resource, "min.insync.replicas", "2")])


def test_with_eligible_leaders_all_brokers_must_mean_the_same_and_a_change_forgets_them():
    for_all = said(EVERY_BROKER, "min.insync.replicas", "1")

    def outcome(wanted):
        result, records = plan(wanted, ELIGIBLE_LEADERS, for_all)
        return result.error, records

    change = ("min.insync.replicas", SET, "2")
    assert outcome(alteration(BROKER, change)) == (ErrorCode.INVALID_CONFIG, [])
    assert outcome(alteration(EVERY_BROKER, ("min.insync.replicas", DELETE, None))) == (ErrorCode.INVALID_CONFIG, [])
    assert outcome(Replacement(resource=EVERY_BROKER, configs=[])) == (ErrorCode.INVALID_CONFIG, [])
    assert outcome(alteration(EVERY_BROKER, change)) == (
        ErrorCode.NONE,
        [said(EVERY_BROKER, "min.insync.replicas", "2"), ClearElrRecord(topic_name="")],
    )
    assert outcome(alteration(ORDERS, change)) == (
        ErrorCode.NONE,
        [said(ORDERS, "min.insync.replicas", "2"), ClearElrRecord(topic_name="orders")],
    )


def test_with_eligible_leaders_the_min_insync_replicas_of_one_broker_is_no_name_of_a_topic():
    left = said(BROKER, "min.insync.replicas", "2")
    for wanted in (
        alteration(BROKER, ("min.insync.replicas", DELETE, None)),
        Replacement(resource=BROKER, configs=[]),
    ):
        result, records = plan(wanted, ELIGIBLE_LEADERS, left)
        assert (result.error, records) == (
            ErrorCode.NONE,
            [said(BROKER, "min.insync.replicas", None), ClearElrRecord(topic_name="")],
        )


def test_a_resource_is_named_in_words():
    assert [str(Resource(4, "1")), str(Resource(7, "x"))] == ["broker '1'", "type 7 'x'"]
