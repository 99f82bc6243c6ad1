"""The comparer of stored groups: it reads from files what the writing broker has in memory, and reports differences."""

import pytest

from broker.coordinators.group.image import GroupMetadata
from broker.coordinators.group.records import group_record, offset_record, offset_tombstone
from broker.coordinators.group.requests import OffsetToCommit
from protocol.records.group_metadata import encode_group_key, encode_group_value
from storage.batch.record_batch import Codec
from storage.batch.records import Record, encode_batch
from tests.support.group_records import StoredGroups, contents, differences
from tests.support.logs import marker
from tests.unit.broker.coordinators.group.harness import G
from tests.unit.broker.coordinators.group.offsets_harness import OffsetsHome

T = 1_700_000_000_000
PARTITION = 42


def commit(offset, *, topic="orders", partition=0, group=G):
    return offset_record(group, OffsetToCommit(topic, partition, offset), T)


class Files:
    """A partition's directory, written to as a broker does, and the image that the broker has."""

    def __init__(self, path):
        self.path = path
        self.home = OffsetsHome()
        self.next_offset = 0
        self.segment = self.roll()

    @property
    def image(self):
        return self.home.shard.image

    def roll(self):
        directory = self.path / f"__consumer_offsets-{PARTITION}"
        directory.mkdir(exist_ok=True)
        self.segment = directory / f"{self.next_offset:020}.log"
        self.segment.touch()
        return self.segment

    def write(self, *records, producer_id=-1, codec=Codec.NONE):
        self.home.stands(*records, producer_id=producer_id)
        stored = [
            Record(
                timestamp=T,
                key=encode_group_key(record.key),
                value=None if record.value is None else encode_group_value(record.value, record.version),
            )
            for record in records
        ]
        self.write_batch(stored, producer_id=producer_id, codec=codec)

    def write_batch(self, stored, *, producer_id=-1, codec=Codec.NONE):
        data = encode_batch(
            stored,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0,
            is_transactional=producer_id >= 0,
        )
        self._append(data, len(stored))

    def write_marker(self, producer_id, *, commit):
        self.home.shard.replay_marker(producer_id, commits=commit)
        self._append(marker(producer_id, commit=commit), 1)

    def _append(self, data, records):
        data[:8] = self.next_offset.to_bytes(8, "big")
        with self.segment.open("ab") as opened:
            opened.write(data)
        self.next_offset += records


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def test_what_stands_in_the_files_is_what_the_broker_has(files, tmp_path):
    files.write(group_record(G, GroupMetadata(protocol_type="consumer", generation=3)))
    files.write(commit(1), commit(2, partition=1), codec=Codec.GZIP)
    files.write(commit(5), producer_id=12)
    files.write(commit(6, partition=1), producer_id=13)
    files.write(commit(7, partition=2), producer_id=14)
    files.write_marker(12, commit=True)
    files.write_marker(13, commit=False)
    files.write(offset_tombstone(G, "refunds", 0))

    stored = StoredGroups(tmp_path)

    assert stored.read_on() == 9
    assert stored.passed_over == []
    assert differences(stored.images, {PARTITION: files.image}) == []
    assert files.home.offsets() == {("orders", 0): 5, ("orders", 1): 2}


def test_every_record_is_a_step(files, tmp_path):
    files.write(commit(1), commit(2))
    files.roll()
    files.write(commit(3))

    seen = [
        (partition, offset, image.offsets.get(G, ("orders", 0)).offset)
        for partition, offset, image in StoredGroups(tmp_path).steps()
    ]

    assert seen == [(PARTITION, 0, 1), (PARTITION, 1, 2), (PARTITION, 2, 3)]


def test_it_reads_on_where_it_was_and_not_into_a_batch_that_is_being_written(files, tmp_path):
    stored = StoredGroups(tmp_path)
    files.write(commit(1))
    assert stored.read_on() == 1
    assert stored.read_on() == 0

    files.write(commit(2))
    whole = files.segment.read_bytes()
    files.segment.write_bytes(whole[:-1])
    assert stored.read_on() == 0

    files.segment.write_bytes(whole)
    files.roll()
    files.write(commit(3))
    assert stored.read_on() == 2
    assert differences(stored.images, {PARTITION: files.image}) == []


def test_a_record_that_cannot_be_read_is_passed_over_and_the_rest_of_the_group_kept(files, tmp_path):
    files.write(group_record(G, GroupMetadata(protocol_type="consumer", generation=3)), commit(1))
    key = encode_group_key(commit(2, partition=1).key)
    files.write_batch(
        [
            Record(timestamp=T, key=key, value=b"\0\4cut"),
            Record(timestamp=T, key=key[:-1], value=b"\0\4"),
            Record(timestamp=T, key=None, value=b"\0\4"),
        ]
    )
    files.write(commit(3, partition=2))

    stored = StoredGroups(tmp_path)
    stored.read_on()

    assert len(stored.passed_over) == 3
    assert stored.passed_over[0].startswith(f"__consumer_offsets-{PARTITION} at 2: ")
    assert differences(stored.images, {PARTITION: files.image}) == []
    assert files.home.offsets() == {("orders", 0): 1, ("orders", 2): 3}


def test_where_a_broker_has_something_else_it_says_what(files, tmp_path):
    files.write(group_record(G, GroupMetadata(generation=3)), commit(1))
    files.write(commit(5), producer_id=12)
    stored = StoredGroups(tmp_path)
    stored.read_on()

    files.home.stands(group_record(G, GroupMetadata(generation=4)), commit(2), commit(6, topic="refunds"))
    files.home.shard.replay_marker(12, commits=False)

    lines = differences(stored.images, {PARTITION: files.image})
    assert [line.split(": ")[1] for line in lines] == [
        "group g generation",
        "offset g orders 0",
        "offset g refunds 0",
        "pending offset g orders 0",
    ]
    assert lines[0] == f"__consumer_offsets-{PARTITION}: group g generation: 3 is stored, the broker has 4"
    assert len(differences({}, {PARTITION: files.image})) == len(contents(files.image))
