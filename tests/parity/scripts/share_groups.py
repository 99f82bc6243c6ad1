"""Share groups: members join, are assigned partitions and leave; their offsets are described, altered and deleted."""

from typing import Any

from protocol.messages.committed_offsets import OffsetFetchRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from protocol.messages.share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
)
from protocol.messages.share_groups import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from tests.parity.exchange import Exchange

SETTINGS = {
    "group.share.max.size": "2",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.assignment.interval.ms": "0",
}

G = "workers"


def heartbeat(
    member: str = "anna", epoch: int = 0, topics: list[str] | None = None, group_id: str = G, rack: str | None = None
) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id=group_id, member_id=member, member_epoch=epoch, rack_id=rack, subscribed_topic_names=topics
    )


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders", partitions=3)
    exchange.create_topic("lines")
    find_coordinators(exchange)
    bad_heartbeats(exchange)
    no_group(exchange)
    one_member(exchange)
    two_members(exchange)
    administration(exchange)
    offsets_of_an_empty_group(exchange)
    deletion(exchange)


def find_coordinators(exchange: Exchange) -> None:
    for key, key_type in ((G, 0), ("workers:AAAAAAAAAAAAAAAAAAAAAQ:0", 2)):
        find = FindCoordinatorRequest(key="", key_type=key_type, coordinator_keys=[key])
        exchange.wait_until(find, 6, lambda answer: answer.coordinators[0].error_code == 0, patience_s=60.0)
    exchange.wait_until(describe_groups(G), 1, lambda answer: answer.groups[0].error_code == 69)


def bad_heartbeats(exchange: Exchange) -> None:
    for step, request in (
        ("without a member id", heartbeat(member="", topics=["orders"])),
        ("with a long member id", heartbeat(member="m" * 37, topics=["orders"])),
        ("without a group id", heartbeat(group_id="", topics=["orders"])),
        ("with an empty rack", heartbeat(rack="", topics=["orders"])),
        ("joining without topics", heartbeat()),
        ("joining with no topics", heartbeat(topics=[])),
        ("with the epoch -2", heartbeat(epoch=-2)),
        ("with the epoch 1, of no group", heartbeat(epoch=1, topics=["orders"])),
        ("leaving no group", heartbeat(epoch=-1)),
    ):
        exchange.ask_each(f"a heartbeat {step}", request)


def describe_groups(*group_ids: str, operations: bool = False) -> ShareGroupDescribeRequest:
    return ShareGroupDescribeRequest(group_ids=list(group_ids), include_authorized_operations=operations)


def offsets(*topics: tuple[str, list[int]], group_id: str = G, of_all: bool = False) -> Any:
    of = DescribeShareGroupOffsetsRequest.Group
    asked = None if of_all else [of.Topic(topic_name=name, partitions=indexes) for name, indexes in topics]
    return DescribeShareGroupOffsetsRequest(groups=[of(group_id=group_id, topics=asked)])


def alter(*topics: tuple[str, dict[int, int]], group_id: str = G) -> AlterShareGroupOffsetsRequest:
    of = AlterShareGroupOffsetsRequest.Topic
    return AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[
            of(
                topic_name=name,
                partitions=[of.Partition(partition_index=index, start_offset=start) for index, start in starts.items()],
            )
            for name, starts in topics
        ],
    )


def delete_offsets(*names: str, group_id: str = G) -> DeleteShareGroupOffsetsRequest:
    topics = [DeleteShareGroupOffsetsRequest.Topic(topic_name=name) for name in names]
    return DeleteShareGroupOffsetsRequest(group_id=group_id, topics=topics)


def no_group(exchange: Exchange) -> None:
    exchange.ask_each("describe no group", describe_groups("nobody", "", operations=True))
    exchange.ask_each("offsets of no group", offsets(group_id="nobody", of_all=True))
    exchange.ask_each("offsets of a topic of no group", offsets(("orders", [0]), group_id="nobody"))
    exchange.ask_each("offsets of no topics", offsets(group_id="nobody"))
    exchange.ask_each("offsets of a topic that is not there", offsets(("nothing", [0, 1]), group_id="nobody"))
    exchange.ask_each("alter offsets of nothing", alter(group_id="nobody"))
    exchange.ask_each("alter offsets of a group without a name", alter(("orders", {0: 1}), group_id=""))
    exchange.ask_each("delete offsets of no group", delete_offsets("orders", group_id="nobody"))
    exchange.ask_each("delete offsets of a group without a name", delete_offsets("orders", group_id=""))


def one_member(exchange: Exchange) -> None:
    exchange.ask_each("join", heartbeat(topics=["orders"]))
    exchange.wait_until(offsets(of_all=True), 1, lambda answer: bool(answer.groups[0].topics))
    exchange.ask_each("come with an epoch of long ago", heartbeat(epoch=1))
    exchange.ask_each("come again", heartbeat(epoch=2))
    exchange.ask_each("come again, with the last epoch", heartbeat(epoch=2))
    exchange.ask_each("come again, with the new epoch", heartbeat(epoch=3))
    exchange.ask_each("subscribe again to the same", heartbeat(epoch=3, topics=["orders"]))
    exchange.ask_each("come with an epoch of the future", heartbeat(epoch=9))
    exchange.ask_each("join again", heartbeat(topics=["orders"]))
    exchange.ask_each("another member that has not joined", heartbeat("bert", 2))
    exchange.ask_each("another member leaves that has not joined", heartbeat("bert", -1))
    exchange.ask_each("describe the group", describe_groups(G, operations=True))
    exchange.ask_each("offsets of the group", offsets(of_all=True))
    exchange.ask_each("offsets of a topic", offsets(("orders", [2, 0]), ("lines", [0]), ("nothing", [0])))
    exchange.ask("subscribe to another topic", heartbeat(epoch=3, topics=["lines"], rack="here"), 1)
    exchange.wait_until(offsets(of_all=True), 1, lambda answer: len(answer.groups[0].topics) == 2)
    exchange.ask("get the other topic", heartbeat(epoch=4), 1)
    exchange.ask("describe the group with the other topic", describe_groups(G), 1)
    exchange.ask("subscribe to what is not there", heartbeat(epoch=5, topics=["nothing"]), 1)
    exchange.ask("subscribe to the first topic again", heartbeat(epoch=6, topics=["orders"]), 1)


def two_members(exchange: Exchange) -> None:
    exchange.ask("join as another", heartbeat("bert", topics=["lines"]), 1)
    exchange.ask("the first after another has joined", heartbeat(epoch=7), 1)
    exchange.ask("join a full group", heartbeat("carl", topics=["orders"]), 1)
    exchange.ask("describe two", describe_groups(G), 1)
    exchange.ask("the other leaves", heartbeat("bert", -1), 1)
    exchange.ask("the first after the other has left", heartbeat(epoch=8), 1)


def administration(exchange: Exchange) -> None:
    exchange.ask("list", ListGroupsRequest(states_filter=[], types_filter=["share"]), 5)
    exchange.ask("list stable groups", ListGroupsRequest(states_filter=["Stable"], types_filter=[]), 5)
    exchange.ask_each("describe as a classic group", DescribeGroupsRequest(groups=[G]), since=6)
    of = OffsetFetchRequest.Group
    fetch = OffsetFetchRequest(groups=[of(group_id=G, topics=None)], require_stable=False)
    exchange.ask("committed offsets", fetch, 9)
    exchange.ask_each("alter offsets of a group with members", alter(("orders", {0: 1})))
    exchange.ask_each("delete offsets of a group with members", delete_offsets("orders"))
    exchange.ask_each("delete a group with members", DeleteGroupsRequest(groups_names=[G]))


def offsets_of_an_empty_group(exchange: Exchange) -> None:
    exchange.ask("the first leaves", heartbeat(epoch=-1), 1)
    exchange.ask("describe the empty group", describe_groups(G), 1)
    exchange.ask("list the empty group", ListGroupsRequest(states_filter=["empty"], types_filter=["SHARE"]), 5)
    exchange.ask_each("alter offsets", alter(("orders", {0: 3, 7: 1}), ("nothing", {0: 1})))
    exchange.ask_each("offsets that were altered", offsets(("orders", [0, 1])))
    exchange.ask_each("delete offsets", delete_offsets("lines", "nothing"))
    exchange.ask_each("delete offsets again", delete_offsets("lines"))
    exchange.ask_each("offsets that are left", offsets(of_all=True))
    exchange.ask_each("alter offsets of a new group", alter(("lines", {0: 0}), group_id="made"))
    exchange.ask_each("describe the new group", describe_groups("made"))
    exchange.ask_each("offsets of the new group", offsets(of_all=True, group_id="made"))


def deletion(exchange: Exchange) -> None:
    exchange.ask("delete groups", DeleteGroupsRequest(groups_names=[G, "made", "nobody"]), 2)
    exchange.ask("describe what is deleted", describe_groups(G), 1)
    exchange.ask("offsets of what is deleted", offsets(of_all=True), 1)
