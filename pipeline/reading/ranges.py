"""Ranges of a partition that tasks read, and the bounds of partitions."""

from collections.abc import Sequence
from typing import NamedTuple

from pipeline.schema import COLUMNS_WITHOUT_HEADERS


class Bounds(NamedTuple):
    """Between which offsets a partition can be read."""

    start_offset: int
    """Its first offset: what lies before has been deleted."""
    high_watermark: int
    """Behind its last offset that is there for good."""
    last_stable_offset: int
    """Behind its last offset that no open transaction can still take back; at most the high watermark."""


class OffsetRange(NamedTuple):
    """The records of one partition from one offset up to, and without, another. It travels to Spark's workers."""

    topic: str
    partition: int
    directory: str
    """The partition's own directory, with its segments."""
    from_offset: int
    until_offset: int
    topic_id: str | None = None
    """What the directory must be of still; None where it is not known."""
    are_aborts_indexed: bool = False
    """Whether the transaction indexes know every aborted transaction. After an unclean stop they may not, and the
    markers in the log are looked for."""


class Wanted(NamedTuple):
    """What of the records is read."""

    columns: Sequence[str] = COLUMNS_WITHOUT_HEADERS
    """Names out of `pipeline.schema.COLUMNS`, in the order in which they come."""
    read_committed: bool = True
    """Whether records of aborted transactions are left out. Control batches always are."""
    skip_damaged: bool = False
    """Whether what is damaged is passed over and reported, instead of ending the reading."""
    batch_bytes: int = 2 << 20
    """About how many bytes of records an Arrow batch holds. With more of them, or far fewer, reading is slower:
    docs/decisions/columns.md."""
