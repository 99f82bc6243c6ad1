"""The base class of the broker's users in a crash run: each works in its own thread, through every kill."""

from __future__ import annotations

import threading
import traceback
from abc import ABC, abstractmethod
from typing import ClassVar

from tests.crash.promises import Promise, PromiseBroken


class Load(ABC):
    """A thread with a task. What goes wrong in it is kept in `failures`, for the one who asks."""

    promise: ClassVar[Promise]
    """What is broken if it comes to grief."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failures: list[PromiseBroken] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Begin nothing new."""
        self._stopping.set()

    def has_ended(self, within_s: float) -> bool:
        """Whether the thread ends in time."""
        self._thread.join(within_s)
        return not self._thread.is_alive()

    def _failed(self, detail: str) -> None:
        self.failures.append(PromiseBroken(self.promise, f"{self.name}: {detail}"))

    def _guarded(self) -> None:
        try:
            self.run()
        except PromiseBroken as broken:
            self.failures.append(broken)
        except Exception:  # noqa: BLE001 - whatever it is, the run must hear of it
            self._failed(traceback.format_exc())

    @abstractmethod
    def run(self) -> None:
        """What the thread does, until `stop`."""
