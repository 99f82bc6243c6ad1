"""The headers of many batches as columns: a tuple for each would cost more than its records do, where these are few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from storage.batch.record_batch import HEADER_SIZE

Numbers = Any
"""A numpy array."""

_LAYOUT: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch_magic_crc", "V9"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch_and_sequence", "V6"),
        ("record_count", ">i4"),
    ]
)
assert _LAYOUT.itemsize == HEADER_SIZE


class Headers(NamedTuple):
    """An element for each batch, all of 64 bits; the names are those of `storage.batch.record_batch.BatchHeader`."""

    base_offset: Numbers
    batch_length: Numbers
    attributes: Numbers
    last_offset_delta: Numbers
    base_timestamp: Numbers
    max_timestamp: Numbers
    producer_id: Numbers
    record_count: Numbers

    def chosen(self, chosen: Numbers) -> Headers:
        """Those of some of the batches."""
        return Headers(*(column[chosen] for column in self))


def read_headers(data: bytes, positions: Sequence[int]) -> Headers:
    """The headers at these positions of `data`, all of them there."""
    # As if a header began with each byte; those that do are picked.
    everywhere: Numbers = np.ndarray((max(len(data) - HEADER_SIZE + 1, 0),), _LAYOUT, data, 0, (1,))
    rows = everywhere[np.asarray(positions, dtype=np.int64)]
    return Headers(*(rows[name].astype(np.int64) for name in Headers._fields))


def joined(parts: Sequence[Headers]) -> Headers:
    """The headers of one part behind those of the other."""
    return Headers(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
