"""A broker for each test, and the check that a marked test reached what it claims."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.repository import PACKAGES, REPOSITORY
from dev.serving import assert_served
from tests.support.broker import InProcessBroker, running_broker


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InProcessBroker]:
    """A started broker; `@pytest.mark.settings(key=value)` changes its settings (underscores for the dots)."""
    mark = request.node.get_closest_marker("settings")
    with running_broker(tmp_path / "data", **(mark.kwargs if mark else {})) as broker:
        yield broker
        if PACKAGES == REPOSITORY:  # among compiled ones a test may end early, when it replaces a part of them
            assert_served(request.node, broker.answered)
