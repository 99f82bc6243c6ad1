"""Consumer groups of the newer protocol (KIP-848): heartbeats good and bad, epochs, static members, offsets, and both
ways between the protocols."""

from __future__ import annotations

from typing import Any

from protocol.messages.committed_offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from tests.parity.exchange import Exchange
from tests.parity.members import Member, await_coordinator

SETTINGS = {"group.consumer.assignment.interval.ms": "0"}

VERSIONS = (0, 1)
NEWEST = 1


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders", partitions=3)
    exchange.create_topic("payments", partitions=2)
    await_coordinator(exchange)
    for version in VERSIONS:
        no_sense(exchange, version)
        lives(exchange, version)
        epochs(exchange, version)
        static_members(exchange, version)
    two_members(exchange)
    unusual_subscriptions(exchange)
    offsets(exchange)
    administration(exchange)
    upgrade_and_downgrade(exchange)


class Modern:
    """A member of the newer protocol; its id is its name, so that answers can be compared."""

    def __init__(self, exchange: Exchange, group_id: str, member_id: str, version: int = NEWEST, **about: Any) -> None:
        self.exchange = exchange
        self.group_id = group_id
        self.member_id = member_id
        self.version = version
        self.about = about

    def asking(self, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        joining = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["orders"], "topic_partitions": []}
        usual = {"group_id": self.group_id, "member_id": self.member_id, "member_epoch": epoch, **self.about}
        return ConsumerGroupHeartbeatRequest(**{**usual, **(joining if epoch == 0 else {}), **fields})

    def beat(self, step: str | None, epoch: int, **fields: Any) -> Any:
        return self.exchange.ask(step, self.asking(epoch, **fields), self.version)


def owning(*parts: Any) -> list[Any]:
    """The partitions of an answer's assignment, as a member says that it has them."""
    return [
        ConsumerGroupHeartbeatRequest.TopicPartition(topic_id=part.topic_id, partitions=part.partitions)
        for part in parts
    ]


def described(exchange: Exchange, step: str, group_id: str, version: int = NEWEST) -> None:
    asked = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=True)
    exchange.ask(step, asked, version)


def no_sense(exchange: Exchange, version: int) -> None:
    """Requests that are wrong by themselves."""
    me = Modern(exchange, f"nonsense-v{version}", "me", version)
    for about, fields in {
        "no group": {"group_id": ""},
        "a blank group": {"group_id": " "},
        "a blank instance": {"instance_id": " "},
        "a blank rack": {"rack_id": ""},
        "no rebalance timeout": {"rebalance_timeout_ms": -1},
        "no owned partitions": {"topic_partitions": None},
        "no subscription": {"subscribed_topic_names": None},
        "an assignor that is not there": {"server_assignor": "mine"},
        "an empty assignor": {"server_assignor": ""},
    }.items():
        me.beat(f"a member joins with {about}", 0, **fields)
    for epoch in (-3, -2, -1, 1):
        me.beat(f"nobody sends epoch {epoch}", epoch)
        me.beat(f"nobody sends epoch {epoch} and no member id", epoch, member_id="")
    me.beat("nobody leaves an instance for a while", -2, instance_id="one")
    if version >= 1:
        me.beat("a member without an id joins", 0, member_id="")
        me.beat("a member joins with no expression", 0, subscribed_topic_names=[], subscribed_topic_regex="(")
    described(exchange, "the group is not there", me.group_id, version)


def lives(exchange: Exchange, version: int) -> None:
    me = Modern(exchange, f"lives-v{version}", "me", version)
    me.beat("a member joins", 0)
    me.beat("it sends a heartbeat", 2)
    me.beat("it sends a full heartbeat", 2, rebalance_timeout_ms=60_000, subscribed_topic_names=["orders"])
    me.beat("it joins again", 0)
    described(exchange, "the group", me.group_id, version)
    me.beat("it reads another topic too", 2, subscribed_topic_names=["orders", "payments"])
    me.beat("it reads one topic less and gives it up", 3, subscribed_topic_names=["payments"], topic_partitions=[])
    described(exchange, "the group then", me.group_id, version)
    me.beat("it leaves", -1)
    described(exchange, "the group without members", me.group_id, version)
    me.beat("it goes on all the same", 4)


def epochs(exchange: Exchange, version: int) -> None:
    me = Modern(exchange, f"epochs-v{version}", "me", version)
    joined = me.beat(None, 0)
    own = owning(*joined.assignment.topic_partitions)
    for epoch in (1, 3, 0x7FFF_FFFF):
        me.beat(f"a member sends epoch {epoch} instead of 2", epoch)
        me.beat(f"a member sends epoch {epoch} instead of 2 and has its partitions", epoch, topic_partitions=own)
    Modern(exchange, me.group_id, "other", version).beat("who is no member sends a heartbeat", 2)
    Modern(exchange, me.group_id, "other", version).beat("who is no member leaves", -1)
    me.beat(None, -1)


def static_members(exchange: Exchange, version: int) -> None:
    group_id = f"static-v{version}"
    me = Modern(exchange, group_id, "me", version, instance_id="one")
    other = Modern(exchange, group_id, "other", version, instance_id="one")
    me.beat("a static member joins", 0)
    me.beat("the static member joins again", 0)
    other.beat("another process has its instance", 0)
    other.beat("another process goes on with its instance", 2)
    other.beat("another process leaves with its instance", -1)
    me.beat("the static member leaves for a while", -2)
    described(exchange, "the group of an absent member", group_id, version)
    other.beat("another process has its instance now", 0)
    me.beat("the first one goes on", 2)
    described(exchange, "the group with the other process", group_id, version)
    other.beat("the static member leaves", -1)


def two_members(exchange: Exchange) -> None:
    group_id = "two"
    first, second = (Modern(exchange, group_id, name, server_assignor="range") for name in ("a", "b"))
    everything = first.beat(None, 0)
    second.beat("a second member joins", 0)
    described(exchange, "the group of two", group_id)
    lost = first.beat("the first one learns what it loses", 2)
    first.beat("it has not given it up", 2, topic_partitions=owning(*everything.assignment.topic_partitions))
    second.beat("the second one waits", 3)
    first.beat("it gives it up", 2, topic_partitions=owning(*lost.assignment.topic_partitions))
    second.beat("the second one has it", 3)
    described(exchange, "the stable group of two", group_id)
    first.beat("the answer was lost", 2, topic_partitions=owning(*lost.assignment.topic_partitions))
    first.beat(
        "the answer was lost and it has more", 2, topic_partitions=owning(*everything.assignment.topic_partitions)
    )
    second.beat(None, -1)
    first.beat("alone again", 3)
    described(exchange, "the group of one", group_id)
    first.beat(None, -1)


def unusual_subscriptions(exchange: Exchange) -> None:
    me = Modern(exchange, "unusual", "me")
    me.beat("a member reads nothing", 0, subscribed_topic_names=[])
    described(exchange, "the group that reads nothing", "unusual")
    me.beat("a member reads topics that are not there", 1, subscribed_topic_names=["nowhere", "no name!"])
    me.beat("it reads a topic twice", 2, subscribed_topic_names=["orders", "orders"])
    described(exchange, "the group that reads a topic twice", "unusual")
    me.beat(None, -1)
    reader = Modern(exchange, "by-expression", "me")
    joining = reader.asking(0, subscribed_topic_names=None, subscribed_topic_regex="ord.*")
    exchange.wait_until(joining, NEWEST, lambda answer: bool(answer.assignment.topic_partitions))
    described(exchange, "the group that reads by an expression", "by-expression")
    reader.beat("it brings no expression", 2, subscribed_topic_regex="[")
    reader.beat(None, -1)
    me = Modern(exchange, "racks", "me", rack_id="rack 1")
    me.beat("a member in a rack", 0)
    described(exchange, "the member in a rack", "racks")
    me.beat(None, -1)


def offsets(exchange: Exchange) -> None:
    me = Modern(exchange, "commits", "me")
    me.beat(None, 0)

    def commit(step: str, epoch: int, member_id: str = "me", version: int = 9) -> None:
        partition = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=5)
        topic = OffsetCommitRequest.Topic(name="orders", partitions=[partition])
        request = OffsetCommitRequest(
            group_id="commits", generation_id_or_member_epoch=epoch, member_id=member_id, topics=[topic]
        )
        exchange.ask(step, request, version)

    def fetch(step: str, epoch: int, member_id: str | None) -> None:
        topic = OffsetFetchRequest.Group.Topic(name="orders", partition_indexes=[0])
        group = OffsetFetchRequest.Group(group_id="commits", member_id=member_id, member_epoch=epoch, topics=[topic])
        exchange.ask(step, OffsetFetchRequest(groups=[group]), 9)

    commit("the member commits", 2)
    commit("the member commits in an old version", 2, version=8)
    commit("the member commits in an epoch before", 1)
    commit("the member commits in an epoch to come", 3)
    commit("who is no member commits", 2, "other")
    commit("an administrator commits", -1, "")
    fetch("the member fetches", 2, "me")
    fetch("the member fetches in an epoch before", 1, "me")
    fetch("who is no member fetches", 2, "other")
    fetch("an administrator fetches", -1, None)
    delete = OffsetDeleteRequest(
        group_id="commits",
        topics=[
            OffsetDeleteRequest.Topic(name=name, partitions=[OffsetDeleteRequest.Topic.Partition(partition_index=0)])
            for name in ("orders", "payments")
        ],
    )
    exchange.ask("offsets of what is read and of what is not are deleted", delete, 0)
    me.beat(None, -1)
    commit("an administrator commits to the empty group", -1, "")
    exchange.ask("offsets of the empty group are deleted", delete, 0)


def administration(exchange: Exchange) -> None:
    me = Modern(exchange, "managed", "me")
    me.beat(None, 0)
    asked = DescribeGroupsRequest(groups=["managed"], include_authorized_operations=False)
    exchange.ask_each("it is no classic group", asked)
    exchange.ask("it is listed", ListGroupsRequest(states_filter=["Stable"], types_filter=["consumer"]), 5)
    exchange.ask("it is deleted", DeleteGroupsRequest(groups_names=["managed"]), 2)
    me.beat(None, -1)
    exchange.ask("it is deleted without members", DeleteGroupsRequest(groups_names=["managed"]), 2)
    described(exchange, "the deleted group", "managed")


def upgrade_and_downgrade(exchange: Exchange) -> None:
    classic = Member(exchange, "migrates", "a")
    classic.enter()
    classic.sync(assignments={classic.id: _everything("orders", 3)})
    modern = Modern(exchange, "migrates", "b")
    modern.beat("a newer member joins a classic group", 0)
    classic.heartbeat("the classic member is told to join again")
    classic.join("the classic member joins again")
    classic.sync("the classic member syncs")
    classic.heartbeat("the classic member goes on")
    modern.beat("the newer member goes on", 2)
    exchange.ask_each(
        "a classic group no more", DescribeGroupsRequest(groups=["migrates"], include_authorized_operations=False)
    )
    modern.beat("the newer member leaves", -1)
    exchange.ask("the group is listed", ListGroupsRequest(types_filter=["classic"]), 5)
    classic.heartbeat("the classic member is told to join again, in a classic group")
    classic.join("the classic member joins the classic group")
    connect = Member(exchange, "takes-no-other", "c")
    Modern(exchange, "takes-no-other", "b").beat(None, 0)
    connect.join("a member of another type joins", protocol_type="connect")
    connect.heartbeat("nobody sends a classic heartbeat")
    connect.leave("nobody leaves the classic way")
    connect.sync("nobody syncs")


def _everything(topic: str, partitions: int) -> bytes:
    """An assignment of all partitions of a topic, in its first version."""
    name = len(topic).to_bytes(2, "big") + topic.encode()
    indexes = b"".join(index.to_bytes(4, "big") for index in range(partitions))
    head = (0).to_bytes(2, "big") + (1).to_bytes(4, "big")
    return head + name + partitions.to_bytes(4, "big") + indexes + (-1).to_bytes(4, "big", signed=True)
