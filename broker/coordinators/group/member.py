"""Somebody who is present in a classic group."""

from __future__ import annotations

from dataclasses import dataclass

from broker.coordinators.group.image import MemberMetadata
from broker.coordinators.group.requests import JoinedMember, JoinReply, Protocol, SyncReply
from broker.runtime.clock import Alarm


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """One member. Times in milliseconds. Its group parks and gives the replies, since it counts them."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    """The one it likes best first."""
    is_new: bool = False
    """Its first join is still parked, so it can't send heartbeats: then silence counts though it waits."""
    join_reply: JoinReply | None = None
    sync_reply: SyncReply | None = None
    session: Alarm | None = None
    """Rings when nothing has been heard of it for too long."""

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for an answer, and can't show in any other way that it is alive."""
        return self.join_reply is not None or self.sync_reply is not None

    def protocol_names(self) -> frozenset[str]:
        """What it knows."""
        return frozenset(protocol.name for protocol in self.protocols)

    def metadata_for(self, name: str) -> bytes:
        """What it tells the leader for the protocol ``name``."""
        return next((protocol.metadata for protocol in self.protocols if protocol.name == name), b"")

    def introduction(self, protocol: str) -> JoinedMember:
        """The member as its leader is told of it."""
        return JoinedMember(self.member_id, self.instance_id, self.metadata_for(protocol))

    def recorded(self, protocol: str, assignment: bytes) -> MemberMetadata:
        """The member as it stands in the group's record."""
        return MemberMetadata(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata_for(protocol),
            assignment=assignment,
        )


def loaded_member(recorded: MemberMetadata, protocol: str) -> Member:
    """A member that the group's record names; of its protocols only the chosen one is known."""
    return Member(
        member_id=recorded.member_id,
        instance_id=recorded.instance_id,
        client_id=recorded.client_id,
        client_host=recorded.client_host,
        session_timeout_ms=recorded.session_timeout_ms,
        rebalance_timeout_ms=recorded.rebalance_timeout_ms,
        protocols=(Protocol(protocol, recorded.subscription),),
    )
