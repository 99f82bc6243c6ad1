"""One running broker for all tests that do not stop it, and each of the three stock clients for every promise."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.broker_process import RETENTION_COMES_LATER, BrokerProcess, RunningBroker
from dev.brokers import broker_for_tests
from tests.support.broker_logs import logs_of
from tests.support.clients import CLIENTS, Client, Place, connect
from tests.support.clients.member_process import MemberProcess
from tests.support.clients.members import Membership, Seen, SeenMember, wait_until_shared
from tests.support.clusters import Load

SHORT_SESSIONS = {"group.min.session.timeout.ms": "3000"}
"""Less than the least that is allowed by default, 6 s, for tests that wait for the end of a session."""

Shared = Callable[[frozenset[Place], list[Seen]], None]


def pytest_configure(config: pytest.Config) -> None:
    # What the clients themselves do on this Python is not ours to mend; our own warnings stay errors.
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning:kafka")
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")
    # asyncio of Python 3.11 leaves the socket of a refused connection to the collector.
    config.addinivalue_line("filterwarnings", r"ignore:unclosed <socket.*laddr=\('0\.0\.0\.0', \d+\)>:ResourceWarning")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """A failed test shows what the brokers it used had to say."""
    report: Any = yield
    if report.failed:
        report.sections.extend(logs_of(getattr(item, "funcargs", {}), last_lines=100))
    return report


@pytest.fixture(autouse=True)
def no_load_goes_on() -> Iterator[None]:
    """A load that a failed test has left does not reach the next test's broker."""
    yield
    Load.abandon_all()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that tests share; each keeps to topics of its own."""
    directory = tmp_path_factory.mktemp("broker")
    if bootstrap := os.environ.get("OTTLA_TEST_BOOTSTRAP"):
        yield RunningBroker(bootstrap, directory)
        return
    with broker_for_tests(directory, settings={**RETENTION_COMES_LATER, **SHORT_SESSIONS}) as process:
        yield process


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that a test may kill, stop and start; it runs already."""
    with broker_for_tests(tmp_path) as process:
        yield process


@pytest.fixture
def empty_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that is empty for the test, and that the test neither stops nor kills: the one of `kafka`, which begins
    anew in milliseconds. Apache Kafka has a process for each test."""
    if os.environ.get("OTTLA_TEST_KAFKA_LIBS"):
        yield request.getfixturevalue("own_broker")
    else:
        yield RunningBroker(request.getfixturevalue("kafka").bootstrap_servers, tmp_path)


@pytest.fixture(params=CLIENTS)
def client_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(client_name: str, broker: BrokerProcess) -> Client:
    return connect(client_name, broker.bootstrap)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses; nothing is created."""
    name = request.node.originalname.removeprefix("test_")[:60]
    return f"{name}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def new_topic(client: Client, topic: str) -> Callable[..., str]:
    """Create the test's topic with the given partitions and configs."""

    def create(**options: Any) -> str:
        client.create_topic(topic, **options)
        return topic

    return create


@pytest.fixture
def every_client(broker: BrokerProcess) -> list[Client]:
    return [connect(name, broker.bootstrap) for name in CLIENTS]


@pytest.fixture
def group(topic: str) -> str:
    """A group that no other test uses."""
    return f"group-{topic}"


@pytest.fixture
def four(new_topic: Callable[..., str]) -> str:
    """A topic of four partitions."""
    return new_topic(partitions=4)


@pytest.fixture
def join(client: Client, group: str, topic: str) -> Iterator[Callable[..., SeenMember]]:
    """Start a member of the test's group, subscribed to its topic unless told otherwise; in the end all are closed."""
    members: list[SeenMember] = []

    def start(**options: Any) -> SeenMember:
        who = options.pop("client", client)
        members.append(SeenMember(who, Membership(**{"group": group, "topics": (topic,), **options})))
        return members[-1]

    yield start
    for member in members:
        member.begin_closing()  # together: nobody has to join again because another one has left
    for member in members:
        member.close()


@pytest.fixture
def start_process(
    client_name: str, broker: BrokerProcess, group: str, topic: str
) -> Iterator[Callable[..., MemberProcess]]:
    """Start a member of the test's group in a process of its own; in the end all are killed."""
    members: list[MemberProcess] = []

    def start(**options: Any) -> MemberProcess:
        membership = Membership(**{"group": group, "topics": (topic,), **options})
        members.append(MemberProcess(client_name, broker.bootstrap, membership))
        return members[-1]

    yield start
    for member in members:
        member.kill()


@pytest.fixture
def shared(client: Client, group: str) -> Shared:
    """Wait until the test's group shares these partitions among these members."""
    return lambda partitions, members: wait_until_shared(client, group, partitions, members)
