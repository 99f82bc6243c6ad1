"""The page on protocol support is what the tests' marks say, and nothing is advertised that no test reaches."""

import subprocess
import sys
from functools import cache
from pathlib import Path

from dev.protocol_support import PAGE, page
from dev.serving import Served
from protocol.errors import ErrorCode
from tests.support.broker import InProcessBroker

REPOSITORY = Path(__file__).parents[4]


@cache
def printed_page() -> str:
    """What `make docs` would write. It takes ten seconds: all tests are collected."""
    command = [sys.executable, "-m", "dev.protocol_support", "--print"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=250, check=True)
    return done.stdout


def test_the_page_is_not_stale() -> None:
    assert PAGE.read_text() == printed_page(), "run `make docs`"


def test_every_version_that_is_served_is_shown_by_a_test(broker: InProcessBroker) -> None:
    shown = printed_page()
    for api in broker.server.registry.advertised():
        first = 3 if api.api_key == 0 else api.min_version  # Produce 0 to 2 are advertised and close the connection
        versions = f"versions {first}-{api.max_version}" if api.max_version > first else f"version {first}"
        assert f"({api.api_key}): {versions}\n" in shown


def test_a_page_lists_versions_in_ranges_and_tests_by_code() -> None:
    served = [Served(0, version, ErrorCode.NONE, "test_a.py::test_b") for version in (3, 4, 7)]
    assert "## Produce (0): versions 3-4, 7" in page(served)
    assert "| NONE (0) | `test_a.py::test_b` |" in page(served)
