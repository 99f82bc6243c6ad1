"""SharePersister: keeps how far share groups have come, in ``__share_group_state`` (Kafka's Persister, KIP-932).

The leader of a partition reads and writes the state of each share group in it; the coordinator of a share group
initialises and deletes state, and summarises it for administrators. The state may be kept at another node.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from protocol.errors import ErrorCode

NO_START_OFFSET: Final = -1
"""The start offset is not known yet: the leader of the partition decides it by `share.auto.offset.reset`."""

NOT_COUNTED: Final = -1
"""The delivery complete count where its writer did not count."""


class SharePartitionKey(NamedTuple):
    """A share group's view of a partition."""

    group_id: str
    topic_id: bytes
    partition: int


class StateBatch(NamedTuple):
    """Consecutive offsets with the same state, as ``__share_group_state`` has them."""

    first_offset: int
    last_offset: int
    """Inclusive."""
    delivery_state: int
    """0 available, 2 acknowledged, 4 archived. Acquired records (1) are stored as available."""
    delivery_count: int


class ShareState(NamedTuple):
    """What is known of a share partition."""

    state_epoch: int
    """Higher with each initialisation."""
    leader_epoch: int
    start_offset: int
    """Offsets below it are done; `NO_START_OFFSET`."""
    delivery_complete_count: int
    """Records at and behind the start offset that are acknowledged or archived; `NOT_COUNTED`."""
    batches: Sequence[StateBatch]
    """Sorted, without overlap, none below the start offset."""


class SharePersister(Protocol):
    """Answers later, in the broker's loop. Codes are those of Kafka's share coordinator, such as FENCED_STATE_EPOCH,
    FENCED_LEADER_EPOCH, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE."""

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, then: Callable[[ErrorCode], None]
    ) -> None:
        """Begin the state anew at ``start_offset``."""

    def read(
        self, key: SharePartitionKey, leader_epoch: int, then: Callable[[ErrorCode, ShareState | None], None]
    ) -> None:
        """Read the state, and remember the epoch of the leader that reads. The count is `NOT_COUNTED`: the answer of a
        coordinator at another node does not have it."""

    def write(self, key: SharePartitionKey, state: ShareState, then: Callable[[ErrorCode], None]) -> None:
        """Merge ``state.batches`` into what is stored, and move the start offset."""

    def delete(self, key: SharePartitionKey, then: Callable[[ErrorCode], None]) -> None:
        """Forget the state."""

    def summarize(
        self, key: SharePartitionKey, leader_epoch: int, then: Callable[[ErrorCode, ShareState | None], None]
    ) -> None:
        """Read epochs, start offset and count, without batches."""
