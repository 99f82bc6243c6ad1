"""Bad input to a command: a sentence and an exit code, and no file is made or half-written."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dev.broker_process import BrokerProcess
from dev.repository import REPOSITORY
from pipeline.archive.places import ARCHIVER, LOCK
from pipeline.requirements import Missing, require_java
from tests.pipeline.restore.archiving import NAME, archive
from tests.support.clients import connect
from tests.support.partitions import TOPIC, PartitionOnDisk, leave_in_order

DONE, NOT_DONE = 0, 2
LOCKS = {Path(ARCHIVER).name, Path(LOCK).name}

ON_SPARK = {
    "archive": "archive --data-dir data --dest new",
    "audit": "audit --data-dir data --report new.json",
    "stats": "stats --data-dir data --report new.json",
    "sql": "sql --data-dir data --output new.csv 'select * from orders'",
}
"""The commands that need a Spark."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command lines name; nobody changes it."""
    home = tmp_path_factory.mktemp("made")
    PartitionOnDisk(home / "data/orders-0").append(5)
    leave_in_order(home / "data")
    PartitionOnDisk(home / "elsewhere/orders-0").append(5)
    leave_in_order(home / "elsewhere", cluster_id="another-cluster")
    leave_in_order(home / "empty")
    for source in ("data", "empty"):
        archive(home / source, home / f"archive-of-{source}")
    (home / "home").mkdir()
    (home / "home/thesis.txt").touch()
    (home / "file").write_text("of somebody else")
    return home


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Path:
    """A copy, in which the command is called."""
    return Path(shutil.copytree(made, tmp_path / "home"))


def call(home: Path, line: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline", *shlex.split(line)]
    return subprocess.run(command, cwd=home, env=dict(environment), capture_output=True, text=True, check=False)


def everything_in(home: Path) -> dict[str, bytes | None]:
    """But for the locks of an archive, in which whoever has looked at it leaves a trace."""
    return {
        str(path.relative_to(home)): path.read_bytes() if path.is_file() else None
        for path in sorted(home.rglob("*"))
        if path.name not in LOCKS
    }


def refused(home: Path, line: str, sentence: str, **environment: str) -> None:
    """The command says this in one line, ends with exit code 2, and has changed nothing."""
    before = everything_in(home)

    done = call(home, line, {**os.environ, "PYTHONPATH": str(REPOSITORY), **environment})

    assert re.search(sentence, done.stderr), done.stderr
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (NOT_DONE, "", 1), done.stderr
    assert everything_in(home) == before


@pytest.fixture
def java() -> None:
    """Before all else a command looks for what it needs."""
    try:
        require_java()
    except Missing as reason:
        pytest.skip(str(reason))


# Nothing to run on


@pytest.mark.parametrize("command", ON_SPARK)
def test_no_java(home: Path, command: str) -> None:
    sentence = rf"^ottla pipeline {command}: Spark needs Java 17 or newer, and there is none: install one"
    refused(home, ON_SPARK[command], sentence, PATH=str(home), JAVA_HOME="")


@pytest.mark.parametrize("command", ON_SPARK)
def test_another_spark(home: Path, command: str) -> None:
    (home / "path/pyspark").mkdir(parents=True)
    (home / "path/pyspark/__init__.py").write_text("__version__ = '3.5.4'\n")
    sentence = rf"^ottla pipeline {command}: found Spark 3\.5\.4, and the pipeline works with 4\.2: pip install"
    refused(
        home, ON_SPARK[command], sentence, PYTHONPATH=f"{home}/path:{REPOSITORY}", PYTHONDONTWRITEBYTECODE="1"
    )  # fmt: skip


# Nowhere to write to


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("archive --data-dir data --dest file", "file is no directory"),
        ("archive --data-dir data --dest file/below", "cannot write .*file"),
        ("archive --data-dir data --dest /dev/full", "/dev/full is no directory"),
        # Where not even root makes a directory, as on a disk that is mounted read-only.
        ("archive --data-dir data --dest /proc/archive", "cannot write /proc/archive: "),
        ("audit --data-dir data --report /proc/audit.json", "nothing can be written to /proc/audit.json: "),
        ("stats --data-dir data --report file/stats.html", "nothing can be written to file/stats.html: Not a direc"),
        ("sql --data-dir data --output /proc/rows.csv 'select 1'", "nothing can be written to /proc/rows.csv: "),
        ("sql --data-dir data --output /dev/full --format csv 'select 1'", "/dev/full: it is no regular file"),
        ("sql --data-dir data --output file/rows.parquet 'select 1'", "nothing can be written to file/rows.parquet"),
        ("restore --archive archive-of-data --target-dir file", "file is no directory"),
        ("restore --archive archive-of-data --target-dir file/below", "file"),
        ("restore --archive archive-of-data --target-dir /proc/data", "making /proc/data: "),
    ],
)
def test_an_unwritable_destination(home: Path, line: str, sentence: str) -> None:
    refused(home, line, sentence)


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (f"--data-dir elsewhere --name {NAME}", "is an archive of cluster .*, not another-cluster; choose another"),
        ("--data-dir data --name weekly", f"is an archive of --name {NAME}, not weekly; choose another --dest"),
        (f"--data-dir data --name {NAME} --isolation read_uncommitted", "is an archive of --isolation read_committed"),
        (
            f"--data-dir data --name {NAME} --partition-by topic",
            "is an archive of --partition-by topic,date, not topic",
        ),
    ],
)
def test_a_destination_that_belongs_to_another_archive(home: Path, line: str, sentence: str) -> None:
    refused(home, f"archive --dest archive-of-data {line}", sentence)


@pytest.mark.usefixtures("java")
def test_a_destination_that_holds_something_else(home: Path) -> None:
    refused(home, "archive --data-dir data --dest home", r"home is no archive, and not empty: there is thesis\.txt")


# Nothing to do it with


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "archive --data-dir data --dest new --topics ordres",
            r"there is no topic ordres in .*; did you mean orders\?",
        ),
        ("audit --data-dir data --topics ordres", r"there is no topic ordres in .*; did you mean orders\?"),
        ("stats --data-dir data --topics ordres", r"there is no topic ordres in .*; did you mean orders\?"),
        ("sql --data-dir data --topics ordres 'select 1'", r"there is no topic ordres in .*; did you mean orders\?"),
        (
            "restore --archive archive-of-data --target-dir new --topics ordres",
            r"has no topic ordres; did you mean ord",
        ),
        ("stats --data-dir empty", "there are no topics to count in empty"),
        ("audit --data-dir home", "there is no log to audit in home"),
        ("stats --data-dir home", "home is no data directory of a broker"),
        ("restore --archive archive-of-empty --target-dir new", f"the archive {NAME} holds no topic yet"),
        ("restore --archive home --target-dir new", "home is no archive: it has no manifest"),
        ("archive verify --dest home", "home is no archive: it has no manifest"),
        ("archive compact --dest home", "home is no archive: it has no manifest"),
    ],
)
def test_topics_that_do_not_exist(home: Path, line: str, sentence: str) -> None:
    refused(home, line, sentence)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--checkpoint /proc/mirror.json", "nothing can be written to /proc/mirror.json: "),
        ("--checkpoint /dev/zero", "nothing can be written to /dev/zero: it is no regular file"),
        ("--checkpoint file", "file is not the checkpoint of a mirror"),
        ("--checkpoint new --topics ordres", r"there is no topic ordres in .*; did you mean orders\?"),
    ],
)
def test_a_mirror_that_cannot_be(home: Path, broker: BrokerProcess, line: str, sentence: str) -> None:
    refused(home, f"mirror --data-dir data --to {broker.bootstrap} {line}", sentence)
    assert TOPIC not in connect("confluent-kafka", broker.bootstrap).topics()


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            f"archive --data-dir data --dest archive-of-data --name {NAME}",
            "^nothing new; .* is up to date; nothing was",
        ),
        (f"archive --data-dir empty --dest archive-of-empty --name {NAME}", "^nothing new; .* is up to date"),
        ("archive compact --dest archive-of-data", "^1 files became 1, "),
        ("archive verify --dest archive-of-empty", "^0 files with 0 rows: no damage"),
        ("sql --data-dir empty --list", "^$"),
    ],
)
def test_nothing_to_do(home: Path, line: str, said: str) -> None:
    manifests = [path.read_bytes() for path in sorted(home.rglob("manifest.json"))]

    done = call(home, line, {**os.environ, "PYTHONPATH": str(REPOSITORY)})

    assert (done.returncode, done.stderr) == (DONE, "")
    assert re.search(said, done.stdout), done.stdout
    assert [path.read_bytes() for path in sorted(home.rglob("manifest.json"))] == manifests
