"""Reads PromQL expressions: the metrics and labels that an expression uses, and the labels of its result."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import promql_parser
from promql_parser import (
    AggModifierType,
    AggregateExpr,
    BinaryExpr,
    Call,
    Expr,
    LabelModifierType,
    MatchOp,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    VectorSelector,
)

OF_EVERY_SCRAPE = frozenset({"job", "instance"})
"""The labels that Prometheus adds to every series."""

_ORDER = {"topk", "bottomk"}
"""Aggregations whose result has the labels of their series."""


class Mistaken(Exception):
    """An expression that cannot give a result; the message says why."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Values of a label that an expression selects."""

    metric: str
    label: str
    values: tuple[str, ...]


class Reading:
    """An expression, checked against these metrics. Raises `Mistaken` with the first mistake."""

    def __init__(self, text: str, metrics: Mapping[str, frozenset[str]]) -> None:
        """``metrics``: the labels of each metric, by name."""
        self._metrics = metrics
        self.names: set[str] = set()
        """The names of all metrics in the expression."""
        self.asked: list[Asked] = []
        try:
            expression = promql_parser.parse(text)
        except ValueError as error:
            raise Mistaken(f"{text}: {error}") from error
        self.labels = self._of(expression) or frozenset()
        """The labels that the result's series may have."""

    def _of(self, expression: Expr) -> frozenset[str] | None:
        """The labels of an expression's series; None if the expression is a number."""
        match expression:
            case NumberLiteral():
                return None
            case ParenExpr():
                return self._of(expression.expr)
            case VectorSelector():
                return self._selected(expression)
            case MatrixSelector():
                return self._selected(expression.vector_selector)
            case Call():
                (*arguments,) = (self._of(argument) for argument in expression.args)
                return next((labels for labels in arguments if labels is not None), None)
            case AggregateExpr():
                return self._aggregated(expression)
            case BinaryExpr():
                return self._matched(expression)
        raise Mistaken(f"{expression.prettify()}: nobody has taught this test what a {type(expression).__name__} gives")

    def _selected(self, selector: VectorSelector) -> frozenset[str]:
        name = selector.name
        if name is None or name not in self._metrics:
            raise Mistaken(f"there is no metric {name}")
        self.names.add(name)
        labels = self._metrics[name] | OF_EVERY_SCRAPE
        for matcher in selector.matchers.matchers:
            if matcher.name not in labels:
                raise Mistaken(f"{name} has no label {matcher.name}: {sorted(labels)}")
            values = matcher.value.split("|") if matcher.op in (MatchOp.Re, MatchOp.NotRe) else [matcher.value]
            plain = tuple(value for value in values if re.fullmatch(r"[\w.-]*", value))
            self.asked.append(Asked(name, matcher.name, plain))
        return labels

    def _aggregated(self, expression: AggregateExpr) -> frozenset[str]:
        labels = self._of(expression.expr)
        if labels is None:
            raise Mistaken(f"{expression.prettify()}: there is nothing to aggregate in a number")
        if str(expression.op) in _ORDER:
            return labels
        if expression.modifier is None:
            return frozenset()
        named = frozenset(expression.modifier.labels)
        if not named <= labels:
            raise Mistaken(
                f"{expression.prettify()}: there are no labels {sorted(named - labels)}, but {sorted(labels)}"
            )
        return named if expression.modifier.type == AggModifierType.By else labels - named

    def _matched(self, expression: BinaryExpr) -> frozenset[str] | None:
        left, right = self._of(expression.lhs), self._of(expression.rhs)
        if left is None or right is None:
            return left if right is None else right
        matching = expression.modifier.matching if expression.modifier else None
        if matching is None:
            on_left, on_right = left, right
        else:
            named = frozenset(matching.labels)
            if not named <= left | right:
                raise Mistaken(f"{expression.prettify()}: neither side has all of {sorted(named)}")
            if matching.type == LabelModifierType.Include:
                on_left, on_right = named & left, named & right
            else:
                on_left, on_right = left - named, right - named
        if on_left != on_right:
            raise Mistaken(
                f"{expression.prettify()}: the sides never match, {sorted(on_left)} here, {sorted(on_right)} there"
            )
        keeps_left = str(expression.op) in ("and", "unless") or matching is None
        return left if keeps_left else on_left


def labels_in(template: str) -> Iterator[str]:
    """The labels that a legend or an annotation names in double braces."""
    for inside in re.findall(r"\{\{(.*?)\}\}", template):
        yield from re.findall(r"\$labels\.(\w+)", inside) if "$" in inside else [inside.strip()]
