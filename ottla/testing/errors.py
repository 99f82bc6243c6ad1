"""What can go wrong with a broker for tests."""

from typing import Any


class BrokerError(Exception):
    """The broker does not start, or cannot do what it was asked; the sentence says why."""


class NotInTime(BrokerError):
    """What was waited for has not come; ``found`` is what is there instead."""

    def __init__(self, sentence: str, found: Any) -> None:
        super().__init__(f"{sentence}; there is {found}")
        self.found = found
