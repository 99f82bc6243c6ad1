"""Random content of a segment file: consecutive batches, and between them any bytes that a disk may produce."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from hypothesis import example
from hypothesis import strategies as st

from storage.batch.record_batch import LAYOUT, LOG_OVERHEAD, read_header, seal
from tests.support.batches import changed, stored

EXTREMES = {
    "base_offset": (0, 1, 7, 1 << 33, -1, 2**63 - 1),
    "batch_length": (0, 48, 49, 80, 4096, 2**31 - 1, -1, -LOG_OVERHEAD, -(2**31)),
    "partition_leader_epoch": (-1, 3),
    "magic": (0, 1, 3, -1),
    "crc": (0, 0xFFFFFFFF),
    "attributes": (1, 7, 0x20),
    "last_offset_delta": (-1, 0, 5, 2**31 - 1, -(2**31)),
    "max_timestamp": (-1, 2**63 - 1),
    "producer_id": (0, 2**63 - 1),
    "record_count": (-1, 0, 2),
}
assert EXTREMES.keys() <= LAYOUT.keys()

Test = TypeVar("Test", bound=Callable[..., None])


def one_field_changed() -> Iterator[bytes]:
    """Four batches, in the third of which one header field has another value: once with the right CRC, once without.
    Then four batches, of which the third, CRC and all, is shorter than a header."""
    batches = [stored(2, offset=2 * number, producer_id=5) for number in range(4)]
    for name, values in EXTREMES.items():
        for value in values:
            for crc in ({}, {"crc": crc_of(batches[2])}):
                yield b"".join((*batches[:2], changed(batches[2], **(crc | {name: value})), batches[3]))
    # Its record count ends with the first byte of the batch behind it, which is 0.
    short = bytearray(changed(batches[2], batch_length=48, last_offset_delta=255, record_count=256)[:60])
    seal(short)
    yield b"".join((*batches[:2], short, stored(2, offset=260, producer_id=5)))


def with_each_field_changed(**arguments: Any) -> Callable[[Test], Test]:
    """A decorator that runs a test with all of `one_field_changed` as its ``content``, before the random examples."""

    def with_examples(test: Test) -> Test:
        for content in one_field_changed():
            test = example(content=content, **arguments)(test)
        return test

    return with_examples


def crc_of(batch: bytes) -> int:
    """The CRC in the header of a batch."""
    return read_header(batch).crc


@st.composite
def segments(draw: st.DrawFn, *, most_damages: int = 2) -> bytes:
    """Up to a dozen batches from offset 0 on, with some gaps between their offsets, and at most ``most_damages``
    damages."""
    parts: list[bytes] = []
    offset = 0
    count = draw(st.integers(0, 12))
    damaged = draw(st.sets(st.integers(0, max(count, 1)), max_size=most_damages))
    for number in range(count + 1):
        records = draw(st.integers(1, 3))
        batch = stored(records, offset=offset, producer_id=draw(st.sampled_from((-1, 5))))
        if number not in damaged:
            if number < count:
                parts.append(batch)
                offset += records if draw(st.integers(0, 9)) else 1000
            continue
        match draw(st.sampled_from(("field", "field and CRC", "bit", "cut", "zeros", "rubbish", "again"))):
            case "field" | "field and CRC" as what:
                name = draw(st.sampled_from(sorted(EXTREMES)))
                value = draw(st.sampled_from(EXTREMES[name]))
                crc = {"crc": crc_of(batch)} if what == "field" else {}
                batch = bytes(changed(batch, **(crc | {name: value})))
            case "bit":
                at = draw(st.integers(0, len(batch) - 1))
                batch = batch[:at] + bytes([batch[at] ^ 1 << draw(st.integers(0, 7))]) + batch[at + 1 :]
            case "cut":
                batch = batch[: draw(st.integers(0, len(batch)))]
            case "zeros":
                batch = bytes(draw(st.integers(1, 300)))
            case "rubbish":
                batch = draw(st.binary(min_size=1, max_size=200))
            case _:
                batch += batch
        parts.append(batch)
        offset += records
    return b"".join(parts)
