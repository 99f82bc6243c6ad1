"""Calls a function of our packages in Spark's workers."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from pyspark.accumulators import AccumulatorParam

from pyspark_ottla.packages import our_packages

DONE: Final = "done"
FAILED: Final = "failed"


class Work:
    """The function of a task: calls `function` (as `module:name`, in a package of ours) with each item and then
    `common`.

    Items, arguments and results are pickled to bytes, which the worker unpickles while our packages are on its import
    path: Spark itself would unpickle them before and after.
    """

    def __init__(self, function: str, common: bytes, progress: Any = None) -> None:
        self._function = function
        self._common = common
        self._progress = progress

    def __call__(self, items: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
        with our_packages():
            from importlib import import_module

            from pipeline.errors import PipelineError
            from storage.errors import StorageError

            module, _, name = self._function.partition(":")
            function = getattr(import_module(module), name)
            common = pickle.loads(self._common)  # noqa: S301
            for packed in items:
                item = pickle.loads(packed)  # noqa: S301
                try:
                    result = DONE, pickle.dumps(function(item, *common))
                except (PipelineError, StorageError) as error:
                    # It would fail the same way on every attempt, and Spark would wrap it in a hundred lines.
                    result = FAILED, pickle.dumps(error)
                yield result
                if self._progress is not None:
                    self._progress.add(1)


class Tally(AccumulatorParam[int]):
    """An accumulator that adds numbers, and in the process that made it calls `on_done` with each."""

    def __init__(self, on_done: Callable[[int], None] | None = None) -> None:
        self._on_done = on_done

    def __reduce__(self) -> tuple[type["Tally"], tuple[()]]:
        return Tally, ()

    def zero(self, value: int) -> int:
        """The value with which a task begins."""
        return 0

    def addInPlace(self, value1: int, value2: int) -> int:
        """The sum."""
        if self._on_done is not None:
            self._on_done(value2)
        return value1 + value2
