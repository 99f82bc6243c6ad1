"""Random walks of a group: chance decides the next event.

A step is three bytes: what happens, to whom, and how. Every number means something, so that any bytes are a walk.
"""

from itertools import count

from broker.coordinators.group.classic_group import EmptyingRound, GroupState, JoinRound, SyncRound
from broker.coordinators.result import ProducerIdAndEpoch
from protocol.errors import ErrorCode
from protocol.records.group_metadata import GroupMetadataKey, encode_group_key
from tests.support.group_records import contents
from tests.unit.broker.coordinators.group.harness import Coordinator, G, Reply
from tests.unit.broker.coordinators.group.processes import PARTITIONS, PROTOCOLS, Process

FAILURES = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NOT_ENOUGH_REPLICAS)
GROUP_KEY = encode_group_key(GroupMetadataKey(group=G))
WAITS_MS = (1, 1_000, 3_000, 6_100, 12_000)
STEP_MS = 1_500


class Producer:
    """A producer with transactions."""

    def __init__(self, producer_id):
        self.producer_id = producer_id
        self.offsets = set()
        """What the open transaction has committed, as far as the producer knows."""
        self.decision = None
        """Whether the transaction that is ending commits; None where none is."""


class Walk:
    """A coordinator, its processes, and what must be true whatever happens."""

    def __init__(self, steps):
        how = steps[0]
        self.happenings = ROUGH if how & 64 else HAPPENINGS
        self.has_static_members = bool(how & 32)
        self.story = []
        self.groups = Coordinator(
            initial_rebalance_delay_ms=(0, 0, 3_000)[how % 3], max_size=(2**31 - 1, 3)[how // 3 % 5 == 0]
        )
        self.replies = []
        self.owners = {}
        """Who owns a partition in a generation."""
        self.fenced = set()
        """Member ids of static members that somebody else has replaced for good."""
        self.incarnation = 0
        """How often the group was deleted."""
        self.highest = self.durable = 0
        """Generations: of the group as it was last seen, and of its record."""
        self.seen = 0
        """How much of the log."""
        self.offsets = count(1)
        self.producers = [Producer(12), Producer(13)]
        self.never_committed = set()
        """Offsets of aborted transactions."""
        self.processes = [
            Process(
                self,
                number,
                instance_id=f"shop {number}" if self.has_static_members and (number % 2 or how >= 128) else None,
                names=PROTOCOLS[2] if how % 4 < 2 else PROTOCOLS[(how >> number) % 3],
                session_timeout_ms=(6_000, 10_000)[number % 3 == 0],
                rebalance_timeout_ms=(5_000, 20_000, 6_000)[number % 3],
                needs_known_id=number != 4,
                may_skip_assignment=number != 3,
            )
            for number in range(5)
        ]
        self.steps = steps[1:]

    def run(self):
        for place in range(0, len(self.steps) - 2, 3):
            what, whom, how = self.steps[place : place + 3]
            self.step(what, self.processes[whom % len(self.processes)], how)
            self.check()
        self.ends()

    def step(self, what, process, how):
        name, happens = self.happenings[what % len(self.happenings)]
        if name != "nothing":
            self.story.append(f"{name}: {process} {how}")
        happens(self, process, how)

    # What happens.

    def goes_on(self, process, how):
        process.goes_on(how)

    def asks_again(self, process, how):
        if not process.is_out:
            process.asks(how)

    def commits_of(self, process, how):
        process.commits(as_corpse=how % 3 == 0)

    def dies(self, process, how):
        process.dies()

    def leaves(self, process, how):
        process.leaves()

    def is_removed(self, process, how):
        if process.client.instance_id is not None:
            self.waits(self.groups.leaves(("", process.client.instance_id)))

    def changes(self, process, how):
        process.changes(how)

    def stalls(self, process, how):
        process.is_stalled = not process.is_stalled

    def time_passes(self, process, how):
        """Whoever is not stalled goes on meanwhile."""
        left_ms = WAITS_MS[how % len(WAITS_MS)]
        while left_ms > 0:
            self.groups.pass_ms(min(left_ms, STEP_MS))
            left_ms -= STEP_MS
            self.everybody_goes_on(process, how)

    def everybody_goes_on(self, process, how):
        for each in self.processes:
            if not each.is_stalled and not each.is_out:
                each.goes_on(how)
        self.check()

    def writer_does(self, process, how):
        writer = self.groups.writer
        doing = how % 10
        if doing < 3:
            writer.hold()
        elif doing < 6:
            writer.recover()
            writer.release()
        elif doing == 6 and writer.under_way:
            writer.settle_one()
        elif doing == 7 and writer.under_way:
            writer.settle_one(FAILURES[how // 10 % 3])
        elif doing == 8:
            writer.fail(FAILURES[how // 10 % 3])
        elif doing == 9:
            writer.time_out()

    def restarts(self, process, how):
        self.groups.restart(keeps_what_is_under_way=bool(how % 2))
        self.highest = 0
        assert all(not reply.is_parked for reply in self.replies)

    def simple_commit(self, process, how):
        self.commits(PARTITIONS[how % 4], {})

    def transactional_commit(self, process, how):
        """A producer commits in its transaction, for the member or for nobody; not while the transaction ends."""
        producer = self.producers[how % len(self.producers)]
        if producer.decision is None:
            client = process.client
            about = {"generation": client.generation, "member_id": client.member_id, "instance_id": client.instance_id}
            offset = next(self.offsets)
            producer.offsets.add(offset)
            transaction = ProducerIdAndEpoch(producer.producer_id, 0)
            reply = self.groups.asks_to_commit(
                offset, Reply(), topic=f"topic {how % 4}", transaction=transaction, **(about if how % 8 < 4 else {})
            )
            self.waits(reply)

    def transaction_ends(self, process, how):
        """The marker is written, again and again until it stands: what is decided stays so."""
        producer = self.producers[how % len(self.producers)]
        if producer.decision is None:
            producer.decision = how % 16 < 8

        def ended(error):
            if error is ErrorCode.NONE and producer.decision is not None:
                if not producer.decision:
                    self.never_committed |= producer.offsets
                producer.offsets, producer.decision = set(), None

        self.groups.writer.append_marker(producer.producer_id, self.waits(Reply(ended)), commits=producer.decision)

    def is_deleted(self, process, how):
        shard, writer = self.groups.shard, self.groups.writer
        if how % 4 == 0:
            writer.append(shard.delete(G, self.waits(Reply())))
        elif how % 4 == 1:
            for change in shard.expire_offsets():
                writer.append(change)

    def nothing(self, process, how):
        pass

    # What is remembered.

    def waits(self, reply):
        self.replies = [waiting for waiting in self.replies if waiting.is_parked]
        self.replies.append(reply)
        return reply

    def commits(self, partition, about, *, was_assigned=False):
        groups = self.groups
        topic, offset = f"topic {partition}", next(self.offsets)

        def has_committed(errors):
            if errors == [ErrorCode.NONE]:
                assert groups.committed(topic=topic) == offset

        generation = about.get("generation", -1)
        reply = self.waits(groups.asks_to_commit(offset, Reply(has_committed), topic=topic, **about))
        if generation >= 0 and (reply.is_parked or reply.answer == [ErrorCode.NONE]):
            # It was let through.
            assert groups.generation() == generation
            assert groups.state() != "CompletingRebalance"
            assert about["member_id"] not in self.fenced
            if was_assigned:
                owner = self.owners[self.incarnation, generation, partition]
                assert owner == (about["instance_id"] or about["member_id"])

    def owns(self, process):
        generation = process.client.generation
        for partition in process.owned:
            owner = self.owners.setdefault((*process.assigned_in, partition), process.identity)
            assert owner == process.identity, f"{owner} and {process} own {partition} in generation {generation}"
        # A static member may have missed a generation, and believe what was true before it: it can't have been asked.
        if not self.has_static_members:
            members = [each for each in self.processes if self._is_member_of(each, generation)]
            owned = [partition for member in members for partition in member.owned]
            assert len(owned) == len(set(owned)), f"{members} own {owned} in generation {generation}"

    def _is_member_of(self, process, generation):
        group = self.groups.group()
        client = process.client
        return (
            group is not None
            and client.generation == generation
            and group.validate_member(client.member_id, client.instance_id) is ErrorCode.NONE
        )

    # What must be true after every step.

    def check(self):
        groups = self.groups
        for key, value in groups.writer.log[self.seen :]:
            if key == GROUP_KEY and value is None:
                # The next one of this name begins anew.
                self.incarnation += 1
                self.highest = self.durable = 0
        self.seen = len(groups.writer.log)
        self.check_offsets()
        group = groups.group()
        if group is not None:
            assert group.generation >= self.highest
            self.highest = group.generation
            self.check_record(group)
            self.check_waiting(group)

    def check_offsets(self):
        """No offset of a transaction counts that was aborted, or that nobody has decided to commit."""
        forbidden = self.never_committed.union(*(each.offsets for each in self.producers if not each.decision))
        assert forbidden.isdisjoint(committed.offset for _, committed in self.groups.shard.image.offsets.of_group(G))

    def check_record(self, group):
        metadata = group.metadata
        if metadata is not None:
            assert self.durable <= metadata.generation <= group.generation
            self.durable = metadata.generation
        if group.round is not None or group.replacements_under_way:
            return
        if metadata is None or not metadata.members:
            assert not group.members
            return
        assert (group.leader, group.protocol_type) == (metadata.leader, metadata.protocol_type)
        assert list(group.members) == list(metadata.members)
        for member_id, recorded in metadata.members.items():
            member = group.members[member_id]
            assert member.recorded(metadata.protocol, recorded.assignment) == recorded

    def check_waiting(self, group):
        """Whoever waits, waits for something that will come."""
        round_, members = group.round, group.members.values()
        has_under_way = bool(self.groups.writer.under_way)
        is_busy = self.groups.shard._queues.is_busy(group.group_id)  # then alarms wait, too
        assert group.joined == sum(member.join_reply is not None for member in members)
        for member in members:
            assert is_busy or member.session.is_pending or (member.is_waiting and not member.is_new)
            assert member.join_reply is None or isinstance(round_, JoinRound) or group.replacements_under_way
            assert member.sync_reply is None or isinstance(round_, SyncRound)
        assert is_busy or all(alarm.is_pending for alarm in group.pending.values())
        assert is_busy or not group.unsynced or group.unsynced_alarm.is_pending
        assert group.unsynced <= group.members.keys()
        if isinstance(round_, JoinRound):
            assert is_busy or round_.alarm.is_pending
            assert round_.is_initial or not (group.members and group.all_members_joined)
        elif isinstance(round_, EmptyingRound):
            assert not group.members
            assert has_under_way or round_.alarm.is_pending
        elif isinstance(round_, SyncRound):
            assert has_under_way if round_.is_storing else group.unsynced
        assert not group.replacements_under_way or has_under_way

    # What must be true in the end.

    def agrees(self):
        """Whoever is left goes on undisturbed: then everybody has a part, and nobody two."""
        for process in self.processes:
            process.is_stalled = False
        for turn in range(100):
            if self.has_agreed():
                return
            if turn == 50:
                # What a static member was to give up when it died is nobody's until the next rebalance.
                for process in self.processes:
                    if process.next == "beat":
                        process.next = "join"
            self.time_passes(None, 1)
        assert self.has_agreed(), "the members do not agree"

    def has_agreed(self):
        there = [process for process in self.processes if not process.is_out and not process.is_refused]
        if self.groups.settings.max_size < len(there):
            return True
        group = self.groups.group()
        return not there or (
            group is not None
            and group.state is GroupState.STABLE
            and group.members.keys() == {process.client.member_id for process in there}
            and all(process.next == "beat" for process in there)
            and sorted(partition for process in there for partition in process.owned) == list(PARTITIONS)
        )

    def ends(self):
        groups = self.groups
        groups.writer.recover()
        groups.writer.release()
        self.check()
        self.agrees()
        assert contents(groups.replayed()) == contents(groups.shard.image)
        self.story.append("nobody says anything any more")
        for _ in range(4):
            groups.pass_ms(120_000)
            self.check()
        assert not [reply for reply in self.replies if reply.is_parked]
        group = groups.group()
        assert group is None or group.is_idle
        assert not list(groups.shard._membership.group_ids())
        assert len(groups.wheel) == 0
        after = groups.shard.describe(G)
        groups.restart()
        assert groups.shard.describe(G) == after
        assert contents(groups.replayed()) == contents(groups.shard.image)
        assert len(groups.wheel) == 0


HAPPENINGS = (
    ("nothing", Walk.nothing),
    *(("goes on", Walk.goes_on),) * 8,
    *(("everybody goes on", Walk.everybody_goes_on),) * 3,
    *(("time passes", Walk.time_passes),) * 6,
    *(("commits", Walk.commits_of),) * 3,
    *(("the writer", Walk.writer_does),) * 3,
    ("asks again", Walk.asks_again),
    ("stalls, or no longer", Walk.stalls),
    *(("dies", Walk.dies),) * 2,
    ("leaves", Walk.leaves),
    ("is removed", Walk.is_removed),
    ("changes its protocols", Walk.changes),
    ("the coordinator starts anew", Walk.restarts),
    ("somebody without a group commits", Walk.simple_commit),
    *(("a producer commits in its transaction", Walk.transactional_commit),) * 3,
    *(("a transaction ends", Walk.transaction_ends),) * 2,
    ("the group is deleted", Walk.is_deleted),
)
ROUGH = (
    ("nothing", Walk.nothing),
    *(("goes on", Walk.goes_on),) * 6,
    *(("time passes", Walk.time_passes),) * 4,
    *(("dies", Walk.dies),) * 3,
    *(("the writer", Walk.writer_does),) * 5,
    *(("commits", Walk.commits_of),) * 3,
    *(("a producer commits in its transaction", Walk.transactional_commit),) * 2,
    ("a transaction ends", Walk.transaction_ends),
    ("is removed", Walk.is_removed),
    *(("asks again", Walk.asks_again),) * 5,
)
"""Processes are killed, and the disk does not keep up."""
