"""A fetch never brings records into Python: they go from the file to the socket."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.request.response import ResponseSlot
from protocol.codec import Chunk
from storage.files import File, FileRegion
from storage.retention import apply_retention
from tests.support.batches import produced, record
from tests.support.broker import InProcessBroker, running_broker
from tests.support.requests import fetch_request, produce_request

RECORDS_BYTES = 4 << 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    """A broker with 4 MB in one partition."""
    with running_broker(tmp_path / "data") as broker:
        broker.create_topic("orders")
        value = b"v" * 64_000
        while broker.log("orders").size < RECORDS_BYTES:
            answer = broker.ask(produce_request("orders", produced([record(value) for _ in range(8)])), 12)
            assert answer.responses[0].partition_responses[0].error_code == 0
        yield broker


def test_an_answer_is_header_bytes_and_regions_of_files(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled: list[Chunk] = []
    fill = ResponseSlot.fill

    def remembering(slot: ResponseSlot, chunks: list[Chunk]) -> None:
        filled.extend(chunks)
        fill(slot, chunks)

    monkeypatch.setattr(ResponseSlot, "fill", remembering)

    answer = broker.ask(fetch_request(partition_max_bytes=RECORDS_BYTES, max_bytes=RECORDS_BYTES), 12)

    assert len(answer.responses[0].partitions[0].records) == RECORDS_BYTES
    (region,) = [chunk for chunk in filled if isinstance(chunk, FileRegion)]
    assert region.size == RECORDS_BYTES
    assert sum(len(chunk) for chunk in filled) - region.size < 200


def test_finding_the_place_reads_no_more_than_an_index_interval_of_headers(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0
    pread = File.pread

    def counting(file: File, size: int, position: int) -> bytes:
        nonlocal read
        data = pread(file, size, position)
        read += len(data)
        return data

    monkeypatch.setattr(File, "pread", counting)
    last = broker.log("orders").log_end_offset - 1
    for offset in (0, 5, last // 2, last):
        read = 0
        answer = broker.ask(fetch_request(offset=offset, partition_max_bytes=RECORDS_BYTES), 12)
        assert answer.responses[0].partitions[0].records
        assert read <= 2 * 4096, f"{read} bytes were read for offset {offset}"


def test_a_segment_removed_while_it_is_being_sent_is_sent_to_its_end(broker: InProcessBroker) -> None:
    slow = broker.connect()
    slow.send(fetch_request(partition_max_bytes=RECORDS_BYTES, max_bytes=RECORDS_BYTES), 12)
    broker.settle()  # as much as the socket takes is under way

    log = broker.log("orders")
    log.roll(broker.clock.now_ms())
    log.config = log.config.with_overrides({"retention.ms": "1"})
    broker.advance(10_000)
    for removal in apply_retention(log, broker.clock.now_ms()):
        removal.perform()
    assert log.log_start_offset > 0
    assert not any(path.name == f"{0:020d}.log" for path in (broker.directory / "orders-0").iterdir())

    records = slow.receive().responses[0].partitions[0].records
    assert len(records) == RECORDS_BYTES
