"""Decompressed records sections of several batches, one behind the other in one buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pipeline.decoding.headers import Headers


class Sections(NamedTuple):
    """Opened batches; all but `data` has an element for each of them."""

    data: bytes
    """Where their records stand; there may be something else between them."""
    begins: Sequence[int]
    ends: Sequence[int]
    """Where in `data` the records of each batch begin and end."""
    headers: Headers
    paths: Sequence[str]
    positions: Sequence[int]
    """File and position of each batch, for error messages."""
