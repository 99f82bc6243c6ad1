"""Why a connection is not read: the table is what the sources do, and each reason that is set can end."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.network.pauses import PAUSE_RULES, Pause, names_of
from dev.repository import REPOSITORY

HOME = REPOSITORY / "broker" / "network"
CONNECTION = HOME / "connection.py"
SETS, CLEARS = {"_pause"}, {"_resume", "_clear"}


def methods(source: str) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))


def reason_of(node: ast.expr) -> str | None:
    """IN_FLIGHT, of ``Pause.IN_FLIGHT``."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Pause":
        return node.attr
    return None


def callers(source: str, called: set[str]) -> dict[str, set[str]]:
    """By reason, the methods that call one of these with it. ``?``: the reason is not named where it is used."""
    found = defaultdict(set)
    for method in methods(source):
        for node in ast.walk(method):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in called:
                (reason,) = node.args
                found[reason_of(reason) or "?"].add(method.name)
    return found


def assignments(source: str) -> dict[str, list[str]]:
    """By method, how it changes `pauses` itself."""
    found = defaultdict(list)
    for method in methods(source):
        for node in ast.walk(method):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
                for target in targets:
                    if isinstance(target, ast.Attribute) and target.attr == "pauses":
                        found[method.name].append(ast.unparse(node))
    return found


def test_every_reason_has_a_rule_and_a_bit_of_its_own() -> None:
    reasons = {name: bit for name, bit in vars(Pause).items() if name.isupper()}
    assert {name: rule.reason for name, rule in PAUSE_RULES.items()} == reasons
    assert sorted(reasons.values()) == [1 << number for number in range(len(reasons))]


def test_reasons_are_changed_by_three_methods_and_the_first_one_is_set_at_the_beginning() -> None:
    assert assignments(CONNECTION.read_text()) == {
        "__init__": ["self.pauses = Pause.HANDSHAKE"],
        "_pause": ["self.pauses |= reason"],
        "_clear": ["self.pauses &= ~reason"],
    }


def test_a_reason_is_set_where_the_table_says_and_nowhere_else() -> None:
    found = callers(CONNECTION.read_text(), SETS)
    found["HANDSHAKE"].add("__init__")
    assert found == {name: set(rule.set_by) for name, rule in PAUSE_RULES.items()}


def test_a_reason_is_cleared_where_the_table_says_and_nowhere_else() -> None:
    found = callers(CONNECTION.read_text(), CLEARS)
    assert found.pop("?") == {"_resume"}, "which has the reason from its callers"
    assert found == {name: set(rule.cleared_by) for name, rule in PAUSE_RULES.items() if rule.cleared_by}


def test_every_reason_but_the_end_of_the_connection_can_be_cleared() -> None:
    assert [name for name, rule in PAUSE_RULES.items() if rule.set_by and not rule.cleared_by] == ["FINISHING"]


@pytest.mark.parametrize("path", sorted({*HOME.glob("*.py")} - {CONNECTION}), ids=lambda path: path.name)
def test_no_other_module_changes_why_a_connection_is_not_read(path: Path) -> None:
    source = path.read_text()
    assert not assignments(source)
    assert not [name for name in callers(source, {"_resume", "_clear"}) if name != "?"]


def test_a_connection_says_by_name_why_it_is_not_read() -> None:
    assert names_of(Pause.CHANNEL | Pause.THROTTLED) == ["CHANNEL", "THROTTLED"]
    assert names_of(0) == []


# The checker itself --------------------------------------------------------------------------------------------------


def test_a_reason_that_is_set_or_cleared_elsewhere_would_be_found_out() -> None:
    source = CONNECTION.read_text()
    secret = source.replace(
        "    def _on_next_turn",
        "    def secret(self) -> None:\n        self._pause(Pause.MEMORY)\n\n    def _on_next_turn",
    )
    assert "secret" in callers(secret, SETS)["MEMORY"]
    direct = source.replace("self._resume(Pause.TURN)", "self.pauses = 0")
    assert assignments(direct)["_on_next_turn"] == ["self.pauses = 0"]
    assert "TURN" not in callers(direct, CLEARS)
