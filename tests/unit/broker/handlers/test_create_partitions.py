"""CreatePartitions through the codec."""

from typing import Any

import pytest

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.metadata import MetadataRequest
from protocol.messages.topics import CreatePartitionsRequest, CreatePartitionsResponse
from tests.support.broker import InProcessBroker


def more(name: str, count: int, assignments: list[list[int]] | None = None) -> CreatePartitionsRequest.Topic:
    """A topic that is to have ``count`` partitions."""
    placed = CreatePartitionsRequest.Topic.Assignment
    return CreatePartitionsRequest.Topic(
        name=name,
        count=count,
        assignments=None if assignments is None else [placed(broker_ids=brokers) for brokers in assignments],
    )


def grow(
    broker: InProcessBroker, *topics: CreatePartitionsRequest.Topic, version: int = 3, **fields: Any
) -> list[CreatePartitionsResponse.Result]:
    """Ask for more partitions."""
    request = CreatePartitionsRequest(**{"timeout_ms": 5000, "validate_only": False, **fields}, topics=list(topics))
    results: list[CreatePartitionsResponse.Result] = broker.ask(request, version).results
    return results


def partitions_of(broker: InProcessBroker, name: str) -> list[int]:
    """The partitions that Metadata shows."""
    (topic,) = broker.ask(MetadataRequest(topics=[MetadataRequest.Topic(name=name)]), 12).topics
    return [partition.partition_index for partition in topic.partitions]


@pytest.fixture(autouse=True)
def orders(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=2)


@serves(CreatePartitionsRequest)
@every_version(CreatePartitionsRequest)
def test_a_topic_gets_more_partitions_which_take_records_and_keep_them(broker: InProcessBroker, version: int) -> None:
    (result,) = grow(broker, more("orders", 4), version=version)
    assert (result.name, result.error_code, result.error_message) == ("orders", E.NONE, None)
    assert partitions_of(broker, "orders") == [0, 1, 2, 3]
    assert broker.produce("orders", b"x", partition=3) == 0

    broker.restart()

    assert partitions_of(broker, "orders") == [0, 1, 2, 3]
    assert broker.produce("orders", b"y", partition=3) == 1


def test_the_client_may_place_them_itself(broker: InProcessBroker) -> None:
    assert grow(broker, more("orders", 4, [[1], [1]]))[0].error_code == E.NONE
    assert partitions_of(broker, "orders") == [0, 1, 2, 3]


def test_what_is_only_validated_is_not_done(broker: InProcessBroker) -> None:
    assert grow(broker, more("orders", 4), validate_only=True)[0].error_code == E.NONE
    assert partitions_of(broker, "orders") == [0, 1]


@serves(CreatePartitionsRequest, E.INVALID_PARTITIONS, versions=[3])
@pytest.mark.parametrize("count", [2, 1, 0, -1])
def test_no_more_is_not_enough(broker: InProcessBroker, count: int) -> None:
    (result,) = grow(broker, more("orders", count))
    assert (result.error_code, bool(result.error_message)) == (E.INVALID_PARTITIONS, True)


@serves(CreatePartitionsRequest, E.INVALID_REPLICA_ASSIGNMENT, versions=[3])
@pytest.mark.parametrize("assignments", [[], [[1], [1]], [[2]], [[]], [[1, 1]], [[1, 2]]])
def test_replicas_where_they_cannot_be_are_refused(broker: InProcessBroker, assignments: list[list[int]]) -> None:
    (result,) = grow(broker, more("orders", 3, assignments))
    assert (result.error_code, bool(result.error_message)) == (E.INVALID_REPLICA_ASSIGNMENT, True)
    assert partitions_of(broker, "orders") == [0, 1]


@serves(CreatePartitionsRequest, E.UNKNOWN_TOPIC_OR_PARTITION, versions=[3])
@pytest.mark.parametrize("name", ["nowhere", "a/b", "", "__cluster_metadata"])
def test_an_unknown_topic_does_not_grow(broker: InProcessBroker, name: str) -> None:
    (result,) = grow(broker, more(name, 3))
    assert (result.error_code, result.error_message) == (E.UNKNOWN_TOPIC_OR_PARTITION, None)


@serves(CreatePartitionsRequest, E.INVALID_REQUEST, versions=[3])
def test_a_topic_named_twice_stays_as_it_is_and_the_others_grow(broker: InProcessBroker) -> None:
    broker.create_topic("letters")
    results = grow(broker, more("orders", 3), more("letters", 2), more("orders", 4))
    assert [(result.name, result.error_code) for result in results] == [
        ("orders", E.INVALID_REQUEST),
        ("letters", E.NONE),
    ]
    assert partitions_of(broker, "orders") == [0, 1]
    assert partitions_of(broker, "letters") == [0, 1]


@serves(CreatePartitionsRequest, E.POLICY_VIOLATION, versions=[3])
@pytest.mark.parametrize("count", [10_003, 10_000_000, 2**31 - 1])
def test_ten_thousand_partitions_a_request_are_enough(broker: InProcessBroker, count: int) -> None:
    """Kafka answers UNKNOWN_SERVER_ERROR here, and its CreateTopics POLICY_VIOLATION."""
    assert grow(broker, more("orders", count), validate_only=True)[0].error_code == E.POLICY_VIOLATION
    assert grow(broker, more("orders", count))[0].error_code == E.POLICY_VIOLATION
    assert partitions_of(broker, "orders") == [0, 1]


@serves(CreatePartitionsRequest, E.REQUEST_TIMED_OUT, versions=[3])
@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_request_without_time_does_nothing(broker: InProcessBroker, timeout_ms: int) -> None:
    assert grow(broker, more("orders", 3), timeout_ms=timeout_ms)[0].error_code == E.REQUEST_TIMED_OUT
    assert partitions_of(broker, "orders") == [0, 1]


def test_new_partitions_go_where_the_fewest_are(broker: InProcessBroker, tmp_path: Any) -> None:
    directories = [str(tmp_path / name) for name in ("one", "two")]
    other = InProcessBroker(tmp_path / "one", log_dirs=",".join(directories))
    try:
        other.create_topic("orders", partitions=1)
        assert grow(other, more("orders", 4))[0].error_code == E.NONE
        found = [other.log("orders", index).directory.rpartition("/")[0] for index in range(4)]
        assert sorted(found) == sorted(directories * 2)
    finally:
        other.close()
