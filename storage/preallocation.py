"""How much disk space a growing segment gets before it is written to (docs/decisions/preallocation.md)."""

from typing import Final

PREALLOCATES_FROM: Final = 4 << 20
"""From this size on, in bytes, a segment gets disk space beyond its end."""
_LEAST_BYTES: Final = 1 << 20
_MOST_BYTES: Final = 4 << 20


def preallocated_bytes(size: int) -> int:
    """How many bytes are preallocated in one call behind a segment of ``size`` bytes: size / 16, 1 MiB to 4 MiB."""
    return min(max(size >> 4, _LEAST_BYTES), _MOST_BYTES)
