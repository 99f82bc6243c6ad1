"""SimulatedCleaner: cleans logs in place of the cleaner's child process, on the disk of the broker that orders it."""

from collections.abc import Iterator, Mapping
from typing import Any

from broker.runtime.child_process import ChildEnded, Message
from storage.cleaning.order import CleaningOrder, messages
from storage.cleaning.round import CleaningRound
from tests.simulation.process import CURRENT


class SimulatedCleaner:
    """Stands in for `broker.runtime.child_process.ChildProcess`. Each answer is work of its own, so that the broker may
    die, or have the round ended, between two of them."""

    def __init__(self, module: str) -> None:
        process = CURRENT.get()
        assert process is not None, "only a broker starts a cleaner"
        assert process.files is not None, f"{process} has no disk"
        self._files = process.files
        self._is_killed = False

    def ask(self, order: Mapping[str, Any]) -> Iterator[Message]:
        """Clean a log as ordered, and yield the answers. Raises `ChildEnded`."""
        cleaning_round = CleaningRound(self._files, CleaningOrder.from_message(dict(order)), lambda moved_bytes: None)
        for message in messages(cleaning_round.perform):
            if self._is_killed:
                raise ChildEnded("the simulated cleaner was killed")
            yield message

    def kill(self) -> None:
        """Answer no more."""
        self._is_killed = True

    def wait(self) -> None:
        """There is no process."""
