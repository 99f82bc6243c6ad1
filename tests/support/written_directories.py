"""Data directories with two segments, transactions, codecs and Kafka's internal topics, after a clean stop or a kill.
Tools that check directories are tested on them, whole and damaged."""

import os
import shutil
from pathlib import Path

import pytest

from protocol.records.group_metadata import (
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_group_key,
    encode_group_value,
)
from protocol.records.transaction_state import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionStatus,
    encode_transaction_key,
    encode_transaction_value,
)
from storage.batch.record_batch import Codec
from storage.batch.records import Record
from tests.support.batches import T, end_marker, produced, records
from tests.support.broker import InProcessBroker, running_broker

BATCHES = 12
"""Batches of each segment of `orders-0`."""


def write_directories(home: Path) -> None:
    """Write `whole`, after a clean stop, and `killed`: the same directory before the second segment of `orders-0` was
    on disk."""
    with running_broker(home / "whole", log_index_size_max_bytes=12_000) as broker:
        _fill(broker)
        # What a killed process leaves is what is in its files at that moment.
        shutil.copytree(home / "whole", home / "killed", ignore=shutil.ignore_patterns("*.tmp"))
    for snapshot in home.rglob("*.snapshot"):
        # The broker's clock stands in another year than the file system's.
        os.utime(snapshot, (T / 1000, T / 1000))


def append(broker: InProcessBroker, topic: str, batch: memoryview | bytearray) -> None:
    """Append a batch to partition 0 of a topic without asking anybody, and least of all a coordinator."""
    log = broker.log(topic)
    log.stage_trusted(batch, leader_epoch=log.leader_epochs.latest)
    log.append_all(broker.clock.now_ms())
    log.advance_high_watermark(log.log_end_offset)


def _transaction(broker: InProcessBroker, producer_id: int, *, commit: bool, sequence: int = 0) -> None:
    now_ms = broker.clock.now_ms()
    fields = {"producer_id": producer_id, "producer_epoch": 0, "is_transactional": True}
    batch = produced(records(2, timestamp=now_ms), base_sequence=sequence, **fields)
    append(broker, "orders", batch)
    append(broker, "orders", end_marker(commit=commit, producer_id=producer_id, producer_epoch=0, timestamp=now_ms + 5))


def transaction_state(
    transactional_id: str,
    producer_id: int,
    status: TransactionStatus,
    *,
    epoch: int = 0,
    **partitions: list[int],
) -> Record:
    """A record of `__transaction_state`; `partitions` are those of each topic."""
    value = TransactionLogValue(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_timeout_ms=60_000,
        transaction_status=status,
        transaction_partitions=[
            TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in partitions.items()
        ],
        transaction_last_update_timestamp_ms=T,
        transaction_start_timestamp_ms=T,
    )
    key = TransactionLogKey(transactional_id=transactional_id)
    return Record(timestamp=T, key=encode_transaction_key(key), value=encode_transaction_value(value, 1))


def _fill(broker: InProcessBroker) -> None:
    """Write two segments to `orders-0`, of which the second is not on disk; Kafka's internal topics; and an empty
    partition."""
    broker.create_topic("orders", 2, index_interval_bytes=100)
    broker.create_topic("packed")
    broker.create_topic("__consumer_offsets")
    broker.create_topic("__transaction_state")
    log = broker.log("orders")
    for segment in range(2):
        for number in range(BATCHES):
            broker.produce("orders", b"segment %d, batch %d" % (segment, number))
        _transaction(broker, 100 + segment, commit=True)
        _transaction(broker, 200 + segment, commit=False)
        if segment == 0:
            log.roll(broker.clock.now_ms())
            target = log.begin_flush(broker.clock.now_ms())
            target.perform()
            log.complete_flush(target)
    for codec in Codec:
        append(broker, "packed", produced(5, codec=codec))
    commit = OffsetCommitValue(offset=3, metadata="", commit_timestamp=T)
    key = OffsetCommitKey(group="g", topic="orders", partition=0)
    group_records = [
        Record(timestamp=T + 1, key=encode_group_key(key), value=encode_group_value(commit, 4)),
        Record(timestamp=T + 2, key=encode_group_key(GroupMetadataKey(group="g")), value=None),
        Record(timestamp=T + 3, key=b"\x00\x63new", value=b"\x00\x00"),
        Record(timestamp=T + 4, key=b"\x00\x02\x00", value=None),
    ]
    append(broker, "__consumer_offsets", produced(group_records))
    append(
        broker,
        "__transaction_state",
        produced(
            [
                transaction_state("t", 200, TransactionStatus.COMPLETE_ABORT),
                # Its marker is in the second segment of `orders-0`, and that it was written is not recorded yet.
                transaction_state("u", 201, TransactionStatus.PREPARE_ABORT, orders=[0]),
            ]
        ),
    )
    checkpoint = broker.directory / "recovery-point-offset-checkpoint"
    broker.advance(60_000)
    broker.wait_until(lambda: checkpoint.exists() and f"orders 0 {log.recovery_point}" in checkpoint.read_text())


# Fixtures, for the `conftest.py` of tests that read such directories -------------------------------------------------


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directories, written once. Tests must not change them."""
    home = tmp_path_factory.mktemp("written")
    write_directories(home)
    return home


@pytest.fixture
def whole(written: Path, tmp_path: Path) -> Path:
    """A copy of the data directory after a clean stop."""
    return Path(shutil.copytree(written / "whole", tmp_path / "whole"))


@pytest.fixture
def killed(written: Path, tmp_path: Path) -> Path:
    """A copy of the data directory whose broker was killed before the second segment of `orders-0` was on disk."""
    return Path(shutil.copytree(written / "killed", tmp_path / "killed"))
