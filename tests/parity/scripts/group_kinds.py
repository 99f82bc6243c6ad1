"""Groups of each kind, with members and without, and requests of the other group protocols to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocol.messages.committed_offsets import OffsetCommitRequest, OffsetFetchRequest
from protocol.messages.consumer_groups import ConsumerGroupDescribeRequest
from protocol.messages.group_membership import LeaveGroupRequest
from protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from protocol.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
)
from tests.parity.exchange import Exchange
from tests.parity.members import Member, await_coordinator, subscription
from tests.parity.producers import Producers, await_transactions
from tests.parity.scripts import consumer_groups, share_groups, streams_groups
from tests.parity.scripts.consumer_groups import Modern
from tests.parity.scripts.offset_deletions import deletion
from tests.parity.scripts.share_groups import heartbeat as sharing
from tests.parity.scripts.streams_groups import Thread

SETTINGS = {**consumer_groups.SETTINGS, **share_groups.SETTINGS, **streams_groups.SETTINGS}

KINDS = ("consumer", "share", "streams", "classic", "simple")
"""A group of each kind has its kind's name. Its member is m, in epoch 2; the classic group's has the instance one."""

LeavingMember = LeaveGroupRequest.Member
TOPOLOGY = streams_groups.topology(streams_groups.subtopology("0", ["orders"]))


def run(exchange: Exchange) -> None:
    for topic in ("orders", "payments"):
        exchange.create_topic(topic, partitions=3)
    share_groups.find_coordinators(exchange)
    await_transactions(exchange)
    await_coordinator(exchange)
    producers = Producers(exchange)
    members_of_both_protocols(exchange, producers)
    for empty in ("", "empty "):
        for kind in KINDS:
            askers = leave(exchange, kind) if empty else join(exchange, kind)
            group = f"the {empty}{kind} group"
            offsets(exchange, producers, group, kind, askers)
            newer_requests(exchange, group, kind)
            if kind in ("share", "streams") or (kind == "consumer" and empty):
                classic_requests(exchange, group, kind)
            exchange.ask_each(f"{group}: described as a classic group", DescribeGroupsRequest(groups=[kind]))
        listed(exchange, f"{empty}groups")
        exchange.ask_each(f"{empty}groups: deleted", DeleteGroupsRequest(groups_names=list(KINDS)))
    taken_over(exchange)


def join(exchange: Exchange, kind: str) -> Mapping[str, tuple[int, str]]:
    """Make the group. Returns those who ask it for offsets, with their epochs and member ids."""
    if kind == "simple":
        exchange.ask(None, commit(kind, -1, ""), 9)
        return strangers("m")
    if kind == "classic":
        member = Member(exchange, kind, instance_id="one").lead()
        return {"its member": (member.generation, member.id), **strangers(member.id)}
    if kind == "consumer":
        Modern(exchange, kind, "m").beat(None, 0)
    elif kind == "share":
        exchange.ask(None, sharing("m", topics=["orders"], group_id=kind), 1)
    else:
        Thread(exchange, kind, "m", topology=TOPOLOGY).beat(None, 0)
    return {"its member": (2, "m"), **strangers("m")}


def strangers(member_id: str) -> dict[str, tuple[int, str]]:
    return {
        "its member in an epoch before": (0, member_id),
        "its member in an epoch to come": (9, member_id),
        "its member in epoch -1": (-1, member_id),
        "nobody": (-1, ""),
        "nobody in epoch -2": (-2, ""),
        "nobody in epoch 2": (2, ""),
        "a stranger": (2, "stranger"),
    }


def leave(exchange: Exchange, kind: str) -> Mapping[str, tuple[int, str]]:
    """Let the group's member leave. Returns those who ask it for offsets."""
    if kind == "consumer":
        Modern(exchange, kind, "m").beat(None, -1)
    elif kind == "share":
        exchange.ask(None, sharing("m", -1, group_id=kind), 1)
    elif kind == "streams":
        Thread(exchange, kind, "m").beat(None, -1)
    elif kind == "classic":
        leaving = LeavingMember(member_id="", group_instance_id="one")
        exchange.ask(None, LeaveGroupRequest(group_id=kind, members=[leaving]), 5)
    return {"nobody": (-1, ""), "nobody in epoch -2": (-2, ""), "a member of before": (2, "m")}


# Classic requests


def members_of_both_protocols(exchange: Exchange, producers: Producers) -> None:
    """A consumer group with members of the newer and of the classic protocol."""
    group_id = "mixed"
    member = Modern(exchange, group_id, "m", server_assignor="range")
    instance = Modern(exchange, group_id, "n", server_assignor="range", instance_id="modern")
    member.beat(None, 0)
    instance.beat(None, 0)
    refused_joins(exchange, "the group of newer members", group_id)
    classic = Member(exchange, group_id, "c")
    classic.join("a classic member has no id yet")
    classic.id = "c"
    classic.join("a classic member joins with an id of its own")
    static = Member(exchange, group_id, "s", instance_id="classic")
    static.join("a static classic member joins")
    refused_joins(exchange, "the group of both", group_id)
    syncs_and_heartbeats(exchange, classic, static)
    offsets(exchange, producers, "the group of both, newer", group_id, {"its member": (2, "m"), **strangers("m")})
    by_classic = {who: asked for who, asked in strangers(classic.id).items() if asked[1] == classic.id}
    by_classic["its member"] = (classic.generation, classic.id)
    offsets(exchange, producers, "the group of both, classic", group_id, by_classic)
    exchange.ask_each("the group of both", DescribeGroupsRequest(groups=[group_id]))
    leaves(exchange, classic, member, instance)


def refused_joins(exchange: Exchange, group: str, group_id: str) -> None:
    """Joins that a consumer group refuses, with the member id that its answer has."""
    for what, about, fields in (
        ("an unknown protocol", {"protocols": [("mine", subscription("orders"))]}, {}),
        ("another protocol type", {}, {"protocol_type": "connect"}),
        ("no protocols", {"protocols": []}, {}),
        ("metadata that is none", {"protocols": [("range", b"?")]}, {}),
        ("no metadata", {"protocols": [("range", b"")]}, {}),
        ("metadata of a version below 0", {"protocols": [("range", b"\xff\xff\0\0\0\0")]}, {}),
        ("a session that is too short", {"session_timeout_ms": 1}, {}),
    ):
        joining = Member(exchange, group_id, "j", **about)
        joining.join(f"{group}: a join with {what}", **fields)
        exchange.ask(f"{group}: a join with an id and {what}", joining.joining(member_id="x", **fields), 9)
    for what, fields in (
        ("the id of a newer member", {"member_id": "m"}),
        ("the instance of a newer member", {"group_instance_id": "modern", "member_id": "x"}),
        ("an instance that is not there, and an id", {"group_instance_id": "nope", "member_id": "x"}),
    ):
        exchange.ask_each(f"{group}: a join with {what}", Member(exchange, group_id, "j").joining(**fields), since=5)


def syncs_and_heartbeats(exchange: Exchange, classic: Member, static: Member) -> None:
    """SyncGroup and Heartbeat, by members of both protocols and by others."""
    for what, generation, member_id, instance_id in (
        ("the newer member", 2, "m", None),
        ("a newer instance", 3, "n", "modern"),
        ("a newer instance under another id", 3, "m", "modern"),
        ("a stranger", 2, "x", None),
        ("nobody", -1, "", None),
        ("a classic member of before", classic.generation - 1, classic.id, None),
        ("a classic member to come", classic.generation + 1, classic.id, None),
        ("a classic member", classic.generation, classic.id, None),
        ("a classic instance that does not say so", static.generation, static.id, None),
        ("a classic instance", static.generation, static.id, "classic"),
        ("a classic instance under another id", static.generation, classic.id, "classic"),
        ("an instance that is not there", static.generation, static.id, "nope"),
    ):
        fields = {"generation_id": generation, "member_id": member_id, "group_instance_id": instance_id}
        since = 3 if instance_id else 0
        exchange.ask_each(f"{what} sends a heartbeat", classic.beating(**fields), since=since)
        exchange.ask_each(f"{what} syncs", classic.syncing(**fields), since=since)
        for protocol in ({"protocol_name": "sticky"}, {"protocol_type": "connect"}, {"protocol_name": None}):
            exchange.ask(f"{what} syncs with {protocol}", classic.syncing(**fields, **protocol), 5)


def leaves(exchange: Exchange, classic: Member, member: Modern, instance: Modern) -> None:
    """LeaveGroup of members of both protocols, by each way of naming them."""

    def ask(step: str, *members: tuple[str, str | None]) -> None:
        leaving = [LeavingMember(member_id=member_id, group_instance_id=instance) for member_id, instance in members]
        exchange.ask(step, LeaveGroupRequest(group_id=classic.group_id, members=leaving), 5)
        consumer_groups.described(exchange, f"after {step}", classic.group_id)

    ask("nobody leaves")
    ask("strangers leave", ("x", None), ("", None), ("", "nope"), ("x", "nope"), ("x", "modern"), ("m", "modern"))
    ask("a newer member leaves by its id, and a stranger", ("m", None), ("x", None))
    member.beat("the newer member has left", 2)
    member.beat(None, 0)
    ask("a newer member leaves twice in a request", ("m", None), ("m", None))
    member.beat(None, 0)
    ask("a newer instance leaves by its id", ("n", None))
    instance.beat(None, 0)
    ask("a newer instance leaves by both", ("n", "modern"))
    instance.beat(None, 0)
    ask("a newer instance and a newer member leave", ("", "modern"), ("m", None))
    classic.heartbeat("the classic member after the newer members")
    for version in (0, 1, 2):
        name = f"of version {version}"
        Modern(exchange, name, "m").beat(None, 0)
        leaving = LeaveGroupRequest(group_id=name, member_id="m", members=[])
        exchange.ask("a newer member leaves alone", leaving, version)
        exchange.ask("a newer member leaves alone, again", leaving, version)
    exchange.forget_members()


def classic_requests(exchange: Exchange, group: str, group_id: str) -> None:
    """Classic requests to a group of another kind. (Kafka forgets an empty group whose id a stranger joins, without a
    record of it: such joins are left out.)"""
    member = Member(exchange, group_id, "c")
    for member_id in ("m", "x"):
        fields = {"member_id": member_id, "generation_id": 2}
        exchange.ask_each(f"{group}: {member_id} sends a heartbeat", member.beating(**fields))
        exchange.ask_each(f"{group}: {member_id} syncs", member.syncing(**fields))
        for instance_id in (None, "one"):
            leaving = [LeavingMember(member_id=member_id, group_instance_id=instance_id)]
            request = LeaveGroupRequest(group_id=group_id, member_id=member_id, members=leaving)
            exchange.ask_each(f"{group}: {member_id} of the instance {instance_id} leaves", request)
        if group_id == "share" or "empty" not in group:
            exchange.ask_each(f"{group}: {member_id} joins", member.joining(member_id=member_id))
    if group_id == "share" or "empty" not in group:
        exchange.ask_each(f"{group}: a member without an id joins", member.joining())


# Offsets


def commit(group_id: str, epoch: int, member_id: str) -> OffsetCommitRequest:
    partition = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=5)
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitRequest.Topic(name="orders", partitions=[partition])],
    )


def offsets(
    exchange: Exchange, producers: Producers, group: str, group_id: str, askers: Mapping[str, tuple[int, str]]
) -> None:
    """Commits, in transactions too, and reads by these epochs and member ids, in every version; and a deletion."""
    of = OffsetFetchRequest.Group
    topic = of.Topic(name="orders", topic_id=exchange.topic_ids["orders"], partition_indexes=[0])
    producer = producers.new()
    exchange.ask(None, producer.adding_group(group_id), 4)
    for who, (epoch, member_id) in askers.items():
        exchange.ask_each(f"{group}: {who} commits", commit(group_id, epoch, member_id), until=9)
        fields: dict[str, Any] = {"generation_id_or_member_epoch": epoch, "member_id": member_id}
        exchange.ask_each(
            f"{group}: {who} commits in a transaction",
            lambda version, fields=fields: producer.committing(version, group_id, {"orders": {0: 5}}, **fields),
            since=3,
        )
        for name in dict.fromkeys((member_id, member_id or None)):
            read = of(group_id=group_id, member_id=name, member_epoch=epoch, topics=[topic])
            step = f"{group}: {who} reads{'' if name is not None else ' without a member id'}"
            exchange.ask_each(step, OffsetFetchRequest(groups=[read]), since=9)
    exchange.ask(f"{group}: offsets are deleted", deletion(group_id, ("orders", [0]), ("payments", [0])), 0)
    producer.end(False)


# Requests of the newer protocols


def newer_requests(exchange: Exchange, group: str, kind: str) -> None:
    """Requests of each of the newer protocols that is not the group's own. An empty classic group changes its kind with
    the first consumer or thread: these don't join here."""
    if kind != "consumer":
        modern = Modern(exchange, kind, "m")
        if kind in ("share", "streams"):
            modern.beat(f"{group}: a consumer joins", 0)
        modern.beat(f"{group}: a consumer goes on", 2)
        modern.beat(f"{group}: a consumer leaves", -1)
        asked = ConsumerGroupDescribeRequest(group_ids=[kind], include_authorized_operations=True)
        exchange.ask_each(f"{group}: described as a consumer group", asked)
    if kind != "share":
        for epoch in (0, 2, -1):
            exchange.ask_each(f"{group}: a share consumer in epoch {epoch}", sharing("m", epoch, ["orders"], kind))
        described = share_groups.describe_groups(kind, operations=True)
        exchange.ask_each(f"{group}: described as a share group", described)
        for step, request in (
            ("all offsets of shares", share_groups.offsets(group_id=kind, of_all=True)),
            ("offsets of shares", share_groups.offsets(("orders", [0]), group_id=kind)),
            ("offsets of shares are altered", share_groups.alter(("orders", {0: 1}), group_id=kind)),
            ("offsets of shares are deleted", share_groups.delete_offsets("orders", group_id=kind)),
        ):
            exchange.ask_each(f"{group}: {step}", request)
    if kind != "streams":
        thread = Thread(exchange, kind, "m", topology=TOPOLOGY)
        if kind in ("consumer", "share"):
            thread.beat(f"{group}: a thread joins", 0)
        thread.beat(f"{group}: a thread goes on", 2)
        thread.beat(f"{group}: a thread leaves", -1)
        described = StreamsGroupDescribeRequest(group_ids=[kind], include_authorized_operations=True)
        exchange.ask_each(f"{group}: described as a streams group", described)
        update = StreamsGroupTopologyDescriptionUpdateRequest(
            group_id=kind,
            member_id="m",
            topology_epoch=0,
            topology_description=TopologyDescription(subtopologies=[], global_stores=[]),
        )
        exchange.ask_each(f"{group}: its topology is described", update)


# Administration


def listed(exchange: Exchange, step: str) -> None:
    exchange.ask_each(f"{step}: all", ListGroupsRequest())
    for types in (["classic"], ["consumer"], ["share"], ["streams"], ["Share", "STREAMS"]):
        for states in ([], ["Empty"], ["stable"]):
            request = ListGroupsRequest(types_filter=types, states_filter=states)
            exchange.ask(f"{step}: of the types {types} in the states {states}", request, 5)


def taken_over(exchange: Exchange) -> None:
    """Groups without members that a member of another protocol takes over."""
    simple, classic = "taken by a consumer", "taken by a thread"
    for group_id in (simple, classic):
        exchange.ask(None, commit(group_id, -1, ""), 9)
    Modern(exchange, simple, "m").beat("a consumer joins a simple group", 0)
    exchange.ask("its offsets stay", read_all(simple), 9)
    Modern(exchange, simple, "m").beat(None, -1)
    member = Member(exchange, simple, "c")
    member.join("a classic member joins an empty consumer group")
    member.join("the classic member joins with its id")
    exchange.ask("its offsets stay then", read_all(simple), 9)
    thread = Thread(exchange, classic, "m", topology=TOPOLOGY)
    thread.beat("a thread joins a simple group", 0)
    exchange.ask("the offsets of the streams group stay", read_all(classic), 9)
    thread.beat(None, -1)
    member = Member(exchange, classic, "d")
    member.join("a classic member joins an empty streams group")
    member.join("the classic member joins what was a streams group")
    exchange.ask("its offsets stay in the end", read_all(classic), 9)
    exchange.ask("all groups in the end", ListGroupsRequest(), 5)


def read_all(group_id: str) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id=group_id, topics=None)])
