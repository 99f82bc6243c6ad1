"""The pipeline's own requests about groups: what clients have committed comes back and goes in as it is."""

from __future__ import annotations

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from ottla.testing import Broker
from pipeline.errors import BrokerError
from pipeline.group_client import Commit, GroupClient
from protocol.errors import ErrorCode
from storage.topic_partition import TopicPartition as Place

pytestmark = pytest.mark.kafka(topics={"orders": 2})

ORDERS = Place("orders", 0)


@pytest.fixture
def groups(kafka: Broker) -> GroupClient:
    return GroupClient(kafka.bootstrap_servers, 60)


def test_metadata_of_a_client_is_read_to_its_end_and_not_beyond(kafka: Broker, groups: GroupClient) -> None:
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, group_id="streams", enable_auto_commit=False)
    places = {TopicPartition("orders", index): OffsetAndMetadata(7, "AgAAAaIlCOxz", -1) for index in range(2)}
    consumer.assign(list(places))
    consumer.commit(places)
    consumer.close()
    for _ in range(100):  # what lies behind it in the memory of a client changes
        assert groups.commits("streams") == {Place(*place): Commit(7, -1, "AgAAAaIlCOxz") for place in places}


@pytest.mark.parametrize("text", ["", "a\0b", 'a\n"b"', "é", "\x7f", "x" * 4_000])
def test_any_text_is_committed_and_read_as_it_is(groups: GroupClient, text: str) -> None:
    group = f"group {text[:200]}"
    groups.commit(group, {ORDERS: Commit(3, 2, text), Place("orders", 1): Commit(5, -1, "")})
    assert groups.commits(group) == {ORDERS: Commit(3, 2, text), Place("orders", 1): Commit(5, -1, "")}
    assert groups.groups() == [group]


def test_a_group_that_does_not_exist_has_no_offsets(groups: GroupClient) -> None:
    assert groups.groups() == []
    assert groups.commits("nobody") == {}


@pytest.mark.parametrize("api", ["FindCoordinator", "OffsetFetch", "OffsetCommit", "ListGroups"])
def test_a_coordinator_that_is_not_ready_is_asked_again(kafka: Broker, groups: GroupClient, api: str) -> None:
    with kafka.fail(api=api, error="COORDINATOR_LOAD_IN_PROGRESS", times=3) as rule:
        groups.commit("readers", {ORDERS: Commit(3, -1, "")})
        assert groups.commits("readers") == {ORDERS: Commit(3, -1, "")}
        assert groups.groups() == ["readers"]
        assert rule.applied == 3


def test_a_refusal_has_its_code(kafka: Broker, groups: GroupClient) -> None:
    with kafka.fail(api="OffsetFetch", error="GROUP_AUTHORIZATION_FAILED"):
        with pytest.raises(BrokerError, match=r"GROUP_AUTHORIZATION_FAILED \(offsets of group readers\)") as refused:
            groups.commits("readers")
        assert refused.value.code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_a_broker_that_is_not_there_or_goes_away_is_named(kafka: Broker, groups: GroupClient) -> None:
    with kafka.fail(api="OffsetFetch", close=True), pytest.raises(BrokerError, match="ended after 0 of 4 bytes"):
        groups.commits("readers")
    for nowhere in ("127.0.0.1:1", "nowhere", ""):
        with pytest.raises(BrokerError, match="did not answer"):
            GroupClient(nowhere, 60).groups()
    assert GroupClient(f"127.0.0.1:1, {kafka.bootstrap_servers}", 60).groups() == []
