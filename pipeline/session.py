"""The Spark session of a command, and the workers of a command that may run without Spark."""

from __future__ import annotations

import argparse
import logging
import os
import site
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline.errors import PipelineError
from pipeline.requirements import require_spark
from pipeline.work import Item, Result, Workers, in_this_process, on_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # No command sorts or joins millions of rows; 200 tasks for a handful of rows take longer than the rows.
    "spark.sql.shuffle.partitions": "8",
    # A task that runs twice at the same time would produce twice.
    "spark.speculation": "false",
    # Errors are reported in a sentence of ours; Spark logs it three times more, in a hundred lines each. From here
    # it comes into the JVM's own command line, before Spark says anything.
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('log4j2.properties')}",
}
_LOCAL_SETTINGS: Final = {
    # A machine that changes its name or its network in the middle does not matter to a Spark that is all here.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_OF_NO_MEMORY: Final = ("java.lang.OutOfMemoryError", "Python worker exited unexpectedly", "\nMemoryError")
"""Words in Spark's errors that mean too little memory: in the JVM, or in a Python worker."""


class NoMemory(PipelineError):
    """Spark has ended, or has failed a job, because its memory was too little."""


@contextmanager
def spark_session(options: argparse.Namespace, name: str) -> Iterator[SparkSession]:
    """A Spark session with the options of `add_spark_options`, stopped at the end. Raises Missing, PipelineError."""
    require_spark()
    from pyspark.sql import SparkSession

    if options.master.startswith("local"):
        _let_workers_find_us()
    builder: Any = SparkSession.builder
    settings = {
        **_SETTINGS,
        **(_LOCAL_SETTINGS if options.master.startswith("local") else {}),
        **dict(options.spark_conf),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session = builder.master(options.master).appName(f"ottla pipeline {name}").getOrCreate()
    except Exception as error:
        # Spark raises anything here: its own, py4j's, a RuntimeError where the JVM ended.
        first = str(error).strip().partition("\n")[0]
        raise PipelineError(f"Spark did not start with master {options.master}: {first}") from error
    # What py4j has to say of a JVM that has gone.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        with _memory_errors_explained(session):
            yield session
    finally:
        _stop(session)


@contextmanager
def _memory_errors_explained(session: SparkSession) -> Iterator[None]:
    """A context that turns the errors of too little memory into NoMemory. A JVM without memory ends, and the connection
    to it breaks."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PipelineError, PySparkException, Py4JError, ConnectionError, EOFError) as error:
        if _has_ended(session) or any(text in str(error) for text in _OF_NO_MEMORY):
            raise NoMemory(
                "Spark has ended in the middle, as it does where its memory is too little: "
                "--spark-conf spark.driver.memory=4g gives it more, --master 'local[1]' lets it do one thing at a time"
            ) from error
        raise


def _has_ended(session: Any) -> bool:
    """Whether the session's JVM has ended, or is about to end."""
    from py4j.protocol import Py4JError

    try:
        stopped: bool = session.sparkContext._jsc.sc().isStopped()
    except (Py4JError, OSError):
        return True
    return stopped


def _stop(session: SparkSession) -> None:
    from py4j.protocol import Py4JError

    # Of a JVM that has gone on its own, the reason has been reported.
    with warnings.catch_warnings(), suppress(Py4JError, OSError):
        warnings.simplefilter("ignore", RuntimeWarning)
        session.stop()


def check_workers(options: argparse.Namespace) -> None:
    """Check that the `workers` of these options can be started. Raises Missing, PipelineError."""
    if options.master is not None:
        require_spark()
    elif options.spark_conf:
        raise PipelineError("--spark-conf is for Spark, which does nothing here without --master")


@contextmanager
def workers(options: argparse.Namespace, name: str) -> Iterator[Workers]:
    """The workers of the Spark that `--master` names; without `--master`, this process. Raises Missing,
    PipelineError."""
    if options.master is None:
        with in_this_process() as here:
            yield here
        return
    with spark_session(options, name) as spark:

        def of_spark(function: Callable[..., Result], items: Sequence[Item], *common: object) -> list[Result]:
            return on_workers(spark, function, items, *common)

        yield of_spark


def _let_workers_find_us() -> None:
    """Set the environment so that workers on this machine find `pyspark_ottla` where this process does, and run the
    same Python."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spec = find_spec("pyspark_ottla")
    assert spec is not None
    assert spec.origin is not None
    place = str(Path(spec.origin).parents[1])
    if place in (*site.getsitepackages(), site.getusersitepackages()):
        return
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", place)]
    os.environ["PYTHONPATH"] = os.pathsep.join([place, *others])
