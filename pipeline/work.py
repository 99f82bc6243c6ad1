"""Calling a function with each of many items: in Spark's workers, one task for each item, or in this process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")


class Workers(Protocol):
    """A function that calls a function with each item: see `pipeline.session.workers`."""

    def __call__(self, function: Callable[..., Result], items: Sequence[Item], *common: object) -> Iterable[Result]:
        """Call `function(item, *common)` for each item. The results are computed as they are taken, in the order of the
        items.

        `function`, items, arguments and results are as `on_workers` needs them. Raises the errors of the function.
        """


GetWorkers = Callable[[], AbstractContextManager[Workers]]
"""A context with workers. The workers start with the context and end with it."""


@contextmanager
def in_this_process() -> Iterator[Workers]:
    """Do the work in this process, one item after the other."""
    yield _one_by_one


def _one_by_one(function: Callable[..., Result], items: Sequence[Item], *common: object) -> Iterator[Result]:
    for item in items:
        yield function(item, *common)


def on_workers(
    spark: SparkSession,
    function: Callable[..., Result],
    items: Sequence[Item],
    *common: object,
    on_done: Callable[[int], None] | None = None,
) -> list[Result]:
    """Call `function(item, *common)` for each item in Spark's workers. Returns the results in the order of the items.

    The function is at the top level of a module of a package here; items, arguments and results can be pickled. Another
    thread calls `on_done` with the number of items that have been finished since its last call. A PipelineError or
    StorageError of a call is raised here when all tasks have ended; any other error ends the job with Spark's own
    error.
    """
    if not items:
        return []
    # This module is imported without Spark, too: everything else in a command needs none.
    from pyspark_ottla.work import FAILED, Tally, Work

    context = spark.sparkContext
    progress = None if on_done is None else context.accumulator(0, Tally(on_done))
    work = Work(f"{function.__module__}:{function.__qualname__}", pickle.dumps(common), progress)
    packed = [pickle.dumps(item) for item in items]
    results = []
    for outcome, content in context.parallelize(packed, len(packed)).mapPartitions(work).collect():
        result: Any = pickle.loads(content)  # noqa: S301
        if outcome == FAILED:
            raise result
        results.append(result)
    return results
