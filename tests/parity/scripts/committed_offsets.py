"""OffsetCommit and OffsetFetch: committed offsets of a group, from members and from clients outside the group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protocol.messages.committed_offsets import OffsetCommitRequest, OffsetFetchRequest
from protocol.messages.topics import DeleteTopicsRequest
from protocol.schema import NO_UUID
from tests.parity.exchange import Exchange
from tests.parity.members import Member, a_pair, await_coordinator, await_state, described, two_members

Committed = OffsetCommitRequest.Topic
Partition = Committed.Partition
Group = OffsetFetchRequest.Group

UNKNOWN = bytes.fromhex("00112233445566778899aabbccddeeff")
SINCE_ALL = 2
SINCE_INSTANCES = 7
SINCE_GROUPS = 8
SINCE_IDS = 10
UNTIL_RETENTION = 4


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders", partitions=3)
    exchange.create_topic("payments")
    await_coordinator(exchange)
    commits = Commits(exchange)
    fetches = Fetches(exchange)
    simple_consumers(exchange, commits, fetches)
    odd_commits(exchange, commits, fetches)
    odd_fetches(exchange, fetches)
    many_groups(exchange, fetches)
    for version in range(2, 11):
        exchange.forget_members()
        members(exchange, commits, version)
    whose_topic_goes(exchange, commits, fetches)


class Commits:
    """Requests that commit offsets of topics by their names and ids."""

    def __init__(self, exchange: Exchange) -> None:
        self._ids = exchange.topic_ids

    def topic(self, name: str, *partitions: Partition) -> Committed:
        return Committed(name=name, topic_id=self._ids.get(name, UNKNOWN), partitions=[*partitions])

    def of(self, group_id: str, *topics: Committed, **fields: Any) -> OffsetCommitRequest:
        return OffsetCommitRequest(group_id=group_id, topics=[*topics], **fields)

    def at(self, group_id: str, offset: int, index: int = 0, **fields: Any) -> OffsetCommitRequest:
        """One offset of one partition."""
        return self.of(group_id, self.topic("orders", at(offset, index)), **fields)


def at(offset: int, index: int = 0, **fields: Any) -> Partition:
    return Partition(partition_index=index, committed_offset=offset, **fields)


class Fetches:
    """Requests for committed offsets, in the form of every version at once."""

    def __init__(self, exchange: Exchange) -> None:
        self._ids = exchange.topic_ids

    def group(self, group_id: str, topics: Mapping[str, Sequence[int]] | None, **fields: Any) -> Group:
        asked = None
        if topics is not None:
            asked = [
                Group.Topic(name=name, topic_id=self._ids.get(name, UNKNOWN), partition_indexes=[*indexes])
                for name, indexes in topics.items()
            ]
        return Group(group_id=group_id, topics=asked, **fields)

    def of(
        self, group_id: str, topics: Mapping[str, Sequence[int]] | None = None, *, require_stable: bool = False
    ) -> OffsetFetchRequest:
        """The offsets of these partitions, or all that there are."""
        asked = None
        if topics is not None:
            asked = [
                OffsetFetchRequest.Topic(name=name, partition_indexes=[*indexes]) for name, indexes in topics.items()
            ]
        return OffsetFetchRequest(
            group_id=group_id, topics=asked, groups=[self.group(group_id, topics)], require_stable=require_stable
        )

    def of_groups(self, *groups: Group) -> OffsetFetchRequest:
        return OffsetFetchRequest(groups=[*groups])


def simple_consumers(exchange: Exchange, commits: Commits, fetches: Fetches) -> None:
    """Commits of who is in no group, and what every version says of them."""
    two = (
        commits.topic("orders", at(5, 0, committed_metadata="so far", committed_leader_epoch=3), at(7, 2)),
        commits.topic("payments", at(0, 0, committed_metadata=None)),
    )
    exchange.ask_each("the first commit", lambda version: commits.of(f"simple-v{version}", *two))
    exchange.ask_each("a later offset", lambda version: commits.at(f"simple-v{version}", 9, 2))
    exchange.ask_each("an earlier offset", lambda version: commits.at(f"simple-v{version}", 4, 2))
    described(exchange, "a group that only committed", "simple-v9")
    for version in (2, 5, 6, 10):
        exchange.ask(f"what was committed with v{version}", fetches.of(f"simple-v{version}"), 9)
    some = {"orders": [0, 1, 2], "payments": [0]}
    exchange.ask_each("three that were committed, and one that was not", fetches.of("simple-v9", some))
    exchange.ask_each("all that was committed", fetches.of("simple-v9"), since=SINCE_ALL)
    exchange.ask_each("partitions that do not exist", fetches.of("simple-v9", {"orders": [99, -1], "payments": [0]}))
    exchange.ask_each("a topic that does not exist", fetches.of("simple-v9", {"nope": [0], "orders": [0]}))
    exchange.ask_each("an unknown group", fetches.of("nope", some))
    exchange.ask_each("all of an unknown group", fetches.of("nope"), since=SINCE_ALL)
    exchange.ask_each("no topics", fetches.of("simple-v9", {}))
    exchange.ask_each("a topic without partitions", fetches.of("simple-v9", {"orders": []}))
    exchange.ask_each("the same partition twice", fetches.of("simple-v9", {"orders": [0, 0]}))
    exchange.ask_each("only what is stable", fetches.of("simple-v9", some, require_stable=True), since=7)
    exchange.ask_each("all that is stable", fetches.of("simple-v9", require_stable=True), since=7)


def odd_commits(exchange: Exchange, commits: Commits, fetches: Fetches) -> None:
    """What a commit may say, and what is refused."""
    good_and_bad = (
        commits.topic("orders", at(1, 0), at(1, 3), at(1, -1)),
        commits.topic("nope", at(1, 0), at(1, 1)),
        commits.topic("payments", at(1, 0)),
    )
    exchange.ask_each("good and bad partitions", lambda v: commits.of(f"mixed-v{v}", *good_and_bad))
    exchange.ask("what was good of them", fetches.of("mixed-v9"), 9)
    exchange.ask_each("nothing good", lambda v: commits.of(f"bad-v{v}", commits.topic("nope", at(1))))
    described(exchange, "a group in which nothing good was committed", "bad-v9")
    exchange.ask_each("no topics", commits.of("empty"))
    exchange.ask_each("a topic without partitions", commits.of("empty", commits.topic("orders")))
    described(exchange, "a group in which nothing was committed", "empty")
    exchange.ask_each("an empty group id", commits.at("", 1))
    exchange.ask("what is under the empty group id", fetches.of(""), 9)
    exchange.ask("offsets of the empty group id", fetches.of("", {"orders": [0]}), 5)
    twice = commits.topic("orders", at(1), at(2))
    exchange.ask_each("a partition twice", lambda v: commits.of(f"twice-v{v}", twice))
    exchange.ask("which of both it was", fetches.of("twice-v9"), 9)
    topics = (
        commits.topic("orders", at(1)),
        commits.topic("payments", at(2)),
        commits.topic("orders", at(3, 1), at(4)),
    )
    exchange.ask_each("a topic twice", lambda v: commits.of(f"topic-twice-v{v}", *topics))
    exchange.ask("which of both topics it was", fetches.of("topic-twice-v9"), 9)
    for name in ("", "no spaces", "a/b", "__consumer_offsets"):
        exchange.ask_each(f"the topic {name!r}", commits.of("names", commits.topic(name, at(1))), until=9)
    for offset in (-1, -2, -5, -(1 << 63), (1 << 63) - 1):
        group_id = f"offset{offset}"
        exchange.ask_each(f"offset {offset}", commits.at(group_id, offset))
        exchange.ask(f"it was {offset}", fetches.of(group_id), 9)
        exchange.ask(f"it was {offset}, asked by name", fetches.of(group_id, {"orders": [0]}), 9)
    for epoch in (-1, -5, 0, 0x7FFF_FFFF, -0x8000_0000):
        topic = commits.topic("orders", at(1, committed_leader_epoch=epoch))
        exchange.ask_each(f"leader epoch {epoch}", commits.of(f"epoch{epoch}", topic), since=6)
        exchange.ask(f"the leader epoch was {epoch}", fetches.of(f"epoch{epoch}"), 9)
    for what, text in (("4096 x", "x" * 4096), ("4097 x", "x" * 4097), ("4096 ä", "ä" * 4096), ("4097 ä", "ä" * 4097)):
        topics = (commits.topic("orders", at(1, committed_metadata=text), at(2, 1)),)
        exchange.ask_each(f"metadata of {what}", commits.of("metadata", *topics))
    for retention in (0, 1, 86_400_000, -2, (1 << 63) - 1):
        request = commits.at(f"retention{retention}", 1, retention_time_ms=retention)
        exchange.ask_each(f"a retention time of {retention} ms", request, until=UNTIL_RETENTION)
        exchange.ask(f"kept for {retention} ms", fetches.of(f"retention{retention}"), 9)
    for what, topic_id in (("unknown", UNKNOWN), ("zero", NO_UUID)):
        unknown = Committed(topic_id=topic_id, partitions=[at(1), at(2, 1)])
        request = commits.of(f"{what}-id", unknown, commits.topic("orders", at(3)))
        exchange.ask(f"a topic id that is {what}", request, SINCE_IDS)
    exchange.ask("by its id, a partition that does not exist", commits.at("ids", 1, 99), SINCE_IDS)
    for generation in (0, 1, -1, -2, 0x7FFF_FFFF):
        of_generation = {"generation_id_or_member_epoch": generation}
        exchange.ask_each(
            f"generation {generation} of an unknown group",
            lambda v, g=generation, f=of_generation: commits.at(f"generation{g}-v{v}", 1, **f),
        )
        exchange.ask_each(
            f"generation {generation} of an unknown group, as a member",
            lambda v, g=generation, f=of_generation: commits.at(f"member{g}-v{v}", 1, member_id="m", **f),
        )
    as_instance = commits.at("instance", 1, group_instance_id="i")
    exchange.ask_each("an instance of an unknown group", as_instance, since=SINCE_INSTANCES)
    exchange.ask_each("a member of a group of which there are only commits", commits.at("simple-v9", 1, member_id="m"))
    in_generation = commits.at("simple-v9", 1, member_id="m", generation_id_or_member_epoch=1)
    exchange.ask_each("a generation of a group of which there are only commits", in_generation)
    as_instance = commits.at("simple-v9", 1, group_instance_id="i")
    exchange.ask_each("an instance of a group of which there are only commits", as_instance, since=SINCE_INSTANCES)


def odd_fetches(exchange: Exchange, fetches: Fetches) -> None:
    """Ids of members and topics that a fetch may name."""
    for member_id in (None, "", "m"):
        for epoch in (-1, 0, 5, -5):
            group = fetches.group("simple-v9", {"orders": [0]}, member_id=member_id, member_epoch=epoch)
            exchange.ask_each(f"as {member_id!r} in epoch {epoch}", fetches.of_groups(group), since=9)
    group = fetches.group("nope", {"orders": [0]}, member_id="m", member_epoch=5)
    exchange.ask_each("as a member of an unknown group", fetches.of_groups(group), since=9)
    for what, topic_id in (("unknown", UNKNOWN), ("zero", NO_UUID)):
        group = fetches.group("simple-v9", {"orders": [0, 1]})
        assert group.topics is not None
        group.topics.insert(0, Group.Topic(topic_id=topic_id, partition_indexes=[0, 1]))
        exchange.ask(f"a topic id that is {what}", fetches.of_groups(group), SINCE_IDS)
        group.group_id = "nope"
        exchange.ask(f"a topic id that is {what}, of an unknown group", fetches.of_groups(group), SINCE_IDS)
    for name in ("", "no spaces", "a/b"):
        exchange.ask_each(f"the topic {name!r}", fetches.of("simple-v9", {name: [0]}), until=9)


def many_groups(exchange: Exchange, fetches: Fetches) -> None:
    """Several groups in one request."""

    def ask(step: str, *groups: Group) -> None:
        exchange.ask_each(step, fetches.of_groups(*groups), since=SINCE_GROUPS)

    one, other = fetches.group("simple-v8", {"orders": [0]}), fetches.group("simple-v9", {"payments": [0]})
    ask("no groups")
    ask("two groups", one, other)
    ask(
        "three groups, one of them unknown, of one all",
        one,
        fetches.group("nope", {"orders": [1]}),
        fetches.group("simple-v9", None),
    )
    ask("the same group twice", other, fetches.group("simple-v9", {"orders": [0]}))
    ask("the empty group id among others", one, fetches.group("", {"orders": [0]}))


def members(exchange: Exchange, commits: Commits, version: int) -> None:
    """Commits of members and of others, in every state of their group."""
    group_id = f"members-v{version}"
    a, b = two_members(exchange, group_id)

    def commit(step: str, member: Member, **fields: Any) -> None:
        identity = {
            "generation_id_or_member_epoch": member.generation,
            "member_id": member.id,
            "group_instance_id": member.instance_id,
        }
        member.ask(step, commits.at(group_id, 1, **{**identity, **fields}), version)

    def commit_as_others(state: str) -> None:
        commit(f"nobody, {state}", a, generation_id_or_member_epoch=-1, member_id="")
        commit(f"nobody in this generation, {state}", a, member_id="")
        commit(f"a stranger, {state}", a, member_id="a-stranger")
        commit(f"a stranger in generation -1, {state}", a, generation_id_or_member_epoch=-1, member_id="a-stranger")
        commit(f"generation -1, {state}", a, generation_id_or_member_epoch=-1)
        commit(f"the generation before, {state}", a, generation_id_or_member_epoch=a.generation - 1)
        commit(f"the next generation, {state}", a, generation_id_or_member_epoch=a.generation + 1)
        if version >= SINCE_INSTANCES:
            commit(f"as an instance that it is not, {state}", a, group_instance_id="i")

    commit("the leader, before it synced", a)
    commit("the follower, before it synced", b)
    commit_as_others("before the members synced")
    a.sync()
    b.sync()
    commit("the leader of a stable group", a)
    commit("the follower in a stable group", b)
    commit_as_others("in a stable group")
    b_joins = b.start_joining(protocols=[*b.protocols, ("sticky", b.protocols[0][1])])
    a.await_rebalance()
    commit("who has not rejoined yet", a)
    commit_as_others("in a rebalance")
    exchange.ask(
        "who has rejoined", commits.at(group_id, 1, generation_id_or_member_epoch=b.generation, member_id=b.id), version
    )
    a.join()
    b.joined(None, b_joins)
    a.leave()
    b.leave()
    await_state(exchange, group_id, "Empty")
    commit("who has left", a)
    commit_as_others("in an empty group")
    exchange.forget_members()
    static = Member(exchange, f"static-v{version}", "s", instance_id="one").lead()
    group_id = static.group_id
    commit("a static member", static)
    commit("a static member that does not say so", static, group_instance_id=None)
    commit("a static member under another id", static, member_id="one-of-before")
    commit("a static member without an id", static, member_id="")
    commit("a static member without an id in generation -1", static, member_id="", generation_id_or_member_epoch=-1)
    commit("another instance with the id of a member", static, group_instance_id="two")


def whose_topic_goes(exchange: Exchange, commits: Commits, fetches: Fetches) -> None:
    """The offsets of a topic go with it, whatever the group does, and do not come back."""
    exchange.create_topic("gone")
    exchange.forget_members()
    a, _ = a_pair(exchange, "with members")
    commit = (commits.topic("gone", at(1)), commits.topic("orders", at(2)))
    exchange.ask("two topics, of which one will go", commits.of("left behind", *commit), 9)
    identity = {"generation_id_or_member_epoch": a.generation, "member_id": a.id}
    a.ask("two topics, of which one will go, by a member", commits.of("with members", *commit, **identity), 9)
    exchange.ask(None, DeleteTopicsRequest(topic_names=["gone"], timeout_ms=30_000), 5)
    for group_id in ("left behind", "with members"):
        exchange.ask_until(
            f"one topic is gone: {group_id}", fetches.of(group_id), 9, lambda answer: len(answer.groups[0].topics) == 1
        )
    exchange.ask_each("a topic that is gone", fetches.of("left behind", {"gone": [0], "orders": [0]}), until=9)
    exchange.ask_each("for a topic that is gone", commits.of("left behind", *commit), until=9)
    exchange.create_topic("gone")
    exchange.ask_each("a topic of the same name", fetches.of("left behind", {"gone": [0], "orders": [0]}))
