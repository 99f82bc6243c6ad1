"""The fixtures of the storage tests."""

from pathlib import Path

import pytest

from tests.support.logs import LogHome


@pytest.fixture
def home(tmp_path: Path) -> LogHome:
    """A directory for one log, on a disk that can be told to fail."""
    return LogHome(tmp_path)
