"""Records as `ottla dump` shows them: key and value decoded by the record's topic, or as bytes."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.metadata.topic_rules import CLUSTER_METADATA, CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from broker.share.in_flight import RecordState
from broker.tools.output import fields_of
from protocol.primitives import Malformed
from protocol.records.cluster_metadata import UnknownRecord as UnknownMetadataRecord
from protocol.records.cluster_metadata import decode_record
from protocol.records.control_records import decode_control_key, decode_control_value
from protocol.records.coordinator_records import UnknownRecord
from protocol.records.group_metadata import GroupRecord, decode_group_record
from protocol.records.share_state import ShareStateRecord, decode_share_state_record
from protocol.records.transaction_state import TransactionRecord, TransactionStatus, decode_transaction_record
from storage.batch.records import Record

Fields = dict[str, Any]


def shown_record(record: Record, topic: str | None, *, is_control: bool) -> Fields:
    """The fields of a record's line; what its topic cannot decode is shown as it is, with the reason."""
    fields: Fields = {"offset": record.offset, "timestamp": record.timestamp}
    decode = _control_record if is_control else _BY_TOPIC.get(topic or "")
    if decode is not None:
        try:
            return fields | decode(record)
        except Malformed as error:
            fields["malformed"] = str(error)
    fields |= {"key": record.key, "value": record.value}
    if record.headers:
        fields["headers"] = [
            {"key": name.encode("utf-8", "surrogateescape"), "value": value} for name, value in record.headers
        ]
    return fields


def _control_record(record: Record) -> Fields:
    record_type = decode_control_key(record.key or b"")
    if record_type is None:
        return {"control": "unknown", "key": record.key, "value": record.value}
    value = decode_control_value(record_type, record.value or b"")
    return {"control": record_type.name, **fields_of(value, value.version)}


def _metadata_record(record: Record) -> Fields:
    if record.value is None:
        raise Malformed("a metadata record without a value")
    decoded, version = decode_record(record.value)
    if isinstance(decoded, UnknownMetadataRecord):
        return {"record": f"unknown type {decoded.key}", "version": version, "value": record.value}
    return {"record": type(decoded).__name__, "version": version, "fields": fields_of(decoded, version)}


def _group_record(record: Record) -> Fields:
    return _coordinator_record(decode_group_record(record.key or b"", record.value))


def _transaction_record(record: Record) -> Fields:
    fields = _coordinator_record(decode_transaction_record(record.key or b"", record.value))
    value = fields["value"]
    if isinstance(value, dict) and value["transaction_status"] in set(TransactionStatus):
        value["transaction_status"] = TransactionStatus(value["transaction_status"]).name
    return fields


def _share_state_record(record: Record) -> Fields:
    fields = _coordinator_record(decode_share_state_record(record.key or b"", record.value))
    value = fields["value"]
    for batch in value["state_batches"] if isinstance(value, dict) else ():
        if batch["delivery_state"] in set(RecordState):
            batch["delivery_state"] = RecordState(batch["delivery_state"]).name
    return fields


def _coordinator_record(decoded: GroupRecord | TransactionRecord | ShareStateRecord | UnknownRecord) -> Fields:
    if isinstance(decoded, UnknownRecord):
        return {"record": f"unknown type {decoded.type}", "key": decoded.raw_key, "value": decoded.raw_value}
    key, value, version = decoded
    name = type(key).__name__.removesuffix("Key")
    if value is None or version is None:
        return {"record": name, "key": fields_of(key, 0), "value": None}
    return {"record": name, "version": version, "key": fields_of(key, 0), "value": fields_of(value, version)}


_BY_TOPIC: Final[Mapping[str, Callable[[Record], Fields]]] = {
    CLUSTER_METADATA: _metadata_record,
    CONSUMER_OFFSETS: _group_record,
    SHARE_GROUP_STATE: _share_state_record,
    TRANSACTION_STATE: _transaction_record,
}
