"""MetadataLoader: makes images out of committed batches and snapshots of the metadata log, and publishes them.

The loader does not know where the records come from: from a log of our own, or from controllers elsewhere.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from broker.metadata.cache import MetadataCache
from broker.metadata.image.metadata_image import MetadataDelta, MetadataImage
from broker.metadata.image.records import InconsistentMetadata, Record
from protocol.records.cluster_metadata import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord

Publish = Callable[[MetadataDelta, MetadataImage], None]
"""Takes a delta, and the image after it."""


class CommittedBatch(Protocol):
    """A committed batch of metadata records: it cannot be lost any more."""

    @property
    def base_offset(self) -> int:
        """The offset of its first record."""

    @property
    def next_offset(self) -> int:
        """The offset behind its last record."""

    @property
    def records(self) -> Sequence[Record]:
        """Empty in a control batch."""


class MetadataTransaction:
    """Holds back the records of a metadata transaction (KIP-868) until it ends; an aborted transaction drops them."""

    __slots__ = ("_held_back",)

    def __init__(self) -> None:
        self._held_back: list[Record] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._held_back is not None

    def pass_on(self, record: Record) -> Sequence[Record]:
        """The records that take effect with ``record``. Raises InconsistentMetadata."""
        match record:
            case BeginTransactionRecord():
                if self._held_back is not None:
                    raise InconsistentMetadata("a metadata transaction begins inside another one")
                self._held_back = []
            case EndTransactionRecord() | AbortTransactionRecord():
                if self._held_back is None:
                    raise InconsistentMetadata("a metadata transaction ends that never began")
                held_back, self._held_back = self._held_back, None
                if isinstance(record, EndTransactionRecord):
                    return held_back
            case _ if self._held_back is not None:
                self._held_back.append(record)
            case _:
                return (record,)
        return ()


class MetadataLoader:
    """Makes the next image, puts it into the cache, and publishes it."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._transaction = MetadataTransaction()
        self._publish: Publish | None = None

    @property
    def image(self) -> MetadataImage:
        """The image of all batches and snapshots that were handed over."""
        return self._cache.image

    @property
    def is_in_transaction(self) -> bool:
        """Whether a metadata transaction has begun and not ended: its records are in no image yet."""
        return self._transaction.is_open

    def publish_to(self, publish: Publish) -> None:
        """Call ``publish`` with every change from now on. Before that, images are only put into the cache."""
        self._publish = publish

    def handle_commit(self, batches: Iterable[CommittedBatch]) -> None:
        """Replay committed batches into one new image, and publish it at once.

        Raises InconsistentMetadata; the image is as it was then.
        """
        image = self._cache.image
        delta = MetadataDelta(image)
        end_offset = image.end_offset
        for batch in batches:
            try:
                for record in batch.records:
                    for counts in self._transaction.pass_on(record):
                        delta.replay(counts)
            except InconsistentMetadata as error:
                raise InconsistentMetadata(f"batch at offset {batch.base_offset}: {error}") from None
            end_offset = batch.next_offset
        self._take(delta, end_offset)

    def handle_snapshot(self, records: Iterable[Record], end_offset: int) -> None:
        """Replace the image by that of a snapshot, which has the state of all records below ``end_offset``.

        Raises InconsistentMetadata; the image is as it was then.
        """
        delta = MetadataDelta.of_snapshot(self._cache.image, records)
        self._transaction = MetadataTransaction()
        self._take(delta, end_offset)

    def _take(self, delta: MetadataDelta, end_offset: int) -> None:
        image = self._cache.image = delta.apply(end_offset)
        if self._publish is not None and not delta.is_empty:
            self._publish(delta, image)
