"""Random walks of consumer groups: members of both protocols come, go, stall and forget to give up partitions while
topics change, time passes, writes are slow or fail, and the coordinator starts anew."""

import os

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.coordinators.group.modern.timers import Deadline
from protocol.errors import ErrorCode as E
from tests.support.group_records import contents
from tests.unit.broker.coordinators.group.consumer_members import Consumer
from tests.unit.broker.coordinators.group.harness import Coordinator, G
from tests.unit.broker.coordinators.group.test_migration import ClassicClient

LONG_RUN = "OTTLA_TEST_GROUP_WALKS"
WALKS = int(os.environ.get(LONG_RUN, "150"))

TOPICS = ["orders", "payments", "refunds"]
MEMBERS = st.integers(0, 4)


class ConsumerGroupWalk(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.groups = Coordinator(consumer_max_size=4)
        self.groups.topics.put("orders", 4)
        instances = [None, None, None, "shop 1", "shop 2"]
        self.members = [
            Consumer(self.groups, f"member {number}", instance_id=instance) for number, instance in enumerate(instances)
        ]
        self.classic = ClassicClient(self.groups, "classic", needs_known_id=False)
        self.asked = [None] * len(self.members)

    # What happens

    @rule(number=MEMBERS, topics=st.sets(st.sampled_from(TOPICS)), assignor=st.sampled_from([None, "uniform", "range"]))
    def joins(self, number, topics, assignor):
        member = self.members[number]
        member.about = {"topics": sorted(topics), "rebalance_timeout_ms": 20_000, "assignor": assignor}
        member.assigned = {}
        self._ask(number, 0, owned={}, **member.about)

    @rule(number=MEMBERS, tells=st.booleans(), gives_up=st.booleans())
    def beats(self, number, tells, gives_up):
        """It may not say what it has, or say that it still has everything."""
        member = self.members[number]
        everything = {topic.topic_id: frozenset(range(topic.partitions)) for topic in self._topics()}
        owned = None if not tells else dict(member.assigned) if gives_up else everything
        self._ask(number, member.epoch, owned=owned)

    @rule(number=MEMBERS, topics=st.sets(st.sampled_from(TOPICS)))
    def reads_other_topics(self, number, topics):
        member = self.members[number]
        self._ask(number, member.epoch, owned=dict(member.assigned), topics=sorted(topics))

    @rule(number=MEMBERS, epoch=st.sampled_from([-1, -2]))
    def leaves(self, number, epoch):
        member = self.members[number]
        if epoch == -1 or member.instance_id is not None:
            self._ask(number, epoch)
            member.epoch, member.assigned = 0, {}

    @rule(number=MEMBERS, epoch=st.integers(1, 20))
    def sends_any_epoch(self, number, epoch):
        self.members[number].asks(epoch, owned={})

    @rule()
    def a_classic_member_goes_on(self):
        if self.classic.generation < 0:
            reply = self.classic.asks_to_join()
            if not reply.is_parked and reply.answer.error is E.NONE:
                self.classic.takes(reply.answer)
        elif not self.classic.goes_on() and self.classic.beats() is not E.NONE:
            self.classic.member_id, self.classic.generation = "", -1

    @rule()
    def the_classic_member_leaves(self):
        if self.classic.member_id:
            self.classic.leaves()
        self.classic.member_id, self.classic.generation, self.classic.partitions = "", -1, set()

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 6))
    def a_topic_is_made_or_grows(self, name, partitions):
        known = self.groups.topics.of_name(name)
        if known is None or partitions > known.partitions:
            self.groups.topics.put(name, partitions)
            self.groups.shard.topics_changed({name}, are_new=known is None)

    @rule(name=st.sampled_from(TOPICS))
    def a_topic_is_deleted(self, name):
        if self.groups.topics.of_name(name) is not None:
            self.groups.topics.delete(name)
            self.groups.shard.topics_changed({name}, are_new=False)

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

    @rule(number=MEMBERS, comes=st.booleans())
    def comes_or_goes_late(self, number, comes):
        """Where the group is of the classic protocol, or has one member of the newer, it changes its kind."""
        self.groups.writer.hold()
        if comes:
            self.joins(number, {"orders"}, None)
        else:
            self.leaves(number, -1)
        self.groups.writer.time_out()
        self.writes_are_quick()

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
    def no_partition_has_two_members(self):
        group = self._group()
        owners = {}
        for member in () if group is None else group.members.values():
            for owned in (member.assigned, member.pending_revocation):
                for topic_id, partitions in owned.items():
                    for partition in partitions:
                        assert owners.setdefault((topic_id, partition), member.member_id) == member.member_id
        if group is not None:
            known = {(topic, one): member for topic, parts in group.owners.items() for one, member in parts.items()}
            assert known == owners

    @invariant()
    def the_group_is_of_one_kind(self):
        shard = self.groups.shard
        recorded = shard.image.groups.get(G)
        is_live = G in shard._membership.group_ids()
        assert self._group() is None or (recorded is None and not is_live)
        assert is_live or recorded is None or not recorded.members

    @invariant()
    def every_member_has_a_session(self):
        if (group := self._group()) is not None and not self.groups.shard._queues.is_busy(G):
            deadlines = self.groups.shard._kinds.consumer.deadlines
            assert all(deadlines.has(G, member_id, Deadline.SESSION) for member_id in group.members)

    @invariant()
    def the_log_says_it_all(self):
        assert contents(self.groups.replayed()) == contents(self.groups.shard.image)

    def teardown(self):
        """When nothing happens any more, every member reaches its target in a few heartbeats."""
        self.groups.writer.recover()
        self.groups.writer.release()
        self._take_answers()
        self.groups.pass_ms(1)
        self.the_classic_member_leaves()
        known = {} if self._group() is None else self._group().members
        present = [member for member in self.members if member.member_id in known]
        for member in present:
            # Each joins anew, as a client that was fenced; a static one lets its instance go first.
            if member.instance_id is not None:
                member.leaves(-2)
            member.about = {"topics": ["orders"], "rebalance_timeout_ms": 20_000}
            member.joins()
        for _ in range(3 * len(present) + 3):
            for member in present:
                member.beats()
        group = self._group()
        for member in present:
            state = group.members[member.member_id]
            if not group.classic_members:
                assert state.is_at(group.assignment_epoch)
                assert {topic: frozenset(parts) for topic, parts in state.assigned.items()} == group.target(
                    member.member_id
                )

    # Parts

    def _group(self):
        group = self.groups.shard.image.modern.get(G)
        return group if group is not None and group.kind == "consumer" else None

    def _topics(self):
        return list(self.groups.topics.by_name.values())

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
                member.epoch, member.assigned = 0, {}


TestConsumerGroupWalk = ConsumerGroupWalk.TestCase
TestConsumerGroupWalk.settings = settings(
    max_examples=WALKS, stateful_step_count=40, derandomize=LONG_RUN not in os.environ, deadline=None
)
