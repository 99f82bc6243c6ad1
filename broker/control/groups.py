"""Groups: the calls that look at consumer groups, and let their members be gone."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from broker.control.arguments import BadArguments, argument, shown
from broker.control.calls import CHANGES, Answer, Call
from broker.request.faults import Fault

if TYPE_CHECKING:
    from broker.control.broker_host import BrokerHost
    from broker.coordinators.group.consumer.member import ConsumerMember
    from broker.coordinators.group.requests import DescribedMember
    from broker.coordinators.group.shard import GroupShard
    from broker.coordinators.group.share.requests import DescribedShareMember
    from broker.coordinators.group.streams.member import StreamsMember
    from broker.server.broker_server import BrokerServer


@dataclasses.dataclass(frozen=True)
class WhichGroup:
    """A consumer group."""

    group: str = argument("the group's id")


@dataclasses.dataclass(frozen=True)
class WhichMembers:
    """A group, or one of its members."""

    group: str = argument("the group's id")
    member: str | None = argument("a member id, or a group.instance.id; without it all members", None)


class Groups:
    """The groups of the broker of now."""

    def __init__(self, host: BrokerHost) -> None:
        self._host = host

    def calls(self) -> list[Call]:
        """The calls about groups."""
        return [
            Call(
                CHANGES, "/groups/describe", "A group: state, members, committed offsets.", WhichGroup, self._describe
            ),
            Call(
                CHANGES,
                "/groups/expire",
                "Remove members as if their session timeout were over; the others rebalance.",
                WhichMembers,
                self._expire,
            ),
        ]

    async def _describe(self, which: WhichGroup) -> Answer:
        return described(self._host.server, which.group)

    async def _expire(self, which: WhichMembers) -> Answer:
        async with self._host.while_it_stays() as server:
            shard = shard_of(server, which.group)
            removed = 0 if shard is None else shard.expire_members(which.group, which.member)
            if not removed:
                raise _no_member(which, [] if shard is None else _members(shard, which.group))
            await server.services.settle()
        return {"removed": removed}


def _no_member(which: WhichMembers, members: list[Answer]) -> BadArguments:
    if not members:
        return BadArguments(f"group is {shown(which.group)}, and there is no group of this name with members")
    ids = ", ".join(one["instance"] or one["member"] for one in members)
    return BadArguments(f"member is {shown(which.member)}, expected a member id or a group.instance.id: {ids}")


def shard_of(server: BrokerServer, group: str) -> GroupShard | None:
    """The coordinator's state of a group; None while there is no ``__consumer_offsets``, or it is loaded."""
    try:
        return server.components.group_coordinator.groups.of(group).shard
    except Fault:
        return None


def described(server: BrokerServer, group: str) -> Answer:
    """A group as it is now, as JSON; the state of one that does not exist is ``Dead``, as Kafka has it."""
    shard = shard_of(server, group)
    found = None if shard is None else shard.glance(group)
    offsets = [] if shard is None else shard.fetch(group, None, require_stable=False)
    return {
        "group": group,
        "state": "Dead" if found is None else found.state,
        "members": [] if shard is None else _members(shard, group),
        "committed": {
            f"{one.topic}-{one.partition}": one.committed.offset for one in offsets if one.committed is not None
        },
    }


def _members(shard: GroupShard, group: str) -> list[Answer]:
    """The members of a classic group, of a consumer group of the newer protocol, of a share group or of a streams
    group."""
    members: list[DescribedMember | ConsumerMember | DescribedShareMember | StreamsMember] = []
    if (classic := shard.describe(group)) is not None:
        members += classic.members
    elif (consumers := shard.describe_consumer_group(group)) is not None:
        members += [member for member, _ in consumers.members]
    elif (sharing := shard.describe_share_group(group)) is not None:
        members += sharing.members
    elif (streaming := shard.describe_streams_group(group)) is not None:
        members += [described.member for described in streaming.members]
    return [
        {
            "member": one.member_id,
            "instance": one.instance_id,
            "client_id": one.client_id,
            "host": one.client_host,
        }
        for one in members
    ]
