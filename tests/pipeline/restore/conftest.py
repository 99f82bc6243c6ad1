"""Brokers that restored directories are opened with, and Apache Kafka where its jars are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev import kafka_jars
from dev.apache_kafka import ApacheKafka
from dev.broker_process import BrokerProcess
from dev.waiting import until
from tests.interop.directories import SharedDirectory
from tests.support.clients import connect


@pytest.fixture
def second(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker whose data directory, `second.data_directory`, is not there yet; it does not run."""
    process = BrokerProcess(tmp_path / "second")
    try:
        yield process
    finally:
        process.close()


@pytest.fixture(scope="session", params=kafka_jars.DIRECTORY_VERSIONS)
def kafka_libraries(request: pytest.FixtureRequest) -> Path:
    """The jars of Apache Kafka, of each version; only what is there already (`make interop`), for they are large."""
    try:
        return kafka_jars.libraries(request.param, fetching=False)
    except kafka_jars.NoKafka as reason:
        pytest.skip(f"no Apache Kafka: {reason}")


@pytest.fixture
def shared(tmp_path: Path, kafka_libraries: Path) -> Iterator[SharedDirectory]:
    """A data directory that Ottla and Apache Kafka serve in turns."""
    directory = SharedDirectory(tmp_path / "shared", kafka_libraries)
    try:
        yield directory
    finally:
        directory.close()


@pytest.fixture
def kafka(tmp_path: Path, kafka_libraries: Path) -> Iterator[BrokerProcess]:
    """An Apache Kafka of its own, running."""
    process = ApacheKafka(tmp_path / "kafka", settings=None, port=0, libraries=str(kafka_libraries))
    process.heap = "512M"
    with process:
        # Its port is open before it counts itself among the brokers, and can put a topic anywhere.
        client = connect("confluent-kafka", process.bootstrap)
        until(lambda: client.cluster().brokers != (), "a broker in the metadata")
        yield process
