"""The headers of many batches as numpy columns, since a tuple a batch would cost more than a few records do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from storage.batch.record_batch import HEADER_SIZE, LAYOUT

Numbers = Any
"""A numpy array."""

_HEADER: Final = np.dtype(
    {
        "names": list(LAYOUT),
        "formats": [f">{field.format}" for field in LAYOUT.values()],
        "offsets": [field.position for field in LAYOUT.values()],
        "itemsize": HEADER_SIZE,
    }
)


class Headers(NamedTuple):
    """The fields of batch headers, an element for each batch, all of 64 bits; the names are those of
    `storage.batch.record_batch.BatchHeader`."""

    base_offset: Numbers
    batch_length: Numbers
    attributes: Numbers
    last_offset_delta: Numbers
    base_timestamp: Numbers
    max_timestamp: Numbers
    producer_id: Numbers
    record_count: Numbers

    def chosen(self, chosen: Numbers) -> Headers:
        """The headers of the chosen batches."""
        return Headers(*(column[chosen] for column in self))


def read_headers(data: bytes, positions: Sequence[int]) -> Headers:
    """The headers at these positions of `data`, which has all of their bytes."""
    rows = whole_headers(data, positions)
    return Headers(*(rows[name].astype(np.int64) for name in Headers._fields))


def whole_headers(data: bytes, positions: Sequence[int]) -> Numbers:
    """The headers at these positions with all fields of `storage.batch.record_batch.LAYOUT`, each of its own width."""
    # As if a header began with each byte; those that do are picked, before numpy knows of fields: it would copy each.
    everywhere: Numbers = np.ndarray((max(len(data) - HEADER_SIZE + 1, 0),), f"V{HEADER_SIZE}", data, 0, (1,))
    return everywhere[np.asarray(positions, dtype=np.int64)].view(_HEADER)


def joined(parts: Sequence[Headers]) -> Headers:
    """Concatenate the headers of several parts."""
    return Headers(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
