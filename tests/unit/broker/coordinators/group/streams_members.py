"""Members of streams groups for tests: scripted, with what a client remembers.

groups = Coordinator()
groups.topics.put("lines", 3)
anna = Worker(groups, "anna")
anna.joins()
assert anna.active == {"0": {0, 1, 2}}
"""

from broker.coordinators.group.streams.member import NOTHING, Tasks
from broker.coordinators.group.streams.requests import StreamsHeartbeat
from broker.coordinators.group.streams.topology import CopartitionGroup, InternalTopic, Subtopology, Topology
from protocol.errors import ErrorCode
from tests.unit.broker.coordinators.group.harness import G, Reply


def subtopology(name, *, reads=(), changelogs=(), writes=(), rereads=(), together=(), regex=()):
    """A subtopology: topics that it reads, changelogs, topics that it writes for others and that others write."""
    return Subtopology(
        name,
        tuple(reads),
        tuple(regex),
        tuple(InternalTopic(one) if isinstance(one, str) else one for one in changelogs),
        tuple(writes),
        tuple(InternalTopic(one) if isinstance(one, str) else one for one in rereads),
        tuple(together),
    )


def together(*, reads=(), rereads=()):
    """Topics, by their places, that must have equally many partitions."""
    return CopartitionGroup(tuple(reads), (), tuple(rereads))


def topology(*subtopologies, epoch=0):
    return Topology(epoch, subtopologies)


PLAIN = topology(subtopology("0", reads=["lines"]))
WITH_STATE = topology(subtopology("0", reads=["lines"], changelogs=["app-store-changelog"]))
WORD_COUNT = topology(
    subtopology("0", reads=["lines"], writes=["app-words-repartition"]),
    subtopology("1", rereads=["app-words-repartition"], changelogs=["app-counts-changelog"]),
)


class Worker:
    """A thread of an application that does what it is told: it takes what it is given, and gives up what it loses."""

    def __init__(self, groups, name, *, group_id=G, process=None, instance_id=None, **about):
        self.groups = groups
        self.group_id = group_id
        self.member_id = name
        self.instance_id = instance_id
        self.about = {
            "topology": PLAIN,
            "rebalance_timeout_ms": 60_000,
            "process_id": process or f"process of {name}",
            **about,
        }
        self.epoch = 0
        self.tasks = NOTHING

    def __repr__(self):
        return self.member_id

    @property
    def active(self):
        return {one: set(partitions) for one, partitions in self.tasks.active.items()}

    @property
    def standby(self):
        return {one: set(partitions) for one, partitions in self.tasks.standby.items()}

    def asks(self, epoch=None, **changed):
        """One heartbeat with nothing but what is named; a reply."""
        beat = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch if epoch is None else epoch,
            "instance_id": self.instance_id,
            "client_id": "client",
            "client_host": "/127.0.0.1",
        } | changed
        reply = Reply()
        self.groups.writer.append(self.groups.shard.streams_heartbeat(StreamsHeartbeat(**beat), reply))
        return reply

    def takes(self, response):
        """Remember what a heartbeat was answered."""
        assert response.error is ErrorCode.NONE, response
        self.epoch = response.member_epoch
        if response.tasks is not None:
            held = response.tasks
            active = {one: frozenset(partitions) for one, partitions in held.active.items()}
            self.tasks = Tasks(active, held.standby, held.warmup)
        return response

    def joins(self, **changed):
        """Join with a full request."""
        self.tasks = NOTHING
        return self.takes(self.asks(0, owned=NOTHING, **(self.about | changed)).answer)

    def beats(self, **changed):
        """Send a heartbeat with the tasks owned, and take the answer."""
        return self.takes(self.asks(**({"owned": self.tasks} | changed)).answer)

    def leaves(self, epoch=-1, **changed):
        self.epoch, self.tasks = 0, NOTHING
        return self.asks(epoch, **changed).answer


def settle(*members):
    """Let members send heartbeats until nothing changes for any of them. Returns how many rounds that took."""
    for rounds in range(1, 50):
        before = [(member.epoch, member.tasks) for member in members]
        for member in members:
            member.beats()
        if before == [(member.epoch, member.tasks) for member in members]:
            return rounds
    raise AssertionError(f"{members} never settle")


def codes(response):
    """The names of the statuses in an answer."""
    return [status.code.name for status in response.statuses]
