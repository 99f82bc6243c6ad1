"""The arguments of a call: what JSON is taken, what is refused with which sentence, and how it is described."""

from __future__ import annotations

import dataclasses

import pytest

from broker.control.arguments import BadArguments, read_arguments, schema_of
from broker.control.calls import argument


@dataclasses.dataclass(frozen=True)
class Part:
    name: str = argument("what it is called")


@dataclasses.dataclass(frozen=True)
class Whole:
    count: int = argument("how many")
    is_open: bool = argument("whether it is open", False)
    share: float = argument("a share", 0.5)
    group: str | None = argument("a group", None)
    parts: list[Part] = argument("its parts", default_factory=list)
    offsets: dict[str, int] | None = argument("offsets by place", None)


def test_an_object_is_read_with_its_defaults() -> None:
    given = {"count": 3, "parts": [{"name": "a"}], "offsets": {"orders-0": 5}, "share": 1}
    assert read_arguments(Whole, given) == Whole(3, parts=[Part("a")], offsets={"orders-0": 5}, share=1)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], "the body is [], expected an object"),
        ({}, "the body lacks 'count': how many"),
        ({"count": "3"}, "the body.count is '3', expected a whole number"),
        ({"count": True}, "the body.count is True, expected a whole number"),
        ({"count": 3.5}, "the body.count is 3.5, expected a whole number"),
        ({"count": 3, "is_open": 1}, "the body.is_open is 1, expected true or false"),
        ({"count": 3, "parts": {}}, "the body.parts is {}, expected a list"),
        ({"count": 3, "parts": [{"name": None}]}, "the body.parts[0].name is None, expected a text"),
        ({"count": 3, "parts": [{"nome": "a"}]}, "the body.parts[0] has 'nome', expected only name"),
        ({"count": 3, "offsets": {"a": []}}, "the body.offsets.a is [], expected a whole number"),
        ({"count": "x" * 100}, f"the body.count is '{'x' * 59}…, expected a whole number"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(given: object, sentence: str) -> None:
    with pytest.raises(BadArguments) as refused:
        read_arguments(Whole, given)
    assert str(refused.value) == sentence


def test_a_schema_describes_every_field() -> None:
    schema = schema_of(Whole)
    assert schema["required"] == ["count"]
    assert schema["properties"]["count"] == {"type": "integer", "description": "how many"}
    assert schema["properties"]["group"]["type"] == ["string", "null"]
    assert schema["properties"]["parts"]["items"]["required"] == ["name"]
    assert schema["properties"]["offsets"]["additionalProperties"] == {"type": "integer"}
