"""Raising leader epochs in the metadata log of a stopped broker above those of restored batches.

A new topic's partitions begin with leader epoch 0. A consumer that has read a record of epoch 7 takes a leader of epoch
0 for a leader of the past, so the epoch has to go on where the records end. No request raises a leader epoch. So
another PartitionRecord is appended to the metadata log, as Kafka's controller itself writes it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from config.log_config import LogConfig
from protocol.records.cluster_metadata import (
    NO_LEADER_CHANGE,
    PartitionChangeRecord,
    PartitionRecord,
    decode_record,
    encode_record,
)
from storage.batch.records import Record, encode_batch, iterate_records
from storage.files import FileSystem
from storage.loading import open_log
from storage.log import Log
from storage.log_dir import METADATA_DIR_NAME
from storage.topic_partition import parse_dir_name

_FOR_GOOD: Final = -1


def raise_leader_epochs(
    files: FileSystem,
    directory: str,
    epochs: Mapping[tuple[bytes, int], int],
    *,
    was_clean: bool,
    now_ms: int,
) -> None:
    """Append records to the metadata log that raise the leader epochs of partitions, given by topic id and number.

    Only partitions that were created since the newest snapshot are raised.

    Args:
        directory: The data directory, locked by the caller.
        was_clean: Whether the directory's last broker stopped in order.
    """
    log = open_log(
        files,
        f"{directory}/{METADATA_DIR_NAME}",
        topic_partition=parse_dir_name(METADATA_DIR_NAME).topic_partition,
        config=LogConfig(retention_ms=_FOR_GOOD),
        now_ms=now_ms,
        was_clean=was_clean,
    )
    try:
        raised = [
            (replace(record, leader_epoch=epochs[place], partition_epoch=record.partition_epoch + 1), version)
            for place, (record, version) in _partitions(log).items()
            if record.leader_epoch < epochs.get(place, -1)
        ]
        if raised:
            epoch = log.leader_epochs.latest
            first = log.log_end_offset
            batch = encode_batch(
                [
                    Record(offset=first + number, timestamp=now_ms, value=encode_record(record, version))
                    for number, (record, version) in enumerate(raised)
                ],
                base_offset=first,
                partition_leader_epoch=epoch,
            )
            log.stage_trusted(batch, leader_epoch=epoch)
            log.append_all(now_ms)
    finally:
        log.close(now_ms)


def _partitions(log: Log) -> dict[tuple[bytes, int], tuple[PartitionRecord, int]]:
    """The current record of each partition that was created in this part of the log, with the version of the record."""
    found: dict[tuple[bytes, int], tuple[PartitionRecord, int]] = {}
    for header, data in log.batches(log.log_start_offset):
        if header.is_control:
            continue
        for stored in iterate_records(data):
            record, version = decode_record(stored.value or b"")
            if isinstance(record, PartitionRecord):
                found[bytes(record.topic_id), record.partition_id] = (record, version)
            elif isinstance(record, PartitionChangeRecord):
                place = (bytes(record.topic_id), record.partition_id)
                if place in found:
                    known, its_version = found[place]
                    found[place] = (_changed(known, record), its_version)
    return found


def _changed(known: PartitionRecord, change: PartitionChangeRecord) -> PartitionRecord:
    has_leader = change.leader != NO_LEADER_CHANGE
    return replace(
        known,
        isr=known.isr if change.isr is None else change.isr,
        leader=change.leader if has_leader else known.leader,
        leader_epoch=known.leader_epoch + has_leader,
        directories=known.directories if change.directories is None else change.directories,
        partition_epoch=known.partition_epoch + 1,
    )
