"""The pytest plugin: the fixtures `kafka` and `kafka_broker`, and the marker that says what a test begins with.

    @pytest.mark.kafka(topics={"orders": 3}, seeds={"orders": ["a", "b"]})
    def test_orders_are_counted(kafka):
        assert count_orders(kafka.bootstrap_servers) == 2

`kafka` is one broker for all tests of a process, empty for each. `kafka_broker` is a broker of the test's own, with the
marker's ``settings`` and ``listeners``. A test that fails shows what its broker has seen.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from ottla.testing.broker import Broker
from ottla.testing.spawning import ZYGOTE

_MARKER: Final = "kafka"
_OF_ONE_BROKER: Final = ("settings", "listeners", "faults")
_ARGUMENTS: Final = ("topics", "seeds", *_OF_ONE_BROKER)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "kafka(topics, seeds, settings, listeners, faults): what the broker of a test begins with (ottla.testing)",
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin to import what brokers need, while pytest does something else: only if a test needs a broker."""
    if any({"kafka", "kafka_broker"} & set(getattr(item, "fixturenames", ())) for item in session.items):
        ZYGOTE.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    if report.failed:
        # A broker that several fixtures give, told once, under the name that the test knows.
        brokers = {id(value): (name, value) for name, value in getattr(item, "funcargs", {}).items()}
        for name, value in brokers.values():
            if isinstance(value, Broker):
                report.sections.append((f"Kafka in '{name}'", value.report()))
    return report


@pytest.fixture(scope="session")
def _kafka_of_the_session() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def kafka(request: pytest.FixtureRequest, _kafka_of_the_session: Broker) -> Broker:
    """A broker that is empty for every test, but for what the marker `kafka` says."""
    given = _given(request)
    for name in _OF_ONE_BROKER:
        if name in given:
            pytest.fail(f"{name}= of the marker is for kafka_broker: the broker of 'kafka' is that of all tests")
    _kafka_of_the_session.reset()
    _fill(_kafka_of_the_session, given, request)
    return _kafka_of_the_session


@pytest.fixture
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of the test's own."""
    given = _given(request)
    with Broker(**{name: given[name] for name in _OF_ONE_BROKER if name in given}) as broker:
        _fill(broker, given, request)
        yield broker


def _given(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The arguments of the test's markers; those nearest to the test win."""
    given: dict[str, Any] = {}
    for marker in request.node.iter_markers(_MARKER):
        if marker.args or not set(marker.kwargs) <= set(_ARGUMENTS):
            pytest.fail(f"the marker 'kafka' takes {', '.join(f'{name}=' for name in _ARGUMENTS)}")
        given = {**marker.kwargs, **given}
    return given


def _fill(broker: Broker, given: Mapping[str, Any], request: pytest.FixtureRequest) -> None:
    """Make the topics of a marker and write its seeds."""
    topics, all_seeds = given.get("topics", {}), given.get("seeds", {})
    if isinstance(topics, str) or not isinstance(topics, Iterable):
        pytest.fail(f"topics= of the marker is {topics!r}, expected names of topics, alone or with what they have")
    for name, how in topics.items() if isinstance(topics, Mapping) else ((topic, {}) for topic in topics):
        has = {"partitions": how} if isinstance(how, int) else how
        if not isinstance(has, Mapping) or not set(has) <= {"partitions", "configs"}:
            pytest.fail(
                f"topics= of the marker has {name!r}: {how!r}, expected partitions, or partitions= and configs="
            )
        broker.create_topic(name, **has)
    if not isinstance(all_seeds, Mapping):
        pytest.fail(f"seeds= of the marker is {all_seeds!r}, expected records, or the path of a file, by topic")
    for topic, seeds in all_seeds.items():
        if isinstance(seeds, str | Path):
            broker.seed(topic, request.path.parent / seeds)
        else:
            broker.produce(topic, seeds)
