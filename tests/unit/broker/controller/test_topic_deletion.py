"""Deleting topics by name or id, and which deletions are refused."""

from broker.controller.topic_deletion import UnwantedTopic, plan_deletion
from protocol.errors import ErrorCode
from protocol.records.cluster_metadata import TopicRecord
from tests.support.metadata import image_of

ORDERS, BILLS = bytes(15) + b"\x01", bytes(15) + b"\x02"


def plan(*unwanted):
    image = image_of(TopicRecord(name="orders", topic_id=ORDERS), TopicRecord(name="bills", topic_id=BILLS))
    doomed, results = plan_deletion(image, unwanted)
    return [topic.name for topic in doomed], [(result.name, result.topic_id, result.error) for result in results]


def by_name(name):
    return UnwantedTopic(name=name)


def by_id(topic_id):
    return UnwantedTopic(name=None, topic_id=topic_id)


NO_ID = bytes(16)


def test_a_topic_is_deleted_by_name_or_by_id():
    assert plan(by_name("orders"), by_id(BILLS)) == (
        ["orders", "bills"],
        [("orders", ORDERS, ErrorCode.NONE), ("bills", BILLS, ErrorCode.NONE)],
    )


def test_an_unknown_name_and_an_unknown_id_have_errors_of_their_own():
    nobody = bytes(15) + b"\x09"

    assert plan(by_name("nope"), by_id(nobody)) == (
        [],
        [
            ("nope", NO_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (None, nobody, ErrorCode.UNKNOWN_TOPIC_ID),
        ],
    )


def test_names_that_no_topic_may_have_are_merely_unknown():
    for name in ("", "a b", "__cluster_metadata"):
        assert plan(by_name(name)) == ([], [(name, NO_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])


def test_neither_or_both_of_name_and_id_are_refused():
    assert plan(by_id(NO_ID), UnwantedTopic(name="orders", topic_id=ORDERS)) == (
        [],
        [(None, NO_ID, ErrorCode.INVALID_REQUEST), ("orders", ORDERS, ErrorCode.INVALID_REQUEST)],
    )


def test_a_topic_that_is_named_twice_stays_and_gets_one_result():
    assert plan(by_name("orders"), by_name("orders"), by_name("bills")) == (
        ["bills"],
        [("orders", NO_ID, ErrorCode.INVALID_REQUEST), ("bills", BILLS, ErrorCode.NONE)],
    )
    assert plan(by_id(ORDERS), by_id(ORDERS)) == ([], [(None, ORDERS, ErrorCode.INVALID_REQUEST)])


def test_a_topic_given_once_by_name_and_once_by_id_stays():
    assert plan(by_name("orders"), by_id(ORDERS)) == ([], [("orders", ORDERS, ErrorCode.INVALID_REQUEST)])
