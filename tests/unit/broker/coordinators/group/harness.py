"""A group coordinator for tests: a hand-moved clock, a writer that writes on command, and scripted members.

    groups = Coordinator()
    anna = groups.member("anna")
    anna.joins()                            asks, comes again with its id, and must be answered
    anna.brings({anna: b"0 1"})             syncs as the leader
    assert groups.state() == "Stable"

Whatever is written is encoded and decoded again before it is replayed, and a second image replays the same bytes.

    groups.commit(7, transaction=ProducerIdAndEpoch(12, 0))
    groups.ends(12, commits=True)           the marker of producer 12's transaction
"""

from collections import deque
from typing import NamedTuple

from broker.coordinators.group.image import GroupImage
from broker.coordinators.group.modern.topics import GroupTopic, TopicHashes
from broker.coordinators.group.requests import (
    Commit,
    Heartbeat,
    Join,
    LeavingMember,
    OffsetToCommit,
    Protocol,
    Sync,
    TopicPartitionName,
)
from broker.coordinators.group.settings import GroupSettings
from broker.coordinators.group.shard import GroupShard
from broker.coordinators.group.stats import GroupStats
from broker.runtime.manual_clock import ManualClock
from broker.runtime.timing_wheel import TimingWheel
from protocol.errors import ErrorCode
from protocol.primitives import Unencodable
from protocol.records.group_metadata import GroupMetadataKey, decode_group_record, encode_group_key, encode_group_value
from tests.support.group_records import contents

G = "g"
RANGE = (Protocol("range", b"anything"),)


class CountedIds:
    def __init__(self):
        self.count = 0

    def uuid(self):
        self.count += 1
        return self.count.to_bytes(16, "big")


class Reply:
    """What somebody waits for; it comes once."""

    def __init__(self, then=None):
        self._answers = []
        self._then = then

    def __call__(self, answer):
        assert not self._answers, f"answered with {self._answers[0]} already, and with {answer} now"
        self._answers.append(answer)
        if self._then is not None:
            self._then(answer)

    @property
    def is_parked(self):
        return not self._answers

    @property
    def answer(self):
        assert self._answers, "it is still parked"
        return self._answers[0]


class Events:
    """What the machine has told, as tuples that begin with the event's name."""

    def __init__(self):
        self.seen = []

    def __getattr__(self, name):
        return lambda *args: self.seen.append((name, *args))

    def named(self, name):
        return [event[1:] for event in self.seen if event[0] == name]


class Marker(NamedTuple):
    """The end of a producer's transaction in the log."""

    producer_id: int
    commits: bool


class Written:
    """A change that is under way: records, in a producer's transaction or in none (-1), or a marker."""

    def __init__(self, stored, then, producer_id=-1, marker=None, late=None):
        self.stored = stored
        self.producer_id = producer_id
        self.marker = marker
        self._then = then
        self._late = late

    def entries(self):
        """What the log has once the change stands."""
        if self.marker is not None:
            return [self.marker]
        return [(*stored, self.producer_id) for stored in self.stored]

    def tell_late(self):
        """It takes longer than a client waits."""
        if self._late is not None:
            self._late()
        else:
            self.tell(ErrorCode.REQUEST_TIMED_OUT)

    def tell(self, error):
        then, self._then = self._then, None
        if then is not None:
            then(error)


class PartitionWriter:
    """Stands for the log and what writes it."""

    def __init__(self):
        self.log = []
        """Key and value of every record that stands."""
        self.entries = []
        """The same with the producer id of each record, and the markers: what a coordinator loads."""
        self.under_way = deque()
        self.is_held = False
        self.error = None
        """What becomes of a change that comes now: None, it will stand."""
        self.shard = None

    def append(self, change):
        if change is None:
            return
        producer_id = -1 if change.transaction is None else change.transaction.producer_id
        try:
            stored = [_stored(record) for record in change.records]
        except Unencodable:  # as `broker.coordinators.partition_writer` refuses it
            change.then(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        self._write(Written(stored, change.then, producer_id, late=change.late))

    def append_marker(self, producer_id, then, *, commits):
        self._write(Written([], then, marker=Marker(producer_id, commits)))

    def _write(self, written):
        self.under_way.append(written)
        if not self.is_held:
            self.settle()

    def stands(self, *entries):
        """Entries are in the log, whoever wrote them."""
        self.entries += entries
        self.log += [entry[:2] for entry in entries if not isinstance(entry, Marker)]

    def load(self, state):
        """Let a shard, or an image, replay what stands."""
        for entry in self.entries:
            _replay(state, entry)

    def settle(self):
        """Let everything that is under way stand, or fail if it is to."""
        while self.under_way:
            self.settle_one(self.error)

    def settle_one(self, error=None):
        """Let the oldest change stand, or fail."""
        written = self.under_way.popleft()
        if error is None:
            for entry in written.entries():
                self.stands(entry)
                _replay(self.shard, entry)
        written.tell(ErrorCode.NONE if error is None else error)

    def time_out(self):
        """Whoever waits for what is under way is told that it took too long. It will stand or fail all the same."""
        for written in tuple(self.under_way):
            written.tell_late()

    def close(self, *, keeps_what_is_under_way):
        """Nobody is told any more what becomes of what is under way."""
        under_way, self.under_way = self.under_way, deque()
        for written in under_way:
            if keeps_what_is_under_way:
                self.stands(*written.entries())
            written.tell(ErrorCode.NOT_COORDINATOR)

    def hold(self):
        self.is_held = True

    def release(self):
        self.is_held = False
        self.settle()

    def fail(self, error=ErrorCode.KAFKA_STORAGE_ERROR):
        """From now on nothing can be written."""
        self.error = error

    def recover(self):
        self.error = None


def _replay(state, entry):
    if isinstance(entry, Marker):
        state.replay_marker(entry.producer_id, commits=entry.commits)
    else:
        key, value, producer_id = entry
        state.replay(decode_group_record(key, value), producer_id=producer_id)


def _stored(record):
    value = None if record.value is None else encode_group_value(record.value, record.version)
    return encode_group_key(record.key), value


class Topics:
    """The topics of the cluster, which tests create, enlarge and delete. Tell the shard of it: `Coordinator.topic`."""

    def __init__(self):
        self.by_name = {}
        self.version = 0

    def put(self, name, partitions, racks=(), topic_id=None):
        self.version += 1
        known = self.by_name.get(name)
        topic_id = topic_id or (known.topic_id if known else self.version.to_bytes(16, "big"))
        self.by_name[name] = GroupTopic(name, topic_id, partitions, racks)
        return self.by_name[name]

    def delete(self, name):
        self.version += 1
        del self.by_name[name]

    def of_name(self, name):
        return self.by_name.get(name)

    def of_id(self, topic_id):
        return next((topic for topic in self.by_name.values() if topic.topic_id == topic_id), None)

    def names(self):
        return iter(self.by_name)


class Persister:
    """Keeps the states of share groups, or answers with ``error``; while ``is_held`` nobody is answered."""

    def __init__(self):
        self.states = {}
        """State epoch and start offset by `SharePartitionKey`."""
        self.error = ErrorCode.NONE
        self.is_held = False
        self.held = deque()

    def initialize(self, key, state_epoch, start_offset, then):
        def change():
            self.states[key] = state_epoch, start_offset

        self._answer(change, then)

    def delete(self, key, then):
        self._answer(lambda: self.states.pop(key, None), then)

    def _answer(self, change, then):
        def answer():
            if self.error is ErrorCode.NONE:
                change()
            then(self.error)

        self.held.append(answer)
        if not self.is_held:
            self.answer()

    def answer(self):
        """Answer everybody who waits."""
        while self.held:
            self.held.popleft()()


class Coordinator:
    """One shard and everything around it."""

    def __init__(self, *, log=(), **settings):
        self.clock = ManualClock()
        self.wheel = TimingWheel(self.clock)
        self.ids = CountedIds()
        self.events = Events()
        self.writer = PartitionWriter()
        self.settings = GroupSettings(**settings)
        self.archived_by = set()  # topics, each with the group that its retention waits for
        self.topics = Topics()
        self.persister = Persister()
        self.resolving = []  # what is at the worker: expressions, names of topics, and who gets the matches
        self.configs = {
            "consumer.session.timeout.ms": 45_000,
            "consumer.heartbeat.interval.ms": 5_000,
            "consumer.assignment.interval.ms": 0,
            "share.session.timeout.ms": 45_000,
            "share.heartbeat.interval.ms": 5_000,
            "share.assignment.interval.ms": 0,
            "streams.session.timeout.ms": 45_000,
            "streams.heartbeat.interval.ms": 5_000,
            "streams.assignment.interval.ms": 0,
            "streams.initial.rebalance.delay.ms": 0,
            "streams.num.standby.replicas": 0,
            "streams.rack.aware.assignment.tags": (),
            "streams.assignor.name": None,
            "streams.task.offset.interval.ms": 60_000,
            "streams.acceptable.recovery.lag": 10_000,
        }
        self.shard = self._new_shard()
        self.writer.stands(*((*stored, -1) for stored in log))
        self.writer.load(self.shard)
        self.shard.loaded()

    def _new_shard(self):
        shard = GroupShard(
            settings=self.settings,
            clock=self.clock,
            wheel=self.wheel,
            ids=self.ids,
            events=self.events,
            stats=GroupStats(),
            submit=self.writer.append,
            is_archived_by=lambda topic, group_id: (topic, group_id) in self.archived_by,
            topics=self.topics,
            hashes=TopicHashes(self.topics),
            configs=lambda group_id, key: self.configs[key],
            persister=lambda: self.persister,
            resolve=lambda regexes, names, then: self.resolving.append((regexes, names, then)),
        )
        self.writer.shard = shard
        return shard

    def restart(self, *, keeps_what_is_under_way=False, **settings):
        """Another coordinator loads what stands in the log. What is under way is not acknowledged any more, whether it
        has come as far as the log or not."""
        self.shard.unload(ErrorCode.NOT_COORDINATOR)
        self.writer.close(keeps_what_is_under_way=keeps_what_is_under_way)
        self.settings = GroupSettings(**settings) if settings else self.settings
        self.shard = self._new_shard()
        self.writer.load(self.shard)
        self.shard.loaded()

    def member(self, name="anna", **about):
        return Client(self, name, **about)

    def group(self, group_id=G):
        """The machine's own group."""
        return self.shard._membership.find(group_id)

    def state(self, group_id=G):
        described = self.shard.describe(group_id)
        return None if described is None else described.state

    def generation(self, group_id=G):
        return self.group(group_id).generation

    def member_ids(self, group_id=G):
        return [member.member_id for member in self.shard.describe(group_id).members]

    def pass_ms(self, by_ms):
        self.clock.advance(by_ms)

    def commit(self, offset, **about):
        """Commit an offset of partition 0; the answer."""
        return self.asks_to_commit(offset, Reply(), **about).answer[0]

    def asks_to_commit(
        self, offset, reply, *, group_id=G, generation=-1, member_id="", instance_id=None, topic="orders", **more
    ):
        request = Commit(
            group_id=group_id,
            generation=generation,
            member_id=member_id,
            instance_id=instance_id,
            offsets=[OffsetToCommit(topic, 0, offset)],
            **more,
        )
        self.writer.append(self.shard.commit(request, reply))
        return reply

    def committed(self, *, group_id=G, topic="orders"):
        fetched = self.shard.fetch(group_id, [TopicPartitionName(topic, 0)], require_stable=False)
        return None if fetched[0].committed is None else fetched[0].committed.offset

    def ends(self, producer_id, *, commits):
        """Write the marker that ends a producer's transaction; the error comes into the list."""
        answers = []
        self.writer.append_marker(producer_id, answers.append, commits=commits)
        return answers

    def leaves(self, *members, group_id=G):
        """Let members leave, each given as member id or as (member id, instance id)."""
        reply = Reply()
        leaving = [LeavingMember(member) if isinstance(member, str) else LeavingMember(*member) for member in members]
        self.writer.append(self.shard.leave(group_id, leaving, reply))
        return reply

    def last_record(self):
        """The newest record that stands, read."""
        return decode_group_record(*self.writer.log[-1])

    def group_records(self, group_id=G):
        """What the group's own records say, in order; None for a tombstone."""
        records = [decode_group_record(*stored) for stored in self.writer.log]
        return [record.value for record in records if record.key == GroupMetadataKey(group=group_id)]

    def replayed(self):
        """An image of its own of what stands in the log."""
        image = GroupImage()
        self.writer.load(image)
        return image

    def check_replay(self):
        """What stands in the log is what is known, field by field."""
        assert contents(self.replayed()) == contents(self.shard.image)


class Client:
    """One member, with what a client remembers: its id and its generation."""

    def __init__(
        self,
        groups,
        name,
        *,
        group_id=G,
        instance_id=None,
        protocols=RANGE,
        protocol_type="consumer",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        needs_known_id=True,
        may_skip_assignment=True,
    ):
        self.groups = groups
        self.name = name
        self.group_id = group_id
        self.instance_id = instance_id
        self.protocols = protocols
        self.protocol_type = protocol_type
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.needs_known_id = needs_known_id
        self.may_skip_assignment = may_skip_assignment
        self.member_id = ""
        self.generation = -1

    def __repr__(self):
        return self.name

    # One request each: what comes back is a Reply, or an error code where the machine answers at once.

    def asks_to_join(self, **changed):
        about = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "instance_id": self.instance_id,
            "client_id": self.name,
            "client_host": "/127.0.0.1",
            "session_timeout_ms": self.session_timeout_ms,
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "protocol_type": self.protocol_type,
            "protocols": self.protocols,
            "needs_known_id": self.needs_known_id,
            "may_skip_assignment": self.may_skip_assignment,
        } | changed
        reply = Reply()
        self.groups.writer.append(self.groups.shard.join(Join(**about), reply))
        return reply

    def asks_to_sync(self, assignments=None, **changed):
        about = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "instance_id": self.instance_id,
            "generation": self.generation,
            "protocol_type": None,
            "protocol": None,
            "assignments": {getattr(member, "member_id", member): part for member, part in (assignments or {}).items()},
        } | changed
        reply = Reply()
        self.groups.writer.append(self.groups.shard.sync(Sync(**about), reply))
        return reply

    def beats(self, **changed):
        about = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "instance_id": self.instance_id,
            "generation": self.generation,
        } | changed
        return self.groups.shard.heartbeat(Heartbeat(**about))

    def leaves(self):
        return self.groups.leaves((self.member_id, self.instance_id), group_id=self.group_id)

    def commits(self, offset, **changed):
        about = {
            "group_id": self.group_id,
            "generation": self.generation,
            "member_id": self.member_id,
            "instance_id": self.instance_id,
        } | changed
        return self.groups.commit(offset, **about)

    # What a client does with them.

    def takes(self, joined):
        """Remember what a join was answered."""
        assert joined.error is ErrorCode.NONE, joined
        self.member_id, self.generation = joined.member_id, joined.generation
        return joined

    def parks(self, **changed):
        """Ask to join, with an id of its own if one is needed, and wait."""
        reply = self.asks_to_join(**changed)
        if not reply.is_parked and reply.answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.answer.member_id
            reply = self.asks_to_join(**changed)
        return reply

    def joins(self, **changed):
        """Join, and be answered at once."""
        return self.takes(self.parks(**changed).answer)

    def brings(self, assignments):
        """Sync as the leader; its own part."""
        synced = self.asks_to_sync(assignments).answer
        assert synced.error is ErrorCode.NONE, synced
        return synced.assignment

    def syncs(self):
        """Sync when the leader has; its own part."""
        return self.brings({})


def stable_group(groups, *members):
    """Have the members, or anna and bert, form a stable group; the first one leads, and each is assigned its name."""
    members = members or (groups.member("anna"), groups.member("bert"))
    leader, *others = members
    leader.joins()
    leader.brings({leader: leader.name.encode()})
    if others:
        waiting = [(member, member.parks()) for member in others]
        leader.joins()
        for member, reply in waiting:
            member.takes(reply.answer)
        synced = [member.asks_to_sync() for member in others]
        leader.brings({member: member.name.encode() for member in members})
        assert [reply.answer.assignment for reply in synced] == [member.name.encode() for member in others]
    assert groups.state(leader.group_id) == "Stable"
    return members
