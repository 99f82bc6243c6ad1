"""One Spark for all tests, the broker they share, and the directories that Apache Kafka wrote."""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dev import spark_connector
from dev.broker_process import RETENTION_COMES_LATER, BrokerProcess
from dev.maven import NoJars
from dev.repository import REPOSITORY
from pipeline.requirements import Missing, require_java, require_libraries
from tests.support.archives import unpack
from tests.support.clients import Client, connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIXTURES = Path(os.environ.get("OTTLA_TEST_FIXTURES", REPOSITORY.parent / "shared/fixtures/kafka-4.3.1"))
"""LogDirs that Apache Kafka wrote, too large to stand in the repository."""

SPARK_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
}


def pytest_configure(config: pytest.Config) -> None:
    # What clients and Spark do on this Python is not ours to mend; our own warnings stay errors.
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning:kafka")
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")
    config.addinivalue_line("filterwarnings", "ignore:unclosed .*socket.*:ResourceWarning")
    config.addinivalue_line("filterwarnings", "ignore:subprocess [0-9]+ is still running:ResourceWarning")
    # An exception that carries such a warning into the test after the one it belongs to.
    config.addinivalue_line("filterwarnings", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """A failed test shows what the brokers it used had to say."""
    report: Any = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, BrokerProcess):
                report.sections.append((f"log of the broker in '{name}'", value.log_text(last_lines=40)))
    return report


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark with two workers on this machine, and with Spark's Kafka connector where its jars can be had."""
    try:
        require_libraries()
        require_java()
    except Missing as reason:
        pytest.skip(str(reason))
    from pyspark.sql import SparkSession

    workers_find_this_checkout()
    builder: Any = SparkSession.builder
    for key, value in SPARK_SETTINGS.items():
        builder = builder.config(key, value)
    with contextlib.suppress(NoJars):  # then `connector` skips the tests that need it
        builder = builder.config("spark.jars", ",".join(map(str, spark_connector.jars())))
    scratch = tmp_path_factory.mktemp("spark")
    builder = builder.config("spark.local.dir", str(scratch)).config("spark.sql.warehouse.dir", str(scratch))
    session = builder.master("local[2]").appName("tests/pipeline").getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def workers_find_this_checkout() -> None:
    """As in a shell where somebody works on it."""
    os.environ["PYTHONPATH"] = str(REPOSITORY)
    os.environ["PYSPARK_PYTHON"] = sys.executable


@pytest.fixture(scope="session")
def connector() -> list[Path]:
    """The jars of Spark's stock Kafka connector; asked for before `spark`, or together with it."""
    try:
        return spark_connector.jars()
    except NoJars as reason:
        pytest.skip(f"no Kafka connector of Spark: {reason}")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that tests share; each keeps to topics of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings=RETENTION_COMES_LATER) as process:
        yield process


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that a test may kill, stop and start; it runs already."""
    with BrokerProcess(tmp_path / "broker") as process:
        yield process


@pytest.fixture
def client(broker: BrokerProcess) -> Client:
    """A stock client of the shared broker."""
    return connect("confluent-kafka", broker.bootstrap)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses; nothing is created."""
    return f"{request.node.originalname.removeprefix('test_')[:60]}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def kafka_directory(tmp_path: Path) -> Callable[[str], Path]:
    """Unpacks a directory that Apache Kafka wrote (`kafka-dir`, `kafka-dir-unclean`) and returns its place."""

    def unpacked(name: str) -> Path:
        archive = FIXTURES / f"{name}.tar.gz"
        if not archive.is_file():
            pytest.skip(f"{archive} is not there: a directory that Apache Kafka wrote")
        place = tmp_path / name
        unpack(archive, place)
        (found,) = [path.parent for path in place.rglob("meta.properties")]
        return found

    return unpacked
