"""Only `replay` functions change the replayed state: read off the source of the coordinators.

A shard that changes its state in any other place can't be rebuilt from its records, and no test would say where.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import broker.coordinators

HOME = Path(broker.coordinators.__path__[0])
OWNERS = [
    *(HOME / "group" / name for name in ("image.py", "offset_table.py", "pending_offsets.py")),
    *(HOME / "group" / name for name in ("modern/group.py", "consumer/group.py")),
    HOME / "transaction" / "image.py",
]
"""Modules that are the state: whatever is changed in them is taken for it."""
OTHERS = sorted({*HOME.rglob("*.py")} - {*OWNERS})
"""Modules that can only reach it."""

REACHED_BY = {"image", "_image", "metadata"}
"""Attributes through which they reach it."""
CHANGING_METHODS = {
    "add", "append", "clear", "difference_update", "discard", "extend", "insert", "intersection_update", "pop",
    "popitem", "remove", "reverse", "setdefault", "sort", "symmetric_difference_update", "update",
}  # fmt: skip
"""Of the standard library's containers."""
CHANGING_FUNCTIONS = {"setattr", "delattr", "__setattr__", "__delattr__", "__setitem__", "__delitem__"}
"""They change their first argument."""


def changes_of_state(source: str, *, is_owner: bool) -> list[str]:
    """Where a module's text changes what stands in the log outside of functions called ``replay…``."""
    return [
        f"line {node.lineno}, in {functions[-1].name}: {ast.unparse(node)}"
        for node, functions in _inside_functions(ast.parse(source), ())
        if not any(function.name.lstrip("_").startswith("replay") for function in functions)
        for changed in _changed_by(node)
        if (not _begins(changed, functions) if is_owner else _reaches(changed, _aliases(functions[0])))
    ]


def _inside_functions(
    node: ast.AST, functions: tuple[ast.FunctionDef, ...]
) -> Iterator[tuple[ast.stmt | ast.expr, tuple[ast.FunctionDef, ...]]]:
    """Every statement and expression in a function, with the functions around it."""
    if functions and isinstance(node, ast.stmt | ast.expr):
        yield node, functions
    if isinstance(node, ast.FunctionDef):
        functions = (*functions, node)
    for child in ast.iter_child_nodes(node):
        yield from _inside_functions(child, functions)


def _changed_by(node: ast.stmt | ast.expr) -> Iterator[ast.expr]:
    """What a statement or a call changes, other than what names stand for."""
    if isinstance(node, ast.Assign | ast.Delete):
        yield from (place for target in node.targets for place in _places(target))
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        yield from _places(node.target)
    elif isinstance(node, ast.Call):
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name in CHANGING_FUNCTIONS and node.args:
            yield node.args[0]
        elif isinstance(called, ast.Attribute) and (name in CHANGING_METHODS or name.startswith("replay")):
            yield called.value


def _places(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        yield from (place for part in target.elts for place in _places(part))
    elif isinstance(target, ast.Attribute | ast.Subscript):
        yield target


def _begins(changed: ast.expr, functions: tuple[ast.FunctionDef, ...]) -> bool:
    """Whether an object is given what it begins with."""
    return functions[-1].name == "__init__" and isinstance(changed, ast.Attribute) and _is_self(changed.value)


def _is_self(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Name) and expression.id == "self"


def _reaches(expression: ast.expr, aliases: set[str]) -> bool:
    """Whether an expression leads through the state: ``self._image.groups[…]``, or a name that was given to it."""
    if isinstance(expression, ast.Attribute) and isinstance(expression.ctx, ast.Store):
        # Giving an object its image changes nothing in it; a group's metadata is never given.
        return expression.attr == "metadata" or _reaches(expression.value, aliases)
    if isinstance(expression, ast.Attribute):
        return expression.attr in REACHED_BY or _reaches(expression.value, aliases)
    if isinstance(expression, ast.Subscript):
        return _reaches(expression.value, aliases)
    if isinstance(expression, ast.Call):
        return _reaches(expression.func, aliases)
    return isinstance(expression, ast.Name) and expression.id in aliases


def _aliases(function: ast.FunctionDef) -> set[str]:
    """The names that a function gives to what it has reached through the state."""
    aliases: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            given = [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.NamedExpr):
            given = [(node.target, node.value)]
        elif isinstance(node, ast.For | ast.comprehension):
            given = [(node.target, node.iter)]
        else:
            continue
        for target, value in given:
            if _reaches(value, aliases):
                aliases |= {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
    return aliases


@pytest.mark.parametrize("module", OWNERS, ids=lambda path: path.name)
def test_the_image_is_changed_by_replay_only(module):
    assert changes_of_state(module.read_text(), is_owner=True) == []


@pytest.mark.parametrize("module", OTHERS, ids=lambda path: str(path.relative_to(HOME)))
def test_nobody_else_changes_the_image(module):
    assert changes_of_state(module.read_text(), is_owner=False) == []


# The checker itself --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", OWNERS, ids=lambda path: path.name)
def test_every_module_that_owns_state_would_be_found_out(module):
    source = module.read_text().replace("def replay", "def apply").replace("def _replay", "def _apply")

    assert len(changes_of_state(source, is_owner=True)) >= 3


def test_a_shard_that_changed_its_image_would_be_found_out():
    source = (HOME / "group" / "shard.py").read_text()

    assert changes_of_state(source.replace("def replay", "def apply"), is_owner=False) != []
    broken = source.replace(
        "        return GroupResult(", "        self.image.groups.clear()\n        return GroupResult("
    )
    assert broken != source
    assert [line.partition(": ")[2] for line in changes_of_state(broken, is_owner=False)] == [
        "self.image.groups.clear()"
    ]


def in_a_method(text):
    indented = "".join(f"        {line}\n" for line in text.splitlines())
    return f"class Anything:\n    def step(self, group, other):\n{indented}"


@pytest.mark.parametrize(
    "statement",
    [
        "self._image.groups['g'] = other",
        "self._image.groups['g'].generation += 1",
        "self.image.groups: dict = {}",
        "del self._image.groups['g']",
        "self._image.groups.pop('g', None)",
        "self._image.groups.get('g').members.clear()",
        "self._image.offsets.replay_put('g', 'orders', 0, other)",
        "self._shard.image.replay(other)",
        "group.metadata = other",
        "group.metadata.members['m'] = other",
        "self.metadata = other",
        "first, self._image.groups = other",
        "setattr(self._image, 'groups', other)",
        "object.__setattr__(group.metadata, 'generation', 5)",
        "groups = self._image.groups\ngroups['g'] = other",
        "offsets = self._image.offsets\ntable = offsets\ntable.replay_removed('g', other)",
        "for metadata in self._image.groups.values():\n    metadata.members.clear()",
        "if (metadata := group.metadata) is not None:\n    metadata.members.clear()",
        "def then(error):\n    self._image.groups.clear()",
        "call(lambda: self._image.groups.clear())",
    ],
)
def test_a_change_of_state_is_found_in_any_clothes(statement):
    assert len(changes_of_state(in_a_method(statement), is_owner=False)) == 1
    assert changes_of_state(in_a_method(statement).replace("def step", "def replay_step"), is_owner=False) == []


@pytest.mark.parametrize(
    "statement",
    [
        "self._image = other",
        "self._under_way['g'] = other",
        "self._members.pop('m')",
        "group.members['m'] = other",
        "group.round = None",
        "known = self._image.groups.get('g')",
        "metadata = group.metadata\nother.append(metadata)",
        "records = [1 for _ in self._image.groups]\nrecords.append(other)",
        "groups = list(self._image.groups)\ngroups.append('g')",
        "self._shard.replay(other)",
    ],
)
def test_what_is_not_in_the_log_may_change(statement):
    assert changes_of_state(in_a_method(statement), is_owner=False) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def __init__(self):\n        self.groups = {}", 0),
        ("def __init__(self, other):\n        other.groups = {}", 1),
        ("def forget(self):\n        self.groups = {}", 1),
        ("def forget(self, g):\n        del self.groups[g]", 1),
        ("def forget(self, g):\n        found = self.groups\n        found.pop(g)", 1),
        ("def _replay_forget(self, g):\n        del self.groups[g]", 0),
        ("def replay(self, g):\n        def inner():\n            del self.groups[g]\n        inner()", 0),
        ("def get(self, g):\n        return self.groups.get(g)", 0),
    ],
)
def test_in_a_module_that_is_the_state_every_change_counts(text, found):
    assert len(changes_of_state(f"class Image:\n    {text}\n", is_owner=True)) == found
