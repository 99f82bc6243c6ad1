"""Bars of work that others do."""

from __future__ import annotations

import threading

from pipeline.errors import PipelineError
from pipeline.progress import Progress, followed
from tests.support.waiting import PATIENCE_S


class Watched(Progress):
    """A bar that somebody sees: where it stands, and whether it is still there."""

    def __init__(self) -> None:
        self.reached = 0
        self.is_closed = False

    @property
    def is_seen(self) -> bool:
        return True

    def advance(self, by: int) -> None:
        self.reached += by

    def close(self) -> None:
        self.is_closed = True


def test_it_is_asked_how_far_the_work_has_come_until_that_ends() -> None:
    answers = iter([3, FileNotFoundError("just renamed"), PipelineError("no answer"), 7])
    asked = threading.Event()

    def how_far() -> int:
        answer = next(answers, None)
        if answer is None:
            asked.set()
            return 9
        if isinstance(answer, Exception):
            raise answer
        return answer

    bar = Watched()
    with followed(bar, how_far):
        assert asked.wait(PATIENCE_S)
    assert (bar.reached, bar.is_closed) == (9, True)
