"""Decompressed records sections of several batches, one after another in one buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pipeline.decoding.headers import Headers


class Sections(NamedTuple):
    """The records sections of several batches. All fields but `data` have an element for each batch."""

    data: bytes
    """The buffer with the records. Between the sections there may be other bytes."""
    begins: Sequence[int]
    ends: Sequence[int]
    """The positions in `data` at which the records of each batch begin and end."""
    headers: Headers
    paths: Sequence[str]
    positions: Sequence[int]
    """The file of each batch and its position there, for error messages."""
