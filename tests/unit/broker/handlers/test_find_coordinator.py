"""FindCoordinator through the codec. What is expected was seen on Apache Kafka 4.4.0."""

from typing import Any

import pytest

from broker.request.context import RequestContext
from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.topics import DeleteTopicsRequest
from protocol.records.cluster_metadata import PartitionChangeRecord
from tests.support.broker import InProcessBroker
from tests.support.metadata import pretend

GROUP, TRANSACTION, SHARE = range(3)
NO_ID = "A" * 22


def find(broker: InProcessBroker, version: int, *keys: str, key_type: int = GROUP) -> list[Any]:
    """The answers for keys, in the layout of one version."""
    if version >= 4:
        request = FindCoordinatorRequest(coordinator_keys=list(keys), key_type=key_type)
        coordinators: list[Any] = broker.ask(request, version).coordinators
        return coordinators
    return [broker.ask(FindCoordinatorRequest(key=key, key_type=key_type), version) for key in keys]


def codes(broker: InProcessBroker, version: int, *keys: str, key_type: int = GROUP) -> list[int]:
    return [found.error_code for found in find(broker, version, *keys, key_type=key_type)]


@serves(FindCoordinatorRequest, E.COORDINATOR_NOT_AVAILABLE, E.NONE)
@every_version(FindCoordinatorRequest)
def test_the_first_who_asks_has_the_topic_made_and_then_this_node_is_named(
    broker: InProcessBroker, version: int
) -> None:
    (found,) = find(broker, version, "readers")
    assert (found.error_code, found.node_id, found.host, found.port) == (E.COORDINATOR_NOT_AVAILABLE, -1, "", -1)
    broker.wait_until(lambda: codes(broker, version, "readers") == [E.NONE])
    (found,) = find(broker, version, "readers")
    endpoint = broker.server.components.node.endpoints["PLAINTEXT"]  # type: ignore[union-attr]
    assert (found.node_id, found.host, found.port) == (1, endpoint.host, endpoint.port)
    assert found.error_message == ("NONE" if 1 <= version <= 3 else "")
    topic = broker.server.components.metadata.image.topics.by_name["__consumer_offsets"]
    assert len(topic.partitions) == 50
    assert broker.server.components.metadata.image.configs.of_topic("__consumer_offsets") == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }


@serves(FindCoordinatorRequest, E.COORDINATOR_NOT_AVAILABLE, E.NONE)
@every_version(FindCoordinatorRequest, since=1)
def test_a_transactional_id_has_its_own_topic(broker: InProcessBroker, version: int) -> None:
    assert codes(broker, version, "tx", key_type=TRANSACTION) == [E.COORDINATOR_NOT_AVAILABLE]
    broker.wait_until(lambda: codes(broker, version, "tx", key_type=TRANSACTION) == [E.NONE])
    assert broker.topics() == {"__transaction_state"}


@pytest.mark.settings(offsets_topic_num_partitions=3, auto_create_topics_enable="false")
def test_the_topic_is_made_as_the_settings_say_whether_others_are_made_or_not(broker: InProcessBroker) -> None:
    broker.wait_until(lambda: codes(broker, 6, "readers") == [E.NONE])
    assert len(broker.server.components.metadata.image.topics.by_name["__consumer_offsets"].partitions) == 3


def test_every_key_of_a_batch_is_answered_in_its_place(broker: InProcessBroker) -> None:
    broker.wait_until(lambda: codes(broker, 4, "readers") == [E.NONE])
    found = find(broker, 4, "b", "", "a", "b", "ü" * 100)
    assert [(one.key, one.error_code) for one in found] == [(key, E.NONE) for key in ("b", "", "a", "b", "ü" * 100)]
    assert find(broker, 4) == []


@serves(FindCoordinatorRequest, E.INVALID_REQUEST)
@every_version(FindCoordinatorRequest, since=1)
@pytest.mark.parametrize("key_type", [-1, 3, 127])
def test_a_type_of_key_that_nobody_knows_is_refused_with_a_sentence(
    broker: InProcessBroker, version: int, key_type: int
) -> None:
    for found in find(broker, version, "a", "b", key_type=key_type):
        assert (found.error_code, found.node_id, found.port) == (E.INVALID_REQUEST, -1, -1)
        assert f"key type {key_type}" in found.error_message


@serves(FindCoordinatorRequest, E.INVALID_REQUEST)
@every_version(FindCoordinatorRequest, since=1, until=5)
def test_share_groups_are_not_known_before_version_6(broker: InProcessBroker, version: int) -> None:
    assert codes(broker, version, f"group:{NO_ID}:0", key_type=SHARE) == [E.INVALID_REQUEST]


@serves(FindCoordinatorRequest, E.INVALID_REQUEST, E.COORDINATOR_NOT_AVAILABLE, versions=[6])
def test_the_topic_of_share_groups_is_created_with_the_first_request_for_it(broker: InProcessBroker) -> None:
    good = [f"group:{NO_ID}:0", f"a:group:{NO_ID}:0", f"group:{NO_ID}:-1"]
    bad = ["group", f"group:{NO_ID}", f":{NO_ID}:0", f"group:{NO_ID}:x", "group:short:0"]
    assert codes(broker, 6, *bad, key_type=SHARE) == [E.INVALID_REQUEST] * len(bad)
    assert broker.topics() == set()
    assert codes(broker, 6, *good, key_type=SHARE) == [E.COORDINATOR_NOT_AVAILABLE] * len(good)
    broker.wait_until(lambda: codes(broker, 6, *good, key_type=SHARE) == [E.NONE] * len(good))
    assert broker.topics() == {"__share_group_state"}


@serves(FindCoordinatorRequest, E.GROUP_AUTHORIZATION_FAILED)
@every_version(FindCoordinatorRequest)
def test_who_may_not_see_a_group_is_not_told_where_it_is(
    broker: InProcessBroker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RequestContext, "may", lambda *_: False)
    assert codes(broker, version, "readers") == [E.GROUP_AUTHORIZATION_FAILED]
    assert broker.server.components.metadata.image.topics.by_name == {}


@serves(FindCoordinatorRequest, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
@every_version(FindCoordinatorRequest, since=1)
def test_who_may_not_see_a_transactional_id_is_not_told_where_it_is(
    broker: InProcessBroker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RequestContext, "may", lambda *_: False)
    found = codes(broker, version, "tx", key_type=TRANSACTION)
    assert found == [E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]


def test_a_deleted_topic_is_made_anew(broker: InProcessBroker) -> None:
    broker.wait_until(lambda: codes(broker, 6, "readers") == [E.NONE])
    topics = [DeleteTopicsRequest.Topic(name="__consumer_offsets", topic_id=bytes(16))]
    broker.ask(DeleteTopicsRequest(topics=topics, timeout_ms=1000), 6)
    assert codes(broker, 6, "readers") == [E.COORDINATOR_NOT_AVAILABLE]
    broker.wait_until(lambda: codes(broker, 6, "readers") == [E.NONE])


@pytest.mark.settings(offsets_topic_num_partitions=1)
def test_a_partition_without_a_leader_has_no_coordinator(broker: InProcessBroker) -> None:
    broker.wait_until(lambda: codes(broker, 6, "readers") == [E.NONE])
    topic_id = broker.server.metadata.image.topics.by_name["__consumer_offsets"].topic_id
    pretend(broker.server.metadata, PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=-1, isr=[]))
    assert codes(broker, 6, "readers") == [E.COORDINATOR_NOT_AVAILABLE]


@serves(FindCoordinatorRequest, E.UNKNOWN_SERVER_ERROR)
@every_version(FindCoordinatorRequest)
def test_what_goes_wrong_inside_is_told_for_every_key(
    broker: InProcessBroker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bool:
        raise ZeroDivisionError

    monkeypatch.setattr(RequestContext, "may", fail)
    assert codes(broker, version, "a", "b") == [E.UNKNOWN_SERVER_ERROR] * 2
