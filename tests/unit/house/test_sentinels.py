"""A number that says "none" has its name in one place."""

import ast
from collections import defaultdict
from collections.abc import Iterator

import pytest

from dev.repository import REPOSITORY

pytestmark = pytest.mark.sources_only

PACKAGES = ("broker", "protocol", "storage", "config", "pipeline")


def names_of_minus_one(source: str) -> Iterator[str]:
    for node in ast.parse(source).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            if isinstance(target, ast.Name) and target.id.lstrip("_").startswith("NO_") and _is_minus_one(node):
                yield target.id.lstrip("_")


def _is_minus_one(node: ast.stmt) -> bool:
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    return value is not None and ast.unparse(value) == "-1"


def test_each_sentinel_is_declared_once() -> None:
    places = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            for name in names_of_minus_one(path.read_text(encoding="utf-8")):
                places[name].append(str(path.relative_to(REPOSITORY)))

    assert places["NO_OFFSET"] == ["storage/sentinels.py"]
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_a_declaration_is_found_with_and_without_its_type() -> None:
    source = "NO_OFFSET = -1\n_NO_EPOCH: Final = -1\nNO_TOPIC_ID = bytes(16)\nMOST: int\nLEAST = -1\n"

    assert list(names_of_minus_one(source)) == ["NO_OFFSET", "NO_EPOCH"]
