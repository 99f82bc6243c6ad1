"""Loading groups that another broker has written, and unloading them."""

from dataclasses import replace

from broker.coordinators.group.image import GroupMetadata, MemberMetadata
from broker.coordinators.group.records import group_record
from broker.coordinators.group.requests import Joined, Protocol, Synced
from protocol.errors import ErrorCode
from protocol.records.group_metadata import encode_group_key, encode_group_value
from tests.unit.broker.coordinators.group.harness import Coordinator, G, stable_group

CHANGED = (Protocol("range", b"changed"),)


def log_of(metadata):
    record = group_record(G, metadata)
    return [(encode_group_key(record.key), encode_group_value(record.value, record.version))]


RECORDED = GroupMetadata(
    protocol_type="consumer",
    generation=7,
    protocol="range",
    leader="b",
    state_timestamp=1,
    members={
        name: MemberMetadata(
            member_id=name,
            instance_id=instance_id,
            client_id="c",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=60_000,
            session_timeout_ms=10_000,
            subscription=b"anything",
            assignment=name.encode(),
        )
        for name, instance_id in (("a", "shop 1"), ("b", None))
    },
)


def loaded(metadata=RECORDED, **settings):
    """A coordinator with this group, and its members a, who is static, and b."""
    groups = Coordinator(log=log_of(metadata), **settings)
    members = [groups.member("a", instance_id="shop 1"), groups.member("b")]
    for member in members:
        member.member_id, member.generation = member.name, 7
    return groups, *members


def test_the_members_of_a_stable_group_go_on_where_they_were():
    groups, a, b = loaded()

    assert groups.state() == "Stable"
    assert a.beats() is b.beats() is ErrorCode.NONE
    assert [a.syncs(), b.syncs()] == [b"a", b"b"]
    assert b.commits(5) is ErrorCode.NONE
    assert a.asks_to_join().answer.leader == "b"
    groups.check_replay()


def test_the_leader_is_who_the_record_says():
    groups, a, b = loaded()

    assert b.asks_to_join().is_parked
    waiting = a.parks()
    assert waiting.answer.leader == "b"
    assert groups.generation() == 8


def test_a_leader_that_is_no_member_is_none():
    groups, a, b = loaded(replace(RECORDED, leader="c"))

    assert a.asks_to_join().is_parked
    assert len(b.joins().members) == 0
    assert groups.generation() == 8


def test_who_does_not_show_up_within_its_session_is_removed():
    groups, _, b = loaded()
    groups.pass_ms(9_999)
    b.beats()
    groups.pass_ms(1)

    assert (groups.state(), groups.member_ids()) == ("PreparingRebalance", ["b"])
    assert b.joins().generation == 8


def test_a_group_whose_members_are_all_gone_is_empty_after_their_sessions():
    groups, *_ = loaded()

    groups.pass_ms(10_000)

    assert (groups.state(), groups.generation()) == ("Empty", 8)
    assert len(groups.wheel) == 0
    groups.check_replay()


def test_a_static_member_comes_back_to_a_loaded_group_without_a_rebalance():
    groups, a, b = loaded()

    second = groups.member("second", instance_id="shop 1")
    assert second.joins().generation == 7
    assert second.syncs() == b"a"
    assert a.beats() is ErrorCode.FENCED_INSTANCE_ID
    assert b.beats() is ErrorCode.NONE


def test_of_a_loaded_members_protocols_only_the_chosen_one_is_known():
    groups, _, b = loaded()

    assert groups.member("c", protocols=(Protocol("sticky", b""),)).asks_to_join().answer.error is (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    assert b.asks_to_join(protocols=(Protocol("range", b"anything"), Protocol("sticky", b""))).is_parked


def test_an_empty_group_is_loaded_as_it_was():
    empty = GroupMetadata(protocol_type="consumer", generation=7, state_timestamp=1)
    groups = Coordinator(log=log_of(empty))

    assert (groups.state(), groups.generation()) == ("Empty", 7)
    assert groups.member(protocol_type="connect").joins().generation == 8
    assert len(groups.wheel) == 2


def test_a_group_with_more_members_than_are_allowed_now_rebalances():
    groups, a, b = loaded(max_size=1)

    assert groups.state() == "PreparingRebalance"
    assert a.beats() is ErrorCode.REBALANCE_IN_PROGRESS
    waiting = a.parks()
    assert b.asks_to_join().answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert waiting.answer.generation == 8


def test_a_member_without_times_is_gone_at_once():
    groups, *_ = loaded(
        replace(
            RECORDED,
            members={
                name: replace(member, session_timeout_ms=-1, rebalance_timeout_ms=-5)
                for name, member in RECORDED.members.items()
            },
        )
    )

    groups.pass_ms(1)

    assert groups.state() == "Empty"


def test_two_members_of_one_instance_in_a_record_harm_nobody():
    members = {name: replace(member, instance_id="shop 1") for name, member in RECORDED.members.items()}
    groups, _, b = loaded(replace(RECORDED, members=members))

    assert b.beats(instance_id="shop 1") is ErrorCode.NONE
    assert groups.leaves(("", "shop 1"), ("", "shop 1"), "a").answer.members == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert groups.state() == "Empty"


def test_a_generation_that_was_formed_and_not_written_is_not_loaded():
    groups = Coordinator()
    anna, bert = stable_group(groups)
    waiting = bert.parks(protocols=CHANGED)
    anna.joins()
    bert.takes(waiting.answer)

    groups.restart()

    assert (groups.state(), groups.generation()) == ("Stable", 2)
    assert anna.beats() is ErrorCode.ILLEGAL_GENERATION
    assert anna.asks_to_join().is_parked


# Unloading -----------------------------------------------------------------------------------------------------------


def test_whoever_waits_is_told_that_it_has_to_look_for_its_coordinator():
    groups = Coordinator()
    _, bert = stable_group(groups)
    joining = [bert.parks(protocols=CHANGED), groups.member("carl").parks()]
    other, follower = stable_group(groups, groups.member("x", group_id="h"), groups.member("y", group_id="h"))
    waiting = follower.parks(protocols=CHANGED)
    other.joins()
    follower.takes(waiting.answer)
    syncing = follower.asks_to_sync()
    groups.writer.hold()
    creating = groups.member("z", group_id="i").asks_to_join()
    handed_out = groups.member("v", group_id="h")
    handed_out.asks_to_join()

    groups.writer.close(keeps_what_is_under_way=False)
    groups.shard.unload(ErrorCode.NOT_COORDINATOR)

    assert [reply.answer.error for reply in joining] == [ErrorCode.NOT_COORDINATOR] * 2
    assert joining[0].answer == Joined(error=ErrorCode.NOT_COORDINATOR, member_id=bert.member_id)
    assert syncing.answer == Synced(error=ErrorCode.NOT_COORDINATOR)
    assert creating.answer == Joined(error=ErrorCode.NOT_COORDINATOR)
    assert len(groups.wheel) == 0


def test_what_is_under_way_then_changes_nothing_any_more():
    groups = Coordinator()
    stable_group(groups, groups.member("anna", instance_id="shop 1"), groups.member("bert"))
    other = groups.member("other", group_id="h")
    other.joins()
    last = groups.member("last", group_id="i")
    last.joins()
    groups.writer.hold()
    waiting = [
        groups.member("second", instance_id="shop 1").parks(),
        other.asks_to_sync({other: b"0"}),
        last.leaves(),
        groups.member("z", group_id="j").asks_to_join(),
    ]

    groups.shard.unload(ErrorCode.NOT_COORDINATOR)
    groups.writer.close(keeps_what_is_under_way=False)

    assert [reply.answer.error for reply in waiting] == [ErrorCode.NOT_COORDINATOR] * 4
    assert not groups.writer.under_way
    assert len(groups.wheel) == 0
    assert groups.events.named("write_failed") == []


def test_it_makes_no_difference_whether_the_writer_is_closed_first():
    groups = Coordinator()
    anna, _ = stable_group(groups, groups.member("anna", instance_id="shop 1"), groups.member("bert"))
    other = groups.member("other", group_id="h")
    other.joins()
    groups.writer.hold()
    waiting = [groups.member("second", instance_id="shop 1").parks(), other.asks_to_sync({other: b"0"}), anna.leaves()]

    groups.writer.close(keeps_what_is_under_way=False)
    groups.shard.unload(ErrorCode.NOT_COORDINATOR)

    assert [reply.answer.error for reply in waiting[:2]] == [ErrorCode.NOT_COORDINATOR] * 2
    assert waiting[2].answer.members == [ErrorCode.FENCED_INSTANCE_ID]
    assert len(groups.wheel) == 0
