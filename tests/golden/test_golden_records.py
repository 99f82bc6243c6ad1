"""The record batches inside the captured frames hold the records that the clients were asked to send."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.codec import decode
from protocol.headers import decode_request_header, decode_response
from protocol.messages.fetch import FetchResponse
from protocol.messages.produce import ProduceRequest
from storage.batch.record_batch import computed_crc, read_header
from storage.batch.records import iterate_records

HERE = Path(__file__).resolve().parent
PYTHON_CLIENTS = ("aiokafka", "confluent-kafka", "kafka-python")
SENT = [(b"key", b"value", [("header", b"\x00\xff")], 1700000000000), (b"key", None, [], 1700000000001)]


def frames(pattern: str) -> list[tuple[Path, bytes]]:
    return [(path, bytes.fromhex(path.read_text())) for path in sorted(HERE.glob(pattern))]


def version_of(path: Path) -> int:
    return int(path.name.partition("-v")[2].partition("-")[0])


def produced_batches() -> list[tuple[Path, memoryview]]:
    found = []
    for path, frame in frames("*/Produce-*.request.hex"):
        header, position = decode_request_header(frame)
        request = decode(ProduceRequest, header.api_version, frame, position)
        for topic in request.topic_data:
            found += [(path, memoryview(partition.records)) for partition in topic.partition_data]  # type: ignore[arg-type]
    return found


def fetched_batches(client: str) -> list[memoryview]:
    found = []
    for path, frame in frames(f"{client}/Fetch-*.response.hex"):
        _, response = decode_response(FetchResponse, version_of(path), frame)
        for topic in response.responses:
            found += [memoryview(partition.records) for partition in topic.partitions if partition.records]  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(("path", "batch"), produced_batches(), ids=lambda value: getattr(value, "stem", ""))
def test_every_produced_batch_is_whole(path: Path, batch: memoryview) -> None:
    header = read_header(batch)

    assert header.magic == 2
    assert header.size == len(batch)
    assert header.crc == computed_crc(batch, 0, header.size)
    assert len(list(iterate_records(batch))) == header.record_count


@pytest.mark.parametrize("client", PYTHON_CLIENTS)
def test_what_a_client_fetched_is_what_it_had_sent(client: str) -> None:
    records = [
        (record.offset, (record.key, record.value, record.headers, record.timestamp))
        for batch in fetched_batches(client)
        for record in iterate_records(batch)
    ]

    assert [(offset, record) for offset, record in records if record in SENT] == list(enumerate(SENT))


def test_the_compressed_batch_of_the_java_client_opens() -> None:
    values = [record.value for batch in fetched_batches("java") for record in iterate_records(batch)]

    assert b"compressed" in values
