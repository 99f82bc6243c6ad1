"""A broker for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker import InProcessBroker, running_broker

LAST = "test_every_family_is_shown_by_a_test"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What asks what the others have looked at comes behind them."""
    items.sort(key=lambda item: item.name == LAST)


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InProcessBroker]:
    """A started broker; `@pytest.mark.settings(key=value)` changes its settings (underscores for the dots)."""
    mark = request.node.get_closest_marker("settings")
    with running_broker(tmp_path / "data", **(mark.kwargs if mark else {})) as broker:
        yield broker
