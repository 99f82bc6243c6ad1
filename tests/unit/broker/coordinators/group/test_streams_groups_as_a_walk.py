"""Random walks of streams groups: members come, go, stall and forget to give up tasks while topics and configs change,
time passes, writes are slow or fail, and the coordinator starts anew."""

import os

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.coordinators.group.streams.member import NOTHING, Tasks
from protocol.errors import ErrorCode as E
from tests.support.group_records import contents
from tests.unit.broker.coordinators.group.harness import Coordinator, G
from tests.unit.broker.coordinators.group.streams_members import WORD_COUNT, Worker

LONG_RUN = "OTTLA_TEST_GROUP_WALKS"
WALKS = int(os.environ.get(LONG_RUN, "150"))

TOPICS = ["lines", "app-words-repartition", "app-counts-changelog"]
MEMBERS = st.integers(0, 4)
PROCESSES = ["one", "one", "other", "other", "third"]
EVERYTHING = Tasks(*[{name: frozenset(range(8)) for name in ("0", "1")}] * 3)


class StreamsGroupWalk(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.groups = Coordinator(streams_max_size=4)
        for name in TOPICS:
            self.groups.topics.put(name, 4)
        instances = [None, None, None, "shop 1", "shop 2"]
        self.members = [
            Worker(
                self.groups,
                f"member {number}",
                instance_id=instance,
                process=PROCESSES[number],
                topology=WORD_COUNT,
                rebalance_timeout_ms=20_000,
            )
            for number, instance in enumerate(instances)
        ]
        self.asked = [None] * len(self.members)

    # What happens

    @rule(number=MEMBERS)
    def joins(self, number):
        member = self.members[number]
        member.tasks = NOTHING
        self._ask(number, 0, owned=NOTHING, **member.about)

    @rule(number=MEMBERS, tells=st.booleans(), gives_up=st.booleans())
    def beats(self, number, tells, gives_up):
        """It may not say what it has, or say that it still has everything."""
        member = self.members[number]
        kept = Tasks(*[_existing(tasks, self._count()) for tasks in EVERYTHING])
        if member.epoch:
            self._ask(number, member.epoch, owned=None if not tells else member.tasks if gives_up else kept)

    @rule(number=MEMBERS, epoch=st.sampled_from([-1, -2]))
    def leaves(self, number, epoch):
        member = self.members[number]
        if epoch == -1 or member.instance_id is not None:
            self._ask(number, epoch)
            member.epoch, member.tasks = 0, NOTHING

    @rule(number=MEMBERS, epoch=st.integers(1, 20))
    def sends_any_epoch(self, number, epoch):
        self.members[number].asks(epoch, owned=NOTHING)

    @rule(number=MEMBERS, process=st.sampled_from(PROCESSES))
    def moves_to_another_process(self, number, process):
        member = self.members[number]
        if member.epoch == 0:
            member.about = member.about | {"process_id": process}

    @rule(number=MEMBERS, partition=st.integers(0, 3), offset=st.integers(0, 99))
    def tells_of_its_disk(self, number, partition, offset):
        member = self.members[number]
        if member.epoch:
            self._ask(number, member.epoch, owned=member.tasks, offsets={("1", partition): offset})

    @rule(standbys=st.integers(0, 2))
    def the_group_wants_other_standbys(self, standbys):
        self.groups.configs["streams.num.standby.replicas"] = standbys

    @rule(delay_ms=st.sampled_from([0, 3_000]), interval_ms=st.sampled_from([0, 1_000]))
    def assignments_take_their_time(self, delay_ms, interval_ms):
        self.groups.configs["streams.initial.rebalance.delay.ms"] = delay_ms
        self.groups.configs["streams.assignment.interval.ms"] = interval_ms

    @rule()
    def the_topics_grow(self):
        partitions = min(self._count() + 1, 7)
        for name in TOPICS:
            self.groups.topics.put(name, partitions)
        self.groups.shard.topics_changed(set(TOPICS), are_new=False)

    @rule(name=st.sampled_from(TOPICS))
    def a_topic_is_deleted_or_made_again(self, name):
        if self.groups.topics.of_name(name) is not None:
            self.groups.topics.delete(name)
            self.groups.shard.topics_changed({name}, are_new=False)
        else:
            self.groups.topics.put(name, self._count())
            self.groups.shard.topics_changed({name}, are_new=True)

    @rule(by_ms=st.sampled_from([1, 1_000, 10_000, 45_000]))
    def time_passes(self, by_ms):
        self.groups.pass_ms(by_ms)

    @rule()
    def writes_are_slow(self):
        self.groups.writer.hold()

    @precondition(lambda self: self.groups.writer.under_way)
    @rule(fails=st.booleans())
    def a_write_ends(self, fails):
        self.groups.writer.settle_one(E.KAFKA_STORAGE_ERROR if fails else None)

    @precondition(lambda self: self.groups.writer.under_way)
    @rule()
    def writes_are_late(self):
        self.groups.writer.time_out()

    @rule()
    def writes_are_quick(self):
        self.groups.writer.release()
        self._take_answers()

    @rule(keeps=st.booleans())
    def the_coordinator_starts_anew(self, keeps):
        self.groups.restart(keeps_what_is_under_way=keeps)
        self.groups.writer.release()
        self._take_answers()

    # What is true

    @invariant()
    def no_active_task_has_two_members(self):
        group = self._group()
        owners = {}
        for member in () if group is None else group.members.values():
            for held in (member.assigned, member.pending_revocation):
                for task in _each(held.active):
                    assert owners.setdefault(task, member.member_id) == member.member_id
        if group is not None:
            assert group.active_owners == owners

    @invariant()
    def no_process_has_the_state_of_a_task_twice(self):
        """A member that changes the role of a task has it in both roles for a while; two members of a process never
        have it."""
        group = self._group()
        users = {}
        for member in () if group is None else group.members.values():
            for held in (member.assigned, member.pending_revocation):
                for tasks in (held.active, held.standby, held.warmup):
                    for task in _each(tasks):
                        user = users.setdefault((member.process_id, task), member.member_id)
                        moved = {self._process(user), self._process(member.member_id)} != {member.process_id}
                        assert user == member.member_id or moved

    @invariant()
    def the_log_says_it_all(self):
        assert contents(self.groups.replayed()) == contents(self.groups.shard.image)

    def teardown(self):
        """When nothing happens any more, every member reaches its target in a few heartbeats."""
        self.groups.writer.recover()
        self.groups.writer.release()
        self._take_answers()
        for name in TOPICS:
            self.groups.topics.put(name, self._count())
        self.groups.shard.topics_changed(set(TOPICS), are_new=True)
        self.groups.pass_ms(3_000)
        known = {} if self._group() is None else self._group().members
        present = [member for member in self.members if member.member_id in known]
        for member in present:
            # Each joins anew, as a client that was fenced; a static one lets its instance go first.
            if member.instance_id is not None:
                member.leaves(-2)
            member.joins()
        for _ in range(4 * len(present) + 4):
            self.groups.pass_ms(1_000)
            for member in present:
                member.beats()
        group = self._group()
        for member in present:
            state = group.members[member.member_id]
            target = group.target(member.member_id)
            assert state.is_at(group.assignment_epoch), (state, target)
            assert {one: frozenset(parts) for one, parts in state.assigned.active.items()} == target.active
            assert state.assigned.standby == target.standby
            assert member.tasks == Tasks(target.active, target.standby, target.warmup)
        if present:
            everything = {task for member in present for task in _each(member.tasks.active)}
            assert everything == {(name, number) for name in ("0", "1") for number in range(self._count())}

    # Parts

    def _group(self):
        return self.groups.shard.image.modern.get(G)

    def _process(self, member_id):
        return next(member for member in self.members if member.member_id == member_id).about["process_id"]

    def _count(self):
        return max([topic.partitions for topic in self.groups.topics.by_name.values()], default=4)

    def _ask(self, number, epoch, **fields):
        self._take_answers()
        if self.asked[number] is None:  # a client waits for its answer
            self.asked[number] = self.members[number].asks(epoch, **fields)
            self._take_answers()

    def _take_answers(self):
        for number, reply in enumerate(self.asked):
            if reply is None or reply.is_parked:
                continue
            self.asked[number] = None
            member, answer = self.members[number], reply.answer
            if answer.error is E.NONE and answer.member_epoch >= 0:
                member.takes(answer)
            elif answer.error in (E.FENCED_MEMBER_EPOCH, E.UNKNOWN_MEMBER_ID, E.GROUP_ID_NOT_FOUND):
                member.epoch, member.tasks = 0, NOTHING


def _each(tasks):
    return [(name, number) for name, numbers in tasks.items() for number in numbers]


def _existing(tasks, count):
    return {name: frozenset(number for number in numbers if number < count) for name, numbers in tasks.items()}


TestStreamsGroupWalk = StreamsGroupWalk.TestCase
TestStreamsGroupWalk.settings = settings(
    max_examples=WALKS, stateful_step_count=40, derandomize=LONG_RUN not in os.environ, deadline=None
)
