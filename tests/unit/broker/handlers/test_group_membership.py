"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup through the codec. What is expected was seen on Apache Kafka 4.4.0;
how groups behave is tried in tests/unit/broker/coordinators/group."""

from typing import Any

import pytest

from broker.request.context import RequestContext
from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tests.support.broker import InProcessBroker
from tests.support.groups import (
    Consumer,
    create_offsets_topic,
    heartbeat_request,
    join_request,
    leave_request,
    sync_request,
)


@pytest.fixture(autouse=True)
def offsets_topic(broker: InProcessBroker) -> None:
    create_offsets_topic(broker)


def joined_as_first(consumer: Consumer, version: int) -> Any:
    """The answer to a consumer who is alone, with the id that it has been handed where its version asks for that."""
    answer = consumer.join(version)
    if version >= 4:
        assert (answer.error_code, answer.generation_id, answer.members) == (E.MEMBER_ID_REQUIRED, -1, [])
        assert answer.protocol_name == (None if version >= 7 else "")
        assert answer.member_id.startswith("test-")
        answer = consumer.join(version)
    return answer


@serves(JoinGroupRequest)
@every_version(JoinGroupRequest)
def test_the_first_member_leads_the_first_generation(broker: InProcessBroker, version: int) -> None:
    consumer = Consumer(broker)
    answer = joined_as_first(consumer, version)
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (E.NONE, 1, "range")
    assert answer.leader == answer.member_id
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    assert answer.skip_assignment is False
    assert [(member.member_id, member.metadata) for member in answer.members] == [(answer.member_id, b"me")]


@serves(JoinGroupRequest, E.MEMBER_ID_REQUIRED)
@every_version(JoinGroupRequest, since=4)
def test_a_member_without_an_id_is_handed_one(broker: InProcessBroker, version: int) -> None:
    joined_as_first(Consumer(broker), version)


@serves(JoinGroupRequest)
@every_version(JoinGroupRequest, since=5)
def test_a_static_member_needs_no_id_and_its_leader_is_told_whose_it_is(broker: InProcessBroker, version: int) -> None:
    answer = Consumer(broker, group_instance_id="left-hand").join(version)
    assert (answer.error_code, answer.generation_id) == (E.NONE, 1)
    assert answer.member_id.startswith("left-hand-")
    assert [member.group_instance_id for member in answer.members] == ["left-hand"]


@serves(SyncGroupRequest)
@every_version(SyncGroupRequest)
def test_the_assignment_goes_to_every_member_once_the_leader_brings_it(broker: InProcessBroker, version: int) -> None:
    leader, follower = Consumer(broker), Consumer(broker)
    leader.join()
    follower.begin_join()
    assert follower.client.has_no_answer()
    assert leader.heartbeat() == E.REBALANCE_IN_PROGRESS
    leader.join()
    follower.end_join()
    assert (leader.joined.generation_id, follower.joined.generation_id) == (2, 2)
    assert len(leader.joined.members) == 2
    assert follower.joined.members == []

    follower.client.send(sync_request(follower.joined), version)
    assert follower.client.has_no_answer()
    parts = {leader.joined.member_id: b"one half", follower.joined.member_id: b"the other"}
    answer = leader.sync(parts, version)
    assert (answer.error_code, answer.assignment) == (E.NONE, b"one half")
    assert (answer.protocol_type, answer.protocol_name) == (("consumer", "range") if version >= 5 else (None, None))
    answer = follower.client.receive()
    assert (answer.error_code, answer.assignment) == (E.NONE, b"the other")
    assert (leader.heartbeat(), follower.heartbeat()) == (E.NONE, E.NONE)


@serves(HeartbeatRequest)
@every_version(HeartbeatRequest)
def test_a_member_is_alive(broker: InProcessBroker, version: int) -> None:
    consumer = Consumer(broker)
    consumer.join()
    assert consumer.heartbeat(version) == E.NONE


@serves(HeartbeatRequest, E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID)
@every_version(HeartbeatRequest)
def test_heartbeats_of_another_generation_and_of_strangers_are_refused(broker: InProcessBroker, version: int) -> None:
    consumer = Consumer(broker)
    consumer.join()
    for fields, error in (
        ({"generation_id": 7}, E.ILLEGAL_GENERATION),
        ({"member_id": "stranger"}, E.UNKNOWN_MEMBER_ID),
        ({"group_id": "nobody's"}, E.UNKNOWN_MEMBER_ID),
    ):
        request = heartbeat_request(consumer.joined)
        for name, value in fields.items():
            setattr(request, name, value)
        assert broker.ask(request, version).error_code == error


@serves(HeartbeatRequest, E.REBALANCE_IN_PROGRESS)
@every_version(HeartbeatRequest)
def test_a_heartbeat_tells_that_the_group_rebalances(broker: InProcessBroker, version: int) -> None:
    consumer = Consumer(broker)
    consumer.join()
    Consumer(broker).begin_join()
    broker.settle()
    assert consumer.heartbeat(version) == E.REBALANCE_IN_PROGRESS


@serves(LeaveGroupRequest)
@every_version(LeaveGroupRequest)
def test_a_member_leaves(broker: InProcessBroker, version: int) -> None:
    consumer = Consumer(broker)
    member_id = consumer.join().member_id
    answer = broker.ask(leave_request(member_id), version)
    assert answer.error_code == E.NONE
    told = [(member.member_id, member.group_instance_id, member.error_code) for member in answer.members]
    assert told == ([(member_id, None, E.NONE)] if version >= 3 else [])
    assert consumer.heartbeat() == E.UNKNOWN_MEMBER_ID


@serves(LeaveGroupRequest, E.UNKNOWN_MEMBER_ID)
@every_version(LeaveGroupRequest)
@pytest.mark.parametrize("group_id", ["readers", "nobody's"])
def test_a_stranger_cannot_leave(broker: InProcessBroker, version: int, group_id: str) -> None:
    Consumer(broker).join()
    answer = broker.ask(leave_request("stranger", group_id=group_id), version)
    if version >= 3:
        assert (answer.error_code, answer.members[0].error_code) == (E.NONE, E.UNKNOWN_MEMBER_ID)
    else:
        assert answer.error_code == E.UNKNOWN_MEMBER_ID


@serves(LeaveGroupRequest, E.NONE, E.UNKNOWN_MEMBER_ID)
@every_version(LeaveGroupRequest, since=3)
def test_of_members_that_leave_together_each_has_its_own_answer(broker: InProcessBroker, version: int) -> None:
    member_id = Consumer(broker).join().member_id
    answer = broker.ask(leave_request("stranger", member_id), version)
    assert [member.error_code for member in answer.members] == [E.UNKNOWN_MEMBER_ID, E.NONE]
    assert broker.ask(leave_request(), version).members == []


@serves(LeaveGroupRequest)
@every_version(LeaveGroupRequest, since=3)
def test_an_administrator_removes_a_static_member_by_its_instance_id(broker: InProcessBroker, version: int) -> None:
    Consumer(broker, group_instance_id="left-hand").join(5)
    named = LeaveGroupRequest.Member(member_id="", group_instance_id="left-hand", reason="it has burnt down")
    answer = broker.ask(LeaveGroupRequest(group_id="readers", members=[named]), version)
    (member,) = answer.members
    assert (member.member_id, member.group_instance_id, member.error_code) == ("", "left-hand", E.NONE)


@serves(SyncGroupRequest, E.INCONSISTENT_GROUP_PROTOCOL, versions=[5])
@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
@pytest.mark.parametrize("group_id", ["readers", "", "nobody's"])
def test_from_version_5_on_a_sync_names_its_protocol_before_anything_else_counts(
    broker: InProcessBroker, missing: str, group_id: str
) -> None:
    consumer = Consumer(broker)
    consumer.join()
    request = sync_request(consumer.joined, group_id=group_id, **{missing: None})
    assert broker.ask(request, 5).error_code == E.INCONSISTENT_GROUP_PROTOCOL


@serves(SyncGroupRequest, E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID)
@every_version(SyncGroupRequest)
def test_a_sync_with_another_generation_or_of_a_stranger_is_refused(broker: InProcessBroker, version: int) -> None:
    consumer = Consumer(broker)
    consumer.join()
    assert broker.ask(sync_request(consumer.joined, generation_id=7), version).error_code == E.ILLEGAL_GENERATION
    assert broker.ask(sync_request(consumer.joined, member_id="x"), version).error_code == E.UNKNOWN_MEMBER_ID


@serves(JoinGroupRequest, E.UNKNOWN_MEMBER_ID, E.INVALID_SESSION_TIMEOUT, E.INCONSISTENT_GROUP_PROTOCOL)
@every_version(JoinGroupRequest)
def test_a_join_that_cannot_be_is_refused_and_the_member_told_its_id(broker: InProcessBroker, version: int) -> None:
    for fields, error in (
        ({"member_id": "stranger"}, E.UNKNOWN_MEMBER_ID),
        ({"session_timeout_ms": 5_999}, E.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, E.INVALID_SESSION_TIMEOUT),
        ({"protocols": ()}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, E.INCONSISTENT_GROUP_PROTOCOL),
    ):
        answer = broker.ask(join_request(**fields), version)
        assert (answer.error_code, answer.generation_id, answer.leader, answer.members) == (error, -1, "", [])
        assert answer.member_id == fields.get("member_id", "")
        assert answer.protocol_name == (None if version >= 7 else "")


@serves(JoinGroupRequest, E.GROUP_MAX_SIZE_REACHED)
@every_version(JoinGroupRequest)
@pytest.mark.settings(group_max_size=1)
def test_a_full_group_takes_nobody_in(broker: InProcessBroker, version: int) -> None:
    Consumer(broker).join()
    assert broker.ask(join_request(), version).error_code == E.GROUP_MAX_SIZE_REACHED


@serves(JoinGroupRequest, E.FENCED_INSTANCE_ID)
@every_version(JoinGroupRequest, since=5)
def test_a_static_member_whose_place_is_taken_is_fenced(broker: InProcessBroker, version: int) -> None:
    first = Consumer(broker, group_instance_id="left-hand")
    first.join(5)
    Consumer(broker, group_instance_id="left-hand").begin_join(5)
    broker.settle()
    assert first.join(version).error_code == E.FENCED_INSTANCE_ID


def request_of(request_class: type[Any], group_id: str) -> Any:
    """A good request of a member of the group."""
    if request_class is JoinGroupRequest:
        return join_request(group_id)
    if request_class is LeaveGroupRequest:
        return leave_request("member", group_id=group_id)
    fields = {"group_id": group_id, "member_id": "member", "generation_id": 1}
    if request_class is HeartbeatRequest:
        return HeartbeatRequest(**fields)
    return SyncGroupRequest(**fields, protocol_type="consumer", protocol_name="range", assignments=[])


def in_every_version(*errors: E) -> Any:
    """Parametrize by request class and version, and mark what is claimed of each."""
    parameters = [
        pytest.param(request_class, version, marks=serves(request_class, *errors))
        for request_class, last in (
            (JoinGroupRequest, 9),
            (SyncGroupRequest, 5),
            (HeartbeatRequest, 4),
            (LeaveGroupRequest, 5),
        )
        for version in range(last + 1)
    ]
    return pytest.mark.parametrize(("request_class", "version"), parameters)


@in_every_version(E.INVALID_GROUP_ID)
def test_a_group_has_a_name(broker: InProcessBroker, request_class: type[Any], version: int) -> None:
    assert broker.ask(request_of(request_class, ""), version).error_code == E.INVALID_GROUP_ID


@in_every_version(E.GROUP_AUTHORIZATION_FAILED)
def test_who_may_not_read_a_group_is_no_member(
    broker: InProcessBroker, request_class: type[Any], version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RequestContext, "may", lambda *_: False)
    for group_id in ("readers", ""):
        assert broker.ask(request_of(request_class, group_id), version).error_code == E.GROUP_AUTHORIZATION_FAILED
