"""Streams groups (KIP-1071): members, tasks, topics, epochs and what administrators see. Time is moved by hand."""

import pytest

from broker.coordinators.group.requests import Commit, ListedGroup, OffsetToCommit
from broker.coordinators.group.streams.assignor import Worker as Assigned
from broker.coordinators.group.streams.assignor import assign
from broker.coordinators.group.streams.member import NOTHING, Endpoint, MemberState, Tasks
from broker.coordinators.group.streams.reports import NO_REPORT
from broker.coordinators.group.streams.topology import InternalTopic, InvalidTopology, StatusCode, configure
from broker.coordinators.result import ProducerIdAndEpoch
from protocol.errors import ErrorCode as E
from protocol.records.group_metadata import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTopologyKey,
    decode_group_record,
)
from tests.unit.broker.coordinators.group.harness import Coordinator, G, Reply
from tests.unit.broker.coordinators.group.streams_members import (
    PLAIN,
    WITH_STATE,
    WORD_COUNT,
    Worker,
    codes,
    settle,
    subtopology,
    together,
    topology,
)


@pytest.fixture
def groups():
    coordinator = Coordinator()
    coordinator.topics.put("lines", 4)
    yield coordinator
    coordinator.check_replay()


@pytest.fixture
def anna(groups):
    return Worker(groups, "anna")


@pytest.fixture
def berta(groups):
    return Worker(groups, "berta")


def group_of(groups):
    return groups.shard.image.modern[G]


def state_of(groups):
    return groups.shard.glance(G).state


def made(groups, name, partitions):
    groups.topics.put(name, partitions)
    groups.shard.topics_changed({name}, are_new=True)


def tasks(**of_subtopology):
    """Active tasks by subtopology, written as ``s0={1, 2}``."""
    return Tasks({name[1:]: frozenset(found) for name, found in of_subtopology.items()})


# Joining --------------------------------------------------------------------------------------------------------------


def test_the_first_member_has_all_tasks(groups, anna):
    answer = anna.joins()

    assert (answer.member_epoch, answer.heartbeat_interval_ms, answer.statuses) == (2, 5_000, [])
    assert (answer.task_offset_interval_ms, answer.acceptable_recovery_lag) == (60_000, 10_000)
    assert anna.active == {"0": {0, 1, 2, 3}}
    assert state_of(groups) == "Stable"


def test_the_records_of_a_first_member_come_in_kafkas_order(groups, anna):
    anna.joins()

    keys = [type(decode_group_record(*stored).key) for stored in groups.writer.log]
    assert keys == [
        StreamsGroupMemberMetadataKey,
        StreamsGroupTopologyKey,
        StreamsGroupMetadataKey,
        StreamsGroupTargetAssignmentMemberKey,
        StreamsGroupTargetAssignmentMetadataKey,
        StreamsGroupCurrentMemberAssignmentKey,
    ]


def test_two_members_share_the_tasks_and_none_has_two_members(groups, anna, berta):
    anna.joins()
    berta.joins()
    assert berta.active == {}
    assert state_of(groups) == "Reconciling"

    anna.beats()
    assert len(anna.active["0"]) == 2
    assert group_of(groups).members["anna"].state is MemberState.UNREVOKED_TASKS
    assert berta.beats().tasks is None, "anna has not given up anything yet"
    settle(anna, berta)

    assert anna.active["0"] | berta.active["0"] == {0, 1, 2, 3}
    assert not anna.active["0"] & berta.active["0"]
    assert state_of(groups) == "Stable"


def test_a_member_that_does_not_say_what_it_has_keeps_what_it_should_give_up(groups, anna, berta):
    anna.joins()
    berta.joins()
    anna.beats(owned=None)
    anna.beats(owned=None)

    assert group_of(groups).members["anna"].state is MemberState.UNREVOKED_TASKS
    assert berta.beats().tasks is None


def test_a_heartbeat_without_news_writes_nothing(groups, anna):
    anna.joins()
    written = len(groups.writer.log)

    answer = anna.beats()

    assert (answer.tasks, answer.member_epoch, answer.statuses) == (None, 2, [])
    assert len(groups.writer.log) == written


def test_a_member_that_joins_again_gets_its_tasks_again(groups, anna):
    anna.joins()
    before = anna.active
    written = len(groups.writer.log)

    assert anna.joins().member_epoch == 2

    assert anna.active == before
    assert len(groups.writer.log) == written


def test_tasks_of_a_group_that_begins_wait_for_more_members(groups, anna, berta):
    groups.configs["streams.initial.rebalance.delay.ms"] = 3_000
    assert (codes(anna.joins()), anna.epoch, anna.active) == (["ASSIGNMENT_DELAYED"], 1, {})
    groups.pass_ms(1_000)
    assert codes(berta.joins()) == ["ASSIGNMENT_DELAYED"]
    assert state_of(groups) == "Assigning"

    groups.pass_ms(2_000)

    assert codes(anna.beats()) == []
    berta.beats()
    assert (len(anna.active["0"]), len(berta.active["0"])) == (2, 2)
    assert state_of(groups) == "Stable"


def test_targets_are_computed_once_in_each_interval(groups, anna, berta):
    groups.configs["streams.assignment.interval.ms"] = 1_000
    anna.joins()

    assert codes(berta.joins()) == ["ASSIGNMENT_DELAYED"]
    groups.pass_ms(1_000)
    berta.beats()
    settle(anna, berta)

    assert len(berta.active["0"]) == 2


def test_the_group_takes_no_more_members_than_its_setting_says():
    groups = Coordinator(streams_max_size=1)
    groups.topics.put("lines", 4)
    anna, berta = Worker(groups, "anna"), Worker(groups, "berta")
    anna.joins()

    refused = berta.asks(0, owned=NOTHING, **berta.about).answer

    assert (refused.error, refused.message) == (
        E.GROUP_MAX_SIZE_REACHED,
        "The streams group has reached its maximum capacity of 1 members.",
    )
    assert anna.asks(0, owned=NOTHING, **anna.about).answer.error is E.NONE


# Fencing --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(1, E.FENCED_MEMBER_EPOCH), (3, E.FENCED_MEMBER_EPOCH), (2, E.NONE)],
)
def test_a_member_with_another_epoch_is_fenced(groups, anna, epoch, error):
    anna.joins()

    assert anna.asks(epoch).answer.error is error


def test_the_epoch_before_is_the_members_if_it_has_only_what_it_should_have(groups, anna, berta):
    anna.joins()
    berta.joins()
    settle(anna, berta)
    before = group_of(groups).members["anna"].previous_epoch

    assert anna.asks(before, owned=anna.tasks).answer.member_epoch == anna.epoch
    assert anna.asks(before, owned=None).answer.error is E.FENCED_MEMBER_EPOCH
    assert anna.asks(before, owned=tasks(s0={0, 1, 2, 3})).answer.error is E.FENCED_MEMBER_EPOCH


def test_who_is_no_member_is_told_so(groups, anna, berta):
    assert anna.asks(1).answer.error is E.GROUP_ID_NOT_FOUND
    assert anna.leaves().error is E.GROUP_ID_NOT_FOUND
    anna.joins()

    assert berta.asks(2).answer.error is E.UNKNOWN_MEMBER_ID
    assert berta.leaves().error is E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("owned", "why"),
    [
        (tasks(s7={0}), "Subtopology 7 does not exist in the topology."),
        (tasks(s0={4}), "Task 4 for subtopology 0 is invalid. Number of tasks for this subtopology: 4"),
        (tasks(s0={-1}), "Task -1 for subtopology 0 is invalid. Number of tasks for this subtopology: 4"),
    ],
)
def test_tasks_that_do_not_exist_are_refused(groups, anna, owned, why):
    anna.joins()

    refused = anna.asks(owned=owned).answer

    assert (refused.error, refused.message) == (E.INVALID_REQUEST, why)


# Going ----------------------------------------------------------------------------------------------------------------


def test_the_tasks_of_a_member_that_leaves_go_to_the_others(groups, anna, berta):
    anna.joins()
    berta.joins()
    settle(anna, berta)

    assert anna.leaves().member_epoch == -1
    settle(berta)

    assert berta.active == {"0": {0, 1, 2, 3}}


def test_the_last_member_leaves_an_empty_group_that_is_not_behind(groups, anna):
    anna.joins()
    anna.leaves()

    group = group_of(groups)
    assert (state_of(groups), group.epoch, group.assignment_epoch, len(groups.wheel)) == ("Empty", 3, 3, 0)
    assert anna.joins().member_epoch == 4


def test_a_silent_member_is_removed_when_its_session_is_over(groups, anna, berta):
    anna.joins()
    berta.joins()
    groups.pass_ms(44_999)
    berta.beats()
    groups.pass_ms(1)

    assert list(group_of(groups).members) == ["berta"]
    assert groups.events.named("member_removed") == [(G, "anna", "nothing has been heard of it too long")]


def test_sessions_begin_anew_when_the_group_is_loaded(groups, anna):
    anna.joins()
    groups.pass_ms(40_000)
    groups.restart()
    groups.pass_ms(44_999)
    assert list(group_of(groups).members) == ["anna"]
    groups.pass_ms(1)

    assert list(group_of(groups).members) == []


def test_a_member_that_does_not_give_up_its_tasks_in_time_is_removed(groups, anna, berta):
    anna.joins()
    berta.joins()
    anna.beats(owned=None)
    for _ in range(6):
        groups.pass_ms(10_000)
        if "anna" in group_of(groups).members:
            anna.asks(owned=None)
        berta.beats()

    assert list(group_of(groups).members) == ["berta"]
    settle(berta)
    assert berta.active == {"0": {0, 1, 2, 3}}


def test_the_deadline_holds_over_a_start(groups, anna, berta):
    anna.joins()
    berta.joins()
    anna.beats(owned=None)
    groups.restart()
    for _ in range(6):
        groups.pass_ms(10_000)
        if "anna" in group_of(groups).members:
            anna.asks(owned=None)
        berta.beats()

    assert list(group_of(groups).members) == ["berta"]


def test_the_deadline_holds_where_the_record_was_late(groups, anna, berta):
    anna.joins()
    berta.joins()
    groups.writer.hold()
    late = anna.asks(owned=None)
    groups.writer.time_out()
    groups.writer.release()
    assert late.answer.error is E.COORDINATOR_NOT_AVAILABLE
    for _ in range(6):
        groups.pass_ms(10_000)
        if "anna" in group_of(groups).members:
            anna.asks(owned=None)
        berta.beats()

    assert list(group_of(groups).members) == ["berta"]


def test_a_member_is_not_told_its_tasks_by_an_answer_that_was_late(groups, anna, berta):
    anna.joins()
    berta.joins()
    groups.restart()
    groups.writer.hold()
    late = anna.asks(owned=None)
    groups.writer.time_out()
    groups.writer.release()
    assert late.answer.error is E.COORDINATOR_NOT_AVAILABLE

    assert anna.asks().answer.tasks is not None
    assert anna.asks().answer.tasks is None


def test_an_empty_classic_group_that_becomes_a_streams_group_late_leaves_nothing_behind(groups, anna):
    client = groups.member("client")
    client.joins()
    client.leaves()
    assert groups.member("other").asks_to_join().answer.error is E.MEMBER_ID_REQUIRED
    groups.writer.hold()
    late = anna.asks(0, owned=NOTHING, **anna.about)
    groups.writer.time_out()
    groups.writer.release()
    assert late.answer.error is E.COORDINATOR_NOT_AVAILABLE

    assert groups.shard.kind_of(G) == "streams"
    assert list(groups.shard._membership.group_ids()) == []


def test_a_classic_group_that_a_streams_member_was_refused_by_is_deleted_as_before(groups):
    client = groups.member("client")
    client.joins()
    client.leaves()
    assert groups.member("other").asks_to_join().answer.error is E.MEMBER_ID_REQUIRED
    anna = Worker(groups, "anna", topology=topology(subtopology("0")))
    assert anna.asks(0, owned=NOTHING, **anna.about).answer.error is E.STREAMS_INVALID_TOPOLOGY

    deleted = Reply()
    groups.writer.append(groups.shard.delete(G, deleted))
    assert deleted.answer is E.NONE
    assert groups.shard.kind_of(G) is None


def test_a_removal_that_cannot_be_written_is_tried_again(groups, anna):
    anna.joins()
    groups.writer.hold()
    groups.pass_ms(45_000)
    groups.writer.settle_one(E.KAFKA_STORAGE_ERROR)
    assert list(group_of(groups).members) == ["anna"]
    groups.writer.release()
    groups.pass_ms(500)

    assert list(group_of(groups).members) == []


# Static members -------------------------------------------------------------------------------------------------------


def test_a_static_member_comes_back_to_its_tasks(groups):
    one = Worker(groups, "one", instance_id="shop")
    one.joins()
    epoch = group_of(groups).epoch
    assert one.leaves(-2).member_epoch == -2
    again = Worker(groups, "again", instance_id="shop", process="process of one")

    again.joins()

    assert again.active == {"0": {0, 1, 2, 3}}
    assert (list(group_of(groups).members), group_of(groups).epoch) == (["again"], epoch)
    assert one.asks(2).answer.error is E.FENCED_INSTANCE_ID


def test_what_the_process_before_has_told_of_its_disk_goes_with_it(groups):
    one = Worker(groups, "one", instance_id="shop")
    one.joins(offsets={("0", 1): 7})
    one.leaves(-2)
    again = Worker(groups, "again", instance_id="shop", process="process of one")
    again.joins()

    assert groups.shard._kinds.streams._reports.of(G, one.member_id) == NO_REPORT


def test_an_instance_has_one_member_at_a_time(groups):
    Worker(groups, "one", instance_id="shop").joins()
    other = Worker(groups, "other", instance_id="shop")

    assert other.asks(0, owned=NOTHING, **other.about).answer.error is E.UNRELEASED_INSTANCE_ID
    assert other.asks(2).answer.error is E.FENCED_INSTANCE_ID
    assert Worker(groups, "third", instance_id="bar").asks(2).answer.error is E.UNKNOWN_MEMBER_ID


def test_a_static_member_that_does_not_come_back_is_removed(groups):
    one = Worker(groups, "one", instance_id="shop")
    one.joins()
    one.leaves(-2)
    groups.pass_ms(45_000)

    assert group_of(groups).members == {}


# Topologies -----------------------------------------------------------------------------------------------------------


def counts(**topics):
    return lambda name: topics.get(name.replace("-", "_"))


def test_internal_topics_follow_from_the_topics_that_are_read():
    configured = configure(WORD_COUNT, counts(lines=5))

    assert configured.missing == [InternalTopic("app-counts-changelog", 5), InternalTopic("app-words-repartition", 5)]
    assert configured.problem.code is StatusCode.MISSING_INTERNAL_TOPICS
    assert configured.problem.detail == ("Internal topics are missing: app-counts-changelog, app-words-repartition")
    assert {name: one.tasks for name, one in configured.subtopologies.items()} == {"0": 5, "1": 5}


def test_an_answer_names_three_missing_topics():
    many = topology(subtopology("0", reads=["lines"], changelogs=["a", "b", "c", "d", "e"]))

    assert configure(many, counts(lines=1)).problem.detail == (
        "Internal topics are missing: a, b, c and 2 additional topics"
    )


def test_a_topology_whose_topics_are_all_there_is_ready():
    configured = configure(WORD_COUNT, counts(lines=5, app_words_repartition=3, app_counts_changelog=3))

    assert configured.problem.code is StatusCode.INCORRECTLY_PARTITIONED_TOPICS
    assert configure(WORD_COUNT, counts(lines=5, app_words_repartition=5, app_counts_changelog=5)).is_ready


def test_a_repartition_topic_may_have_a_number_of_its_own():
    fixed = topology(
        subtopology("0", reads=["lines"], writes=["again"]),
        subtopology("1", rereads=[InternalTopic("again", 7)], changelogs=["state"]),
    )

    assert [topic.partitions for topic in configure(fixed, counts(lines=2)).missing] == [7, 7]


def test_a_missing_source_topic_is_named_and_nothing_is_created():
    configured = configure(topology(subtopology("0", reads=["b", "a"], changelogs=["state"])), counts())

    assert configured.problem.detail == "Source topics a, b are missing."
    assert (configured.problem.code, configured.missing) == (StatusCode.MISSING_SOURCE_TOPICS, ())


def test_topics_that_are_joined_have_equally_many_partitions():
    join = topology(subtopology("0", reads=["one", "other"], together=[together(reads=[0, 1])]))

    assert configure(join, counts(one=2, other=2)).is_ready
    problem = configure(join, counts(one=2, other=3)).problem
    assert problem.code is StatusCode.INCORRECTLY_PARTITIONED_TOPICS
    assert problem.detail == "Following topics do not have the same number of partitions: [{one=2, other=3}]"


def test_a_repartition_topic_follows_the_topics_that_it_is_joined_with():
    join = topology(
        subtopology("0", reads=["lines"], writes=["again"]),
        subtopology("1", reads=["other"], rereads=["again"], together=[together(reads=[0], rereads=[0])]),
    )

    assert configure(join, counts(lines=2, other=6)).missing == [InternalTopic("again", 6)]


def test_a_repartition_topic_of_a_fixed_size_does_not_follow():
    join = topology(
        subtopology("0", reads=["lines"], writes=["again"]),
        subtopology(
            "1", reads=["other"], rereads=[InternalTopic("again", 4)], together=[together(reads=[0], rereads=[0])]
        ),
    )

    assert configure(join, counts(lines=2, other=6)).problem.detail == (
        "Number of partitions [4] of repartition topic [again] doesn't match number of partitions [6] of the source "
        "topic."
    )


def test_repartition_topics_that_are_joined_get_the_largest_number():
    join = topology(
        subtopology("0", reads=["small"], writes=["one"]),
        subtopology("1", reads=["large"], writes=["other"]),
        subtopology("2", rereads=["one", "other"], together=[together(rereads=[0, 1])]),
    )

    assert [topic.partitions for topic in configure(join, counts(small=2, large=6)).missing] == [6, 6]


@pytest.mark.parametrize(
    ("subtopologies", "why"),
    [
        ([subtopology("0", rereads=["a"], writes=["a"])], "There may be loops in the topology"),
        ([subtopology("0", reads=["lines"], rereads=["a"])], "is never used as a sink topic"),
        ([subtopology("0", reads=["lines"]), subtopology("0", reads=["lines"])], "Two subtopologies have one id"),
        ([subtopology("0")], "No source topics found for subtopology 0"),
        ([subtopology("0", reads=["lines"], together=[together(reads=[3])])], "names a topic that it has not"),
    ],
)
def test_a_topology_that_contradicts_itself_is_refused(groups, subtopologies, why):
    invalid = topology(*subtopologies)
    with pytest.raises(InvalidTopology, match=why):
        configure(invalid, counts(lines=2))

    anna = Worker(groups, "anna", topology=invalid)
    assert anna.asks(0, owned=NOTHING, **anna.about).answer.error is E.STREAMS_INVALID_TOPOLOGY
    assert G not in groups.shard.image.modern


def test_no_task_is_given_before_the_internal_topics_are_there(groups):
    anna = Worker(groups, "anna", topology=WORD_COUNT)
    answer = anna.joins()
    assert (codes(answer), [topic.name for topic in answer.missing]) == (
        ["MISSING_INTERNAL_TOPICS"],
        ["app-counts-changelog", "app-words-repartition"],
    )
    assert (anna.active, state_of(groups)) == ({}, "NotReady")

    made(groups, "app-counts-changelog", 4)
    assert codes(anna.beats()) == ["MISSING_INTERNAL_TOPICS"]
    made(groups, "app-words-repartition", 4)
    assert codes(anna.beats()) == []

    assert anna.active == {"0": {0, 1, 2, 3}, "1": {0, 1, 2, 3}}
    assert state_of(groups) == "Stable"


def test_more_partitions_make_more_tasks(groups, anna):
    anna.joins()
    groups.topics.put("lines", 6)
    groups.shard.topics_changed({"lines"}, are_new=False)

    anna.beats()

    assert anna.active == {"0": {0, 1, 2, 3, 4, 5}}


def test_a_source_topic_that_is_deleted_takes_the_tasks_with_it(groups, anna):
    anna.joins()
    groups.topics.delete("lines")
    groups.shard.topics_changed({"lines"}, are_new=False)

    assert codes(anna.beats()) == ["MISSING_SOURCE_TOPICS"]
    settle(anna)

    assert (anna.active, state_of(groups)) == ({}, "NotReady")


def test_other_topics_change_nothing(groups, anna):
    anna.joins()
    written = len(groups.writer.log)
    made(groups, "other", 3)
    anna.beats()

    assert len(groups.writer.log) == written


def test_the_topology_of_the_first_member_stays(groups, anna, berta):
    anna.joins()

    refused = berta.asks(0, owned=NOTHING, **(berta.about | {"topology": WITH_STATE})).answer
    assert (refused.error, refused.message) == (E.INVALID_REQUEST, "Topology updates are not supported yet.")
    newer = topology(*PLAIN.subtopologies, epoch=1)
    assert berta.asks(0, owned=NOTHING, **(berta.about | {"topology": newer})).answer.error is E.INVALID_REQUEST


def test_a_member_with_an_older_topology_is_told_so(groups, anna, berta):
    anna.joins(topology=topology(*PLAIN.subtopologies, epoch=3))

    answer = berta.joins(topology=topology(epoch=2))

    assert codes(answer) == ["STALE_TOPOLOGY"]
    assert codes(berta.beats()) == ["STALE_TOPOLOGY"]
    assert group_of(groups).topology.epoch == 3


def test_topics_are_looked_at_again_after_a_start(groups, anna):
    anna.joins()
    groups.topics.put("lines", 5)
    groups.restart()

    anna.beats()

    assert anna.active == {"0": {0, 1, 2, 3, 4}}


def test_topics_that_change_while_a_record_is_written_are_looked_at_again(groups, anna):
    groups.writer.hold()
    reply = anna.asks(0, owned=NOTHING, **anna.about)
    groups.topics.put("lines", 6)
    groups.shard.topics_changed({"lines"}, are_new=False)
    groups.writer.release()
    anna.takes(reply.answer)
    assert anna.active == {"0": {0, 1, 2, 3}}

    anna.beats()

    assert anna.active == {"0": {0, 1, 2, 3, 4, 5}}


# Assignments ----------------------------------------------------------------------------------------------------------


def test_a_change_of_the_groups_configs_makes_new_assignments(groups):
    groups.topics.put("app-store-changelog", 4)
    anna, berta = (Worker(groups, name, topology=WITH_STATE) for name in ("anna", "berta"))
    anna.joins()
    berta.joins()
    settle(anna, berta)
    assert (anna.standby, berta.standby) == ({}, {})

    groups.configs["streams.num.standby.replicas"] = 1
    anna.beats()
    settle(anna, berta)

    assert anna.standby == berta.active
    assert berta.standby == anna.active
    assert group_of(groups).assignment_configs == {"num.standby.replicas": "1"}


def test_a_standby_task_becomes_the_active_one_without_a_gap(groups):
    groups.topics.put("app-store-changelog", 4)
    groups.configs["streams.num.standby.replicas"] = 1
    anna, berta = (Worker(groups, name, topology=WITH_STATE) for name in ("anna", "berta"))
    anna.joins()
    berta.joins()
    settle(anna, berta)
    anna.leaves()

    answer = berta.beats()

    assert codes(answer) == []
    assert berta.active == {"0": {0, 1, 2, 3}}
    assert berta.standby == {}


def test_members_of_one_process_never_have_the_same_task(groups):
    groups.topics.put("app-store-changelog", 4)
    groups.configs["streams.num.standby.replicas"] = 1
    threads = [Worker(groups, f"thread {number}", topology=WITH_STATE, process="one") for number in range(2)]
    for thread in threads:
        thread.joins()
    settle(*threads)

    assert [thread.standby for thread in threads] == [{}, {}], "there is no other process"
    other = Worker(groups, "other", topology=WITH_STATE)
    other.joins()
    settle(*threads, other)
    assert other.active
    assert other.standby
    for thread in threads:
        assert not thread.standby.get("0", set()) & (threads[0].active["0"] | threads[1].active["0"])


def configured(**of_subtopology):
    topics = {"lines": 4}
    built = []
    for name, (count, is_stateful) in of_subtopology.items():
        topics[name] = count
        built.append(subtopology(name, reads=[name], changelogs=[f"{name} state"] if is_stateful else []))
        topics[f"{name} state"] = count
    return list(configure(topology(*built), topics.get).subtopologies.values())


def workers(**processes):
    """Members by name, each with the process that it is a thread of."""
    return {name: Assigned(process, NOTHING, {}) for name, process in processes.items()}


def test_the_assignor_gives_every_task_to_one_member_and_members_equally_many():
    given = assign(workers(a="1", b="1", c="2"), configured(x=(5, False), y=(4, True)), 0)

    assert sorted(len(_flat(tasks.active)) for tasks in given.values()) == [3, 3, 3]
    assert sorted(task for tasks in given.values() for task in _flat(tasks.active)) == sorted(
        [("x", number) for number in range(5)] + [("y", number) for number in range(4)]
    )


def test_the_assignor_moves_as_few_tasks_as_it_can():
    two = assign(workers(a="1", b="2"), configured(x=(6, True)), 0)
    before = {
        name: Assigned(process, two.get(name, NOTHING), {}) for name, process in (("a", "1"), ("b", "2"), ("c", "3"))
    }

    three = assign(before, configured(x=(6, True)), 0)

    assert [len(_flat(three[name].active)) for name in "abc"] == [2, 2, 2]
    assert all(_flat(three[name].active) <= _flat(two[name].active) for name in "ab")


def test_a_task_goes_to_a_member_that_has_its_state_on_its_disk():
    offsets = {"a": {}, "b": {("x", 1): 50, ("x", 0): 70}, "c": {("x", 0): 90}}
    given = assign({name: Assigned(name, NOTHING, offsets[name]) for name in "abc"}, configured(x=(3, True)), 0)

    assert [_flat(given[name].active) for name in "abc"] == [{("x", 2)}, {("x", 1)}, {("x", 0)}]


def test_a_member_with_the_standby_task_comes_before_one_with_more_state():
    standby = Tasks({}, {"x": frozenset({0})})
    given = assign(
        {"a": Assigned("a", standby, {("x", 0): 5}), "b": Assigned("b", NOTHING, {("x", 0): 500})},
        configured(x=(1, True)),
        0,
    )

    assert _flat(given["a"].active) == {("x", 0)}


def test_standby_tasks_are_at_other_processes_as_far_as_there_are_any():
    given = assign(workers(a="1", b="2", c="3"), configured(x=(3, True), y=(3, False)), 5)

    for number in range(3):
        holders = [name for name, one in given.items() if ("x", number) in _flat(one.active) | _flat(one.standby)]
        assert sorted(holders) == ["a", "b", "c"]
    assert all("y" not in one.standby for one in given.values())


def _flat(tasks):
    return {(name, number) for name, numbers in tasks.items() for number in numbers}


# What else an answer says ---------------------------------------------------------------------------------------------


def test_a_member_may_ask_for_the_end_of_the_whole_application(groups, anna, berta):
    anna.joins()
    berta.joins()

    anna.leaves(shuts_down=True)
    answer = berta.beats()

    assert codes(answer) == ["SHUTDOWN_APPLICATION"]
    assert answer.statuses[0].detail == (
        "Streams group member anna encountered a fatal error and requested a shutdown for the entire application."
    )
    berta.leaves()
    assert codes(anna.joins()) == [], "the application starts anew"


def test_members_are_told_where_partitions_are_asked_about(groups, anna, berta):
    one, other = Endpoint("one", 1), Endpoint("other", 2)
    first = anna.joins(endpoint=one)
    assert (first.endpoint_epoch, [(view.endpoint, view.active) for view in first.endpoints]) == (
        0,
        [(one, [("lines", [0, 1, 2, 3])])],
    )
    berta.joins(endpoint=other)
    settle(anna, berta)
    told = anna.beats(endpoint_epoch=0)

    assert {view.endpoint: view.active for view in told.endpoints} == {
        one: [("lines", sorted(anna.active["0"]))],
        other: [("lines", sorted(berta.active["0"]))],
    }
    assert anna.beats(endpoint_epoch=told.endpoint_epoch).endpoints is None


def test_missing_tags_are_named(groups, anna):
    groups.configs["streams.rack.aware.assignment.tags"] = ("zone", "cluster")

    answer = anna.joins(tags={"zone": "a"})

    assert codes(answer) == ["MISSING_CLIENT_TAGS"]
    assert "[cluster]" in answer.statuses[0].detail
    assert codes(anna.beats(knows_missing_tags=False)) == []


def test_what_a_member_tells_of_its_disk_is_described(groups, anna):
    anna.joins(offsets={("0", 1): 7}, end_offsets={("0", 1): 9})
    anna.beats(offsets={("0", 1): 8})

    [described] = groups.shard.describe_streams_group(G).members

    assert (described.offsets, described.end_offsets) == ({("0", 1): 8}, {("0", 1): 9})
    anna.leaves()
    anna.joins()
    assert groups.shard.describe_streams_group(G).members[0].offsets == {}


def test_a_group_is_described_with_its_topology(groups):
    anna = Worker(groups, "anna", topology=WORD_COUNT, rack_id="r", tags={"zone": "a"})
    anna.joins()

    described = groups.shard.describe_streams_group(G)

    assert (described.state, described.epoch, described.assignment_epoch, described.assignor) == (
        "NotReady",
        2,
        2,
        "sticky",
    )
    assert described.topology == WORD_COUNT
    assert not described.configured.is_ready
    [member] = described.members
    assert (member.member.rack_id, member.member.tags, member.target) == ("r", {"zone": "a"}, NOTHING)
    groups.restart()
    assert groups.shard.describe_streams_group(G).configured is None


# Other kinds, offsets, administration ---------------------------------------------------------------------------------


def test_a_group_of_another_kind_is_no_streams_group(groups, anna):
    groups.commit(3)
    classic = groups.member("carla")
    classic.joins()

    refused = anna.asks(0, owned=NOTHING, **anna.about).answer
    assert (refused.error, refused.message) == (E.GROUP_ID_NOT_FOUND, f"Group {G} is not a streams group.")
    assert anna.leaves().error is E.GROUP_ID_NOT_FOUND


def test_an_empty_classic_group_becomes_a_streams_group_with_its_offsets(groups, anna):
    classic = groups.member("carla")
    classic.joins()
    groups.leaves(classic.member_id)
    groups.commit(3)

    anna.joins()

    assert groups.shard.kind_of(G) == "streams"
    assert groups.committed() == 3


def test_an_empty_streams_group_becomes_a_classic_group_with_its_offsets(groups, anna):
    anna.joins()
    groups.commit(3, generation=2, member_id="anna", topic="lines")
    anna.leaves()

    classic = groups.member("carla")
    classic.joins()

    assert groups.shard.kind_of(G) == "classic"
    assert groups.committed(topic="lines") == 3


def test_a_classic_member_does_not_join_a_streams_group_with_members(groups, anna):
    anna.joins()

    assert groups.member("carla").asks_to_join().answer.error is E.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("about", "error"),
    [
        ({"generation": 3, "member_id": "anna"}, E.STALE_MEMBER_EPOCH),
        ({"generation": 2, "member_id": "anna"}, E.NONE),
        ({"generation": 1, "member_id": "anna"}, E.STALE_MEMBER_EPOCH),
        ({"generation": 2, "member_id": "berta"}, E.UNKNOWN_MEMBER_ID),
        ({}, E.UNKNOWN_MEMBER_ID),
        ({"generation": 2, "member_id": "anna", "knows_member_epochs": False}, E.UNSUPPORTED_VERSION),
        ({"transaction": ProducerIdAndEpoch(12, 0)}, E.NONE),
        ({"generation": 2, "member_id": "anna", "transaction": ProducerIdAndEpoch(12, 0)}, E.NONE),
        ({"generation": 3, "member_id": "anna", "transaction": ProducerIdAndEpoch(12, 0)}, E.STALE_MEMBER_EPOCH),
    ],
)
def test_members_commit_with_their_epochs(groups, anna, about, error):
    anna.joins()
    reply = Reply()

    groups.writer.append(groups.shard.commit(Commit(G, [OffsetToCommit("lines", 0, 5)], **about), reply))

    assert reply.answer == [error]


def test_a_member_commits_with_an_older_epoch_what_it_has_had_since_then(groups, anna, berta):
    anna.joins()
    berta.joins()
    settle(anna, berta)
    kept, given = min(anna.active["0"]), min(berta.active["0"])

    def commit(partition, topic="lines"):
        reply = Reply()
        request = Commit(G, [OffsetToCommit(topic, partition, 5)], generation=2, member_id="anna")
        groups.writer.append(groups.shard.commit(request, reply))
        return reply.answer

    assert anna.epoch > 2
    assert (commit(kept), commit(given), commit(0, "other")) == (
        [E.NONE],
        [E.STALE_MEMBER_EPOCH],
        [E.STALE_MEMBER_EPOCH],
    )


def test_members_read_offsets_with_their_epochs(groups, anna):
    anna.joins()

    def check(member_id, epoch):
        return groups.shard.check_fetch(G, member_id, epoch)

    assert (check(None, -1), check("anna", 2), check("anna", 1), check("berta", 2)) == (
        E.NONE,
        E.NONE,
        E.STALE_MEMBER_EPOCH,
        E.UNKNOWN_MEMBER_ID,
    )


def test_offsets_of_topics_that_are_read_are_not_deleted(groups, anna):
    anna.joins()
    for topic in ("lines", "other"):
        groups.commit(3, generation=2, member_id="anna", topic=topic)
    answers = []
    groups.writer.append(
        groups.shard.delete_offsets(
            G, [("lines", 0), ("other", 0)], lambda error, codes: answers.append((error, codes))
        )
    )

    assert answers == [(E.NONE, [E.GROUP_SUBSCRIBED_TO_TOPIC, E.NONE])]


def test_a_group_is_deleted_when_its_members_have_gone(groups, anna):
    anna.joins()
    answers = []
    groups.writer.append(groups.shard.delete(G, answers.append))
    anna.leaves()
    groups.writer.append(groups.shard.delete(G, answers.append))

    assert answers == [E.NON_EMPTY_GROUP, E.NONE]
    assert groups.shard.kind_of(G) is None
    groups.restart()
    assert groups.shard.kind_of(G) is None


def test_a_group_is_listed_with_its_state(groups, anna):
    anna.joins()

    assert list(groups.shard.list()) == [ListedGroup(G, "streams", "Stable", "streams", 1)]


def test_members_are_removed_by_a_call(groups, anna, berta):
    anna.joins()
    berta.joins()

    assert groups.shard.expire_members(G, "anna") == 1
    assert list(group_of(groups).members) == ["berta"]
    assert groups.shard.expire_members(G, None) == 1
    assert groups.shard.expire_members(G, None) == 0


def test_records_that_cannot_be_written_change_nothing(groups, anna, berta):
    anna.joins()
    groups.writer.hold()
    reply = berta.asks(0, owned=NOTHING, **berta.about)
    groups.writer.settle_one(E.KAFKA_STORAGE_ERROR)
    groups.writer.release()

    assert reply.answer.error is E.NOT_COORDINATOR
    assert list(group_of(groups).members) == ["anna"]
    berta.joins()
    settle(anna, berta)
    assert len(berta.active["0"]) == 2
