"""RaftClient and RaftListener: the interfaces to the metadata log's quorum, wherever its leader is (KIP-595).

RaftClient     has the leader, its epoch, and the offset up to which records are committed
RaftListener   gets what is committed: batches, or a snapshot in place of all batches before it
"""

from collections.abc import Iterable
from typing import Protocol

from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.records import Record
from broker.metadata.loader import CommittedBatch
from broker.raft.quorum import Quorum


class RaftListener(Protocol):
    """Replays the metadata log: `broker.metadata.loader.MetadataLoader` does."""

    def handle_commit(self, batches: Iterable[CommittedBatch]) -> None:
        """Replay committed batches, which come in the order of their offsets. Raises InconsistentMetadata."""

    def handle_snapshot(self, records: Iterable[Record], end_offset: int) -> None:
        """Replay a snapshot, which replaces all records below ``end_offset``. Raises InconsistentMetadata."""

    @property
    def image(self) -> MetadataImage:
        """The image of all batches and snapshots that were handed over."""

    @property
    def is_in_transaction(self) -> bool:
        """Whether the last records belong to a metadata transaction that is still open, and are not in `image`."""


class RaftClient(Protocol):
    """The metadata quorum as this node knows it."""

    @property
    def leader_id(self) -> int:
        """The id of the leader, -1 if no leader is known."""

    @property
    def leader_epoch(self) -> int:
        """The epoch of that leader."""

    @property
    def high_watermark(self) -> int:
        """Records below this offset are committed."""

    @property
    def end_offset(self) -> int:
        """The offset behind the last record that this node has."""

    @property
    def quorum(self) -> Quorum:
        """The voters, and the version of the protocol among them."""
