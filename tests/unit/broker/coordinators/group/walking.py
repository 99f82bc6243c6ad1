"""Processes that use a group as clients do, and a walk in which chance decides who does what next.

A step is three bytes: what happens, to whom, and how. Every number means something, so that any bytes are a walk.
"""

from itertools import count

from broker.coordinators.group.classic_group import EmptyingRound, GroupState, JoinRound, SyncRound
from broker.coordinators.group.requests import Protocol
from protocol.errors import ErrorCode
from protocol.records.group_metadata import GroupMetadataKey, encode_group_key
from tests.support.group_records import contents
from tests.unit.broker.coordinators.group.harness import Client, Coordinator, G, Reply

PARTITIONS = tuple("abcd")
TOPICS = tuple(f"topic {partition}" for partition in PARTITIONS)
EAGER, COOPERATIVE = "range", "cooperative-sticky"
PROTOCOLS = (EAGER, COOPERATIVE), (COOPERATIVE, EAGER), (COOPERATIVE,)
FAILURES = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NOT_ENOUGH_REPLICAS)
GROUP_KEY = encode_group_key(GroupMetadataKey(group=G))
WAITS_MS = (1, 1_000, 3_000, 6_100, 12_000)
STEP_MS = 1_500


class Process:
    """One process of a consumer, with or without an instance id; it may be killed and begin anew."""

    def __init__(self, walk, number, *, instance_id, names, **about):
        self.walk = walk
        self.number = number
        self.names = names
        self.about = about | {"instance_id": instance_id}
        self.corpses = []
        """What earlier processes knew; their requests may still arrive."""
        self.begin()

    def begin(self):
        self.client = Client(self.walk.groups, f"m{self.number}", **self.about)
        self.owned = frozenset()
        self.is_out = True
        self.is_refused = False
        self.is_stalled = False
        self.next = "join"
        self.reply = None
        self.asked = None

    def __repr__(self):
        return f"{self.client.name} {self.client.member_id or '(new)'}"

    @property
    def is_cooperative(self):
        """It keeps what it has while others join. Who may have to do it the other way, does it the other way."""
        return self.names == (COOPERATIVE,)

    @property
    def identity(self):
        return self.client.instance_id or self.client.member_id

    # What it does by itself.

    def goes_on(self, choice):
        """Read what has been answered, or ask for what it needs next."""
        if self.reply is not None and not self.reply.is_parked:
            reply, self.reply = self.reply, None
            (self._has_joined if self.asked == "join" else self._has_synced)(reply.answer, choice)
        elif self.reply is None:
            self.asks(choice)

    def asks(self, choice):
        """Ask for it, again if it has been asked already: the answer may have been lost."""
        self.is_out = False
        if self.reply is None:
            self.asked = self.next
        if self.asked == "join":
            if not self.is_cooperative:
                self.owned = frozenset()
            self.reply = self.walk.waits(self.client.asks_to_join(protocols=self._protocols()))
        elif self.asked == "sync":
            self.reply = self.walk.waits(self.client.asks_to_sync(self._assignment(choice)))
        else:
            self.beats()

    def _protocols(self):
        self.claims = self.owned
        metadata = "".join(sorted(self.claims)).encode()
        return tuple(Protocol(name, metadata if name == COOPERATIVE else b"") for name in self.names)

    def _has_joined(self, joined, choice):
        client = self.client
        if joined.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = joined.member_id
        elif joined.error is ErrorCode.NONE:
            client.takes(joined)
            self.is_refused = False
            self.led = joined
            self.next = "sync"
            assert joined.skip_assignment <= (joined.leader == client.member_id)
            assert bool(joined.members) <= (joined.leader == client.member_id)
        else:
            self._is_told(joined.error)

    def _assignment(self, choice):
        """The leader shares out the partitions, otherwise each time; who would have to give one up keeps nothing of
        it, and nobody else has it in this generation."""
        joined = self.led
        if joined.leader != self.client.member_id or joined.skip_assignment:
            return {}
        members = [(member.member_id, member.metadata.decode()) for member in joined.members]
        shares = {member_id: "" for member_id, _ in members}
        for place, partition in enumerate(PARTITIONS):
            member_id, _ = members[(place * choice + place + choice) % len(members)]
            claimed_by = {claimer for claimer, claims in members if partition in claims}
            if joined.protocol != COOPERATIVE or not claimed_by - {member_id}:
                shares[member_id] += partition
        return {member_id: share.encode() for member_id, share in shares.items()}

    def _has_synced(self, synced, choice):
        if synced.error is not ErrorCode.NONE:
            self._is_told(synced.error)
            return
        assigned = frozenset(synced.assignment.decode())
        # What it has had to give up is nobody's: the others have to be told.
        self.next = "join" if self.claims - assigned else "beat"
        self.owned = assigned
        self.walk.owns(self)
        if self.client.instance_id is not None:
            # That it has the instance id now stands in the log.
            self.walk.fenced.update(knows["member_id"] for knows, _ in self.corpses)

    def _is_told(self, error):
        # Of members that a coordinator has loaded it knows one protocol only, as Kafka does.
        self.is_refused = error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID):
            self.owned = frozenset()
            if error is not ErrorCode.ILLEGAL_GENERATION:
                self.client.member_id = ""
        self.next = "join"

    def beats(self):
        error = self.client.beats()
        if error is not ErrorCode.NONE:
            self._is_told(error)

    def commits(self, *, as_corpse=False):
        walk = self.walk
        about, owned = self.corpses[-1] if as_corpse and self.corpses else (self._knows(), self.owned)
        if about["generation"] >= 0 and owned:
            walk.commits(min(owned), about)

    def _knows(self):
        client = self.client
        return {"generation": client.generation, "member_id": client.member_id, "instance_id": client.instance_id}

    def changes(self, how):
        """It knows other protocols from now on."""
        self.names = PROTOCOLS[how % len(PROTOCOLS)]
        if self.reply is None and self.next == "beat":
            self.next = "join"

    def dies(self):
        self.corpses.append((self._knows(), self.owned))
        self.begin()

    def leaves(self):
        if self.client.member_id:
            self.walk.waits(self.client.leaves())
            self.corpses.append((self._knows(), self.owned))
            self.begin()


class Walk:
    """A coordinator, its processes, and what must be true whatever happens."""

    def __init__(self, steps):
        how = steps[0]
        self.happenings = ROUGH if how & 64 else HAPPENINGS
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
        self.highest = self.durable = 0
        """Generations: of the group as it was last seen, and of its record."""
        self.seen = 0
        """How much of the log."""
        self.offsets = count(1)
        self.processes = [
            Process(
                self,
                number,
                instance_id=f"shop {number}" if number % 2 or how >= 128 else None,
                names=PROTOCOLS[2] if how % 4 == 1 else PROTOCOLS[(how >> number) % 3],
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

    def journal_does(self, process, how):
        journal = self.groups.journal
        doing = how % 10
        if doing < 3:
            journal.hold()
        elif doing < 6:
            journal.recover()
            journal.release()
        elif doing == 6 and journal.under_way:
            journal.settle_one()
        elif doing == 7 and journal.under_way:
            journal.settle_one(FAILURES[how // 10 % 3])
        elif doing == 8:
            journal.fail(FAILURES[how // 10 % 3])
        elif doing == 9:
            journal.time_out()

    def restarts(self, process, how):
        self.groups.restart(keeps_what_is_under_way=bool(how % 2))
        self.highest = 0
        assert all(not reply.is_parked for reply in self.replies)

    def simple_commit(self, process, how):
        self.commits(PARTITIONS[how % 4], {})

    def is_deleted(self, process, how):
        shard, journal = self.groups.shard, self.groups.journal
        if how % 4 == 0:
            journal.append(shard.delete(G, self.waits(Reply())))
        elif how % 4 == 1:
            for change in shard.expire_offsets():
                journal.append(change)

    def nothing(self, process, how):
        pass

    # What is remembered.

    def waits(self, reply):
        self.replies = [waiting for waiting in self.replies if waiting.is_parked]
        self.replies.append(reply)
        return reply

    def commits(self, partition, about):
        groups = self.groups
        topic, offset = f"topic {partition}", next(self.offsets)

        def has_committed(errors):
            if errors == [ErrorCode.NONE]:
                assert groups.committed(topic=topic) == offset

        generation = about.get("generation", -1)
        reply = self.waits(groups.asks_to_commit(offset, Reply(has_committed), topic=topic, **about))
        if generation >= 0 and (reply.is_parked or reply.answer == [ErrorCode.NONE]):
            # It was let through: then nobody else owns the partition in this generation.
            identity = about["instance_id"] or about["member_id"]
            owner = self.owners.get((self.incarnation, generation, partition), identity)
            assert groups.generation() == generation
            assert groups.state() != "CompletingRebalance"
            assert about["member_id"] not in self.fenced
            assert owner == identity, f"{identity} commits in generation {generation}, {owner} owns {partition}"

    def owns(self, process):
        generation = process.client.generation
        for partition in process.owned:
            owner = self.owners.setdefault((self.incarnation, generation, partition), process.identity)
            assert owner == process.identity, f"{owner} and {process} own {partition} in generation {generation}"
        for other in self.processes:
            if other is not process and self._is_member_of(other, generation):
                assert not other.owned & process.owned, f"{process} and {other} own {other.owned & process.owned}"

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
        for key, value in groups.journal.log[self.seen :]:
            if key == GROUP_KEY and value is None:
                # The next one of this name begins anew.
                self.incarnation += 1
                self.highest = self.durable = 0
        self.seen = len(groups.journal.log)
        group = groups.group()
        if group is not None:
            assert group.generation >= self.highest
            self.highest = group.generation
            self.check_record(group)
            self.check_waiting(group)

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
        has_under_way = bool(self.groups.journal.under_way)
        assert group.joined == sum(member.join_reply is not None for member in members)
        for member in members:
            assert member.session.is_pending or (member.is_waiting and not member.is_new)
            assert member.join_reply is None or isinstance(round_, JoinRound) or group.replacements_under_way
            assert member.sync_reply is None or isinstance(round_, SyncRound)
        assert all(alarm.is_pending for alarm in group.pending.values())
        assert not group.unsynced or group.unsynced_alarm.is_pending
        assert group.unsynced <= group.members.keys()
        if isinstance(round_, JoinRound):
            assert round_.alarm.is_pending
            assert round_.is_initial or not (group.members and group.everybody_has_joined)
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
        groups.journal.recover()
        groups.journal.release()
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
    *(("the journal", Walk.journal_does),) * 3,
    ("asks again", Walk.asks_again),
    ("stalls, or no longer", Walk.stalls),
    *(("dies", Walk.dies),) * 2,
    ("leaves", Walk.leaves),
    ("is removed", Walk.is_removed),
    ("changes its protocols", Walk.changes),
    ("the coordinator starts anew", Walk.restarts),
    ("somebody without a group commits", Walk.simple_commit),
    ("the group is deleted", Walk.is_deleted),
)
ROUGH = (
    ("nothing", Walk.nothing),
    *(("goes on", Walk.goes_on),) * 6,
    *(("time passes", Walk.time_passes),) * 4,
    *(("dies", Walk.dies),) * 3,
    *(("the journal", Walk.journal_does),) * 5,
    *(("commits", Walk.commits_of),) * 3,
    ("is removed", Walk.is_removed),
    *(("asks again", Walk.asks_again),) * 5,
)
"""Processes are killed, and the disk does not keep up."""
