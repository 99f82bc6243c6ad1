"""CreateTopics and DeleteTopics through the codec."""

from typing import Any

import pytest

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.support.broker import InProcessBroker

NO_ID = bytes(16)


def wanted(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assignments: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreateTopicsRequest.Topic:
    """A topic to create."""
    return CreateTopicsRequest.Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreateTopicsRequest.Topic.Assignment(partition_index=index, broker_ids=brokers)
            for index, brokers in (assignments or {}).items()
        ],
        configs=[CreateTopicsRequest.Topic.Config(name=key, value=value) for key, value in (configs or {}).items()],
    )


def create(
    broker: InProcessBroker, *topics: CreateTopicsRequest.Topic, version: int = 7, **fields: Any
) -> list[CreateTopicsResponse.Topic]:
    """Ask for topics."""
    results: list[CreateTopicsResponse.Topic] = broker.ask(
        CreateTopicsRequest(topics=list(topics), **fields), version
    ).topics
    return results


@serves(CreateTopicsRequest)
@every_version(CreateTopicsRequest)
def test_a_topic_is_created_and_described(broker: InProcessBroker, version: int) -> None:
    (result,) = create(broker, wanted("orders", 3, configs={"retention.ms": "1000"}), version=version)

    assert (result.error_code, result.name, result.error_message) == (E.NONE, "orders", None)
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        configs = {config.name: (config.value, config.config_source) for config in result.configs}
        assert len(configs) == 39
        assert configs["retention.ms"] == ("1000", 1)
        assert list(configs) == sorted(configs)
    assert (result.topic_id != NO_ID) == (version >= 7)
    assert broker.topics() == {"orders"}
    assert broker.log("orders", 2).config.retention_ms == 1000


@serves(CreateTopicsRequest)
@every_version(CreateTopicsRequest)
@pytest.mark.settings(num_partitions=4)
def test_minus_one_is_the_brokers_own_number(broker: InProcessBroker, version: int) -> None:
    create(broker, wanted("orders", -1, -1), version=version)
    assert broker.log("orders", 3).log_end_offset == 0


def test_only_validating_creates_nothing(broker: InProcessBroker) -> None:
    (result,) = create(broker, wanted("orders"), validate_only=True)
    assert (result.error_code, result.num_partitions) == (E.NONE, 1)
    assert result.topic_id != NO_ID
    assert broker.topics() == set()


@serves(
    CreateTopicsRequest,
    E.INVALID_TOPIC_EXCEPTION,
    E.INVALID_PARTITIONS,
    E.INVALID_REPLICATION_FACTOR,
    E.INVALID_REPLICA_ASSIGNMENT,
    E.INVALID_REQUEST,
    E.INVALID_CONFIG,
    E.POLICY_VIOLATION,
    versions=[7],
)
def test_each_mistake_has_its_code(broker: InProcessBroker) -> None:
    mistakes = [
        (wanted(""), E.INVALID_TOPIC_EXCEPTION),
        (wanted(".."), E.INVALID_TOPIC_EXCEPTION),
        (wanted("a/b"), E.INVALID_TOPIC_EXCEPTION),
        (wanted("x" * 250), E.INVALID_TOPIC_EXCEPTION),
        (wanted("t", 0), E.INVALID_PARTITIONS),
        (wanted("t", -2), E.INVALID_PARTITIONS),
        (wanted("t", 0, 3), E.INVALID_PARTITIONS),
        (wanted("t", 1, 0), E.INVALID_REPLICATION_FACTOR),
        (wanted("t", 1, 2), E.INVALID_REPLICATION_FACTOR),
        (wanted("t", 10_001), E.POLICY_VIOLATION),
        (wanted("t", 2, -1, {0: [1]}), E.INVALID_REQUEST),
        (wanted("t", -1, 1, {0: [1]}), E.INVALID_REQUEST),
        (wanted("t", -1, -1, {1: [1]}), E.INVALID_REPLICA_ASSIGNMENT),
        (wanted("t", -1, -1, {0: []}), E.INVALID_REPLICA_ASSIGNMENT),
        (wanted("t", -1, -1, {0: [2]}), E.INVALID_REPLICA_ASSIGNMENT),
        (wanted("t", -1, -1, {0: [1, 1]}), E.INVALID_REPLICA_ASSIGNMENT),
        (wanted("t", configs={"nope": "1"}), E.INVALID_CONFIG),
        (wanted("t", configs={"retention.ms": None}), E.INVALID_CONFIG),
        (wanted("t", configs={"retention.ms": "soon"}), E.INVALID_CONFIG),
        (wanted("t", configs={"segment.bytes": "1000"}), E.INVALID_CONFIG),
        (wanted("t", configs={"message.format.version": "3.0"}), E.INVALID_CONFIG),
        (wanted("t", configs={"remote.storage.enable": "true"}), E.INVALID_CONFIG),
        (wanted("__cluster_metadata"), E.INVALID_REQUEST),
    ]
    for topic, code in mistakes:
        (result,) = create(broker, topic)
        assert result.error_code == code, topic
        assert (result.topic_id, result.num_partitions, result.replication_factor) == (NO_ID, -1, -1)
        assert result.configs == []
        assert result.error_message
    assert broker.topics() == set()


@serves(CreateTopicsRequest, E.TOPIC_ALREADY_EXISTS, E.INVALID_TOPIC_EXCEPTION, E.INVALID_REQUEST, versions=[7])
def test_names_must_be_new_and_not_alike(broker: InProcessBroker) -> None:
    broker.create_topic("c_1.x")
    (again, alike, twice) = create(broker, wanted("c_1.x"), wanted("c.1_x"), wanted("twice"), wanted("twice"))
    assert again.error_code == E.TOPIC_ALREADY_EXISTS
    assert alike.error_code == E.INVALID_TOPIC_EXCEPTION
    assert (twice.name, twice.error_code) == ("twice", E.INVALID_REQUEST)
    assert broker.topics() == {"c_1.x"}


@serves(CreateTopicsRequest, E.REQUEST_TIMED_OUT, versions=[7])
@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_without_time_nothing_is_created(broker: InProcessBroker, timeout_ms: int) -> None:
    (result,) = create(broker, wanted("orders"), timeout_ms=timeout_ms)
    assert result.error_code == E.REQUEST_TIMED_OUT
    assert broker.topics() == set()


def test_one_mistake_does_not_keep_the_others_from_being_created(broker: InProcessBroker) -> None:
    results = create(broker, wanted("a"), wanted("b", 0), wanted("c"))
    assert [result.error_code for result in results] == [E.NONE, E.INVALID_PARTITIONS, E.NONE]
    assert broker.topics() == {"a", "c"}


def test_a_created_topic_outlives_a_crash(broker: InProcessBroker) -> None:
    topic_id = broker.create_topic("orders", partitions=2, retention_ms=5)
    broker.restart()
    assert broker.topics() == {"orders"}
    assert broker.log("orders", 1).topic_id == topic_id
    assert broker.log("orders", 1).config.retention_ms == 5


# Deleting -------------------------------------------------------------------------------------------------------------


def delete(
    broker: InProcessBroker, *names: str, ids: tuple[bytes, ...] = (), version: int = 6, timeout_ms: int = 1000
) -> list[DeleteTopicsResponse.Response]:
    """Ask for the end of topics."""
    request = (
        DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.Topic(name=name, topic_id=NO_ID) for name in names]
            + [DeleteTopicsRequest.Topic(name=None, topic_id=topic_id) for topic_id in ids],
            timeout_ms=timeout_ms,
        )
        if version >= 6
        else DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
    )
    results: list[DeleteTopicsResponse.Response] = broker.ask(request, version).responses
    return results


@serves(DeleteTopicsRequest)
@every_version(DeleteTopicsRequest)
def test_a_topic_is_deleted_and_its_name_is_free_at_once(broker: InProcessBroker, version: int) -> None:
    first = broker.create_topic("orders")
    broker.produce("orders", b"old")
    (result,) = delete(broker, "orders", version=version)
    assert (result.name, result.error_code) == ("orders", E.NONE)
    assert broker.topics() == set()
    assert broker.create_topic("orders") != first
    assert broker.log("orders").log_end_offset == 0


@serves(DeleteTopicsRequest, E.NONE, E.UNKNOWN_TOPIC_ID, E.UNKNOWN_TOPIC_OR_PARTITION, E.INVALID_REQUEST, versions=[6])
def test_topics_are_deleted_by_id_or_by_name_but_not_by_both(broker: InProcessBroker) -> None:
    topic_id = broker.create_topic("orders")
    other = broker.create_topic("others")
    (by_id,) = delete(broker, ids=(topic_id,))
    assert (by_id.name, by_id.topic_id, by_id.error_code) == ("orders", topic_id, E.NONE)
    (unknown_id,) = delete(broker, ids=(topic_id,))
    assert (unknown_id.name, unknown_id.error_code) == (None, E.UNKNOWN_TOPIC_ID)
    (unknown,) = delete(broker, "orders")
    assert unknown.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    (twice,) = delete(broker, "others", "others")
    assert twice.error_code == E.INVALID_REQUEST
    (neither,) = delete(broker, ids=(NO_ID,))
    assert neither.error_code == E.INVALID_REQUEST
    both = DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="others", topic_id=other)], timeout_ms=1000)
    assert broker.ask(both, 6).responses[0].error_code == E.INVALID_REQUEST
    assert broker.topics() == {"others"}


@pytest.mark.settings(delete_topic_enable="false")
@serves(DeleteTopicsRequest, E.TOPIC_DELETION_DISABLED, versions=[3, 6])
@serves(DeleteTopicsRequest, E.INVALID_REQUEST, versions=[2])
def test_deletion_can_be_switched_off(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    for version, code in ((2, E.INVALID_REQUEST), (3, E.TOPIC_DELETION_DISABLED), (6, E.TOPIC_DELETION_DISABLED)):
        assert delete(broker, "orders", version=version)[0].error_code == code
    assert broker.topics() == {"orders"}


def test_the_files_of_a_deleted_topic_go_after_their_delay(broker: InProcessBroker) -> None:
    broker.create_topic("orders", file_delete_delay_ms=60_000)
    broker.produce("orders", b"old")
    delete(broker, "orders")

    def left() -> list[str]:
        return [path.name for path in broker.directory.iterdir() if path.name.startswith("orders-0")]

    assert [name.endswith("-delete") for name in left()] == [True]
    broker.advance(59_000)
    assert len(left()) == 1
    broker.advance(1_000)
    broker.wait_until(lambda: not left())
