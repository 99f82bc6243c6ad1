"""How much room a growing log finds ahead of its end (docs/decisions/room-ahead.md)."""

from typing import Final

ROOM_AHEAD_FROM: Final = 4 << 20
"""How large a segment is when room begins to be found ahead of its end."""
_LEAST_BYTES: Final = 1 << 20
_MOST_BYTES: Final = 4 << 20


def room_ahead(size: int) -> int:
    """How much room is found at once behind a segment of ``size`` bytes: a sixteenth of it, within bounds."""
    return min(max(size >> 4, _LEAST_BYTES), _MOST_BYTES)
