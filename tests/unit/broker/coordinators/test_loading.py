"""Loading a coordinator's partition: the state afterwards is that of the log, and the loop turns meanwhile."""

import asyncio
import errno
from itertools import pairwise

import pytest

from broker.coordinators.loading import (
    LINES,
    MOST_HELD_BYTES,
    MOST_HELD_RECORDS,
    OPENED_HERE_BYTES,
    Newest,
    PartitionLoading,
)
from broker.request.faults import Fault
from broker.runtime.time_slices import Steps
from protocol.errors import ErrorCode as E
from storage.batch.record_batch import HEADER_SIZE, Codec
from storage.batch.records import Record
from tests.support.batches import T, changed, end_marker, stored
from tests.support.broker import InProcessBroker
from tests.support.files import FaultyFileSystem
from tests.unit.broker.coordinators.toy import TOPIC, Entry, Toy

UNREADABLE = b"\xff"


@pytest.fixture
def broker(broker: InProcessBroker) -> InProcessBroker:
    broker.create_topic(TOPIC)
    return broker


def put(key: str | bytes, value: str | None = "1") -> Record:
    raw = key.encode() if isinstance(key, str) else key
    return Record(timestamp=T, key=raw, value=None if value is None else value.encode())


def append(broker: InProcessBroker, *batches: bytes | bytearray | memoryview) -> None:
    """Put batches into the log, whoever may have written them."""
    log = broker.log(TOPIC)
    for batch in batches:
        log.stage_trusted(bytearray(batch))
    log.append_all(T)
    log.advance_high_watermark(log.log_end_offset)


def overwrite(broker: InProcessBroker, offset: int, data: bytes | memoryview) -> None:
    """Put other bytes into the file, where the batch of ``offset`` begins."""
    segment = broker.log(TOPIC).segments.active
    segment.files.log_file().pwrite(data, segment.position_of(offset))


def loaded(broker: InProcessBroker, **settings: int) -> Toy:
    toy = Toy(broker, **settings)
    toy.start()
    return toy


def test_the_last_value_of_each_key_counts_and_a_tombstone_removes_it(broker: InProcessBroker) -> None:
    append(broker, stored([put("a", "1"), put("b", "1")]), stored([put("a", "2")]), stored([put("b", None)]))
    toy = loaded(broker)
    assert toy.values == {"a": "2"}
    stats = toy.runtime.loading_stats
    assert (stats.partitions_loaded, stats.batches, stats.records, stats.passed_over) == (1, 3, 4, 0)
    assert stats.bytes == broker.log(TOPIC).size


def test_what_a_later_record_replaces_is_not_replayed(broker: InProcessBroker) -> None:
    append(broker, *[stored([put("a", str(number)), put("b", str(number)), put("c", None)]) for number in range(100)])
    toy = loaded(broker)
    assert toy.shards[0].replayed == [Entry("a", "99"), Entry("b", "99"), Entry("c", None)]
    assert toy.runtime.loading_stats.records == 300


def test_a_record_that_cannot_be_read_replaces_nothing(broker: InProcessBroker) -> None:
    unreadable = Record(timestamp=T, key=b"a", value=UNREADABLE)
    append(broker, stored([put("a", "1"), put("b", "1")]), stored([put("a", "2")]), stored([unreadable, unreadable]))
    toy = loaded(broker)
    assert toy.values == {"a": "2", "b": "1"}
    assert toy.runtime.loading_stats.passed_over == 2
    assert Entry("a", "1") not in toy.shards[0].replayed


def test_what_is_held_before_it_is_replayed_is_bounded(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    most: list[int] = []
    replay = PartitionLoading._replay

    def watched(loading: PartitionLoading, newest: Newest, producer_id: int) -> Steps:
        most.append(len(newest))
        return replay(loading, newest, producer_id)

    monkeypatch.setattr(PartitionLoading, "_replay", watched)
    tiny = [put(f"{number}", None) for number in range(2 * MOST_HELD_RECORDS + 10)]
    large = [stored([put(f"large-{number}", "x" * 1_000_000)], codec=Codec.ZSTD) for number in range(20)]
    append(broker, stored(tiny, codec=Codec.ZSTD), *large)
    assert len(loaded(broker).values) == 20
    assert max(most) == MOST_HELD_RECORDS
    assert len(most) > 2 + 20_000_000 // MOST_HELD_BYTES // 2


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("size", [10, OPENED_HERE_BYTES * 20])
def test_compressed_batches_are_opened_small_and_large(broker: InProcessBroker, codec: Codec, size: int) -> None:
    values = {f"key-{number}": str(number) * 1000 for number in range(3)}
    values["not to be compressed"] = "".join(chr(33 + number**3 * 7919 % 94) for number in range(size))
    append(broker, stored([put(key, value) for key, value in values.items()], codec=codec))
    assert loaded(broker).values == values


def test_what_was_written_is_there_after_a_restart(broker: InProcessBroker) -> None:
    toy = loaded(broker)
    toy.put(("a", "1"), ("b", "2"), ("a", "3"))
    toy.stop()
    broker.restart()
    toy = loaded(broker)
    assert toy.values == {"a": "3", "b": "2"}
    assert toy.shards[0].is_loaded
    assert toy.put(("b", None)) == [E.NONE]
    assert toy.values == {"a": "3"}


def test_a_record_that_cannot_be_read_is_passed_over_with_one_line(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    append(
        broker,
        stored([put("a")]),
        stored([put("b"), put(UNREADABLE), Record(timestamp=T, key=None, value=b"x"), put("c")]),
        stored([put("d")]),
    )
    toy = loaded(broker)
    assert toy.values == dict.fromkeys("abcd", "1")
    assert toy.runtime.loading_stats.passed_over == 2
    assert [line for line in caplog.messages if "which cannot be read:" in line] == [
        f"skipping offset 1 of {TOPIC}-0, which cannot be read: a record of the batch there: {why}"
        for why in ("a key of 1 bytes that begins with 255", "it has no key")
    ]


def test_many_that_cannot_be_read_have_a_few_lines_and_a_number(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    append(broker, stored([put(UNREADABLE + b"%d" % number) for number in range(1000)]), stored([put("a")]))
    assert loaded(broker).values == {"a": "1"}
    assert sum("which cannot be read:" in line for line in caplog.messages) == LINES
    assert any("1001 records in 2 batches" in line and "1000 unreadable" in line for line in caplog.messages)


DAMAGES = {
    "a wrong crc": {"crc": 1},
    "more records than there are": {"record_count": 2},
    "a codec that nobody knows": {"attributes": 7},
    "a codec that is not the one": {"attributes": int(Codec.GZIP)},
    "a marker that is none": {"attributes": 0x30, "producer_id": 7},
}


@pytest.mark.parametrize("fields", list(DAMAGES.values()), ids=list(DAMAGES))
def test_a_batch_that_cannot_be_opened_is_passed_over(
    broker: InProcessBroker, fields: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    append(broker, *[stored([put(key)]) for key in "abc"])
    overwrite(broker, 1, changed(stored([put("b")]), base_offset=1, **fields))
    toy = loaded(broker)
    assert {key: toy.value(key) for key in "ac"} == {"a": "1", "c": "1"}
    assert toy.runtime.loading_stats.passed_over == 1
    assert sum("offset 1 of" in line for line in caplog.messages) == 1


@pytest.mark.parametrize("is_found_at_a_start", [True, False])
def test_bytes_that_are_no_batch_are_stepped_over(broker: InProcessBroker, is_found_at_a_start: bool) -> None:
    append(broker, *[stored([put(key)]) for key in "abc"])
    if is_found_at_a_start:
        broker.restart()
    overwrite(broker, 1, bytes(HEADER_SIZE))
    assert loaded(broker).values == {"a": "1", "c": "1"}


def test_records_of_a_transaction_count_from_its_marker_on(broker: InProcessBroker) -> None:
    def transactional(key: str, producer_id: int) -> bytes:
        return stored([put(key)], producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)

    append(
        broker,
        transactional("committed", 1),
        transactional("aborted", 2),
        transactional("open", 3),
        end_marker(commit=True, producer_id=1, producer_epoch=0),
        end_marker(commit=False, producer_id=2, producer_epoch=0),
        stored([put("idempotent")], producer_id=4, producer_epoch=0, base_sequence=0),
    )
    toy = loaded(broker)
    assert toy.values == {"committed": "1", "idempotent": "1"}
    assert toy.shards[0].in_transactions == {3: {"open": "1"}}


def test_a_transaction_and_what_is_written_beside_it_keep_their_order(broker: InProcessBroker) -> None:
    def transactional(*values: str) -> bytes:
        records = [put("a", value) for value in values]
        return stored(records, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)

    append(
        broker,
        stored([put("a", "0")]),
        transactional("1", "2"),
        stored([put("a", "3")]),
        transactional("4"),
        transactional("5"),
        end_marker(commit=True, producer_id=1, producer_epoch=0),
        stored([put("b", "6")]),
    )
    toy = loaded(broker)
    assert [entry.value for entry in toy.shards[0].replayed] == ["0", "2", "3", "5", "6"]
    assert toy.values == {"a": "5", "b": "6"}


def test_what_lies_before_the_logs_start_is_not_loaded(broker: InProcessBroker) -> None:
    append(broker, stored([put("a")]), stored([put("b")]))
    broker.log(TOPIC).start_offset_to(1)
    assert loaded(broker).values == {"b": "1"}


def test_a_log_of_several_segments_is_read_to_its_end_in_small_pieces(broker: InProcessBroker) -> None:
    for key in "abcdef":
        append(broker, stored([put(key, "x" * 50_000)]))
        broker.log(TOPIC).roll(T)
    append(broker, stored([put("g", "x" * 500_000)]), stored([put("h")]))
    toy = loaded(broker, load_buffer_bytes=1)
    assert set(toy.values) == set("abcdefgh")


def test_the_loop_turns_while_partitions_are_loaded(broker: InProcessBroker) -> None:
    broker.create_topic("elsewhere", partitions=3)
    for partition in range(3):
        log = broker.log("elsewhere", partition)
        for number in range(300):
            log.stage_trusted(bytearray(stored([put(f"{partition}-{number}")])))
        log.append_all(T)
        broker.server.components.replicas.partition("elsewhere", partition).advance_high_watermark()
    clock_ns = 0

    def now_ns() -> int:
        """Every look at the clock takes a tenth of a slice."""
        nonlocal clock_ns
        clock_ns += 200_000
        return clock_ns

    toy = Toy(broker, topic="elsewhere", now_ns=now_ns)
    toy.begin()
    seen: list[int] = []

    async def look_every_turn() -> None:
        while not seen or seen[-1] < 900:
            seen.append(sum(len(shard.values) for shard in toy.shards))
            await asyncio.sleep(0)

    broker.run(look_every_turn())
    assert max(after - before for before, after in pairwise(seen)) <= 10
    toy.wait_until_loaded()
    assert len(toy.values) == 900


def test_while_it_loads_it_says_so(broker: InProcessBroker) -> None:
    append(broker, stored([put("a")]))
    toy = Toy(broker)
    with pytest.raises(Fault, match="is being loaded") as raised:
        toy.runtime.of("a")
    assert raised.value.code is E.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(Fault, match="is being loaded"):
        toy.runtime.all()
    toy.start()
    assert toy.value("a") == "1"


def test_a_directory_that_fails_while_it_is_read_is_offline(broker: InProcessBroker, disk: FaultyFileSystem) -> None:
    append(broker, stored([put("a", "x" * 5000)]))
    toy = Toy(broker)
    disk.fail("read", errno.EIO, suffix=".log")
    toy.begin()
    broker.wait_until(lambda: broker.server.components.replicas.is_offline(TOPIC, 0))
    with pytest.raises(Fault) as raised:
        toy.runtime.of("a")
    assert raised.value.code is E.NOT_COORDINATOR


def test_where_no_descriptor_is_left_it_goes_on_later(broker: InProcessBroker, disk: FaultyFileSystem) -> None:
    append(broker, stored([put("a")]))
    broker.log(TOPIC).segments.active.files.let_go()
    toy = Toy(broker)
    disk.fail("open", errno.EMFILE, suffix=".log")
    toy.begin()
    broker.settle()
    assert not toy.shards[0].is_loaded
    broker.advance(1_000)
    toy.wait_until_loaded()
    assert toy.values == {"a": "1"}
