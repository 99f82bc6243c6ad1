"""Makes answers of two brokers comparable: what differs by nature gets a name, by the rules of the table."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.parity.comparison import matches
from tests.parity.rules import RULES, Moment, Names, Rule


class Normaliser:
    """Applies the rules to one script's answers, and counts how often each had something to do."""

    def __init__(self) -> None:
        self.used: Counter[Rule] = Counter()
        self.names = Names()

    def name_id(self, value: bytes, owner: str) -> None:
        """Say whose id this is."""
        self.names.bind(f"id:{value.hex()}", f"id of {owner}")

    def name_producer(self, producer_id: int, owner: str) -> None:
        """Say whose producer id this is."""
        self.names.bind(("producer", producer_id), f"producer of {owner}")

    def normalise(self, outcome: Any, moment: Moment) -> Any:
        """An outcome with names in the place of what differs by nature."""
        for phase in (True, False):  # lists are put in order before anything in them is named
            rules = [
                rule
                for rule in RULES
                if rule.orders is phase and matches(moment.script, rule.script) and matches(moment.api, rule.api)
            ]
            outcome = self._walk(outcome, "", moment, rules)
        return outcome

    def _walk(self, value: Any, path: str, moment: Moment, rules: list[Rule]) -> Any:
        for rule in rules:
            if matches(path, rule.path):
                replaced = rule.replace(value, moment, self.names)
                if rule.orders:
                    self.used[rule] += 1  # Kafka's order is by chance, though ours may be sorted already
                if replaced is not value and replaced != value:
                    self.used[rule] += 1
                    value = replaced
        if isinstance(value, dict):
            self.names.bind_owned(value)
            return {
                key: self._walk(item, f"{path}.{key}" if path else key, moment, rules) for key, item in value.items()
            }
        if isinstance(value, list):
            return [self._walk(item, f"{path}[]", moment, rules) for item in value]
        return value
