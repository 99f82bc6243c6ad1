"""Case: reading segment files into Arrow columns, in one process, without Spark and without a broker."""

from __future__ import annotations

import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bench.limits import MEGABYTE
from storage.batch.record_batch import Codec, stamp
from storage.batch.records import Record, encode_batch, iterate_records
from storage.batch.walk import BatchWalk
from storage.files import FileSystem
from storage.index.offset_index import ENTRY

if TYPE_CHECKING:
    from pipeline.reading.ranges import OffsetRange

RECORDS_A_BATCH = (1, 100, 8_000)
CODECS = (Codec.NONE, Codec.LZ4, Codec.ZSTD)
VALUE_BYTES = 200
SAMPLES = 3
TIME_MS = 1_700_000_000_000


def decode(directory: Path, scale: float) -> dict[str, float]:
    """MB/s of keys and values and millions of records a second of CPU time, by records a batch and codec: for all
    columns but headers, for all columns of records with two headers (`headers_`), and for reading record by record
    (`plain_`)."""
    try:
        import numpy  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError as error:
        sys.stderr.write(f"decode was left out: {error}; `make pipeline-setup` installs what it needs\n")
        return {}
    from pipeline.schema import COLUMNS, COLUMNS_WITHOUT_HEADERS

    figures: dict[str, float] = {}
    for records in RECORDS_A_BATCH:
        for codec in CODECS:
            for headers, columns in (("", COLUMNS_WITHOUT_HEADERS), ("headers_", COLUMNS)):
                wanted_bytes = int((4 if records == 1 else 32) * MEGABYTE * scale)
                log = _made(directory / "orders-0", records, codec, wanted_bytes, has_headers=bool(headers))
                opened_mb = log.until_offset * (VALUE_BYTES + 10) / MEGABYTE
                seconds = _least_cpu(lambda log=log, columns=columns: _by_columns(log, columns))
                name = f"{records}_{codec.name.lower()}_{headers}"
                figures[f"{name}mb_s"] = opened_mb / seconds
                figures[f"{name}mrec_s"] = log.until_offset / seconds / 1e6
                if codec is Codec.NONE:
                    seconds = _least_cpu(lambda log=log: _one_by_one(log))
                    figures[f"{name}plain_mb_s"] = opened_mb / seconds
    return figures


def _made(directory: Path, records: int, codec: Codec, wanted_bytes: int, *, has_headers: bool) -> OffsetRange:
    """Make a partition of batches with so many records each. The values are words, which a codec can compress."""
    from pipeline.reading.ranges import OffsetRange

    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    chance = random.Random(1)
    words = [bytes(chance.choices(b"abcdefghij", k=10)) for _ in range(1_000)]
    headers: list[tuple[str, bytes | None]] = [("trace", b"0123456789"), ("origin", b"bench")] if has_headers else []
    batches = [
        encode_batch(
            [
                Record(
                    timestamp=TIME_MS + n,
                    key=b"key-%06d" % n,
                    value=b"".join(chance.choices(words, k=VALUE_BYTES // 10)),
                    headers=headers,
                )
                for n in range(records)
            ],
            codec=codec,
        )
        for _ in range(max(1, min(50, 5_000 // records)))
    ]
    offset = position = since_entry = 0
    with (directory / f"{0:020d}.log").open("wb") as log, (directory / f"{0:020d}.index").open("wb") as index:
        while offset * VALUE_BYTES < wanted_bytes:
            batch = chance.choice(batches)
            stamp(batch, offset, 0)
            if since_entry > 4096:
                index.write(ENTRY.pack(offset + records - 1, position))
                since_entry = 0
            log.write(batch)
            offset += records
            position += len(batch)
            since_entry += len(batch)
    return OffsetRange("orders", 0, str(directory), 0, offset, None, True)


def _least_cpu(work: Callable[[], object]) -> float:
    """The CPU seconds of the best of a few samples. Other processes disturb CPU time less than elapsed time."""
    samples = []
    for _ in range(SAMPLES):
        started = time.process_time()
        work()
        samples.append(time.process_time() - started)
    return min(samples)


def _by_columns(log: OffsetRange, columns: tuple[str, ...]) -> None:
    from pipeline.reading.ranges import Wanted
    from pipeline.reading.reader import read_range

    found = sum(batch.num_rows for batch in read_range(log, Wanted(columns=columns)))
    assert found == log.until_offset, f"{found} records of {log.until_offset}"


def _one_by_one(log: OffsetRange) -> None:
    """Read the same records with the log's own reader, which makes an object of each record."""
    import pyarrow as pa

    file = FileSystem().open_read(f"{log.directory}/{0:020d}.log")
    found = 0
    for batch in BatchWalk(file.pread, 0, file.size):
        records = list(iterate_records(batch.data))
        columns = [
            pa.array([record.key for record in records], pa.binary()),
            pa.array([record.value for record in records], pa.binary()),
            pa.array([record.offset for record in records], pa.int64()),
            pa.array([record.timestamp * 1000 for record in records], pa.timestamp("us", tz="UTC")),
        ]
        found += len(columns[0])
    assert found == log.until_offset, f"{found} records of {log.until_offset}"
