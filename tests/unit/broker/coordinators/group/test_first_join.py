"""The first join: a group begins with a record, and a new member gets its member id."""

import pytest

from protocol.errors import ErrorCode
from protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from tests.unit.broker.coordinators.group.harness import Coordinator, G

# The first join of a group -------------------------------------------------------------------------------------------


def test_the_first_join_makes_the_group_with_an_empty_record_and_hands_out_an_id():
    groups = Coordinator()
    anna = groups.member()

    joined = anna.asks_to_join().answer

    assert joined.error is ErrorCode.MEMBER_ID_REQUIRED
    assert joined.member_id == "anna-00000000-0000-0000-0000-000000000001"
    assert (joined.generation, joined.protocol, joined.leader, joined.members) == (-1, None, "", ())
    assert groups.state() == "Empty"
    now_ms = groups.clock.now_ms()
    empty = GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=now_ms, members=[]
    )
    assert groups.last_record() == (GroupMetadataKey(group=G), empty, 3)


def test_its_answer_waits_for_the_record():
    groups = Coordinator()
    anna = groups.member()
    groups.writer.hold()

    reply = anna.asks_to_join()
    assert reply.is_parked
    assert groups.state() is None

    groups.writer.release()
    assert reply.answer.error is ErrorCode.MEMBER_ID_REQUIRED


def test_two_who_come_at_once_make_one_group_with_one_record():
    groups = Coordinator()
    anna, bert = groups.member("anna"), groups.member("bert")
    groups.writer.hold()

    replies = [anna.asks_to_join(), bert.asks_to_join()]
    groups.writer.release()

    assert [reply.answer.error for reply in replies] == [ErrorCode.MEMBER_ID_REQUIRED] * 2
    assert len(groups.writer.log) == 1


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_group_whose_record_cannot_be_written_is_not_made(error, told):
    groups = Coordinator()
    anna, bert = groups.member("anna"), groups.member("bert", needs_known_id=False)
    groups.writer.hold()
    groups.writer.fail(error)

    replies = [anna.asks_to_join(), bert.asks_to_join()]
    groups.writer.release()

    assert [reply.answer.error for reply in replies] == [told] * 2
    assert groups.state() is None
    assert len(groups.wheel) == 0
    groups.writer.recover()
    assert anna.joins().generation == 1


def test_a_join_that_is_refused_makes_the_group_all_the_same():
    groups = Coordinator()
    anna = groups.member(protocols=())

    assert anna.asks_to_join().answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert groups.state() == "Empty"


# Member ids ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client_id", "instance_id", "prefix"),
    [("c", None, "c-"), ("", None, "-"), ("c", "shop 1", "shop 1-"), ("c", "", "-")],
)
def test_a_member_id_begins_with_the_instance_id_or_that_of_the_client(client_id, instance_id, prefix):
    groups = Coordinator()
    anna = groups.member(client_id, instance_id=instance_id)

    anna.joins()

    assert anna.member_id == f"{prefix}00000000-0000-0000-0000-000000000001"


def test_a_member_that_need_not_come_again_is_let_in_at_once():
    groups = Coordinator()
    anna = groups.member(needs_known_id=False)

    assert anna.asks_to_join().answer.generation == 1


def test_an_id_that_no_record_could_hold_is_not_handed_out():
    groups = Coordinator()
    anna = groups.member("a" * (0x7FFF - 36))
    bert = groups.member(instance_id="ü" * 16_383)

    assert anna.asks_to_join().answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert bert.asks_to_join().answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert groups.state() == "Empty"
    assert groups.member("a" * (0x7FFF - 37)).joins().generation == 1


def test_an_id_that_was_handed_out_is_good_for_the_time_of_a_session():
    groups = Coordinator()
    anna, bert = groups.member("anna"), groups.member("bert")
    anna.member_id = anna.asks_to_join().answer.member_id
    bert.member_id = bert.asks_to_join().answer.member_id

    groups.pass_ms(9_999)
    assert anna.asks_to_join().answer.generation == 1
    groups.pass_ms(1)
    assert bert.asks_to_join().answer.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_handed_out_does_not_belong_to_a_static_member():
    groups = Coordinator()
    anna = groups.member()
    anna.member_id = anna.asks_to_join().answer.member_id

    joined = anna.asks_to_join(instance_id="shop 1").answer

    assert (joined.error, joined.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")
    assert anna.joins().generation == 1


def test_an_id_that_was_handed_out_is_no_member_yet():
    groups = Coordinator()
    anna, bert = groups.member("anna"), groups.member("bert")
    anna.joins()
    anna.brings({})
    bert.member_id = bert.asks_to_join().answer.member_id

    assert bert.beats(generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert bert.asks_to_sync(generation=1).answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.state() == "Stable"


def test_of_a_group_that_nobody_has_come_back_to_only_its_first_record_is_left():
    groups = Coordinator()
    groups.member().asks_to_join()

    groups.pass_ms(10_000)

    # As in Kafka: the next look for what has expired removes it.
    assert groups.state() == "Empty"
    assert len(groups.writer.log) == 1
    assert len(groups.wheel) == 0


def test_an_id_is_forgotten_with_its_group():
    groups = Coordinator()
    anna = groups.member()
    anna.member_id = anna.asks_to_join().answer.member_id

    for change in groups.shard.expire_offsets():
        groups.writer.append(change)

    assert groups.state() is None
    assert len(groups.wheel) == 0
    assert anna.asks_to_join().answer.error is ErrorCode.UNKNOWN_MEMBER_ID
