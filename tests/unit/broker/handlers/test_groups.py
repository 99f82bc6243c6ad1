"""DescribeGroups, ListGroups and DeleteGroups through the codec. What is expected was seen on Apache Kafka 4.4.0."""

from typing import Any

import pytest

from broker.request.context import Operation, RequestContext, ResourceType
from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from protocol.records.group_metadata import (
    GroupRecord,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    encode_group_record,
)
from storage.batch.pairs import encode_pairs
from tests.support.broker import InProcessBroker
from tests.support.groups import (
    Consumer,
    commit_request,
    create_offsets_topic,
    fetch_offsets_request,
    leave_request,
)

NOT_ASKED_FOR = -(2**31)


@pytest.fixture(autouse=True)
def topics(broker: InProcessBroker) -> None:
    create_offsets_topic(broker)
    broker.create_topic("orders")


def stable_member(broker: InProcessBroker, group_id: str = "readers", **fields: Any) -> Consumer:
    consumer = Consumer(broker, group_id, **fields)
    consumer.join(5)
    if consumer.joined.error_code == E.MEMBER_ID_REQUIRED:
        consumer.join(5)
    consumer.sync({consumer.joined.member_id: b"all"})
    return consumer


def commit(broker: InProcessBroker, group_id: str, **fields: Any) -> None:
    (topic,) = broker.ask(commit_request({("orders", 0): 5}, group_id=group_id, **fields), 9).topics
    assert topic.partitions[0].error_code == E.NONE


def keep_a_streams_group(broker: InProcessBroker, group_id: str) -> None:
    """A group of the newer protocol, as another broker has left it in an adopted directory."""
    key = StreamsGroupMetadataKey(group_id=group_id)
    record = GroupRecord(key, StreamsGroupMetadataValue(epoch=3, metadata_hash=0), 0)
    partition = broker.server.components.group_coordinator.groups.of(group_id).partition
    partition.log.stage_trusted(encode_pairs([encode_group_record(record)], timestamp=0))
    partition.log.append_all(0)
    broker.restart()
    broker.wait_until(lambda: broker.ask(ListGroupsRequest(), 5).error_code == E.NONE)


# DescribeGroups


def describe(broker: InProcessBroker, version: int, *group_ids: str, **fields: Any) -> list[Any]:
    groups: list[Any] = broker.ask(DescribeGroupsRequest(groups=list(group_ids), **fields), version).groups
    return groups


@serves(DescribeGroupsRequest)
@every_version(DescribeGroupsRequest)
def test_a_stable_group_is_described_with_its_members(broker: InProcessBroker, version: int) -> None:
    consumer = stable_member(broker, group_instance_id="left-hand")
    (group,) = describe(broker, version, "readers")
    assert (group.error_code, group.error_message, group.group_id) == (E.NONE, None, "readers")
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == (consumer.joined.member_id, "test", "/127.0.0.1")
    assert member.group_instance_id == ("left-hand" if version >= 4 else None)
    assert (member.member_metadata, member.member_assignment) == (b"me", b"all")


@serves(DescribeGroupsRequest)
@every_version(DescribeGroupsRequest)
def test_while_it_rebalances_nothing_is_told_of_what_members_brought(broker: InProcessBroker, version: int) -> None:
    Consumer(broker).join()
    (group,) = describe(broker, version, "readers")
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("CompletingRebalance", "consumer", "")
    assert [(member.member_metadata, member.member_assignment) for member in group.members] == [(b"", b"")]
    Consumer(broker).begin_join()
    broker.settle()
    assert describe(broker, version, "readers")[0].group_state == "PreparingRebalance"


@serves(DescribeGroupsRequest)
@every_version(DescribeGroupsRequest)
def test_a_group_that_nobody_is_in_is_empty(broker: InProcessBroker, version: int) -> None:
    consumer = stable_member(broker)
    broker.ask(leave_request(consumer.joined.member_id), 5)
    commit(broker, "simple")
    left, simple = describe(broker, version, "readers", "simple")
    assert (left.group_state, left.protocol_type, left.members) == ("Empty", "consumer", [])
    assert (simple.group_state, simple.protocol_type, simple.members) == ("Empty", "", [])


@serves(DescribeGroupsRequest)
@every_version(DescribeGroupsRequest, until=5)
def test_up_to_version_5_a_group_that_is_not_there_is_dead(broker: InProcessBroker, version: int) -> None:
    for group in describe(broker, version, "nobody's", "", "nobody's"):
        assert (group.error_code, group.group_state, group.members) == (E.NONE, "Dead", [])


@serves(DescribeGroupsRequest, E.GROUP_ID_NOT_FOUND, versions=[6])
def test_from_version_6_on_it_is_not_found(broker: InProcessBroker) -> None:
    (group,) = describe(broker, 6, "nobody's", include_authorized_operations=True)
    assert (group.error_code, group.group_state) == (E.GROUP_ID_NOT_FOUND, "Dead")
    assert group.error_message == "Group nobody's not found."
    assert group.authorized_operations == NOT_ASKED_FOR


@serves(DescribeGroupsRequest, E.NONE)
@every_version(DescribeGroupsRequest, until=5)
def test_a_group_of_another_protocol_is_no_classic_one(broker: InProcessBroker, version: int) -> None:
    keep_a_streams_group(broker, "newer")
    assert describe(broker, version, "newer")[0].group_state == "Dead"
    (group,) = describe(broker, 6, "newer")
    assert (group.error_code, group.error_message) == (E.GROUP_ID_NOT_FOUND, "Group newer is not a classic group.")


@every_version(DescribeGroupsRequest, since=3)
def test_what_a_client_may_do_is_told_if_it_asks(broker: InProcessBroker, version: int) -> None:
    commit(broker, "readers")
    operations = [
        describe(broker, version, "readers", include_authorized_operations=asks)[0].authorized_operations
        for asks in (True, False)
    ]
    assert operations == [3400, NOT_ASKED_FOR]


@serves(DescribeGroupsRequest, E.GROUP_AUTHORIZATION_FAILED)
@every_version(DescribeGroupsRequest)
def test_who_may_not_see_a_group_is_told_nothing_of_it(
    broker: InProcessBroker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stable_member(broker)
    monkeypatch.setattr(RequestContext, "may", lambda *_: False)
    (group,) = describe(broker, version, "readers")
    assert (group.error_code, group.group_state, group.members) == (E.GROUP_AUTHORIZATION_FAILED, "", [])


# ListGroups


def listed(broker: InProcessBroker, version: int, **filters: Any) -> list[tuple[str, str, str, str]]:
    groups = broker.ask(ListGroupsRequest(**filters), version).groups
    return sorted((group.group_id, group.protocol_type, group.group_state, group.group_type) for group in groups)


@serves(ListGroupsRequest)
@every_version(ListGroupsRequest)
def test_every_group_is_listed(broker: InProcessBroker, version: int) -> None:
    assert listed(broker, version) == []
    stable_member(broker)
    Consumer(broker, "joining").join()
    commit(broker, "simple")
    kind = "classic" if version >= 5 else ""
    states = ("CompletingRebalance", "Stable", "Empty") if version >= 4 else ("", "", "")
    assert listed(broker, version) == [
        ("joining", "consumer", states[0], kind),
        ("readers", "consumer", states[1], kind),
        ("simple", "", states[2], kind),
    ]


@serves(ListGroupsRequest)
@every_version(ListGroupsRequest, since=4)
@pytest.mark.parametrize(
    ("states", "found"),
    [
        (["stable"], {"readers"}),
        (["EMPTY", "Stable"], {"readers", "simple"}),
        (["Dead"], set()),
        (["no such state"], set()),
    ],
)
def test_groups_are_listed_by_state(broker: InProcessBroker, version: int, states: list[str], found: set[str]) -> None:
    stable_member(broker)
    commit(broker, "simple")
    assert {group_id for group_id, *_ in listed(broker, version, states_filter=states)} == found


@serves(ListGroupsRequest, versions=[5])
@pytest.mark.parametrize(
    ("types", "found"),
    [(["CLASSIC"], {"simple"}), (["streams"], {"newer"}), (["share", "classic"], {"simple"}), (["nonsense"], set())],
)
def test_groups_are_listed_by_type(broker: InProcessBroker, types: list[str], found: set[str]) -> None:
    commit(broker, "simple")
    keep_a_streams_group(broker, "newer")
    assert {group_id for group_id, *_ in listed(broker, 5, types_filter=types)} == found


@every_version(ListGroupsRequest)
def test_who_may_not_see_the_cluster_sees_the_groups_that_he_may(
    broker: InProcessBroker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for group_id in ("his", "hers"):
        commit(broker, group_id)
    monkeypatch.setattr(
        RequestContext, "sees", lambda _, __, kind, name="": kind is ResourceType.GROUP and name == "his"
    )
    assert [group_id for group_id, *_ in listed(broker, version)] == ["his"]


# DeleteGroups


def delete(broker: InProcessBroker, version: int, *group_ids: str) -> list[tuple[str, int]]:
    answer = broker.ask(DeleteGroupsRequest(groups_names=list(group_ids)), version)
    return [(result.group_id, result.error_code) for result in answer.results]


@serves(DeleteGroupsRequest, E.NONE, E.GROUP_ID_NOT_FOUND, E.NON_EMPTY_GROUP)
@every_version(DeleteGroupsRequest)
def test_groups_that_nobody_is_in_are_deleted_with_their_offsets(broker: InProcessBroker, version: int) -> None:
    commit(broker, "simple")
    stable_member(broker)
    assert delete(broker, version, "simple", "nobody's", "readers", "", "simple") == [
        ("simple", E.NONE),
        ("nobody's", E.GROUP_ID_NOT_FOUND),
        ("readers", E.NON_EMPTY_GROUP),
        ("", E.GROUP_ID_NOT_FOUND),
    ]
    assert [group_id for group_id, *_ in listed(broker, 5)] == ["readers"]
    assert broker.ask(fetch_offsets_request(9, group_id="simple"), 9).groups[0].topics == []
    assert delete(broker, version) == []


@every_version(DeleteGroupsRequest)
def test_a_streams_group_without_members_is_deleted(broker: InProcessBroker, version: int) -> None:
    keep_a_streams_group(broker, "newer")

    assert delete(broker, version, "newer", "newer") == [("newer", E.NONE)]
    assert listed(broker, 5) == []


@serves(DeleteGroupsRequest, E.NONE, E.GROUP_AUTHORIZATION_FAILED)
@every_version(DeleteGroupsRequest)
def test_who_may_delete_one_group_may_not_delete_another(
    broker: InProcessBroker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for group_id in ("his", "hers"):
        commit(broker, group_id)
    his = (Operation.DELETE, ResourceType.GROUP, "his")
    monkeypatch.setattr(RequestContext, "may", lambda _, operation, kind, name="": (operation, kind, name) == his)
    assert delete(broker, version, "hers", "his") == [("hers", E.GROUP_AUTHORIZATION_FAILED), ("his", E.NONE)]
