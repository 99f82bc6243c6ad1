"""What the rest of the broker sees of the metadata log's quorum, wherever its leader is (KIP-595).

RaftClient     says who leads, in which epoch, and up to where records are committed
RaftListener   is handed what is committed: batches, or a snapshot in place of all that came before it
"""

from collections.abc import Iterable
from typing import Protocol

from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.records import Record
from broker.metadata.loader import CommittedBatch
from broker.raft.quorum import Quorum


class RaftListener(Protocol):
    """Who replays the metadata log: `broker.metadata.loader.MetadataLoader`."""

    def handle_commit(self, batches: Iterable[CommittedBatch]) -> None:
        """These batches are committed, in the order of their offsets. Raises InconsistentMetadata."""

    def handle_snapshot(self, records: Iterable[Record], end_offset: int) -> None:
        """A snapshot is here that stands for everything below ``end_offset``. Raises InconsistentMetadata."""

    @property
    def image(self) -> MetadataImage:
        """What all that was handed over adds up to."""

    @property
    def is_in_transaction(self) -> bool:
        """Whether the last of it belongs to a metadata transaction that is still open, and is not in `image`."""


class RaftClient(Protocol):
    """The quorum as this node knows it."""

    @property
    def leader_id(self) -> int:
        """The node that leads, -1 if none is known."""

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
