"""Ranges of a partition that tasks read, and the bounds of partitions."""

from collections.abc import Sequence
from typing import NamedTuple

from pipeline.schema import COLUMNS_WITHOUT_HEADERS


class Bounds(NamedTuple):
    """The offsets between which a partition can be read."""

    start_offset: int
    """The first offset; records below it have been deleted."""
    high_watermark: int
    """The offset behind the last record that is on all in-sync replicas."""
    last_stable_offset: int
    """The offset of the first record of the oldest open transaction; the high watermark if no transaction is open."""


class OffsetRange(NamedTuple):
    """The records of a partition from ``from_offset`` to before ``until_offset``. It is pickled for Spark's workers."""

    topic: str
    partition: int
    directory: str
    """The path of the partition's directory, with its segments."""
    from_offset: int
    until_offset: int
    topic_id: str | None = None
    """The topic id that the directory must still have; None where it is not known."""
    are_aborts_indexed: bool = False
    """Whether the transaction indexes have every aborted transaction. After an unclean stop they may not; then the
    markers in the log are searched."""


class Wanted(NamedTuple):
    """Which records and columns are read, and how."""

    columns: Sequence[str] = COLUMNS_WITHOUT_HEADERS
    """Names from `pipeline.schema.COLUMNS`, in the order in which the columns come."""
    read_committed: bool = True
    """Whether records of aborted transactions are left out. Control batches are always left out."""
    skip_damaged: bool = False
    """Whether damaged batches are skipped and reported, instead of ending the read."""
    batch_bytes: int = 2 << 20
    """About how many bytes of records an Arrow batch holds. With many more or far fewer bytes, reading is slower:
    docs/decisions/columns.md."""
