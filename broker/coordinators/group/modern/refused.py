"""BeatRefused: why a heartbeat is not answered as its member wants."""

from __future__ import annotations

from protocol.errors import ErrorCode


class BeatRefused(Exception):
    """The request is not allowed in the state that the group is in."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
