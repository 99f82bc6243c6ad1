"""Members of consumer groups of the newer protocol for tests: scripted, with what a client remembers.

groups = Coordinator()
groups.topics.put("orders", 4)
anna = Consumer(groups, "anna")
anna.joins()
assert anna.owned == {"orders": {0, 1, 2, 3}}
"""

from broker.coordinators.group.consumer.requests import ConsumerHeartbeat
from protocol.errors import ErrorCode
from tests.unit.broker.coordinators.group.harness import G, Reply


class Consumer:
    """A member that does what it is told: it takes what it is given, and gives up what it loses at once."""

    def __init__(self, groups, name, *, group_id=G, topics=("orders",), instance_id=None, **about):
        self.groups = groups
        self.group_id = group_id
        self.member_id = name
        self.instance_id = instance_id
        self.about = {"topics": list(topics), "rebalance_timeout_ms": 60_000, **about}
        self.epoch = 0
        self.assigned = {}

    def __repr__(self):
        return self.member_id

    @property
    def owned(self):
        """Partitions by topic name."""
        names = {topic.topic_id: name for name, topic in self.groups.topics.by_name.items()}
        return {names.get(topic_id, topic_id): set(parts) for topic_id, parts in self.assigned.items()}

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
        self.groups.writer.append(self.groups.shard.consumer_heartbeat(ConsumerHeartbeat(**beat), reply))
        return reply

    def takes(self, response):
        """Remember what a heartbeat was answered."""
        assert response.error is ErrorCode.NONE, response
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.assigned = {topic_id: frozenset(parts) for topic_id, parts in response.assignment.items()}
        return response

    def joins(self, **changed):
        """Join with a full request."""
        self.assigned = {}
        return self.takes(self.asks(0, owned={}, **(self.about | changed)).answer)

    def beats(self, **changed):
        """Send a heartbeat with the partitions owned, and take the answer."""
        return self.takes(self.asks(owned=dict(self.assigned), **changed).answer)

    def leaves(self, epoch=-1):
        self.epoch, self.assigned = 0, {}
        return self.asks(epoch).answer


def settle(*members):
    """Let members send heartbeats until nothing changes for any of them. Returns how many rounds that took."""
    for rounds in range(1, 50):
        before = [(member.epoch, member.assigned) for member in members]
        for member in members:
            member.beats()
        if before == [(member.epoch, member.assigned) for member in members]:
            return rounds
    raise AssertionError(f"{members} never settle")
