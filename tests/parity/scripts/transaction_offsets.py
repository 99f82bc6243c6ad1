"""AddOffsetsToTxn and TxnOffsetCommit: offsets of groups in transactions, and what others see of them meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protocol.messages.committed_offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from protocol.messages.groups import DeleteGroupsRequest
from tests.parity.exchange import Exchange
from tests.parity.members import Member, await_coordinator, two_members
from tests.parity.members import described as group_described
from tests.parity.producers import OFFSETS_BY_ID, STATES, Producer, Producers, await_transactions, described

VERSIONS = range(7)
OLD_COMMIT, NEW_COMMIT = 4, 5
"""The newest version whose offsets are verified, and the first that adds their partition (KIP-890)."""
SINCE_GENERATIONS = 3
SINCE_STABLE = 7
ORDERS = {"orders": {0: 5}}
NOTHING_LEFT = "a simple group of which nothing is left"


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders", partitions=3)
    exchange.create_topic("payments")
    await_transactions(exchange)
    await_coordinator(exchange)
    producers = Producers(exchange)
    for state in STATES:
        in_state(exchange, producers, state)
    odd_commits(exchange, producers)
    odd_ids(exchange, producers)
    groups_without_members(exchange, producers)
    for version in range(SINCE_GENERATIONS, 7):
        exchange.forget_members()
        members(exchange, producers, version)
    pending(exchange, producers)
    pending_of_several(exchange, producers)
    deletions(exchange, producers)


def in_state(exchange: Exchange, producers: Producers, state: str) -> None:
    for version in range(5):
        producer = producers.in_state(state)
        exchange.ask(f"{state}: a group", producer.adding_group("readers"), version)
        exchange.ask(f"{state}: the same group again", producer.adding_group("readers"), version)
        exchange.ask(f"{state}: offsets of the added group", producer.committing(version, "readers", ORDERS), version)
        if version in (0, 4):
            producer.describe(f"{state}: after a group was added in v{version}")
        producer.end(False)
    for version in VERSIONS:
        producer = producers.in_state(state)
        exchange.ask(f"{state}: offsets", producer.committing(version, "readers", ORDERS), version)
        if version in (OLD_COMMIT, NEW_COMMIT):
            producer.describe(f"{state}: after offsets in v{version}")
        producer.end(False)
    producer = producers.in_state(state)
    for what, fields in (
        ("in the epoch before", {"producer_epoch": producer.epoch - 1}),
        ("in the epoch after", {"producer_epoch": producer.epoch + 1}),
        ("of another producer", {"producer_id": producer.id + 1000}),
    ):
        exchange.ask_each(f"{state}: a group {what}", producer.adding_group("readers", **fields))
        exchange.ask_each(
            f"{state}: offsets {what}", lambda v, f=fields, p=producer: p.committing(v, "readers", ORDERS, **f)
        )
    producer.describe(f"{state}: after wrong offsets")


def added(producer: Producer, version: int, group_id: str) -> Producer:
    """Add the group's partition where the version of TxnOffsetCommit does not."""
    if version <= OLD_COMMIT:
        producer.exchange.ask(None, producer.adding_group(group_id), 4)
    return producer


def fetched(exchange: Exchange, step: str, group_id: str, topics: Mapping[str, Sequence[int]] | None = None) -> None:
    """Note the group's offsets, those that are stable, and those as they are."""
    group = OffsetFetchRequest.Group
    asked = None
    if topics is not None:
        asked = [group.Topic(name=name, partition_indexes=[*indexes]) for name, indexes in topics.items()]
    for require_stable in (True, False):
        request = OffsetFetchRequest(groups=[group(group_id=group_id, topics=asked)], require_stable=require_stable)
        what = "all" if topics is None else "some"
        exchange.ask(f"{step}: {what}, {'stable' if require_stable else 'as they are'}", request, 9)


def odd_commits(exchange: Exchange, producers: Producers) -> None:
    mixed: dict[str, dict[int, Any]] = {
        "orders": {0: (5, "so far"), 9: 1, -1: 1, 1: (6, None)},
        "nope": {0: 1},
        "payments": {0: (7, "x" * 4097)},
    }
    for version in VERSIONS:
        group_id = f"mixed-v{version}"
        producer = added(producers.new(), version, group_id)

        def ask(step: str, group_id: str, offsets: Any, version: int = version, p: Producer = producer) -> None:
            exchange.ask(step, p.committing(version, group_id, offsets), version)

        ask("good and bad partitions", group_id, mixed)
        fetched(exchange, f"good and bad in v{version}", group_id, {"orders": [0, 1, 2], "payments": [0]})
        ask("only bad partitions", f"bad-v{version}", {"nope": {0: 1}})
        ask("no topics", f"nothing-v{version}", {})
        ask("a topic without partitions", f"nothing-v{version}", {"orders": {}})
        ask("metadata of 4097 bytes, not added", f"large-v{version}", {"orders": {0: (1, "x" * 4097)}})
        for offset in (-1, -2, (1 << 63) - 1):
            ask(f"offset {offset}", group_id, {"orders": {2: offset}})
        if version < OFFSETS_BY_ID:
            for name in ("", "no spaces", "__consumer_offsets"):
                ask(f"the topic {name!r}", group_id, {name: {0: 1}})
        ask("a group without a name", "", ORDERS)
        ask("a group without a name, and bad partitions", "", mixed)
        if version in (OLD_COMMIT, NEW_COMMIT):
            producer.describe(f"after odd commits in v{version}")
        producer.end()
        fetched(exchange, f"good and bad in v{version}, committed", group_id)


def odd_ids(exchange: Exchange, producers: Producers) -> None:
    """The coordinator of transactions is asked only where the producer has no transaction in the partition."""
    for transactional_id in ("", "nope"):
        what = f"the id {transactional_id!r}"
        producer = producers.new()
        wrong = {"transactional_id": transactional_id}
        exchange.ask_each(f"{what}: a group", producer.adding_group("ids", **wrong))
        exchange.ask_each(f"{what}: a group without a name", producer.adding_group("", **wrong))
        exchange.ask_each(f"{what}: offsets", lambda v, p=producer, w=wrong: p.committing(v, "ids", ORDERS, **w))
        producer.commit_offsets("ids", ORDERS)
        exchange.ask_each(
            f"{what}: offsets where a transaction is open",
            lambda v, p=producer, w=wrong: p.committing(v, "ids", ORDERS, **w),
        )
        for odd in ({"producer_id": -1}, {"producer_epoch": -1}, {"producer_id": -1, "producer_epoch": -1}):
            step = f"its id, but {odd}, {transactional_id!r}"
            exchange.ask_each(step, lambda v, p=producer, o=odd: p.committing(v, "ids", ORDERS, **o))
        producer.end()
    fetched(exchange, "odd ids", "ids")
    exchange.ask_each("a group without a name", producers.new().adding_group(""))


def groups_without_members(exchange: Exchange, producers: Producers) -> None:
    for version in range(SINCE_GENERATIONS, 7):
        for generation in (-1, 0, 1, -2):
            for member_id in ("", "m"):
                group_id = f"unknown-v{version}-{generation}-{member_id}"
                producer = added(producers.new(), version, group_id)
                fields = {"generation_id_or_member_epoch": generation, "member_id": member_id}
                request = producer.committing(version, group_id, ORDERS, **fields)
                of = f"generation {generation} and the member {member_id!r}"
                exchange.ask(f"an unknown group, {of}", request, version)
                simple = f"simple-v{version}"
                added(producer, version, simple)
                exchange.ask(None, producer.committing(version, simple, ORDERS), version)
                request = producer.committing(version, simple, ORDERS, **fields)
                exchange.ask(f"a group of which there are offsets, {of}", request, version)
                producer.end(False)
        producer = added(producers.new(), version, "an instance")
        request = producer.committing(version, "an instance", ORDERS, group_instance_id="i")
        exchange.ask("an unknown group, an instance of it", request, version)
        producer.end(False)


def members(exchange: Exchange, producers: Producers, version: int) -> None:
    """Commits for members and for others, in each state of the group."""
    group_id = f"members-v{version}"
    producer = added(producers.new(), version, group_id)
    leader, follower = two_members(exchange, group_id)

    def commit(step: str, **fields: Any) -> None:
        exchange.ask(step, producer.committing(version, group_id, ORDERS, **fields), version)

    def commit_in(state: str) -> None:
        right = {"generation_id_or_member_epoch": leader.generation, "member_id": leader.id}
        for what, fields in (
            ("the leader", {}),
            ("the follower", {"member_id": follower.id}),
            ("no member", {"generation_id_or_member_epoch": -1, "member_id": ""}),
            ("no member in this generation", {"member_id": ""}),
            ("a stranger", {"member_id": "a-stranger"}),
            ("generation -1", {"generation_id_or_member_epoch": -1}),
            ("the generation before", {"generation_id_or_member_epoch": leader.generation - 1}),
            ("the next generation", {"generation_id_or_member_epoch": leader.generation + 1}),
            ("an instance that it is not", {"group_instance_id": "i"}),
        ):
            commit(f"{what}, {state}", **{**right, **fields})

    commit_in("before the members synced")
    leader.sync()
    follower.sync()
    commit_in("in a stable group")
    waiting = follower.start_joining(protocols=[*follower.protocols, ("sticky", follower.protocols[0][1])])
    leader.await_rebalance()
    commit_in("in a rebalance")
    leader.join()
    follower.joined(None, waiting)
    group_id = f"static-v{version}"
    exchange.forget_members()
    static = Member(exchange, group_id, "s", instance_id="one").lead()
    added(producer, version, group_id)
    own = {
        "generation_id_or_member_epoch": static.generation,
        "member_id": static.id,
        "group_instance_id": static.instance_id,
    }
    for what, fields in (
        ("a static member", {}),
        ("a static member that does not say so", {"group_instance_id": None}),
        ("a static member under another id", {"member_id": "one-of-before"}),
        ("a static member without an id", {"member_id": ""}),
        ("another instance with the id of a member", {"group_instance_id": "two"}),
        ("only an instance", {"member_id": "", "generation_id_or_member_epoch": -1}),
    ):
        commit(what, **{**own, **fields})
    producer.end(False)


def committed(exchange: Exchange, group_id: str, offset: int, index: int = 0) -> None:
    """Commit an offset without a transaction."""
    topic = OffsetCommitRequest.Topic
    partition = topic.Partition(partition_index=index, committed_offset=offset)
    exchange.ask(None, OffsetCommitRequest(group_id=group_id, topics=[topic(name="orders", partitions=[partition])]), 8)


def pending(exchange: Exchange, producers: Producers) -> None:
    """What is seen of a transaction's offsets before and after its end."""
    some = {"orders": [0, 1], "payments": [0]}
    for committing in (True, False):
        word = "committed" if committing else "aborted"
        for before in ("nothing", "an offset"):
            group_id = f"{word}-after-{before.replace(' ', '-')}"
            if before == "an offset":
                committed(exchange, group_id, 3)
            producer = producers.new().commit_offsets(group_id, {"orders": {0: 10, 1: 11}})
            fetched(exchange, f"pending, {group_id}", group_id, some)
            fetched(exchange, f"pending, {group_id}", group_id)
            group_described(exchange, f"pending, {group_id}", group_id)
            if before == "nothing":
                for version in (7, 8, 10):
                    exchange.ask(f"pending, {group_id}", stable_fetch(exchange, group_id), version)
            producer.end(committing)
            fetched(exchange, group_id, group_id, some)
            fetched(exchange, group_id, group_id)
            left = committing or before == "an offset"
            group_described(exchange, group_id if left else f"{NOTHING_LEFT}: {group_id}", group_id)
    producer = producers.new().commit_offsets("fenced", ORDERS)
    producer.fence()
    fetched(exchange, "fenced", "fenced", some)


def stable_fetch(exchange: Exchange, group_id: str) -> OffsetFetchRequest:
    """In the form of every version that can ask for stable offsets."""
    group = OffsetFetchRequest.Group
    topics = [OffsetFetchRequest.Topic(name="orders", partition_indexes=[0, 2])]
    of_group = [group.Topic(name="orders", topic_id=exchange.topic_ids["orders"], partition_indexes=[0, 2])]
    groups = [group(group_id=group_id, topics=of_group)]
    return OffsetFetchRequest(group_id=group_id, topics=topics, groups=groups, require_stable=True)


def pending_of_several(exchange: Exchange, producers: Producers) -> None:
    """Of several commits of a partition the commit with the newest record is good."""
    some = {"orders": [0, 1]}
    producer = producers.new().commit_offsets("plain-after", {"orders": {0: 30}})
    committed(exchange, "plain-after", 40)
    fetched(exchange, "a plain commit in between", "plain-after", some)
    producer.end()
    fetched(exchange, "a plain commit in between, then the end", "plain-after", some)
    for ends in ("first", "second"):
        group_id = f"the-{ends}-ends-first"
        first = producers.new().commit_offsets(group_id, {"orders": {0: 7}})
        second = producers.new().commit_offsets(group_id, {"orders": {0: 8}})
        fetched(exchange, f"{group_id}: both are pending", group_id, some)
        one, other = (first, second) if ends == "first" else (second, first)
        one.end()
        fetched(exchange, f"{group_id}: the other is pending", group_id, some)
        other.end()
        fetched(exchange, f"{group_id}: none is pending", group_id, some)
    producer = producers.new()
    for offset in (7, 9, 8):
        producer.commit_offsets("again and again", {"orders": {0: offset, 1: offset + 10}})
    fetched(exchange, "again and again: pending", "again and again", some)
    producer.end()
    fetched(exchange, "again and again", "again and again", some)
    producer = producers.new()
    for group_id in ("one of two", "two of two"):
        producer.commit_offsets(group_id, ORDERS)
    producer.end()
    for group_id in ("one of two", "two of two"):
        fetched(exchange, group_id, group_id, some)


def deletions(exchange: Exchange, producers: Producers) -> None:
    """What is deleted while it is pending does not come back with the commit."""
    some = {"orders": [0, 1]}
    topic = OffsetDeleteRequest.Topic
    partitions = [topic.Partition(partition_index=index) for index in (0, 1)]
    for what in ("only pending", "committed and pending"):
        for deleted in ("group", "offsets"):
            group_id = f"{what}, {deleted}"
            if what != "only pending":
                committed(exchange, group_id, 1)
            producer = producers.new().commit_offsets(group_id, ORDERS)
            if deleted == "group":
                exchange.ask(group_id, DeleteGroupsRequest(groups_names=[group_id]), 2)
            else:
                request = OffsetDeleteRequest(group_id=group_id, topics=[topic(name="orders", partitions=partitions)])
                exchange.ask(group_id, request, 0)
            gone = f"{group_id}: deleted" if deleted == "group" else f"{NOTHING_LEFT}: {group_id}"
            fetched(exchange, gone, group_id, some)
            group_described(exchange, gone, group_id)
            exchange.ask(gone, described(producer.transactional_id), 0)
            producer.end()
            fetched(exchange, f"{gone}, then the commit", group_id, some)
            group_described(exchange, f"{gone}, then the commit", group_id)
    exchange.create_topic("gone")
    producer = producers.new().commit_offsets("of a topic", {"gone": {0: 5}, "orders": {0: 6}})
    exchange.delete_topic("gone")
    gone = OffsetFetchRequest.Group(
        group_id="of a topic", topics=[OffsetFetchRequest.Group.Topic(name="gone", partition_indexes=[0])]
    )
    exchange.wait_until(
        OffsetFetchRequest(groups=[gone], require_stable=True),
        9,
        lambda answer: not answer.groups[0].topics[0].partitions[0].error_code,
    )
    fetched(exchange, "a topic is gone", "of a topic")
    producer.end()
    fetched(exchange, "a topic is gone, then the commit", "of a topic")
