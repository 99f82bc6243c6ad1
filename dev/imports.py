"""Which file imports which, read from the sources: those of type hints and those inside functions count, too."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from dev.repository import REPOSITORY

PACKAGES: Final = (
    *("broker", "protocol", "storage", "config", "pipeline", "pyspark_ottla", "ottla"),
    *("boards", "compiled", "bench", "dev", "tests"),
)
"""All packages of the repository."""

Imports = Mapping[str, frozenset[str]]
"""By the path of a file, the paths of the files that it imports."""


def imports_of(packages: Iterable[str], repository: Path = REPOSITORY) -> Imports:
    """The imports among all files of these packages. Raises SyntaxError if a file is no Python."""
    paths = [path for package in packages for path in sorted((repository / package).rglob("*.py"))]
    modules = {_module(path.relative_to(repository)): path.relative_to(repository).as_posix() for path in paths}
    return {
        modules[module]: frozenset(
            modules[name] for name in names_imported(path.read_text(encoding="utf-8")) if name in modules
        )
        - {modules[module]}
        for module, path in zip(modules, paths, strict=True)
    }


def names_imported(source: str) -> Iterator[str]:
    """Each module that a source may mean: `from a.b import c` means a.b, and a.b.c if that is a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def reached(imports: Imports, places: Sequence[str], *, apart_from: Sequence[str] = ()) -> set[str]:
    """The files at these places (files or folders) and all files that they import, directly or over others.

    A file brings the `__init__.py` of each folder above it. Files at the places `apart_from` are left out, and so is
    what only they import.
    """
    found: set[str] = set()
    waiting = [path for path in imports if _lies_in(path, places)]
    while waiting:
        path = waiting.pop()
        if path in found or path not in imports or _lies_in(path, apart_from):
            continue
        found.add(path)
        waiting += imports[path]
        waiting += [f"{folder}/__init__.py" for folder in Path(path).parents]
    return found


def _lies_in(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)


def circles(imports: Imports) -> list[list[str]]:
    """Files that reach each other, each group once (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(path: str) -> None:
        order[path] = lowest[path] = len(order)
        stack.append(path)
        for other in sorted(imports[path]):
            if other not in order:
                visit(other)
                lowest[path] = min(lowest[path], lowest[other])
            elif other in stack:
                lowest[path] = min(lowest[path], order[other])
        if lowest[path] == order[path]:
            group = stack[stack.index(path) :]
            del stack[stack.index(path) :]
            if len(group) > 1:
                found.append(sorted(group))

    for path in imports:
        if path not in order:
            visit(path)
    return found


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
