"""Writes docs/protocol-support.md from the marks of the tests: `python -m dev.protocol_support`."""

import sys
from collections import defaultdict
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from dev.serving import Served, claims
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode

PAGE = Path(__file__).parents[1] / "docs" / "protocol-support.md"
MARKED_TESTS = "tests/unit/broker"

_HEAD = """# Protocol support

Every API and version that is served, and every error code of it that a test has seen come back through the codec.
Written by `make docs` from the marks of the tests in `tests/unit/broker`: a marked test fails unless the
broker gave that answer, and what no test is marked with counts as not supported.
"""


class _Collector:
    def __init__(self) -> None:
        self.served: list[Served] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            self.served += claims(item)


def collect() -> list[Served]:
    """The claims of all marked tests."""
    collector = _Collector()
    with redirect_stdout(sys.stderr):  # stdout is for the page
        code = pytest.main(
            ["--collect-only", "-qqq", "--no-header", "-p", "no:cacheprovider", MARKED_TESTS], plugins=[collector]
        )
    if code != pytest.ExitCode.OK:
        raise SystemExit(f"collecting the tests in {MARKED_TESTS} ended with {code}")
    return collector.served


def page(served: Iterable[Served]) -> str:
    """The text of the page."""
    versions: dict[int, set[int]] = defaultdict(set)
    tests: dict[int, dict[ErrorCode, set[str]]] = defaultdict(lambda: defaultdict(set))
    for claim in served:
        versions[claim.api_key].add(claim.version)
        tests[claim.api_key][claim.error].add(claim.test.removeprefix(f"{MARKED_TESTS}/"))
    lines = [_HEAD]
    for key in sorted(versions):
        lines.append(f"## {ApiKey(key).title} ({key}): {_ranges(versions[key])}\n")
        lines.append("| error code | shown by |")
        lines.append("|---|---|")
        for error in sorted(tests[key]):
            shown_by = ", ".join(f"`{test}`" for test in sorted(tests[key][error]))
            lines.append(f"| {error.name} ({error.value}) | {shown_by} |")
        lines.append("")
    return "\n".join(lines)


def _ranges(versions: set[int]) -> str:
    """``{3, 4, 5, 7}`` as ``versions 3-5, 7``."""
    spans: list[list[int]] = []
    for version in sorted(versions):
        if spans and spans[-1][1] == version - 1:
            spans[-1][1] = version
        else:
            spans.append([version, version])
    texts = [f"{first}-{last}" if first != last else str(first) for first, last in spans]
    return ("versions " if len(versions) > 1 else "version ") + ", ".join(texts)


def main() -> None:
    """Write the page, or with ``--print`` print it."""
    text = page(collect())
    if "--print" in sys.argv[1:]:
        sys.stdout.write(text)
    else:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
