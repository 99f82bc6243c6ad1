"""Records of a topic as Python has them, and as the JSON of the control listener has them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ottla.testing.errors import BrokerError, shown

_BYTES: Final = (bytes, bytearray, memoryview)
_NO_TIMESTAMP: Final = -1


@dataclass(frozen=True, slots=True)
class Record:
    """A record that is in a topic."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int = 0
    offset: int = -1
    timestamp_ms: int = _NO_TIMESTAMP
    """Milliseconds since 1970. A record that is written without a time gets the broker's."""


Seed = Mapping[str, Any] | Record | bytes | str | None
"""A record to be written: its value, or `value`, `key`, `headers`, `partition` and `timestamp_ms` by name. Headers are
names with values, or pairs as clients have them."""


def read_seeds(path: Path) -> list[Mapping[str, Any]]:
    """The records of a file: one JSON object a line, or a YAML list. Raises `BrokerError`."""
    try:
        text = path.read_text()
        if path.suffix in (".yaml", ".yml"):
            found = _read_yaml(text)
        else:
            found = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise BrokerError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, Sequence) or not all(isinstance(one, Mapping) for one in found):
        raise BrokerError(f"{path} is no list of records, each with value, key, headers, partition or timestamp_ms")
    return list(found)


def _read_yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def records_as_json(records: object) -> list[dict[str, Any]]:
    """Records as a call takes them. Raises `BrokerError`, which names what is wrong."""
    if isinstance(records, (str, *_BYTES, Mapping, Record)) or not isinstance(records, Iterable):
        raise BrokerError(f"records is {shown(records)}, expected a list of records")
    return [_as_json(record, f"records[{number}]") for number, record in enumerate(records)]


def record_from_json(record: Mapping[str, Any]) -> Record:
    """A record that a call has answered."""
    return Record(
        value=_bytes(record, "value"),
        key=_bytes(record, "key"),
        headers=tuple((one["key"], _bytes(one, "value")) for one in record["headers"]),
        partition=record["partition"],
        offset=record["offset"],
        timestamp_ms=record.get("timestamp_ms", _NO_TIMESTAMP),
    )


def _as_json(seed: object, where: str) -> dict[str, Any]:
    if isinstance(seed, Record):
        given: Mapping[Any, Any] = {
            "value": seed.value, "key": seed.key, "headers": seed.headers, "partition": seed.partition,
            "timestamp_ms": None if seed.timestamp_ms == _NO_TIMESTAMP else seed.timestamp_ms,
        }  # fmt: skip
    else:
        given = seed if isinstance(seed, Mapping) else {"value": seed}
    written: dict[str, Any] = {}
    for name, value in given.items():
        if name in ("key", "value"):
            written |= _content(name, value, f"{where}.{name}")
        elif name == "headers":
            written[name] = _headers(value, f"{where}.headers")
        else:
            written[name] = value
    return written


def _headers(given: object, where: str) -> list[dict[str, Any]]:
    pairs = given.items() if isinstance(given, Mapping) else given
    if isinstance(pairs, (str, *_BYTES)) or not isinstance(pairs, Iterable):
        raise BrokerError(f"{where} is {shown(given)}, expected names with values, or pairs of a name and a value")
    written = []
    for number, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise BrokerError(f"{where}[{number}] is {shown(pair)}, expected a pair of a name and a value")
        name, value = pair
        if not isinstance(value, str | None) and not isinstance(value, _BYTES):
            raise BrokerError(f"{where}[{number}] has the value {shown(value)}, expected text, bytes or None")
        written.append({"key": name, **_content("value", value, where)})
    return written


def _content(name: str, value: object, where: str) -> dict[str, Any]:
    """Bytes in Base64, text as it is, and other values as JSON, as most programs write them."""
    if value is None or isinstance(value, str):
        return {name: value}
    if isinstance(value, _BYTES):
        return {f"{name}_base64": base64.b64encode(value).decode()}
    try:
        return {name: json.dumps(value, allow_nan=False)}
    except (TypeError, ValueError, RecursionError) as error:
        raise BrokerError(f"{where} is {shown(value)}, which cannot be written as JSON: {error}") from error


def _bytes(shown: Mapping[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in shown:
        return base64.b64decode(shown[f"{name}_base64"])
    text = shown[name]
    return None if text is None else str(text).encode()
