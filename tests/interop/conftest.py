"""The broker as a process, the foreign programs that speak to it, and the table of results."""

from __future__ import annotations

import os
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from dev import kafka_jars
from dev.broker_process import RETENTION_COMES_LATER, BrokerProcess
from dev.brokers import broker_for_tests
from tests.interop import programs
from tests.interop.directories import SharedDirectory
from tests.interop.directory_groups import GroupVisitor
from tests.interop.java_tools import JavaTools
from tests.interop.summary import SUMMARY, Summary
from tests.support.broker_logs import logs_of
from tests.support.clients import Client, connect
from tests.support.clusters import Load

# What is still to come, by its subject: an entry of what does not apply yet names one of these.
SUBJECTS = {"SASL", "TLS"}

FEW_INTERNAL_PARTITIONS = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "2"}


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SUMMARY] = Summary()
    config.pluginmanager.register(EveryReport(config.stash[SUMMARY]))
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning:kafka")
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")
    config.addinivalue_line(
        "markers", "not_applicable(until): needs what the subject `until` will bring; fails the run once it passes"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (mark := item.get_closest_marker("not_applicable")) is None:
            continue
        until = mark.kwargs["until"]
        assert until in SUBJECTS, f"{item.nodeid} waits for '{until}', which is none of {sorted(SUBJECTS)}"
        if not against_apache_kafka():
            item.add_marker(pytest.mark.xfail(strict=True, reason=f"until there are: {until}"))


def against_apache_kafka() -> bool:
    """Whether Apache Kafka is asked instead of us: then everything applies."""
    return "OTTLA_TEST_KAFKA_LIBS" in os.environ


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """A failed test shows what the brokers it used had to say."""
    report: Any = yield
    if report.when == "setup" and report.skipped and hasattr(report, "wasxfail"):
        report.outcome = "failed"  # a broker that does not start is no reason why a test does not apply
        del report.wasxfail
    if report.failed:
        report.sections.extend(logs_of(getattr(item, "funcargs", {}), last_lines=40))
    return report


@pytest.fixture(autouse=True)
def no_load_goes_on() -> Iterator[None]:
    """A load that a failed test has left does not reach the next test's broker."""
    yield
    Load.abandon_all()


class EveryReport:
    """Puts each test into the summary, whichever worker has run it."""

    def __init__(self, summary: Summary) -> None:
        self._summary = summary

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._summary.add_report(report)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.section("programs that are not ours")
    terminalreporter.write(config.stash[SUMMARY].as_markdown())


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that all programs share; each test keeps to topics of its own."""
    with broker_for_tests(tmp_path_factory.mktemp("broker"), settings=RETENTION_COMES_LATER) as process:
        if against_apache_kafka():  # whose coordinator refuses what comes before its topic is there
            with GroupVisitor(process.bootstrap) as visitor:
                visitor.await_coordinator()
        yield process


@pytest.fixture(scope="session")
def client(broker: BrokerProcess) -> Client:
    """A stock client for what a program under test can not do itself, such as creating its topic."""
    return connect("confluent-kafka", broker.bootstrap)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses; nothing is created."""
    return f"{request.node.originalname.removeprefix('test_')[:60]}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def java(broker: BrokerProcess) -> JavaTools:
    """Kafka's own command line tools."""
    return JavaTools(installed(programs.java), broker.bootstrap)


@pytest.fixture(params=kafka_jars.DIRECTORY_VERSIONS)
def kafka_version(request: pytest.FixtureRequest) -> str:
    """The version of Apache Kafka that shares a directory with Ottla: each in turn."""
    version: str = request.param
    return version


@pytest.fixture
def shared(tmp_path: Path, kafka_version: str) -> Iterator[SharedDirectory]:
    """A directory that Ottla and Apache Kafka serve in turns."""
    installed(programs.java)
    libraries = installed(lambda: programs.kafka_libraries(kafka_version))
    directory = SharedDirectory(tmp_path, libraries, settings=FEW_INTERNAL_PARTITIONS)
    try:
        yield directory
    finally:
        directory.close()


def installed(find: Any) -> Any:
    """What `find` returns, or a visible skip of every test that needs it."""
    try:
        return find()
    except programs.Missing as reason:
        pytest.skip(str(reason))
