"""SyncGroup: the leader sends the assignment, the record is written, all members get their part."""

import pytest

from broker.coordinators.group.requests import Protocol, Synced
from protocol.errors import ErrorCode
from protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from tests.unit.broker.coordinators.group.harness import Coordinator, G, stable_group

CHANGED = (Protocol("range", b"changed"),)


def completing_group(groups, **about):
    """anna leads, both have joined generation 3, nobody has synced."""
    anna, bert = stable_group(groups, groups.member("anna"), groups.member("bert", **about))
    waiting = bert.parks(protocols=CHANGED)
    anna.joins()
    bert.takes(waiting.answer)
    assert groups.state() == "CompletingRebalance"
    return anna, bert


# What is refused -----------------------------------------------------------------------------------------------------


def test_a_sync_to_no_group_or_to_none_that_exists():
    anna = Coordinator().member()

    assert anna.asks_to_sync(group_id="").answer.error is ErrorCode.INVALID_GROUP_ID
    assert anna.asks_to_sync().answer.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_sync_to_an_empty_group():
    groups = Coordinator()
    anna = groups.member()
    anna.joins()
    anna.leaves()

    assert anna.asks_to_sync().answer.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_sync_of_another_generation():
    anna, _ = stable_group(Coordinator())

    assert anna.asks_to_sync(generation=1).answer.error is ErrorCode.ILLEGAL_GENERATION
    assert anna.asks_to_sync(generation=3).answer.error is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("state", ["Stable", "CompletingRebalance", "PreparingRebalance"])
def test_a_sync_with_another_protocol_in_mind(state):
    groups = Coordinator()
    if state == "CompletingRebalance":
        anna, bert = completing_group(groups)
    else:
        anna, bert = stable_group(groups)
        if state == "PreparingRebalance":
            anna.parks()
    assert groups.state() == state

    for named in (
        {"protocol_type": "connect", "protocol": "range"},
        {"protocol_type": "consumer", "protocol": "sticky"},
    ):
        assert bert.asks_to_sync(**named).answer == Synced(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert groups.state() == state


def test_a_sync_during_a_rebalance():
    groups = Coordinator()
    anna, bert = stable_group(groups)
    anna.parks()

    assert bert.asks_to_sync().answer == Synced(error=ErrorCode.REBALANCE_IN_PROGRESS)


# What the leader brings ----------------------------------------------------------------------------------------------


def test_followers_wait_for_the_leader_and_then_everybody_has_its_part():
    groups = Coordinator()
    anna, bert = completing_group(groups)
    waiting = bert.asks_to_sync(protocol_type="consumer", protocol="range")
    assert waiting.is_parked

    led = anna.asks_to_sync({anna: b"0", bert: b"1"})

    assert led.answer == Synced(protocol_type="consumer", protocol="range", assignment=b"0")
    assert waiting.answer == Synced(protocol_type="consumer", protocol="range", assignment=b"1")
    assert groups.state() == "Stable"
    assert groups.events.named("assignment_stored")[-1] == (G, 3, 2)


def test_what_is_written_is_the_generation_with_its_members():
    groups = Coordinator()
    anna, bert = completing_group(groups, instance_id="shop 1", session_timeout_ms=20_000, rebalance_timeout_ms=30_000)
    groups.pass_ms(500)
    bert.asks_to_sync()

    anna.brings({anna: b"0", bert: b"1"})

    assert groups.last_record() == (
        GroupMetadataKey(group=G),
        GroupMetadataValue(
            protocol_type="consumer",
            generation=3,
            protocol="range",
            leader=anna.member_id,
            current_state_timestamp=groups.clock.now_ms(),
            members=[
                GroupMetadataValue.MemberMetadata(
                    member_id=anna.member_id,
                    group_instance_id=None,
                    client_id="anna",
                    client_host="/127.0.0.1",
                    rebalance_timeout=60_000,
                    session_timeout=10_000,
                    subscription=b"anything",
                    assignment=b"0",
                ),
                GroupMetadataValue.MemberMetadata(
                    member_id=bert.member_id,
                    group_instance_id="shop 1",
                    client_id="bert",
                    client_host="/127.0.0.1",
                    rebalance_timeout=30_000,
                    session_timeout=20_000,
                    subscription=b"changed",
                    assignment=b"1",
                ),
            ],
        ),
        3,
    )


def test_a_follower_that_syncs_after_the_leader_has_its_part_at_once():
    groups = Coordinator()
    anna, bert = completing_group(groups)
    anna.brings({bert: b"1"})

    assert bert.syncs() == b"1"
    assert bert.syncs() == b"1"


def test_whom_the_leader_leaves_out_has_nothing_to_do_and_who_is_not_a_member_is_left_out():
    groups = Coordinator()
    anna, bert = completing_group(groups)

    led = anna.asks_to_sync({"somebody": b"0 1"})

    assert led.answer.assignment == b""
    assert bert.syncs() == b""
    assert len(groups.group_records()[-1].members) == 2


def test_the_state_is_stable_once_the_record_stands_and_not_before():
    groups = Coordinator()
    anna, bert = completing_group(groups)
    groups.writer.hold()

    waiting = [bert.asks_to_sync(), anna.asks_to_sync({bert: b"1"})]
    assert [reply.is_parked for reply in waiting] == [True, True]
    assert groups.state() == "CompletingRebalance"
    assert bert.beats() is ErrorCode.NONE
    groups.writer.release()

    assert [reply.answer.assignment for reply in waiting] == [b"1", b""]
    assert groups.state() == "Stable"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_where_the_record_cannot_be_written_everybody_is_told_so_and_rebalances(error, told):
    groups = Coordinator()
    anna, bert = completing_group(groups)
    waiting = bert.asks_to_sync()
    groups.writer.fail(error)

    led = anna.asks_to_sync({bert: b"1"})

    assert [led.answer, waiting.answer] == [Synced(error=told)] * 2
    assert groups.state() == "PreparingRebalance"
    groups.writer.recover()
    waiting = bert.parks()
    assert anna.joins().generation == 4
    bert.takes(waiting.answer)
    anna.brings({bert: b"1"})
    assert groups.state() == "Stable"
    groups.check_replay()


# Asking twice --------------------------------------------------------------------------------------------------------


def test_a_sync_that_is_asked_again_while_it_waits_is_answered_where_it_was_asked_last():
    # Kafka leaves the first one without an answer for good.
    groups = Coordinator()
    anna, bert = completing_group(groups)

    first, second = bert.asks_to_sync(), bert.asks_to_sync()
    anna.brings({bert: b"1"})

    assert first.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.answer.assignment == b"1"


def test_a_leader_that_brings_a_second_assignment_while_the_first_is_written_has_the_first():
    groups = Coordinator()
    anna, bert = completing_group(groups)
    written = len(groups.writer.log)
    groups.writer.hold()

    first, second = anna.asks_to_sync({anna: b"0", bert: b"1"}), anna.asks_to_sync({anna: b"1", bert: b"0"})
    groups.writer.release()

    assert first.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.answer.assignment == b"0"
    assert bert.syncs() == b"1"
    assert len(groups.writer.log) == written + 1


def test_a_leader_that_syncs_again_in_a_stable_group_has_what_stands():
    groups = Coordinator()
    anna, bert = stable_group(groups)

    assert anna.brings({anna: b"something else"}) == b"anna"
    assert bert.syncs() == b"bert"
