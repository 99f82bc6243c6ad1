"""Every decoder, given any bytes: it gives a message or Malformed, and a message is written and read again as it was.

0 | request, header included
1 | api key i16 | version u8 | answer, correlation id included
2 | value of a record of __cluster_metadata
3 | key of a control record, 4 bytes | its value
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from protocol.codec import decoder, encode
from protocol.headers import decode_request_header, decode_response, encode_request, frame_response
from protocol.primitives import Malformed
from protocol.records.cluster_metadata import UnknownRecord, decode_record, encode_record
from protocol.records.control_records import (
    decode_control_key,
    decode_control_value,
    encode_control_key,
    encode_control_value,
)
from protocol.schema import ArrayOf, Sized, StructOf, WireType, describe, layout
from tests.unit.protocol.declared import MESSAGES, STORED

REQUEST, RESPONSE, METADATA_RECORD, CONTROL_RECORD = range(4)

PACKAGES = ("protocol",)
MOST_BYTES = 2048

REQUESTS = {describe(cls).key: cls for cls in MESSAGES if cls.__name__.endswith("Request")}
RESPONSES = {describe(cls).key: cls for cls in MESSAGES if cls.__name__.endswith("Response")}


def check(data: bytes) -> None:
    """Read ``data`` as what its first byte says."""
    if not data:
        return
    kind, payload = data[0] & 3, memoryview(data)[1:]
    with suppress(Malformed):
        if kind == REQUEST:
            _check_request(payload)
        elif kind == RESPONSE:
            _check_response(payload)
        elif kind == METADATA_RECORD:
            _check_metadata_record(payload)
        else:
            _check_control_record(payload)


def _check_request(frame: memoryview) -> None:
    header, position = decode_request_header(frame)
    assert position <= len(frame)
    cls = REQUESTS.get(header.api_key)
    if cls is not None and _has(cls, header.api_version):
        request, end = decoder(cls, header.api_version)(frame, position)
        assert position <= end <= len(frame)
        _check_round_trip(request, header.api_version)


def _check_response(data: memoryview) -> None:
    if len(data) < 3:
        return
    cls, version = RESPONSES.get(int.from_bytes(data[:2], signed=True)), data[2]
    if cls is not None and _has(cls, version):
        _, answer = decode_response(cls, version, data[3:])
        _check_round_trip(answer, version)


def _check_metadata_record(value: memoryview) -> None:
    record, version = decode_record(value)
    if not isinstance(record, UnknownRecord):
        encoded = encode_record(record, version)
        # By their bytes: a record that holds a NaN is not equal to itself.
        assert encode_record(*decode_record(encoded)) == encoded


def _check_control_record(data: memoryview) -> None:
    kind = decode_control_key(data[:4])
    if kind is None:
        return
    record = decode_control_value(kind, data[4:])
    if _has(type(record), record.version):  # a marker may be of a later version, which is read and never written
        assert decode_control_value(kind, encode_control_value(record)) == record


def _check_round_trip(message: Any, version: int) -> None:
    encoded = encode(message, version)
    again, end = decoder(type(message), version)(encoded, 0)
    assert again == message
    assert end == len(encoded)
    assert encode(again, version) == encoded


def versions_of(cls: type[Any]) -> range:
    """Every version of a message."""
    first, last = describe(cls).versions
    return range(first, last + 1)


def _has(cls: type[Any], version: int) -> bool:
    return version in versions_of(cls)


def seeds() -> Iterator[bytes]:
    """Every message and record in every version, once as short as can be and once with something in every field."""
    for cls in (*MESSAGES, *STORED):
        for version in versions_of(cls):
            for count in (0, 2):
                yield from _as_input(filled(cls, version, count), version)


def filled(cls: type[Any], version: int, count: int) -> Any:
    """A message whose texts and lists have ``count`` elements."""
    return cls(**{one.name: _value(one.wire_type, version, count) for one in layout(cls) if one.is_in(version)})


def _value(wire_type: WireType, version: int, count: int) -> Any:
    if isinstance(wire_type, StructOf):
        return filled(wire_type.cls, version, count)
    if isinstance(wire_type, ArrayOf):
        return [_value(wire_type.element, version, count) for _ in range(count)]
    if wire_type is Sized.STRING:
        return "x" * count
    if wire_type is Sized.BYTES or wire_type is Sized.RECORDS:
        return b"b" * count

    return bytes(16) if wire_type.format == "16s" else min(count, 1)


def _as_input(message: Any, version: int) -> Iterator[bytes]:
    cls, key = type(message), describe(type(message)).key
    if cls in REQUESTS.values():
        yield bytes([REQUEST]) + encode_request(1, "fuzz", message, version)[4:]
    elif cls in RESPONSES.values():
        chunks = frame_response(1, message, version)
        answer = b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[call-overload]
        yield bytes([RESPONSE]) + key.to_bytes(2, signed=True) + bytes([version]) + answer[4:]
    elif cls.__module__.endswith("control_records"):
        yield bytes([CONTROL_RECORD]) + encode_control_key(key) + encode(message, version)
    else:
        yield bytes([METADATA_RECORD, 1, key, version]) + encode(message, version)
