"""A fetch of what only the disk has: it waits in a thread, and nobody waits with it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ErrorCode as E
from protocol.messages.fetch import FetchRequest
from protocol.messages.metadata import MetadataRequest
from storage.errors import LogDirFailed
from storage.read_ahead import MOST_AHEAD_BYTES, READ_AHEAD_BYTES, ReadAhead
from tests.support.batches import produced, record
from tests.support.broker import InProcessBroker, running_broker
from tests.support.cold_disk import ColdDisk, ColdFile
from tests.support.requests import fetch_request, produce_request

FETCH_BYTES = 64 * 1024
LOG_BYTES = 4 << 20


@pytest.fixture
def disk() -> Iterator[ColdDisk]:
    disk = ColdDisk()
    yield disk
    disk.gives.set()


@pytest.fixture
def broker(tmp_path: Path, disk: ColdDisk) -> Iterator[InProcessBroker]:
    """A broker that has been started anew on a log of some megabytes, with nothing of it in memory."""
    with running_broker(tmp_path / "data", files=disk) as broker:
        broker.create_topic("orders", partitions=2)
        while broker.log("orders").size < LOG_BYTES:
            broker.produce("orders", *[b"v" * 8_000] * 8)
        broker.restart()
        broker.produce("orders", b"small", partition=1)
        disk.forget()
        yield broker


@pytest.fixture
def performed(monkeypatch: pytest.MonkeyPatch) -> list[ReadAhead]:
    """What has been read ahead."""
    performed: list[ReadAhead] = []
    perform = ReadAhead.perform

    def remembering(ahead: ReadAhead) -> None:
        performed.append(ahead)
        perform(ahead)

    monkeypatch.setattr(ReadAhead, "perform", remembering)
    return performed


def partitions_of(answer: Any) -> dict[int, Any]:
    return {one.partition_index: one for topic in answer.responses for one in topic.partitions}


def test_nobody_waits_with_him_who_waits_for_the_disk(broker: InProcessBroker, disk: ColdDisk) -> None:
    disk.gives.clear()
    reader, others = broker.connect(), broker.connect()
    reader.send(fetch_request("orders", partition_max_bytes=FETCH_BYTES), 12)
    broker.wait_until(disk.is_asked.is_set)

    assert others.ask(MetadataRequest(topics=None), 12).topics[0].name == "orders"
    others.send(produce_request("orders", produced([record()]), partition=1), 12)
    assert others.receive().responses[0].partition_responses[0].error_code == E.NONE
    assert reader.has_no_answer()

    disk.gives.set()
    read = partitions_of(reader.receive())[0]
    assert (read.error_code, len(read.records)) == (E.NONE, FETCH_BYTES)


def test_who_follows_waits_once_in_half_of_what_is_read_ahead(
    broker: InProcessBroker, performed: list[ReadAhead]
) -> None:
    end = broker.log("orders").log_end_offset
    reader, offset, received = broker.connect(), 0, b""
    while offset < end:
        read = partitions_of(
            reader.ask(fetch_request("orders", offset=offset, partition_max_bytes=FETCH_BYTES + 1_000), 12)
        )[0]
        batch_bytes = 12 + int.from_bytes(read.records[8:12], "big")
        received += bytes(read.records[:batch_bytes])
        offset += 8
    assert received == broker.log("orders").read(
        0, max_bytes=1 << 30, upper_bound_offset=end, at_least_one_batch=True
    ).region.read()  # fmt: skip
    assert 2 <= len(performed) <= LOG_BYTES // (READ_AHEAD_BYTES // 2) + 1


def test_who_follows_on_a_slow_disk_waits_in_the_thread_for_what_has_been_asked_for_and_not_come(
    broker: InProcessBroker, disk: ColdDisk, performed: list[ReadAhead]
) -> None:
    disk.is_slow = True
    for offset in (0, 16, 32):
        assert partitions_of(broker.ask(fetch_request("orders", offset=offset, partition_max_bytes=128_000), 12))
    positions = [ahead.position for ahead in performed]
    assert len(positions) == 3
    assert positions == sorted(set(positions))
    assert disk.askers == {"read-ahead"}


def test_what_has_been_forgotten_again_is_waited_for_again(
    broker: InProcessBroker, disk: ColdDisk, performed: list[ReadAhead]
) -> None:
    request = fetch_request("orders", partition_max_bytes=FETCH_BYTES)
    broker.ask(request, 12)
    broker.ask(request, 12)
    assert len(performed) == 1
    disk.forget()
    assert partitions_of(broker.ask(request, 12))[0].error_code == E.NONE
    assert len(performed) == 2


def test_what_has_just_been_written_is_in_memory(broker: InProcessBroker, performed: list[ReadAhead]) -> None:
    offset = broker.produce("orders", b"new")
    assert len(partitions_of(broker.ask(fetch_request("orders", offset=offset), 12))[0].records)
    assert performed == []


def test_all_that_a_fetch_asks_for_is_read_in_one_go(broker: InProcessBroker, performed: list[ReadAhead]) -> None:
    request = fetch_request("orders", max_wait_ms=500, partition_max_bytes=FETCH_BYTES)
    request.topics += fetch_request("orders", partition=1, partition_max_bytes=FETCH_BYTES).topics
    read = partitions_of(broker.ask(request, 12))
    assert [len(read[0].records), bool(read[1].records)] == [FETCH_BYTES, True]
    assert len({ahead.file for ahead in performed}) == len(performed) == 2


def test_what_does_not_fit_into_the_answer_is_not_read_ahead(
    broker: InProcessBroker, performed: list[ReadAhead]
) -> None:
    request = fetch_request("orders", max_bytes=FETCH_BYTES, partition_max_bytes=FETCH_BYTES)
    request.topics += fetch_request("orders", partition=1, partition_max_bytes=FETCH_BYTES).topics
    read = partitions_of(broker.ask(request, 12))
    assert [len(read[0].records), len(read[1].records)] == [FETCH_BYTES, 0]
    assert len(performed) == 1


def test_many_that_are_waited_for_together_share_what_is_read_ahead(tmp_path: Path) -> None:
    needed: list[int] = []

    class Noting(ColdFile):
        def will_need(self, size: int, position: int) -> None:
            needed.append(size)

    path = str(tmp_path / "log")
    file = Noting(path, os.open(path, os.O_RDWR | os.O_CREAT), ColdDisk())
    ReadAhead.perform_all([ReadAhead(file, 0, FETCH_BYTES)] * 100)
    assert MOST_AHEAD_BYTES < sum(needed) < 2 * MOST_AHEAD_BYTES + 100 * 2 * FETCH_BYTES


def test_an_offset_out_of_range_is_told_though_the_other_partition_is_on_the_disk(broker: InProcessBroker) -> None:
    request = fetch_request("orders", min_bytes=1 << 30, max_wait_ms=60_000, partition_max_bytes=FETCH_BYTES)
    request.topics += fetch_request("orders", partition=1, offset=99).topics
    read = partitions_of(broker.ask(request, 12))
    assert [read[0].error_code, read[1].error_code] == [E.NONE, E.OFFSET_OUT_OF_RANGE]
    assert len(read[0].records) == FETCH_BYTES


@pytest.mark.parametrize("error", [lambda: LogDirFailed("a bad sector"), lambda: RuntimeError("a bug")])
def test_where_reading_ahead_fails_reading_says_what_is_wrong(
    broker: InProcessBroker, disk: ColdDisk, error: Any
) -> None:
    disk.error = error
    assert len(partitions_of(broker.ask(fetch_request("orders", partition_max_bytes=FETCH_BYTES), 12))[0].records)


def test_a_session_reads_from_the_disk_too(broker: InProcessBroker, performed: list[ReadAhead]) -> None:
    client = broker.connect()
    begun = client.ask(fetch_request("orders", session_epoch=0, partition_max_bytes=FETCH_BYTES), 12)
    assert len(partitions_of(begun)[0].records) == FETCH_BYTES
    far = fetch_request("orders", offset=300, partition_max_bytes=FETCH_BYTES)
    further = client.ask(
        FetchRequest(session_id=begun.session_id, session_epoch=1, max_wait_ms=0, min_bytes=1, topics=far.topics), 12
    )
    assert len(partitions_of(further)[0].records) == FETCH_BYTES
    assert len(performed) == 2


def test_who_has_gone_while_the_disk_was_asked_is_no_harm(broker: InProcessBroker, disk: ColdDisk) -> None:
    disk.gives.clear()
    reader = broker.connect()
    reader.send(fetch_request("orders", partition_max_bytes=FETCH_BYTES), 12)
    broker.wait_until(disk.is_asked.is_set)
    reader.close()
    disk.gives.set()
    assert broker.ask(MetadataRequest(topics=None), 12).topics[0].name == "orders"
    broker.wait_until(lambda: broker.held_bytes == 0)
