"""Cooperative rebalancing (KIP-429) at the coordinator: members keep working while they join, and join twice."""

from broker.coordinators.group.requests import Protocol
from protocol.errors import ErrorCode
from tests.unit.broker.coordinators.group.harness import Coordinator


def owning(partitions):
    return (Protocol("cooperative-sticky", partitions),)


def told_by(joined):
    """What each member has told the leader that it owns."""
    return {member.member_id: member.metadata for member in joined.members}


def test_a_partition_changes_hands_in_two_generations_and_its_owner_commits_in_between():
    groups = Coordinator()
    anna = groups.member("anna", protocols=owning(b""))
    anna.joins()
    assert anna.brings({anna: b"0 1"}) == b"0 1"

    # bert comes. anna works on: nothing has been taken from her.
    bert = groups.member("bert", protocols=owning(b""))
    waiting = bert.parks()
    assert anna.beats() is ErrorCode.REBALANCE_IN_PROGRESS
    assert anna.commits(5) is ErrorCode.NONE
    led = anna.joins(protocols=owning(b"0 1"))
    bert.takes(waiting.answer)
    assert told_by(led) == {anna.member_id: b"0 1", bert.member_id: b""}
    assert anna.commits(6) is ErrorCode.REBALANCE_IN_PROGRESS

    # In this generation nobody has 1: anna is to let go of it first.
    synced = bert.asks_to_sync()
    assert anna.brings({anna: b"0", bert: b""}) == b"0"
    assert synced.answer.assignment == b""
    assert anna.commits(7) is ErrorCode.NONE

    # She has, and says so.
    again = anna.parks(protocols=owning(b"0"))
    assert bert.beats() is ErrorCode.REBALANCE_IN_PROGRESS
    assert bert.joins(protocols=owning(b"")).generation == 3
    led = anna.takes(again.answer)
    assert told_by(led) == {anna.member_id: b"0", bert.member_id: b""}
    synced = bert.asks_to_sync()
    assert anna.brings({anna: b"0", bert: b"1"}) == b"0"
    assert synced.answer.assignment == b"1"

    assert groups.state() == "Stable"
    assert groups.committed() == 7
    groups.check_replay()
