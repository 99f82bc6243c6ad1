"""Target: appending a produced batch. It is refused with a StorageError, or readable where its answer says it is.

    rules u8 | { step u8 | length u16 | what a client sends for the partition } ...

`mutate` keeps this form and most CRCs right, so that what is tried gets beyond the first checks.
"""

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from config.log_config import LogConfig
from storage.batch.record_batch import (
    computed_crc,
)
from storage.batch.validation import validate_produced
from storage.errors import DiskFull, StorageError
from storage.files import FileSystem
from storage.loading import open_log
from storage.log import Log
from tests.fuzz.batch_mutations import with_another_field, with_other_records
from tests.support.batches import EVERY_CODEC, T, changed, produced, record, records
from tests.support.logs import ORDERS, values_in

STAGE, WRITE, FAIL = range(3)
"""What a step does with a batch: stage it, write all that is staged too, or take all that is staged back."""

PACKAGES = ("storage",)
MOST_BYTES = 4096
_MOST_STEPS = 6

_TOPICS = tuple(
    LogConfig(segment_bytes=4096, segment_index_bytes=240, index_interval_bytes=200).with_overrides(overrides)
    for overrides in (
        {},
        {"cleanup.policy": "compact"},
        {"message.timestamp.type": "LogAppendTime"},
        {"compression.type": "uncompressed"},
        {"compression.type": "gzip"},
        {"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"},
        {"compression.type": "lz4", "message.timestamp.before.max.ms": "1000"},
        {"compression.type": "snappy", "cleanup.policy": "compact,delete", "max.message.bytes": "600"},
    )
)
_WALK_ALL = 0x08
_RECOVER = 0x70
"""Where all three bits are set the log is opened again at the end, as after a crash."""


def check(data: bytes) -> None:
    """Play the steps of ``data`` on a new log."""
    if not data:
        return
    home = tempfile.mkdtemp(prefix="append-", dir=_memory_backed())
    try:
        _play(data[0], list(_steps(data)), home)
    finally:
        shutil.rmtree(home)


def _memory_backed() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _open(home: str, rules: int) -> Log:
    return open_log(
        FileSystem(),
        f"{home}/{ORDERS.dir_name}",
        topic_partition=ORDERS,
        config=_TOPICS[rules % len(_TOPICS)],
        now_ms=T,
        walk_all_records=bool(rules & _WALK_ALL),
    )


def _steps(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 1
    for _ in range(_MOST_STEPS):
        if len(data) < position + 3:
            return
        end = position + 3 + int.from_bytes(data[position + 1 : position + 3])
        yield data[position] % 3, data[position + 3 : end]
        position = end


def _play(rules: int, steps: list[tuple[int, bytes]], home: str) -> None:
    log = _open(home, rules)
    written: list[bytes] = []
    staged: list[bytes] = []
    for step, sent in steps:
        with suppress(StorageError):
            batch = validate_produced(memoryview(bytearray(sent)), log.rules, T)
            one = log.stage(batch, leader_epoch=1)
            if not one.is_duplicate:
                staged.append(bytes(one.data))
        if step == FAIL:
            log.fail_write(None, DiskFull("no room"))
            staged.clear()
        elif step == WRITE:
            log.append_all(T)
            written += staged
            staged.clear()
    log.append_all(T)
    written += staged
    log.advance_high_watermark(log.log_end_offset)
    _check_log(log, written)
    if rules & _WALK_ALL:
        values_in(log)  # whatever was let in can be read
    producers = log.producers.entries
    if rules & _RECOVER == _RECOVER:
        log.abandon()
        log = _open(home, rules)
        _check_log(log, written)
        assert log.producers.entries == producers
    log.abandon()


def _check_log(log: Log, written: list[bytes]) -> None:
    """What is in the log is what was accepted, without gaps, and every way to find it leads there."""
    offset = 0
    found = []
    for header, data in log.batches():
        assert header.base_offset == offset
        assert header.crc == computed_crc(data, 0, header.size)
        assert header.last_offset_delta == header.record_count - 1
        found.append(bytes(data))
        read = log.read(header.last_offset, max_bytes=1, upper_bound_offset=log.log_end_offset, at_least_one_batch=True)
        assert read.region is not None
        assert read.region.read() == data
        offset = header.next_offset
    assert found == written
    assert offset == log.log_end_offset
    for segment in log.segments:
        index = segment.offset_index
        entries = [index.entry(number) for number in range(index.searchable())]
        assert all(a.offset < b.offset and a.position < b.position for a, b in pairwise(entries))
        times = [segment.time_index.entry(number) for number in range(segment.time_index.searchable())]
        assert all(a.timestamp < b.timestamp and a.offset < b.offset for a, b in pairwise(times))
    with suppress(StorageError):  # records that nobody has walked may turn out to be unreadable
        log.offset_for_timestamp(T, log.log_end_offset)
    with suppress(StorageError):
        log.offset_of_max_timestamp()


# Mutation that knows the form -----------------------------------------------------------------------------------------


def mutate(data: bytes, most_bytes: int, seed: int, any_change: Callable[[bytes, int], bytes]) -> bytes:
    """Change one thing: a rule, the order of the steps, a header field, a record, or any bytes of one batch."""
    chance = random.Random(seed)
    rules = data[0] if data else 0
    steps = [(step, sent) for step, sent in _steps(data) if sent] or [(WRITE, bytes(produced(1)))]
    number = chance.randrange(len(steps))
    step, sent = steps[number]
    match chance.randrange(10):
        case 0:
            rules = chance.randrange(256)
        case 1:
            step = chance.randrange(3)
        case 2:
            steps.insert(number, (chance.randrange(3), sent))
        case 3 if len(steps) > 1:
            del steps[number]
            number = 0
            step, sent = steps[0]
        case 4:
            sent = any_change(sent, 1000)
        case 5 | 6:
            sent = with_another_field(sent, chance)
        case _:
            sent = with_other_records(sent, chance, any_change)
    steps[number] = step, sent
    return pack(rules, *steps)[:most_bytes]


def pack(rules: int, *steps: tuple[int, bytes]) -> bytes:
    """The bytes that `check` plays."""
    parts = [bytes([rules])]
    for step, sent in steps:
        parts += (bytes([step]), len(sent).to_bytes(2), sent)
    return b"".join(parts)


def seeds() -> Iterator[bytes]:
    """Good batches under all rules; sequences, repetitions, transactions."""
    for rules in range(16):
        for codec in EVERY_CODEC:
            batch = bytes(produced(3, codec=codec))
            yield pack(rules | _RECOVER, (STAGE, batch), (WRITE, batch), (WRITE, bytes(produced(9, codec=codec))))

    def of_producer(sequence: int, count: int = 2, epoch: int = 0, **more: bool) -> bytes:
        return bytes(produced(count, producer_id=7, producer_epoch=epoch, base_sequence=sequence, **more))

    in_order = [of_producer(sequence) for sequence in (0, 2, 4, 6, 8, 10)]
    yield pack(_RECOVER, *((WRITE, batch) for batch in in_order))
    yield pack(_RECOVER, (WRITE, in_order[0]), (STAGE, in_order[0]), (WRITE, in_order[2]), (FAIL, in_order[1]))
    yield pack(_RECOVER, (WRITE, in_order[0]), (STAGE, in_order[1]), (FAIL, in_order[2]), (WRITE, in_order[1]))
    yield pack(_RECOVER, (WRITE, of_producer(2**31 - 2)), (WRITE, of_producer(0)), (WRITE, of_producer(0, epoch=1)))
    yield pack(_RECOVER, (WRITE, of_producer(0, is_transactional=True)), (WRITE, of_producer(2, is_transactional=True)))
    large = bytes(produced([record(b"v" * 900)]))
    yield pack(_RECOVER, *((WRITE, large) for _ in range(4)))
    yield pack(0, (WRITE, bytes(changed(produced(1), attributes=0x20))))
    late = bytes(produced([record(timestamp=T + 3_600_001)]))
    yield pack(_WALK_ALL, (WRITE, late), (WRITE, bytes(produced(records(5, timestamp=-1)))))
