"""MetadataLoader: committed records become the next image, which is in the cache before it is published."""

import pytest

from broker.metadata.cache import MetadataCache
from broker.metadata.image.records import InconsistentMetadata
from broker.metadata.loader import MetadataLoader
from protocol.records.cluster_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    TopicRecord,
)
from tests.support.metadata import Batch, image_of

ORDERS, BILLS = bytes(15) + b"\x01", bytes(15) + b"\x02"


class Loaded:
    """A loader, and what it has published."""

    def __init__(self):
        self.metadata = MetadataCache()
        self.loader = MetadataLoader(self.metadata)
        self.published = []
        self.loader.publish_to(self._publish)

    def _publish(self, delta, image):
        assert image is self.metadata.image, "readers have the image before subscribers hear of it"
        self.published.append(delta)

    def commit(self, *batches):
        offset = self.metadata.image.end_offset
        committed = []
        for records in batches:
            committed.append(Batch(offset, list(records)))
            offset = committed[-1].next_offset
        self.loader.handle_commit(committed)

    @property
    def topics(self):
        return sorted(self.metadata.image.topics.by_name)


@pytest.fixture
def loaded():
    return Loaded()


def test_batches_that_are_committed_together_are_published_at_once(loaded):
    loaded.commit([TopicRecord(name="orders", topic_id=ORDERS)], [TopicRecord(name="bills", topic_id=BILLS)])

    assert loaded.topics == ["bills", "orders"]
    assert [sorted(delta.topics.created) for delta in loaded.published] == [["bills", "orders"]]
    assert loaded.metadata.image.end_offset == 2


def test_a_control_batch_moves_the_end_and_is_not_published(loaded):
    loaded.loader.handle_commit([Batch(0, []), Batch(3, [])])

    assert loaded.metadata.image.end_offset == 3
    assert loaded.published == []


def test_an_image_that_a_reader_holds_does_not_change(loaded):
    loaded.commit([TopicRecord(name="orders", topic_id=ORDERS)])
    held = loaded.metadata.image

    loaded.commit([TopicRecord(name="bills", topic_id=BILLS)])

    assert list(held.topics.by_name) == ["orders"]
    assert loaded.topics == ["bills", "orders"]


def test_records_of_a_transaction_count_from_its_end(loaded):
    loaded.commit([BeginTransactionRecord(name="bootstrap"), FeatureLevelRecord(name="x", feature_level=1)])
    assert loaded.loader.is_in_transaction
    assert loaded.metadata.image.features.levels == {}

    loaded.commit([EndTransactionRecord()])

    assert loaded.metadata.image.features.levels == {"x": 1}
    assert not loaded.loader.is_in_transaction
    assert [delta.features.is_empty for delta in loaded.published] == [False]


def test_records_of_an_aborted_transaction_never_count(loaded):
    loaded.commit(
        [BeginTransactionRecord()],
        [TopicRecord(name="orders", topic_id=ORDERS)],
        [AbortTransactionRecord(reason="the controller is gone")],
    )

    assert loaded.topics == []
    assert not loaded.loader.is_in_transaction


def test_a_snapshot_becomes_the_next_image_whatever_was_known_before(loaded):
    loaded.commit([TopicRecord(name="orders", topic_id=ORDERS)], [BeginTransactionRecord()])

    loaded.loader.handle_snapshot(image_of(TopicRecord(name="bills", topic_id=BILLS)).records(), 1000)

    assert loaded.topics == ["bills"]
    assert loaded.metadata.image.end_offset == 1000
    assert not loaded.loader.is_in_transaction
    delta = loaded.published[-1]
    assert (list(delta.topics.deleted), list(delta.topics.created)) == ([ORDERS], ["bills"])


@pytest.mark.parametrize(
    "record",
    [EndTransactionRecord(), AbortTransactionRecord(), PartitionChangeRecord(partition_id=0, topic_id=BILLS)],
)
def test_a_record_that_does_not_fit_is_named_with_its_batch_and_changes_nothing(loaded, record):
    loaded.commit([TopicRecord(name="orders", topic_id=ORDERS)])

    with pytest.raises(InconsistentMetadata, match="batch at offset 2: "):
        loaded.commit([TopicRecord(name="bills", topic_id=BILLS)], [record])

    assert loaded.topics == ["orders"]
    assert len(loaded.published) == 1


def test_a_transaction_cannot_begin_inside_another(loaded):
    with pytest.raises(InconsistentMetadata, match="begins inside another one"):
        loaded.commit([BeginTransactionRecord()], [BeginTransactionRecord()])
