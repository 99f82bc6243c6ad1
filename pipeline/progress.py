"""A progress bar for long work, on stderr if stderr is a terminal."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from pipeline.errors import PipelineError
from storage.errors import StorageError

_ASKED_EVERY_S: Final = 0.5


class Progress:
    """A progress bar on stderr, if stderr is a terminal. Work that takes less than a second shows no bar."""

    def __init__(self, what: str, total: int | None, *, unit: str = "B") -> None:
        """``total`` is None where it is unknown; ``unit`` is B for bytes, or the name of the items that are counted."""
        self._bar: Any = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                desc=what, total=total, unit=unit, unit_scale=True, unit_divisor=1024 if unit == "B" else 1000,
                file=sys.stderr, leave=False, delay=1,
            )  # fmt: skip

    @property
    def is_seen(self) -> bool:
        """Whether the bar is shown on a terminal."""
        return self._bar is not None

    def advance(self, by: int) -> None:
        """Count more of the work as done."""
        if self._bar is not None:
            self._bar.update(by)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()


@contextmanager
def followed(progress: Progress, how_far: Callable[[], int]) -> Iterator[None]:
    """A context in which another thread polls `how_far` for the progress of work that other processes do. The bar is
    closed at the end."""
    if progress.is_seen:
        ended = threading.Event()
        follower = threading.Thread(target=_follow, args=(progress, how_far, ended), daemon=True)
        follower.start()
    try:
        yield
    finally:
        if progress.is_seen:
            ended.set()
            follower.join()
        progress.close()


def _follow(progress: Progress, how_far: Callable[[], int], ended: threading.Event) -> None:
    shown = 0
    while not ended.wait(_ASKED_EVERY_S):
        # What is renamed at this moment, or too busy to answer, is asked again.
        with suppress(OSError, PipelineError, StorageError):
            reached = how_far()
            progress.advance(reached - shown)
            shown = reached
