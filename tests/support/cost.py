"""What something costs, counted: a number that no other load of the machine changes."""

import sys
from collections.abc import Callable
from types import FrameType

from dev.repository import REPOSITORY


def calls(action: Callable[[], object]) -> int:
    """How many calls of our own functions ``action`` makes, in this thread."""
    count = 0
    root = str(REPOSITORY)

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(root)

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count
