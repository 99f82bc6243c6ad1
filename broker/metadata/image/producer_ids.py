"""ProducerIdsImage and ProducerIdsDelta: the producer ids that have been handed out (KIP-730)."""

from collections.abc import Iterator
from typing import NamedTuple

from broker.metadata.image.records import Record
from protocol.records.cluster_metadata import ProducerIdsRecord


class ProducerIdsImage(NamedTuple):
    """The last block of producer ids that a broker was given."""

    last_block: ProducerIdsRecord | None = None

    @property
    def next_producer_id(self) -> int:
        """The first producer id that no broker has been given."""
        return 0 if self.last_block is None else self.last_block.next_producer_id

    def records(self) -> Iterator[Record]:
        """The records that add up to this image."""
        if self.last_block is not None:
            yield self.last_block


class ProducerIdsDelta:
    """Whether a block of producer ids was handed out."""

    __slots__ = ("_image", "_last_block")

    def __init__(self, image: ProducerIdsImage) -> None:
        self._image = image
        self._last_block = image.last_block

    def hand_out(self, record: ProducerIdsRecord) -> None:
        """Apply a block of producer ids that a broker was given."""
        self._last_block = record

    def replace(self, image: ProducerIdsImage) -> None:
        """The last block is that of ``image``."""
        self._last_block = image.last_block

    def apply(self) -> ProducerIdsImage:
        """The next image."""
        return self._image if self._last_block is self._image.last_block else ProducerIdsImage(self._last_block)
