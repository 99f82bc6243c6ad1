"""Answers as plain values: dictionaries, lists, numbers and text, to be compared field by field and read in a diff.

A field that holds its default, or false, is left out: versions which differ only in fields they lack look alike.
"""

from __future__ import annotations

import hashlib
from typing import Any

from protocol.errors import ErrorCode
from protocol.schema import MISSING, NO_UUID, ArrayOf, FieldLayout, Fixed, Sized, StructOf, WireType, layout
from storage.batch.record_batch import HEADER_SIZE, BatchHeader, read_header
from storage.batch.records import Record, iterate_records
from storage.errors import StorageError

UUID = Fixed("16s")
NO_ID = "no id"


def plain(message: Any, version: int) -> dict[str, Any]:
    """The fields of a message or struct that do not hold their default."""
    values: dict[str, Any] = {}
    for field in layout(type(message)):
        value = getattr(message, field.name)
        if not field.is_in(version) or value is False or _is_default(field, value):
            continue
        values[field.name] = _plain_value(field.name, field.wire_type, value, version)
    return values


def _is_default(field: FieldLayout, value: Any) -> bool:
    if field.default_factory is not MISSING:
        return bool(value == field.default_factory())
    return field.default is not MISSING and bool(value == field.default)


def _plain_value(name: str, wire_type: WireType, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(wire_type, ArrayOf):
        return [_plain_value(name, wire_type.element, item, version) for item in value]
    if isinstance(wire_type, StructOf):
        return plain(value, version)
    if wire_type is Sized.RECORDS:
        return plain_batches(bytes(value))
    if wire_type == UUID:
        return NO_ID if value == NO_UUID else f"id:{value.hex()}"
    if name.endswith("error_code"):
        return ErrorCode(value).name if value in set(ErrorCode) else value
    return repr(value) if isinstance(value, bytes) else value


def plain_batches(data: bytes) -> list[Any]:
    """The batches of a Records field: each header, and its records as far as they can be read."""
    batches: list[Any] = []
    position = 0
    while position < len(data):
        if len(data) - position < HEADER_SIZE:
            return [*batches, f"{len(data) - position} bytes of a header"]
        header = read_header(data, position)
        if position + header.size > len(data):
            return [*batches, f"{len(data) - position} of {header.size} bytes of the batch at {header.base_offset}"]
        batches.append(_plain_batch(data[position : position + header.size], header))
        position += header.size
    return batches


_USUAL = {
    "partition_leader_epoch": 0,
    "magic": 2,
    "attributes": 0,
    "last_offset_delta": 0,
    "producer_id": -1,
    "producer_epoch": -1,
    "base_sequence": -1,
}
"""What a header holds that is not worth a word."""


def _plain_batch(batch: bytes, header: BatchHeader) -> dict[str, Any]:
    try:
        records: Any = [_plain_record(record, header) for record in iterate_records(batch)]
        if len(records) > 3:
            records = [records[0], f"{len(records) - 2} more", records[-1]]
    except (StorageError, ValueError):
        records = "unreadable"
    values = {name: value for name, value in header._asdict().items() if _USUAL.get(name) != value}
    return {**values, "records": records, "sha256": hashlib.sha256(batch[HEADER_SIZE:]).hexdigest()[:8]}


def _plain_record(record: Record, header: BatchHeader) -> str:
    delta = record.offset - header.base_offset
    since = record.timestamp - header.base_timestamp
    return f"+{delta} {since:+} ms {_short(record.key)}={_short(record.value)} {len(record.headers)} headers"


def _short(value: bytes | None) -> str:
    if value is None:
        return "null"
    return repr(value.decode("latin-1")) if len(value) <= 8 else f"{len(value)} bytes"
