"""What this repository asks of its own tests and these examples, which others wrote the clients of, need not keep."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    for ignored in ("ignore::DeprecationWarning:kafka", "ignore:(read|open)_text is deprecated:DeprecationWarning"):
        config.addinivalue_line("filterwarnings", ignored)
