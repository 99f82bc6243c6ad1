"""DescribeTopicPartitions through the codec; what is expected was seen on Kafka 4.4.0."""

import pytest

from dev.serving import serves
from protocol.errors import ErrorCode as E
from protocol.messages.topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from tests.support.broker import InProcessBroker

Page = tuple[list[tuple[str, list[int]]], tuple[str, int] | None]


def ask(
    broker: InProcessBroker, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    """One page of the topics ``names``, or of all."""
    start = None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1])
    topics = [DescribeTopicPartitionsRequest.Topic(name=name) for name in names]
    request = DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=start)
    answer: DescribeTopicPartitionsResponse = broker.ask(request, 0)
    return answer


def page(answer: DescribeTopicPartitionsResponse) -> Page:
    """The partitions of each topic, and where the next page begins."""
    following = answer.next_cursor
    return (
        [(topic.name or "", [one.partition_index for one in topic.partitions]) for topic in answer.topics],
        None if following is None else (following.topic_name, following.partition_index),
    )


@pytest.fixture(autouse=True)
def topics(broker: InProcessBroker) -> None:
    """`a` with 4 partitions, `b` with 2, `c` with 3."""
    for name, partitions in (("c", 3), ("a", 4), ("b", 2)):
        broker.create_topic(name, partitions=partitions)


@serves(DescribeTopicPartitionsRequest, versions=[0])
def test_a_topic_is_described_with_its_partitions(broker: InProcessBroker) -> None:
    (topic,) = ask(broker, "b").topics
    assert (topic.error_code, topic.name, topic.is_internal) == (E.NONE, "b", False)
    assert any(topic.topic_id)
    assert topic.topic_authorized_operations == 3576
    first = topic.partitions[0]
    assert (first.error_code, first.partition_index, first.leader_id, first.leader_epoch) == (E.NONE, 0, 1, 0)
    assert (first.replica_nodes, first.isr_nodes, first.offline_replicas) == ([1], [1], [])
    assert (first.eligible_leader_replicas, first.last_known_elr) == ([], [])


def test_topics_come_by_name_and_each_once(broker: InProcessBroker) -> None:
    assert page(ask(broker, "c", "a", "c")) == ([("a", [0, 1, 2, 3]), ("c", [0, 1, 2])], None)
    assert page(ask(broker)) == ([("a", [0, 1, 2, 3]), ("b", [0, 1]), ("c", [0, 1, 2])], None)


@pytest.mark.parametrize(
    ("limit", "cursor", "expected"),
    [
        (2, None, ([("a", [0, 1])], ("a", 2))),
        (4, None, ([("a", [0, 1, 2, 3])], ("b", 0))),
        (5, None, ([("a", [0, 1, 2, 3]), ("b", [0])], ("b", 1))),
        (0, None, ([("a", [0])], ("a", 1))),
        (-7, None, ([("a", [0])], ("a", 1))),
        (9, None, ([("a", [0, 1, 2, 3]), ("b", [0, 1]), ("c", [0, 1, 2])], None)),
        (3, ("a", 3), ([("a", [3]), ("b", [0, 1])], ("c", 0))),
        (2000, ("b", 1), ([("b", [1]), ("c", [0, 1, 2])], None)),
        (2000, ("b", 99), ([("b", []), ("c", [0, 1, 2])], None)),
        (2000, ("aa", 3), ([("b", [0, 1]), ("c", [0, 1, 2])], None)),
        (2000, ("zzz", 0), ([], None)),
    ],
)
def test_a_page_ends_at_the_limit_and_the_next_begins_at_the_cursor(
    broker: InProcessBroker, limit: int, cursor: tuple[str, int] | None, expected: Page
) -> None:
    assert page(ask(broker, limit=limit, cursor=cursor)) == expected


def test_pages_add_up_to_the_whole(broker: InProcessBroker) -> None:
    pages, cursor = [], None
    while not pages or cursor is not None:
        found, cursor = page(ask(broker, limit=2, cursor=cursor))
        pages += [(name, index) for name, indexes in found for index in indexes]
    assert pages == [("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 0), ("b", 1), ("c", 0), ("c", 1), ("c", 2)]


@pytest.mark.settings(max_request_partition_size_limit=3)
def test_the_broker_has_a_limit_of_its_own(broker: InProcessBroker) -> None:
    assert page(ask(broker, limit=2000)) == ([("a", [0, 1, 2])], ("a", 3))


@serves(DescribeTopicPartitionsRequest, E.UNKNOWN_TOPIC_OR_PARTITION, E.INVALID_TOPIC_EXCEPTION, E.NONE, versions=[0])
def test_topics_that_there_are_not_stand_among_the_others(broker: InProcessBroker) -> None:
    answer = ask(broker, "b", "a/b", "nowhere", "__cluster_metadata")
    assert [(topic.name, topic.error_code, len(topic.partitions)) for topic in answer.topics] == [
        ("__cluster_metadata", E.UNKNOWN_TOPIC_OR_PARTITION, 0),
        ("a/b", E.INVALID_TOPIC_EXCEPTION, 0),
        ("b", E.NONE, 2),
        ("nowhere", E.UNKNOWN_TOPIC_OR_PARTITION, 0),
    ]


@serves(DescribeTopicPartitionsRequest, E.INVALID_REQUEST, versions=[0])
@pytest.mark.parametrize("cursor", [("a", -1), ("b", 0), ("", 0), ("zz", 0)])
def test_a_cursor_that_points_nowhere_is_refused(broker: InProcessBroker, cursor: tuple[str, int]) -> None:
    answer = ask(broker, "a", "c", cursor=cursor)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("a", E.INVALID_REQUEST),
        ("c", E.INVALID_REQUEST),
    ]
