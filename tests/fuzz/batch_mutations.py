"""Changes to a batch that leave it a batch: what is tried with it gets beyond the first checks."""

import random
from collections.abc import Callable

from storage.batch.record_batch import HEADER_SIZE, LOG_OVERHEAD, read_header, seal, write_header
from storage.batch.records import assemble_batch, open_records
from storage.errors import StorageError
from tests.support.batches import EVERY_CODEC, T

_INTERESTING = (0, 1, -1, 2, 127, 128, 2**15 - 1, -(2**15), 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), T, T + 3_600_001)
_WIDTHS = {
    "base_offset": 64, "batch_length": 32, "partition_leader_epoch": 32, "magic": 8, "attributes": 16,
    "last_offset_delta": 32, "base_timestamp": 64, "max_timestamp": 64, "producer_id": 64, "producer_epoch": 16,
    "base_sequence": 32, "record_count": 32,
}  # fmt: skip


def with_another_field(sent: bytes, chance: random.Random) -> bytes:
    """Another number in one field of the header, mostly with the right CRC."""
    if len(sent) < HEADER_SIZE:
        return sent
    batch = bytearray(sent)
    name = chance.choice(list(_WIDTHS))
    header = read_header(batch)
    value = chance.choice(
        [chance.choice(_INTERESTING), getattr(header, name) + chance.randint(-2, 2), chance.randrange(256)]
    )
    half = 1 << _WIDTHS[name] - 1
    write_header(batch, header._replace(**{name: (value + half) % (2 * half) - half}))
    if name == "record_count":
        # Alone it is refused at once.
        last = max(read_header(batch).record_count - 1, -(2**31))
        write_header(batch, read_header(batch)._replace(last_offset_delta=last))
    return _sealed(batch, chance)


def with_other_records(sent: bytes, chance: random.Random, any_change: Callable[[bytes, int], bytes]) -> bytes:
    """The records changed in the open, and compressed anew in the same codec or another."""
    try:
        header = read_header(sent)
        section = open_records(sent, header, 1 << 16)
    except StorageError:
        return any_change(sent, 1000)
    section = any_change(section, 1000)
    if not chance.randrange(4):
        codec = chance.choice(EVERY_CODEC)
        header = header._replace(attributes=header.attributes & ~7 | codec)
    return _sealed(assemble_batch(header, section), chance)


def any_batch_changed(frame: bytes, chance: random.Random) -> bytes:
    """A request with another header field in the batch that it holds, if it holds one."""
    start = frame.find(b"\xff\xff\xff\xff\x02") - 12
    if start < 0:
        return frame
    size = int.from_bytes(frame[start + 8 : start + 12]) + LOG_OVERHEAD
    return frame[:start] + with_another_field(frame[start : start + size], chance) + frame[start + size :]


def _sealed(batch: bytearray, chance: random.Random) -> bytes:
    if chance.randrange(20) and len(batch) >= HEADER_SIZE:
        seal(batch)
    return bytes(batch)
