"""Progress bars for work that other processes do."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dev.broker_process import BrokerProcess
from dev.waiting import PATIENCE_S
from pipeline.__main__ import main
from pipeline.errors import DAMAGED, DONE, PipelineError
from pipeline.progress import Progress, followed
from tests.pipeline.restore.archiving import archive
from tests.support.partitions import PartitionOnDisk, leave_in_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Watched(Progress):
    """A bar that somebody sees: where it stands, and whether it is still there."""

    def __init__(self, what: str = "", total: int | None = None, *, unit: str = "B") -> None:
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


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory and an archive of it in two runs."""
    home = tmp_path_factory.mktemp("watched")
    log = PartitionOnDisk(home / "data/orders-0")
    for _ in range(2):
        log.append(500)
        archive(leave_in_order(home / "data"), home / "archive")
    return home


OPTIONS = {
    "archive": ("pipeline.archive.command", "--data-dir data --dest new"),
    "archive verify": ("pipeline.archive.command", "--dest archive"),
    "archive compact": ("pipeline.archive.command", "--dest archive"),
    "audit": ("pipeline.audit.command", "--data-dir data"),
    "stats": ("pipeline.stats.command", "--data-dir data"),
    "restore": ("pipeline.restore.segments", "--archive archive --target-dir new"),
    "restore --mode produce": (
        "pipeline.restore.producing",
        "--archive archive --bootstrap {broker} --offset-map map.json",
    ),
    "mirror": ("pipeline.mirror", "--data-dir data --to {broker} --topic-map orders=mirrored --checkpoint checkpoint"),
}
"""Where each command makes its bar, and what it is given. The bar of `sql` is Spark's own."""


@pytest.mark.parametrize("command", OPTIONS)
def test_each_long_command_has_a_bar(
    command: str, home: Path, broker: BrokerProcess, spark: SparkSession, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    bars: list[Watched] = []

    def watched(*about: Any, **how: Any) -> Watched:
        bars.append(Watched(*about, **how))
        return bars[-1]

    @contextmanager
    def session(*_: Any) -> Iterator[SparkSession]:
        yield spark

    name, options = OPTIONS[command]
    module = import_module(name)
    monkeypatch.setattr(module, "Progress", watched)
    if hasattr(module, "spark_session"):
        monkeypatch.setattr(module, "spark_session", session)
    monkeypatch.chdir(shutil.copytree(home, tmp_path / "home"))

    line = f"{command} {options}".format(broker=broker.bootstrap)
    # These files are no broker's, and an audit finds that.
    assert main(line.split()) == (DAMAGED if command == "audit" else DONE)

    assert bars
    assert all(bar.is_closed for bar in bars)
    # So little may be over before somebody has asked how far it is: the test above shows those bars.
    assert hasattr(module, "followed") or all(bar.reached > 0 for bar in bars)
