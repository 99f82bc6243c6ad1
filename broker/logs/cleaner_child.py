"""`python -m broker.logs.cleaner_child` cleans the logs that the broker names (see `storage.cleaning.order`)."""

import time
from collections.abc import Callable, Iterator
from typing import Final

from broker.runtime.child_process import Message, serve
from storage.cleaning.order import CleaningOrder, messages
from storage.cleaning.round import CleaningRound
from storage.files import FileSystem

_LEAST_PAUSE_S: Final = 0.01
"""Pauses are gathered until they have this length, in seconds."""


class Throttle:
    """Lets no more bytes be read and written in a second than ``log.cleaner.io.max.bytes.per.second`` says."""

    def __init__(
        self,
        max_bytes_per_second: float,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``now`` and ``sleep`` are in seconds."""
        self._seconds_per_byte = 1 / max_bytes_per_second if max_bytes_per_second > 0 else 0.0
        self._now = now
        self._sleep = sleep
        self._free_at = now()
        """When the bytes so far would have been moved at the highest rate that is allowed."""

    def __call__(self, moved_bytes: int) -> None:
        """Wait until ``moved_bytes`` more may be moved."""
        now = self._now()
        self._free_at = max(self._free_at, now) + moved_bytes * self._seconds_per_byte
        if self._free_at - now >= _LEAST_PAUSE_S:
            self._sleep(self._free_at - now)


def main() -> None:
    """Clean the ordered logs until there are no more orders."""
    files = FileSystem()

    def clean(message: Message) -> Iterator[Message]:
        order = CleaningOrder.from_message(message)
        cleaning_round = CleaningRound(files, order, Throttle(order.limits.max_bytes_per_second))
        return messages(cleaning_round.perform)

    serve(clean)


if __name__ == "__main__":
    main()
