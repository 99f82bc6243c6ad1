"""Declarations against the definitions that kafka-python carries in its wheel, and Kafka in its jars.

Nothing of those definitions is copied here. Kafka's jars are looked for where the environment's
``OTTLA_TEST_KAFKA_LIBS`` says.
"""

import importlib.util
import json
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.api_keys import FLEXIBLE_SINCE, ApiKey
from protocol.messages.transactions import TxnOffsetCommitRequest
from protocol.records import cluster_metadata, control_records
from protocol.schema import NO_UUID, ArrayOf, FieldLayout, Sized, StructOf, WireType, describe, layout
from tests.unit.protocol.declared import EVERY_MESSAGE_VERSION, EVERY_VERSION, MESSAGES, STORED, label

_FORMATS = {"b": "int8", "h": "int16", "i": "int32", "q": "int64", "H": "uint16", "I": "uint32"} | {
    "d": "float64",
    "?": "bool",
    "16s": "uuid",
}

_ZEROS = {"string": "", "bytes": b"", "bool": False, "uuid": NO_UUID}


_found = importlib.util.find_spec("kafka")
assert _found is not None
assert _found.origin is not None
_KAFKA_PYTHON = Path(_found.origin).parent / "protocol" / "schemas" / "resources"


class Definition:
    """One of Kafka's JSON definitions."""

    def __init__(self, text: str) -> None:
        self.data = json.loads(re.sub(r"(?m)(^|\s)//.*$", "", text))
        self.common = {struct["name"]: struct["fields"] for struct in self.data.get("commonStructs", [])}

    def fields(self, fields: list[dict[str, Any]], version: int) -> Iterator[tuple[Any, ...]]:
        """What `ours` gives for the same version: name, type, null allowed, tag, default; fields of a struct."""
        for field in fields:
            if not _within(version, field.get("versions", field.get("taggedVersions", "0+"))):
                continue
            name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", field["name"]).lower()
            nullable = _within(version, field.get("nullableVersions", "none"))
            tag = field.get("tag") if _within(version, field.get("taggedVersions", "none")) else None
            inner_name = field["type"].removeprefix("[]")
            children = field.get("fields") or self.common.get(inner_name)
            kind = field["type"] if children is None else field["type"].replace(inner_name, "struct")
            yield name, kind, nullable, tag, list(self.fields(children, version)) if children else None


def _within(version: int, versions: str) -> bool:
    if versions == "none":
        return False
    first, dash, last = versions.partition("-")
    if first.endswith("+"):
        return version >= int(first[:-1])
    return int(first) <= version <= int(last if dash else first)


def _kind(wire_type: WireType) -> str:
    if isinstance(wire_type, ArrayOf):
        return "[]" + _kind(wire_type.element)
    if isinstance(wire_type, StructOf):
        return "struct"
    return wire_type.value if isinstance(wire_type, Sized) else _FORMATS[wire_type.format]


def _inner(wire_type: WireType) -> type[Any] | None:
    if isinstance(wire_type, ArrayOf):
        return _inner(wire_type.element)
    return wire_type.cls if isinstance(wire_type, StructOf) else None


def ours(cls: type[Any], version: int) -> Iterator[tuple[Any, ...]]:
    for field in layout(cls):
        if field.is_in(version):
            inner = _inner(field.wire_type)
            children = None if inner is None else list(ours(inner, version))
            yield field.name, _kind(field.wire_type), field.is_nullable(version), field.tag, children


def _default(field: dict[str, Any]) -> Any:
    """What Kafka takes for a field that is not there; None too for a string that may be null."""
    given = field.get("default")
    if given == "null":
        return None
    if field["type"].startswith("[]"):
        return []
    if field["type"] in _ZEROS:
        return {"true": True, "false": False}.get(given, given) if given is not None else _ZEROS[field["type"]]
    return int(str(given), 0) if given is not None else 0


def _check_defaults(cls: type[Any], fields: list[dict[str, Any]], common: dict[str, Any]) -> None:
    declared = {field.name: field for field in layout(cls)}
    for field in fields:
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", field["name"]).lower()
        if name not in declared:
            continue  # of versions that are no longer spoken
        mine: FieldLayout = declared[name]
        where = f"{cls.__qualname__}.{name}"
        inner = _inner(mine.wire_type)
        children = field.get("fields") or common.get(field["type"].removeprefix("[]"))
        if inner is not None and children is not None:
            _check_defaults(inner, children, common)
        if isinstance(mine.wire_type, StructOf):
            if mine.has_default and mine.nullable_since is None:
                assert mine.make_default() == mine.wire_type.cls(), where
            continue
        if not mine.has_default:
            assert "default" not in field, f"{where} has no default, Kafka's is {field.get('default')}"
            continue
        # Where null is allowed and Kafka names no default, it takes "": null says better that there is nothing.
        null_for_empty = mine.make_default() is None and "default" not in field and mine.tag is None
        assert null_for_empty or mine.make_default() == _default(field), where


def carried_by_kafka_python(cls: type[Any]) -> Definition:
    text = (_KAFKA_PYTHON / f"{cls.__name__}.json").read_text()
    if cls is TxnOffsetCommitRequest:
        text = text.replace('"GenerationId"', '"GenerationIdOrMemberEpoch"')  # as Kafka calls it since 4.4
    return Definition(text)


def _has_kafka_python(cls: type[Any], version: int) -> bool:
    """Whether kafka-python knows this version. What it does not know stands in Kafka's jars."""
    if not (_KAFKA_PYTHON / f"{cls.__name__}.json").exists():
        return False
    return _within(version, carried_by_kafka_python(cls).data["validVersions"])


KNOWN_TO_KAFKA_PYTHON = [(cls, version) for cls, version in EVERY_MESSAGE_VERSION if _has_kafka_python(cls, version)]


def test_kafka_python_knows_nearly_all_versions_of_what_clients_ask_most() -> None:
    assert len(KNOWN_TO_KAFKA_PYTHON) > 430


@pytest.mark.parametrize(("cls", "version"), KNOWN_TO_KAFKA_PYTHON, ids=label)
def test_the_layout_is_the_one_kafka_python_has(cls: type[Any], version: int) -> None:
    definition = carried_by_kafka_python(cls)

    assert list(ours(cls, version)) == list(definition.fields(definition.data["fields"], version))


@pytest.mark.parametrize("cls", dict(KNOWN_TO_KAFKA_PYTHON), ids=label)
def test_defaults_key_and_flexible_versions_are_the_ones_kafka_python_has(cls: type[Any]) -> None:
    definition = carried_by_kafka_python(cls)
    info = describe(cls)

    assert info.key == definition.data["apiKey"]
    assert info.is_request == (definition.data["type"] == "request")
    for version in range(info.versions[0], info.versions[1] + 1):
        assert info.is_flexible(version) == _within(version, definition.data["flexibleVersions"])
    _check_defaults(cls, definition.data["fields"], definition.common)


def test_every_api_that_kafka_lists_has_a_request_and_a_response() -> None:
    # Kafka lists these where it has a receiver of telemetry.
    unlisted = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    declared = sorted((describe(cls).key, describe(cls).is_request) for cls in MESSAGES)
    assert declared == sorted((key.value, is_request) for key in set(ApiKey) - unlisted for is_request in (False, True))


def test_the_table_of_flexible_versions_says_what_kafka_python_has() -> None:
    seen = 0
    for resource in _KAFKA_PYTHON.glob("*Request.json"):
        data = Definition(resource.read_text()).data
        flexible = data["flexibleVersions"]
        assert FLEXIBLE_SINCE.get(data["apiKey"]) == (None if flexible == "none" else int(flexible[:-1])), data["name"]
        assert ApiKey(data["apiKey"]).name.replace("_", "") == data["name"].removesuffix("Request").upper()
        seen += 1
    assert seen > 45


_JAR_NAMES = {
    "LeaderChange": "LeaderChangeMessage",
    "SnapshotHeader": "SnapshotHeaderRecord",
    "SnapshotFooter": "SnapshotFooterRecord",
    "KRaftVersion": "KRaftVersionRecord",
    "KRaftVoters": "VotersRecord",
    "EndTransactionMarker": "EndTxnMarker",
}


def _definitions_in_jars() -> dict[str, Definition]:
    found = {}
    for jar in Path(os.environ.get("OTTLA_TEST_KAFKA_LIBS", "/nowhere")).glob("kafka-*.jar"):
        with zipfile.ZipFile(jar) as opened:
            for name in opened.namelist():
                if re.fullmatch(r"common/(message|metadata)/\w+\.json", name):
                    definition = Definition(opened.read(name).decode())
                    found[definition.data["name"]] = definition
    return found


@pytest.mark.skipif(
    "OTTLA_TEST_KAFKA_LIBS" not in os.environ,
    reason="OTTLA_TEST_KAFKA_LIBS does not name a directory with Kafka's jars",
)
def test_every_declaration_is_the_one_in_kafkas_jars() -> None:
    definitions = _definitions_in_jars()
    for cls, version in EVERY_VERSION:
        definition = definitions[_JAR_NAMES.get(cls.__name__, cls.__name__)]
        data = definition.data
        mine = list(ours(cls, version))
        if cls is control_records.EndTransactionMarker:
            del mine[0]  # Kafka writes this version outside of the message
        assert mine == list(definition.fields(data["fields"], version)), (cls, version)
        assert describe(cls).is_flexible(version) == _within(version, data["flexibleVersions"])
        assert _within(version, data["validVersions"])
        _check_defaults(cls, data["fields"], definition.common)
        if "apiKey" in data:
            assert describe(cls).key == data["apiKey"]
    for name, definition in definitions.items():
        if definition.data["type"] == "metadata":
            cls = cluster_metadata.RECORD_TYPES[definition.data["apiKey"]]
            assert cls.__name__ == name
            assert _within(describe(cls).versions[1] + 1, definition.data["validVersions"]) is False
            assert cls in STORED
        if definition.data["type"] == "request" and definition.data["apiKey"] in set(ApiKey):
            flexible = definition.data["flexibleVersions"]
            expected = None if flexible == "none" else int(flexible[:-1])
            assert FLEXIBLE_SINCE.get(definition.data["apiKey"]) == expected, name
