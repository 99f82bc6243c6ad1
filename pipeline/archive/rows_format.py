"""How the archive writes its Parquet files."""

from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from pipeline.batches import BATCH_SCHEMA
from pipeline.schema import COLUMNS, arrow_schema

_DICTIONARIES: Final = ["topic", "partition", "timestampType"]
"""On all columns they cost up to half of the speed, and keys and values seldom repeat."""


def rows_writer(path: Path) -> Any:
    """A Parquet writer for rows."""
    return pq.ParquetWriter(str(path), arrow_schema(COLUMNS), compression="zstd", use_dictionary=_DICTIONARIES)


def batches_writer(path: Path) -> Any:
    """A Parquet writer for rows of batches."""
    return pq.ParquetWriter(str(path), BATCH_SCHEMA, compression="zstd")
