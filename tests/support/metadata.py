"""Metadata in tests: images made of records, and records that a running broker takes for committed."""

from typing import NamedTuple

from broker.metadata.cache import MetadataCache
from broker.metadata.image.metadata_image import EMPTY, MetadataDelta, MetadataImage
from broker.metadata.image.records import Record


class Batch(NamedTuple):
    """A committed batch as the metadata log gives it to its listener."""

    base_offset: int
    records: list[Record]

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.records)


def replayed(image: MetadataImage, *records: Record) -> MetadataImage:
    """The image after ``records`` are replayed."""
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta.apply(image.end_offset + len(records))


def image_of(*records: Record) -> MetadataImage:
    """The image that ``records`` make."""
    return replayed(EMPTY, *records)


def pretend(metadata: MetadataCache, *records: Record) -> None:
    """Let readers of ``metadata`` see the image with ``records``; no subscriber is notified."""
    metadata.image = replayed(metadata.image, *records)
