"""The examples: docs/testing.md shows what is in them, and each project has the twenty tests that are promised."""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dev.repository import REPOSITORY

pytestmark = pytest.mark.sources_only

EXAMPLES = REPOSITORY / "examples"
PAGE = (REPOSITORY / "docs/testing.md").read_text()
AT_LEAST = 20
MARKS = {
    "test_*.py": r"^(async )?def test_",
    "*Test.java": r"^ +@(Test|ParameterizedTest)$",
    "*_test.go": r"^func Test(?!Main)\w+\(t \*testing\.T\)",
    "*.test.js": r"^ +(it|itMovesTheClock)\([\"`]",
}
"""What begins a test, in the files of these names."""

NOT_RUN = {"dotnet"}
"""A project that shows one test, since nothing here can run it."""


def excerpts(page: str) -> Iterator[tuple[str, str]]:
    """What a page shows of files of the examples: the file that its first line names, and the other lines."""
    for block in re.findall(r"^```\w+\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        first, _, rest = block.partition("\n")
        if named := re.fullmatch(r"(?://|#) (examples/\S+)", first):
            yield named[1], rest


def missing_in(shown: str, file: str) -> list[str]:
    """The parts of an excerpt, divided by empty lines, that the file does not have at any depth."""
    depths = [re.sub(rf"^ {{{depth}}}", "", file, flags=re.MULTILINE) for depth in (0, 2, 4)]
    parts = [part.strip("\n") for part in re.split(r"\n\n+", shown)]
    return [part for part in parts if not any(part in text for text in depths)]


def test_the_page_shows_what_is_in_the_examples() -> None:
    shown = dict(excerpts(PAGE))

    assert {Path(path).suffix for path in shown} == {".java", ".go", ".js", ".cs", ".yml"}
    assert {path: missing_in(text, (REPOSITORY / path).read_text()) for path, text in shown.items()} == {
        path: [] for path in shown
    }


def test_a_line_that_is_not_in_the_example_is_found() -> None:
    assert missing_in("a\n  b\n\nc\n", "  a\n    b\n  d\n") == ["c"]


def projects() -> list[str]:
    return sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir() and not path.name.startswith("__"))


@pytest.mark.parametrize("project", projects())
def test_a_project_has_its_tests_and_is_in_the_table(project: str) -> None:
    count = sum(
        len(re.findall(mark, path.read_text(), re.MULTILINE))
        for name, mark in MARKS.items()
        for path in (EXAMPLES / project).rglob(name)
        if not {"node_modules", "target"} & set(path.parts)
    )

    assert f"| [{project}](" in (EXAMPLES / "README.md").read_text()
    assert count >= (0 if project in NOT_RUN else AT_LEAST)


def test_the_workflow_has_jobs_whose_steps_do_something() -> None:
    workflow = yaml.safe_load((EXAMPLES / "github-actions.yml").read_text())

    for job in workflow["jobs"].values():
        assert job["runs-on"]
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])
        assert textwrap.dedent(job["steps"][-1]["run"]) in ("pytest", "mvn --batch-mode test")
