"""What is compiled exists, and avoids what mypyc takes otherwise than the interpreter does without saying so."""

import ast
from collections import defaultdict
from collections.abc import Iterator

import pytest

from compiled.hot_path import HOT_PATH
from compiled.packages import REPOSITORY

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(source: str) -> Iterator[Function]:
    return (node for node in ast.walk(ast.parse(source)) if isinstance(node, Function))


def names_of_two_types(function: Function) -> list[str]:
    """Names that exceptions of different types are caught by: mypyc gives all of them the type of the first."""
    types = defaultdict(set)
    for node in ast.walk(function):
        if isinstance(node, ast.ExceptHandler) and node.name is not None and node.type is not None:
            types[node.name].add(ast.unparse(node.type))
    return [name for name, found in types.items() if len(found) > 1]


def test_what_is_compiled_exists_and_is_named_once() -> None:
    assert [path for path in HOT_PATH if not (REPOSITORY / path).is_file()] == []
    assert list(HOT_PATH) == sorted(set(HOT_PATH))


@pytest.mark.parametrize("path", HOT_PATH)
def test_a_caught_exception_has_a_name_of_its_own(path: str) -> None:
    found = {function.name: names_of_two_types(function) for function in functions((REPOSITORY / path).read_text())}

    assert {name: names for name, names in found.items() if names} == {}


def test_such_a_name_is_found() -> None:
    (function,) = functions("def f():\n try: g()\n except KeyError as e: h(e)\n except OSError as e: h(e)\n")

    assert names_of_two_types(function) == ["e"]


def optional_constants(source: str) -> list[str]:
    """Constants of a module that are a number or None: where one is known not to be None, mypyc takes the address of
    its object for the number."""
    return [
        ast.unparse(node.target)
        for node in ast.parse(source).body
        if isinstance(node, ast.AnnAssign)
        and ast.unparse(node.annotation) in {f"Final[{kind} | None]" for kind in ("int", "bool", "float")}
    ]


@pytest.mark.parametrize("path", HOT_PATH)
def test_a_constant_is_no_optional_number(path: str) -> None:
    assert optional_constants((REPOSITORY / path).read_text()) == []


def test_such_a_constant_is_found() -> None:
    assert optional_constants("A: Final[int | None] = f()\nB: Final[str | None] = f()\n") == ["A"]


def callable_properties(source: str) -> list[str]:
    """Properties that give a callable: where such a property is called, mypyc reads it and calls nothing. A property
    of a protocol is looked up by its name, as the interpreter does."""
    return [
        member.name
        for one in ast.walk(ast.parse(source))
        if isinstance(one, ast.ClassDef) and "Protocol" not in map(ast.unparse, one.bases)
        for member in one.body
        if isinstance(member, Function) and "property" in map(ast.unparse, member.decorator_list)
        if member.returns is not None and ast.unparse(member.returns).startswith("Callable")
    ]


@pytest.mark.parametrize("path", HOT_PATH)
def test_a_callable_is_a_plain_attribute(path: str) -> None:
    assert callable_properties((REPOSITORY / path).read_text()) == []


def test_such_a_property_is_found() -> None:
    source = "class C:\n @property\n def a(self) -> Callable[[], int]: ...\n @property\n def b(self) -> int: ...\n"

    assert callable_properties(source) == ["a"]
