"""A broker for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker import InProcessBroker, running_broker


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InProcessBroker]:
    """A started broker; `@pytest.mark.settings(key=value)` changes its settings (underscores for the dots)."""
    mark = request.node.get_closest_marker("settings")
    with running_broker(tmp_path / "data", **(mark.kwargs if mark else {})) as broker:
        yield broker
