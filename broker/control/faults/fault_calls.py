"""The calls about faults, and rules from a YAML file."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.control.arguments import BadArguments, argument, read_arguments
from broker.control.calls import CHANGES, READS, Answer, Call, CannotDo, Nothing
from broker.control.faults.rule import NewRule, Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.control.faults.fault_gate import FaultGate


@dataclasses.dataclass(frozen=True)
class WhichRule:
    """A rule in force."""

    rule: int | None = argument("the number of the rule; without it all rules", None)


class FaultCalls:
    """What a test says about faults."""

    def __init__(self, gate: FaultGate, at_start: Sequence[NewRule]) -> None:
        """``at_start``: the rules that every broker begins with."""
        self._gate = gate
        self._at_start = at_start
        self.begin_anew()

    def begin_anew(self) -> None:
        """Another broker begins: only the rules of the start are in force."""
        self._gate.rules.clear()
        for given in self._at_start:
            self._gate.add(given)

    def calls(self) -> list[Call]:
        """The calls about faults."""
        return [
            Call(CHANGES, "/faults/add", "Let requests go wrong; answers the rule's number.", NewRule, self._add),
            Call(READS, "/faults", "The rules in force, and how often each has applied.", Nothing, self._list),
            Call(CHANGES, "/faults/remove", "Take a rule, or all, out of force.", WhichRule, self._remove),
        ]

    async def _add(self, given: NewRule) -> Answer:
        return {"rule": self._gate.add(given).number}

    async def _list(self, _: Nothing) -> Answer:
        return {"rules": [_shown(rule) for rule in self._gate.rules.values()]}

    async def _remove(self, which: WhichRule) -> Answer:
        if which.rule is None:
            removed = len(self._gate.rules)
            self._gate.rules.clear()
            return {"removed": removed}
        if self._gate.rules.pop(which.rule, None) is None:
            raise BadArguments(f"rule is {which.rule}, and there is no rule of this number in force")
        return {"removed": 1}


def _shown(rule: Rule) -> Answer:
    default = NewRule()
    given = {key: value for key, value in dataclasses.asdict(rule.given).items() if value != getattr(default, key)}
    return {"rule": rule.number, "given": given, "fitted": rule.fitted, "applied": rule.applied}


def read_rules(path: Path) -> list[NewRule]:
    """The rules of a YAML file, a list. Raises `CannotDo` with the reason, also for a rule that is none."""
    import yaml

    try:
        found: Any = yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise CannotDo(f"the rules of {path} cannot be read: {error}") from error
    if not isinstance(found, list):
        raise CannotDo(f"{path} has no list of rules")
    rules = []
    for number, one in enumerate(found, 1):
        try:
            rules.append(Rule(number, read_arguments(NewRule, one)).given)
        except BadArguments as error:
            raise CannotDo(f"rule {number} of {path}: {error}") from error
    return rules
