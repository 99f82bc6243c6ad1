"""Which file imports which, read from the sources: those of type hints and those inside functions count, too."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from dev.broker_process import REPOSITORY

PACKAGES: Final = ("broker", "protocol", "storage", "config")

Imports = Mapping[str, frozenset[str]]
"""By the path of a file, the paths of the files that it imports."""


def imports_of(packages: Iterable[str]) -> Imports:
    """The imports among all files of these packages."""
    paths = [path for package in packages for path in sorted((REPOSITORY / package).rglob("*.py"))]
    modules = {_module(path): str(path.relative_to(REPOSITORY)) for path in paths}
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
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
