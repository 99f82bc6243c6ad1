"""What the share coordinator is asked, and what it answers: by handlers, and by the persister of this node."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from broker.coordinators.share.persister import SharePartitionKey, ShareState
from protocol.errors import ErrorCode


class Initialize(NamedTuple):
    """Begin the state of a share partition anew."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: int


class Read(NamedTuple):
    """Read the state, and remember the epoch of the leader that reads."""

    key: SharePartitionKey
    leader_epoch: int


class Write(NamedTuple):
    """Merge batches into the state, and move its start offset."""

    key: SharePartitionKey
    state: ShareState


class Delete(NamedTuple):
    """Forget the state."""

    key: SharePartitionKey


class Summarize(NamedTuple):
    """Read the state without its batches."""

    key: SharePartitionKey
    leader_epoch: int


class Forget(NamedTuple):
    """Forget the state of a share partition whose topic is deleted. No client asks for it."""

    key: SharePartitionKey


class Resnapshot(NamedTuple):
    """Write the snapshot of a share partition anew, if its last one is old. No client asks for it."""

    key: SharePartitionKey


StateRequest: TypeAlias = Initialize | Read | Write | Delete | Summarize
"""What others ask."""

ShardRequest: TypeAlias = StateRequest | Forget | Resnapshot


class StateAnswer(NamedTuple):
    """What becomes of a request."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    """Why the request is refused."""
    state: ShareState | None = None
    """What a `Read` or `Summarize` has found."""


StateReply: TypeAlias = Callable[[StateAnswer], None]
"""Called once."""
