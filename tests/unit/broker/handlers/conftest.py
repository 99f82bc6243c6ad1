"""A broker for each test, and the check that a marked test reached what it claims."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.api_keys import ApiKey
from tests.support.broker import InProcessBroker, running_broker
from tests.support.serving import claims


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InProcessBroker]:
    """A started broker; `@pytest.mark.settings(key=value)` changes its settings (underscores for the dots)."""
    mark = request.node.get_closest_marker("settings")
    with running_broker(tmp_path / "data", **(mark.kwargs if mark else {})) as broker:
        yield broker
        missed = [
            f"{ApiKey(claim.api_key).name} v{claim.version} {claim.error.name}"
            for claim in claims(request.node)
            if (claim.api_key, claim.version, claim.error) not in broker.answered
        ]
    assert not missed, f"the test is marked with answers that the broker never gave: {', '.join(missed)}"
