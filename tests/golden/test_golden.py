"""Every captured frame is read as Apache Kafka reads it, and written again to the same bytes."""

from __future__ import annotations

import base64
import importlib
import json
import re
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from protocol.codec import decode
from protocol.headers import decode_request_header, decode_response, encode_request, frame_response

HERE = Path(__file__).resolve().parent
FILE = re.compile(r"(?P<api>\w+)-v(?P<version>\d+)-\d+\.(?P<kind>request|response)\.hex")
PACKAGES = {
    "ApiVersions": "api_versions",
    "CreateTopics": "topics",
    "DeleteGroups": "groups",
    "DeleteTopics": "topics",
    "DescribeCluster": "cluster",
    "DescribeConfigs": "configs",
    "DescribeGroups": "groups",
    "Fetch": "fetch",
    "FindCoordinator": "find_coordinator",
    "Heartbeat": "group_membership",
    "InitProducerId": "init_producer_id",
    "JoinGroup": "group_membership",
    "LeaveGroup": "group_membership",
    "ListGroups": "groups",
    "ListOffsets": "list_offsets",
    "Metadata": "metadata",
    "OffsetCommit": "committed_offsets",
    "OffsetDelete": "committed_offsets",
    "OffsetFetch": "committed_offsets",
    "Produce": "produce",
    "SyncGroup": "group_membership",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """One captured frame, without its size."""

    name: str
    message: type[Any]
    version: int
    frame: bytes
    meaning: dict[str, Any]


def golden(kind: str) -> list[Any]:
    found = []
    for path in sorted(HERE.glob(f"*/*.{kind}.hex")):
        match = FILE.fullmatch(path.name)
        assert match is not None, f"{path} is not named API-vVERSION-NUMBER.{kind}.hex"
        module = importlib.import_module(f"protocol.messages.{PACKAGES[match['api']]}")
        stem = path.name.removesuffix(f".{kind}.hex")
        case = Golden(
            name=f"{path.parent.name}/{stem}",
            message=getattr(module, match["api"] + kind.capitalize()),
            version=int(match["version"]),
            frame=bytes.fromhex(path.read_text()),
            meaning=json.loads((path.parent / f"{stem}.json").read_text())[kind],
        )
        found.append(pytest.param(case, id=case.name))
    return found


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])[A-Z]", lambda match: "_" + match[0].lower(), name)


def assert_means(ours: Any, kafkas: Any, where: str) -> None:
    """What we decoded says the same, field by field, as what Apache Kafka decoded."""
    if isinstance(kafkas, dict):
        assert is_dataclass(ours), f"{where}: {ours!r} is not a message"
        for name, value in kafkas.items():
            if name.endswith("SizeInBytes"):
                records = getattr(ours, snake_case(name.removesuffix("SizeInBytes")))
                assert len(records) == value, f"{where}.{name}"
            else:
                assert_means(getattr(ours, snake_case(name)), value, f"{where}.{name}")
    elif isinstance(kafkas, list):
        assert len(ours) == len(kafkas), where
        for number, (one, other) in enumerate(zip(ours, kafkas, strict=True)):
            assert_means(one, other, f"{where}[{number}]")
    elif isinstance(ours, bytes | memoryview):
        as_id = base64.urlsafe_b64encode(ours).rstrip(b"=").decode()
        assert kafkas in (as_id, base64.b64encode(ours).decode()), where
    else:
        assert ours == kafkas, where


@pytest.mark.parametrize("case", golden("request"))
def test_a_clients_request_is_read_as_kafka_reads_it(case: Golden) -> None:
    header, position = decode_request_header(case.frame)
    message = decode(case.message, case.version, case.frame, position)

    assert (header.api_key, header.api_version) == (case.meaning["apiKey"], case.meaning["apiVersion"])
    assert header.correlation_id == case.meaning["correlationId"]
    assert header.client_id == (case.meaning["clientId"] or "")
    assert_means(message, case.meaning["body"], case.name)


@pytest.mark.parametrize("case", golden("request"))
def test_a_clients_request_is_written_to_the_same_bytes(case: Golden) -> None:
    header, position = decode_request_header(case.frame)
    message = decode(case.message, case.version, case.frame, position)

    again = encode_request(header.correlation_id, header.client_id, message, header.api_version)

    assert again[4:].hex() == case.frame.hex()


@pytest.mark.parametrize("case", golden("response"))
def test_kafkas_answer_is_read_as_kafka_reads_it(case: Golden) -> None:
    correlation_id, message = decode_response(case.message, case.version, case.frame)

    assert correlation_id == case.meaning["correlationId"]
    assert_means(message, case.meaning["body"], case.name)


@pytest.mark.parametrize("case", golden("response"))
def test_kafkas_answer_is_written_to_the_same_bytes(case: Golden) -> None:
    correlation_id, message = decode_response(case.message, case.version, case.frame)

    chunks = frame_response(correlation_id, message, case.version)

    again = b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[arg-type]
    assert int.from_bytes(again[:4], "big") == len(case.frame)
    assert again[4:].hex() == case.frame.hex()


def test_every_api_was_captured() -> None:
    apis = {path.name.partition("-v")[0] for path in HERE.glob("*/*.request.hex")}
    assert apis == set(PACKAGES)


def test_every_client_was_captured() -> None:
    assert {path.parent.name for path in HERE.glob("*/Fetch-*.response.hex")} == {
        "aiokafka",
        "confluent-kafka",
        "java",
        "kafka-python",
    }
