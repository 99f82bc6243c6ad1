"""What can go wrong with a broker for tests."""

from typing import Any, Final

_MOST_SHOWN: Final = 60


class BrokerError(Exception):
    """The broker does not start, or cannot do what it was asked; the sentence says why, and names a wrong argument."""


class NotInTime(BrokerError):
    """What was waited for has not come; ``found`` is what is there instead."""

    def __init__(self, sentence: str, found: Any) -> None:
        super().__init__(f"{sentence}; there is {found}")
        self.found = found


def shown(given: object) -> str:
    """A value that was given, as a sentence may have it."""
    text = repr(given)
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…"
