"""The format of the archive's Parquet files: writing them, and reading them with little memory."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.batches import BATCH_SCHEMA
from pipeline.schema import COLUMNS, arrow_schema

_DICTIONARIES: Final = ["topic", "partition", "timestampType"]
"""Columns with a dictionary. With dictionaries for all columns writing is up to twice as slow, and keys and values
seldom repeat."""

_STATISTICS: Final = ["topic", "partition", "offset", "timestamp", "timestampType"]
"""Columns with the least and greatest value of each row group. For keys and values these are useless, and Arrow holds
six copies of a value for them."""
_OF_BATCHES: Final = [name for name in BATCH_SCHEMA.names if name not in ("head", "payload")]

_TOGETHER_BYTES: Final = 32 << 20
"""Row groups are read together up to this many bytes."""


def rows_writer(path: Path) -> Any:
    """A Parquet writer for rows."""
    return pq.ParquetWriter(
        str(path), arrow_schema(COLUMNS), compression="zstd", use_dictionary=_DICTIONARIES, write_statistics=_STATISTICS
    )  # fmt: skip


def batches_writer(path: Path) -> Any:
    """A Parquet writer for the rows of batches."""
    return pq.ParquetWriter(str(path), BATCH_SCHEMA, compression="zstd", write_statistics=_OF_BATCHES)


def bounded_batches(parquet: Any, most_rows: int, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """All rows of a file with all columns, or with ``columns``, in batches of at most ``most_rows`` rows. Memory holds
    no more than some MB, or one row group."""
    chosen = None if columns is None else list(columns)
    together: list[int] = []
    size = 0
    for number in range(parquet.num_row_groups):
        group_bytes = parquet.metadata.row_group(number).total_byte_size
        if together and size + group_bytes > _TOGETHER_BYTES:
            yield from parquet.iter_batches(most_rows, row_groups=together, columns=chosen)
            together, size = [], 0
        together.append(number)
        size += group_bytes
    if together:
        yield from parquet.iter_batches(most_rows, row_groups=together, columns=chosen)
