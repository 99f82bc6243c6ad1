"""Where this repository stands, and where the broker's packages are that tests run."""

import os
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = Path(os.environ.get("OTTLA_TEST_PACKAGES", REPOSITORY))
"""The directory with the packages of the broker under test: the checkout, or packages with a compiled hot path (`make
test-compiled`)."""
