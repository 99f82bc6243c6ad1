"""A member of a classic group: its protocols, timeouts, and parked replies."""

from __future__ import annotations

from dataclasses import dataclass

from broker.coordinators.group.image import MemberMetadata
from broker.coordinators.group.requests import JoinedMember, JoinReply, Protocol, SyncReply
from broker.runtime.clock import Alarm


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """A member. Times are in milliseconds. The group parks and gives the replies, since the group counts them."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    """Supported protocols, the preferred protocol first."""
    is_new: bool = False
    """The member's first join is still parked, so it can't send heartbeats: its session may end although it waits."""
    join_reply: JoinReply | None = None
    sync_reply: SyncReply | None = None
    session: Alarm | None = None
    """Rings when the member's session timeout is over."""

    @property
    def is_waiting(self) -> bool:
        """Whether the member waits for an answer, so that it can't send heartbeats meanwhile."""
        return self.join_reply is not None or self.sync_reply is not None

    def protocol_names(self) -> frozenset[str]:
        """The names of the protocols that the member supports."""
        return frozenset(protocol.name for protocol in self.protocols)

    def metadata_for(self, name: str) -> bytes:
        """The member's metadata for the protocol ``name``, which the leader reads."""
        return next((protocol.metadata for protocol in self.protocols if protocol.name == name), b"")

    def introduction(self, protocol: str) -> JoinedMember:
        """The member as it is described to the leader."""
        return JoinedMember(self.member_id, self.instance_id, self.metadata_for(protocol))

    def recorded(self, protocol: str, assignment: bytes) -> MemberMetadata:
        """The member as the group's record describes it."""
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
    """A member made from the group's record, which has only the chosen protocol of it."""
    return Member(
        member_id=recorded.member_id,
        instance_id=recorded.instance_id,
        client_id=recorded.client_id,
        client_host=recorded.client_host,
        session_timeout_ms=recorded.session_timeout_ms,
        rebalance_timeout_ms=recorded.rebalance_timeout_ms,
        protocols=(Protocol(protocol, recorded.subscription),),
    )
