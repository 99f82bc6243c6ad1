"""A broker for each test, and a toy coordinator over a topic of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker import InProcessBroker, running_broker
from tests.support.files import FaultyFileSystem
from tests.unit.broker.coordinators.toy import TOPIC, Toy


@pytest.fixture
def disk() -> FaultyFileSystem:
    return FaultyFileSystem()


@pytest.fixture
def broker(tmp_path: Path, disk: FaultyFileSystem) -> Iterator[InProcessBroker]:
    """A started broker whose disk can fail."""
    with running_broker(tmp_path / "data", files=disk) as broker:
        yield broker


@pytest.fixture
def toy(broker: InProcessBroker) -> Iterator[Toy]:
    """The toy's topic is there, with one partition, and led."""
    broker.create_topic(TOPIC)
    toy = Toy(broker)
    toy.start()
    yield toy
    toy.stop()
