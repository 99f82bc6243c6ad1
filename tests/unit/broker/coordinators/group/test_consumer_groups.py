"""Consumer groups of the newer protocol: epochs, reconciliation, static members, sessions, expressions."""

import pytest

from broker.coordinators.group.consumer.member import MemberState
from broker.coordinators.group.modern.deadlines import REMOVED_AGAIN_AFTER_MS
from protocol.errors import ErrorCode as E
from protocol.records.group_metadata import decode_group_record
from tests.support.group_records import contents
from tests.unit.broker.coordinators.group.consumer_members import Consumer, settle
from tests.unit.broker.coordinators.group.harness import Coordinator, G


@pytest.fixture
def groups():
    groups = Coordinator()
    groups.topics.put("orders", 4)
    return groups


def group_of(groups):
    return groups.shard.image.modern[G]


def state(groups):
    return groups.shard.glance(G).state


def written(groups):
    """The types of the records that stand, with "-" for tombstones."""
    kinds = []
    for key, value in groups.writer.log:
        kinds.append(f"{int.from_bytes(key[:2], 'big')}{'-' if value is None else ''}")
    return kinds


# Joining and reconciling ---------------------------------------------------------------------------------------------


def test_the_first_member_has_everything_at_once_and_kafkas_records_say_so(groups):
    anna = Consumer(groups, "anna")
    answer = anna.joins()

    assert (answer.member_epoch, answer.heartbeat_interval_ms) == (2, 5_000)
    assert anna.owned == {"orders": {0, 1, 2, 3}}
    assert written(groups) == ["5", "3", "7", "6", "8"]
    assert state(groups) == "Stable"
    groups.check_replay()


def test_a_member_without_topics_is_in_the_first_epoch(groups):
    anna = Consumer(groups, "anna", topics=())

    assert anna.joins().member_epoch == 1
    assert written(groups) == ["5", "8"]
    assert state(groups) == "Stable"


def test_partitions_move_one_member_after_another(groups):
    anna, bert = Consumer(groups, "anna"), Consumer(groups, "bert")
    anna.joins()
    bert.joins()
    assert bert.owned == {}
    assert group_of(groups).members["bert"].state is MemberState.UNRELEASED_PARTITIONS
    assert state(groups) == "Reconciling"

    answer = anna.asks(owned=dict(anna.assigned)).answer
    assert answer.member_epoch == 2  # the old one until it has given them up
    assert sum(len(parts) for parts in answer.assignment.values()) == 2
    assert bert.beats().assignment is None
    anna.takes(answer)
    assert anna.beats().member_epoch == 3
    assert bert.beats().assignment is not None

    assert anna.owned["orders"] | bert.owned["orders"] == {0, 1, 2, 3}
    assert len(anna.owned["orders"]) == len(bert.owned["orders"]) == 2
    assert state(groups) == "Stable"
    groups.check_replay()


def test_a_heartbeat_without_news_writes_nothing_and_answers_nothing(groups):
    anna = Consumer(groups, "anna")
    anna.joins()
    before = len(groups.writer.log)

    assert anna.asks().answer.assignment is None
    assert anna.asks(owned=dict(anna.assigned), **anna.about).answer.assignment is not None
    assert len(groups.writer.log) == before


def test_a_member_that_never_gives_up_partitions_is_removed(groups):
    anna, bert = Consumer(groups, "anna", rebalance_timeout_ms=20_000), Consumer(groups, "bert")
    anna.joins()
    bert.joins()
    anna.asks(owned=dict(anna.assigned))
    groups.pass_ms(19_999)
    anna.asks(owned=dict(anna.assigned))
    assert set(group_of(groups).members) == {"anna", "bert"}
    groups.pass_ms(1)

    assert set(group_of(groups).members) == {"bert"}
    settle(bert)
    assert bert.owned == {"orders": {0, 1, 2, 3}}
    assert anna.asks().answer.error is E.UNKNOWN_MEMBER_ID


def test_a_member_whose_record_was_late_has_to_give_up_partitions_in_time_too(groups):
    anna, bert = Consumer(groups, "anna", rebalance_timeout_ms=20_000), Consumer(groups, "bert")
    anna.joins()
    bert.joins()
    groups.writer.hold()
    late = anna.asks(owned=dict(anna.assigned))
    assert late.is_parked
    groups.writer.time_out()
    groups.writer.release()
    assert group_of(groups).members["anna"].state is MemberState.UNREVOKED_PARTITIONS

    anna.asks(owned=dict(anna.assigned))
    groups.pass_ms(20_000)

    assert set(group_of(groups).members) == {"bert"}


def test_between_two_assignments_lies_the_interval(groups):
    groups.configs["consumer.assignment.interval.ms"] = 1_000
    anna, bert = Consumer(groups, "anna"), Consumer(groups, "bert")
    anna.joins()
    bert.joins()

    assert (bert.epoch, bert.owned, state(groups)) == (2, {}, "Assigning")
    groups.pass_ms(1_000)
    settle(anna, bert)
    assert len(bert.owned["orders"]) == 2


def test_members_that_wait_leave_the_assignment_to_the_last_of_them(groups):
    anna, bert, carl, dora = members = [Consumer(groups, name) for name in ("anna", "bert", "carl", "dora")]
    anna.joins()
    groups.writer.hold()
    waiting = [member.asks(0, owned={}, **member.about) for member in (bert, carl, dora)]
    groups.writer.release()
    for member, reply in zip((bert, carl, dora), waiting, strict=True):
        member.takes(reply.answer)

    assert written(groups).count("3") == 4  # each has made a new epoch
    assert written(groups).count("6") == 3  # anna's and bert's, who have not waited, and dora's
    assert state(groups) == "Reconciling"
    settle(*members)
    assert sorted(min(member.owned["orders"]) for member in members) == [0, 1, 2, 3]
    groups.check_replay()


def test_members_that_come_later_do_not_put_off_an_assignment(groups):
    anna, bert, carl, dora = [Consumer(groups, name) for name in ("anna", "bert", "carl", "dora")]
    anna.joins()
    groups.writer.hold()
    for member in (bert, carl, dora):
        member.asks(0, owned={}, **member.about)
    groups.writer.settle_one()  # bert's; carl's is under way, and leaves the assignment to dora
    assert group_of(groups).assignment_epoch == 3
    for number in range(5):
        Consumer(groups, f"late-{number}").asks(0, owned={}, **anna.about)
    groups.writer.settle_one()
    groups.writer.settle_one()

    assert set(group_of(groups).members) == {"anna", "bert", "carl", "dora"}
    assert group_of(groups).assignment_epoch == 5


def test_a_member_is_told_again_what_it_is_assigned_where_the_answer_was_lost_with_the_broker(groups):
    anna, bert = Consumer(groups, "anna"), Consumer(groups, "bert")
    anna.joins()
    bert.joins()
    lost = anna.asks(owned=dict(anna.assigned))
    assert group_of(groups).members["anna"].is_revoking
    groups.restart()
    groups.writer.fail()
    assert anna.asks(client_host="/127.0.0.2").answer.error is E.NOT_COORDINATOR
    groups.writer.recover()

    answer = anna.asks().answer  # as librdkafka does: it has told of its partitions, and does not repeat that
    assert answer.assignment == lost.answer.assignment
    assert anna.asks().answer.assignment is None
    anna.takes(answer)
    settle(anna, bert)

    assert len(anna.owned["orders"]) == len(bert.owned["orders"]) == 2


def test_a_member_is_not_told_what_it_is_assigned_by_an_answer_that_was_late(groups):
    anna, bert = Consumer(groups, "anna"), Consumer(groups, "bert")
    anna.joins()
    bert.joins()
    groups.restart()
    groups.writer.hold()
    late = anna.asks(owned=dict(anna.assigned))
    groups.writer.time_out()
    groups.writer.release()
    assert late.answer.error is E.COORDINATOR_NOT_AVAILABLE

    assert len(anna.takes(anna.asks().answer).assignment[groups.topics.of_name("orders").topic_id]) == 2
    assert anna.asks().answer.assignment is None


def test_a_member_whose_leave_was_late_is_gone_with_its_session_once_that_stands(groups):
    anna = Consumer(groups, "anna")
    anna.joins()
    groups.writer.hold()
    leave = anna.asks(-1)
    groups.writer.time_out()
    assert leave.answer.error is E.COORDINATOR_NOT_AVAILABLE
    assert groups.events.named("member_removed") == []

    groups.writer.release()
    assert groups.events.named("member_removed") == [(G, "anna", "it has left")]
    assert len(groups.wheel) == 0


def test_a_session_that_is_made_shorter_is_so_from_the_next_heartbeat_on(groups):
    anna = Consumer(groups, "anna")
    anna.joins()
    groups.pass_ms(10_000)
    groups.configs["consumer.session.timeout.ms"] = 45_000
    anna.beats()
    groups.configs["consumer.session.timeout.ms"] = 5_000
    anna.beats()
    groups.pass_ms(4_999)
    anna.beats()
    groups.pass_ms(4_999)
    assert set(group_of(groups).members) == {"anna"}
    groups.pass_ms(1)

    assert not group_of(groups).members


def test_a_silent_member_is_removed_and_a_loaded_one_has_its_whole_session(groups):
    anna, bert = Consumer(groups, "anna"), Consumer(groups, "bert")
    anna.joins()
    bert.joins()
    groups.pass_ms(30_000)
    anna.beats()
    groups.pass_ms(15_000)
    assert set(group_of(groups).members) == {"anna"}

    groups.restart()
    groups.pass_ms(44_999)
    assert set(group_of(groups).members) == {"anna"}
    groups.pass_ms(1)
    assert state(groups) == "Empty"
    groups.check_replay()


def test_a_heartbeat_that_waits_while_the_session_ends_keeps_the_member(groups):
    anna, carl = Consumer(groups, "anna"), Consumer(groups, "carl")
    anna.joins()
    groups.pass_ms(44_999)
    groups.writer.hold()
    carl.asks(0, owned={}, **carl.about)
    heartbeat = anna.asks(owned=dict(anna.assigned))
    groups.pass_ms(1)
    assert heartbeat.is_parked

    groups.writer.release()

    assert heartbeat.answer.error is E.NONE
    assert set(group_of(groups).members) == {"anna", "carl"}
    groups.pass_ms(45_000)
    assert state(groups) == "Empty"


@pytest.mark.parametrize("missed", ["the session", "the revocation"])
def test_a_removal_that_cannot_be_written_is_tried_again(groups, missed):
    anna, bert = Consumer(groups, "anna", rebalance_timeout_ms=20_000), Consumer(groups, "bert")
    anna.joins()
    bert.joins()
    if missed == "the revocation":
        anna.asks(owned=dict(anna.assigned))
    groups.writer.fail()
    groups.pass_ms(20_000 if missed == "the revocation" else 45_000)
    assert set(group_of(groups).members) == {"anna", "bert"}

    groups.writer.recover()
    groups.pass_ms(REMOVED_AGAIN_AFTER_MS)

    assert "anna" not in group_of(groups).members
    groups.check_replay()


# Epochs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "owned", "error"),
    [
        (3, None, E.FENCED_MEMBER_EPOCH),
        (1, None, E.FENCED_MEMBER_EPOCH),
        (0x7FFF_FFFF, {}, E.FENCED_MEMBER_EPOCH),
    ],
)
def test_an_epoch_that_is_not_the_members_is_fenced(groups, epoch, owned, error):
    anna = Consumer(groups, "anna")
    anna.joins()
    before = len(groups.writer.log)

    assert anna.asks(epoch, owned=owned).answer.error is error
    assert len(groups.writer.log) == before


def test_the_epoch_before_is_the_members_while_it_has_nothing_but_its_own(groups):
    anna, bert = Consumer(groups, "anna"), Consumer(groups, "bert")
    anna.joins()
    bert.joins()
    anna.beats()
    kept = dict(anna.assigned)
    answer = anna.asks(owned=kept).answer
    assert answer.member_epoch == 3  # and the answer is lost

    everything = {topic: frozenset(range(4)) for topic in kept}
    assert anna.asks(2, owned=everything).answer.error is E.FENCED_MEMBER_EPOCH
    assert anna.asks(2).answer.error is E.FENCED_MEMBER_EPOCH
    assert anna.asks(2, owned=kept).answer.member_epoch == 3


@pytest.mark.parametrize("epoch", [5, -1])
def test_a_group_that_is_not_there_and_a_member_that_is_not_there(groups, epoch):
    nobody = Consumer(groups, "nobody")
    assert nobody.asks(epoch).answer.error is E.GROUP_ID_NOT_FOUND
    Consumer(groups, "anna").joins()
    assert nobody.asks(epoch).answer.error is E.UNKNOWN_MEMBER_ID


def test_who_leaves_is_gone_with_its_records_and_the_last_one_leaves_the_group(groups):
    anna = Consumer(groups, "anna")
    anna.joins()
    answer = anna.leaves()

    assert (answer.member_id, answer.member_epoch, answer.assignment) == ("anna", -1, None)
    assert written(groups)[-5:] == ["8-", "7-", "5-", "3", "6"]
    assert (state(groups), group_of(groups).epoch) == ("Empty", 3)
    assert len(groups.wheel) == 0
    deleted = []
    groups.writer.append(groups.shard.delete(G, deleted.append))
    assert deleted == [E.NONE]
    assert written(groups)[-3:] == ["6-", "4-", "3-"]
    assert not groups.shard.image.exists(G)


def test_a_group_with_members_is_not_deleted_and_a_full_one_takes_nobody():
    groups = Coordinator(consumer_max_size=1)
    groups.topics.put("orders", 1)
    anna = Consumer(groups, "anna")
    anna.joins()
    deleted = []
    groups.writer.append(groups.shard.delete(G, deleted.append))

    assert deleted == [E.NON_EMPTY_GROUP]
    bert = Consumer(groups, "bert")
    assert bert.asks(0, owned={}, **bert.about).answer.error is E.GROUP_MAX_SIZE_REACHED
    anna.joins()


def test_a_write_that_fails_changes_nothing_and_a_request_behind_it_is_decided_without_it(groups):
    anna, bert = Consumer(groups, "anna"), Consumer(groups, "bert")
    groups.writer.hold()
    first = anna.asks(0, owned={}, **anna.about)
    second = bert.asks(0, owned={}, **bert.about)
    assert second.is_parked

    groups.writer.settle_one(E.KAFKA_STORAGE_ERROR)
    groups.writer.release()
    assert first.answer.error is E.NOT_COORDINATOR
    bert.takes(second.answer)
    assert bert.owned == {"orders": {0, 1, 2, 3}}
    assert set(group_of(groups).members) == {"bert"}


# Topics --------------------------------------------------------------------------------------------------------------


def test_topics_that_come_grow_and_go_are_assigned_anew(groups):
    anna = Consumer(groups, "anna", topics=["orders", "payments"])
    anna.joins()
    assert anna.owned == {"orders": {0, 1, 2, 3}}

    groups.topics.put("payments", 2)
    groups.shard.topics_changed({"payments"}, are_new=True)
    settle(anna)
    assert anna.owned == {"orders": {0, 1, 2, 3}, "payments": {0, 1}}
    groups.topics.put("orders", 5)
    groups.shard.topics_changed({"orders"}, are_new=False)
    settle(anna)
    assert anna.owned == {"orders": {0, 1, 2, 3, 4}, "payments": {0, 1}}
    groups.topics.delete("orders")
    groups.shard.topics_changed({"orders"}, are_new=False)
    settle(anna)
    assert anna.owned == {"payments": {0, 1}}
    assert group_of(groups).epoch == 5
    groups.check_replay()


def test_a_member_that_changes_its_topics_loses_what_it_no_longer_reads(groups):
    groups.topics.put("payments", 2)
    anna, bert = Consumer(groups, "anna"), Consumer(groups, "bert")
    anna.joins()
    bert.joins()
    settle(anna, bert)

    anna.beats(topics=["payments"])
    assert anna.owned.get("orders") is None
    settle(anna, bert)
    assert (anna.owned, bert.owned) == ({"payments": {0, 1}}, {"orders": {0, 1, 2, 3}})
    groups.check_replay()


def test_the_assignor_that_most_members_want_assigns(groups):
    groups.topics.put("payments", 1)
    members = [Consumer(groups, name, topics=["orders", "payments"], assignor="range") for name in ("anna", "bert")]
    for member in members:
        member.joins()
    settle(*members)

    assert groups.shard.describe_consumer_group(G).assignor == "range"
    assert members[0].owned == {"orders": {0, 1}, "payments": {0}}
    assert members[1].owned == {"orders": {2, 3}}


# Static members ------------------------------------------------------------------------------------------------------


def test_a_static_member_that_is_gone_for_a_while_gets_its_partitions_back_under_another_id(groups):
    anna, bert = Consumer(groups, "anna", instance_id="shop 1"), Consumer(groups, "bert")
    anna.joins()
    bert.joins()
    settle(anna, bert)
    had = anna.owned
    assert anna.leaves(-2).member_epoch == -2
    bert.beats()
    assert len(bert.owned["orders"]) == 2

    again = Consumer(groups, "anna 2", instance_id="shop 1")
    again.joins()
    assert again.owned == had
    assert bert.beats().assignment is None
    assert group_of(groups).epoch == 3
    assert anna.asks(3).answer.error is E.FENCED_INSTANCE_ID
    groups.check_replay()


def test_an_instance_id_has_one_member(groups):
    anna = Consumer(groups, "anna", instance_id="shop 1")
    anna.joins()
    other = Consumer(groups, "other", instance_id="shop 1")

    assert other.asks(0, owned={}, **other.about).answer.error is E.UNRELEASED_INSTANCE_ID
    assert other.asks(2).answer.error is E.FENCED_INSTANCE_ID
    assert other.asks(-2).answer.error is E.FENCED_INSTANCE_ID
    assert Consumer(groups, "x", instance_id="shop 2").asks(-2).answer.error is E.UNKNOWN_MEMBER_ID


def test_a_static_member_that_does_not_come_back_is_removed(groups):
    anna = Consumer(groups, "anna", instance_id="shop 1")
    anna.joins()
    groups.pass_ms(40_000)
    anna.leaves(-2)
    groups.pass_ms(5_000)

    assert state(groups) == "Empty"


# Expressions ---------------------------------------------------------------------------------------------------------


def resolve(groups, **found):
    regexes, _, then = groups.resolving.pop()
    then({regex: frozenset(found[regex.strip("^.*")]) for regex in regexes})


def test_an_expression_is_resolved_by_a_worker_and_again_when_topics_come(groups):
    anna = Consumer(groups, "anna", topics=(), regex="^ord.*")
    anna.joins()
    assert anna.owned == {}
    assert [(regexes, names) for regexes, names, _ in groups.resolving] == [(["^ord.*"], ["orders"])]

    resolve(groups, ord={"orders"})
    settle(anna)
    assert anna.owned == {"orders": {0, 1, 2, 3}}
    groups.check_replay()
    groups.topics.put("orders-2", 1)
    groups.shard.topics_changed({"orders-2"}, are_new=True)
    anna.beats()
    assert groups.resolving == []  # not within ten seconds
    groups.pass_ms(10_001)
    anna.beats()
    resolve(groups, ord={"orders", "orders-2"})
    settle(anna)
    assert anna.owned == {"orders": {0, 1, 2, 3}, "orders-2": {0}}
    anna.leaves()
    assert "16-" in written(groups)
    groups.check_replay()


def test_an_expression_that_is_none_is_refused_and_a_worker_that_fails_leaves_the_group_alone(groups):
    anna = Consumer(groups, "anna", topics=(), regex="(")
    refused = anna.asks(0, owned={}, regex_error="missing )", **anna.about).answer
    assert refused.error is E.INVALID_REGULAR_EXPRESSION
    assert G not in groups.shard.image.modern

    bert = Consumer(groups, "bert", topics=(), regex="^ord.*")
    bert.joins()
    _, _, then = groups.resolving.pop()
    then(None)
    assert bert.beats().member_epoch == 1
    assert len(groups.resolving) == 1


def test_an_epoch_before_may_commit_what_the_member_has_had_since_then(groups):
    anna, bert = Consumer(groups, "anna"), Consumer(groups, "bert")
    anna.joins()
    bert.joins()
    settle(anna, bert)
    kept = min(anna.owned["orders"])
    assert groups.shard.image.modern[G].members["anna"].epoch == 3

    topic = groups.topics.of_name("orders").topic_id
    assert groups.shard.image.modern[G].members["anna"].assigned[topic][kept] == 2
    assert kept == 0
    assert groups.commit(5, member_id="anna", generation=2) is E.NONE
    assert groups.commit(5, member_id="anna", generation=1) is E.STALE_MEMBER_EPOCH
    assert groups.commit(5, member_id="bert", generation=2) is E.STALE_MEMBER_EPOCH


# Offsets -------------------------------------------------------------------------------------------------------------


def test_offsets_are_for_members_in_their_epoch_and_for_nobody_in_an_empty_group(groups):
    anna = Consumer(groups, "anna")
    anna.joins()

    assert groups.commit(5, member_id="anna", generation=2) is E.NONE
    assert groups.commit(5, member_id="anna", generation=1) is E.STALE_MEMBER_EPOCH
    assert groups.commit(5, member_id="bert", generation=2) is E.UNKNOWN_MEMBER_ID
    assert groups.commit(5) is E.UNKNOWN_MEMBER_ID
    assert groups.commit(5, member_id="anna", generation=2, knows_member_epochs=False) is E.UNSUPPORTED_VERSION
    check = groups.shard.check_fetch
    assert [check(G, "anna", 2), check(G, "anna", 3), check(G, "bert", 2), check(G, None, -1)] == [
        E.NONE,
        E.STALE_MEMBER_EPOCH,
        E.UNKNOWN_MEMBER_ID,
        E.NONE,
    ]
    anna.leaves()
    assert groups.commit(7) is E.NONE
    assert groups.committed() == 7


def test_an_empty_group_goes_with_its_last_offset(groups):
    anna = Consumer(groups, "anna")
    anna.joins()
    groups.commit(5, member_id="anna", generation=2)
    for piece in groups.shard.expire_offsets():
        groups.writer.append(piece)
    anna.leaves()
    groups.pass_ms(groups.settings.offsets_retention_ms + 1)
    for piece in groups.shard.expire_offsets():
        groups.writer.append(piece)

    assert not groups.shard.image.exists(G)
    assert groups.events.named("offsets_expired") == [(G, 1)]


# Many ----------------------------------------------------------------------------------------------------------------


def test_a_corrupt_record_of_each_kind_leaves_the_rest_alone(groups):
    anna = Consumer(groups, "anna")
    anna.joins()
    before = contents(groups.shard.image)
    for key, value in groups.writer.log:
        with pytest.raises(ValueError, match=r".*"):
            decode_group_record(key, value[:-1] if len(value) > 2 else b"\0")
    assert contents(groups.shard.image) == before
