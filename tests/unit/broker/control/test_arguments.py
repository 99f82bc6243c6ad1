"""The arguments of a call: what JSON is taken, what is refused with which sentence, and how it is described."""

from __future__ import annotations

import dataclasses

import pytest

from broker.control.arguments import BadArguments, argument, read_arguments, schema_of


@dataclasses.dataclass(frozen=True)
class Part:
    name: str = argument("what it is called")


@dataclasses.dataclass(frozen=True)
class Whole:
    count: int = argument("how many")
    is_open: bool = argument("whether it is open", False)
    share: float = argument("a share", 0.5, most=1)
    group: str | None = argument("a group", None)
    state: str | None = argument("a state", None, choices=("Empty", "Stable"))
    api: str | None = argument("an API", None, choices=("Produce", "Fetch", *map(str, range(18))))
    labels: dict[str, str] | list[Part] | None = argument("labels", None)
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
        ({"count": "3"}, "count is '3', expected a whole number"),
        ({"count": True}, "count is True, expected a whole number"),
        ({"count": False}, "count is False, expected a whole number"),
        ({"count": -1}, "count is -1, expected 0 to 9223372036854775807"),
        ({"count": 1 << 63}, "count is 9223372036854775808, expected 0 to 9223372036854775807"),
        ({"count": 3, "share": 1.5}, "share is 1.5, expected 0 to 1"),
        ({"count": 3, "share": float("nan")}, "share is nan, expected 0 to 1"),
        ({"count": 3, "group": "\ud800"}, "group is '\\ud800', which cannot be written as UTF-8"),
        ({"count": 3, "state": "stable"}, "state is 'stable', expected one of Empty, Stable"),
        ({"count": 3, "api": "Fecth"}, "api is 'Fecth', expected one of 20 names, such as Fetch"),
        ({"count": 3, "api": ""}, "api is '', expected one of 20 names, such as Produce"),
        ({"count": 3, "labels": "x"}, "labels is 'x', expected an object or a list"),
        ({"count": 3, "labels": {"\ud800": "x"}}, "a name in labels is '\\ud800', which cannot be written as UTF-8"),
        ({"count": 3.5}, "count is 3.5, expected a whole number"),
        ({"count": 3, "is_open": 1}, "is_open is 1, expected true or false"),
        ({"count": 3, "parts": {}}, "parts is {}, expected a list"),
        ({"count": 3, "parts": [{"name": None}]}, "parts[0].name is None, expected a text"),
        ({"count": 3, "parts": [{"nome": "a"}]}, "parts[0] has 'nome', expected only name"),
        ({"count": 3, "offsets": {"a": []}}, "offsets.a is [], expected a whole number"),
        ({"count": "x" * 100}, f"count is '{'x' * 59}…, expected a whole number"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(given: object, sentence: str) -> None:
    with pytest.raises(BadArguments) as refused:
        read_arguments(Whole, given)
    assert str(refused.value) == sentence


def test_a_schema_describes_every_field() -> None:
    schema = schema_of(Whole)
    assert schema["required"] == ["count"]
    assert schema["properties"]["count"] == {
        "type": "integer", "minimum": 0, "maximum": (1 << 63) - 1, "description": "how many",
    }  # fmt: skip
    assert schema["properties"]["group"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert schema["properties"]["state"]["anyOf"][0] == {"type": "string", "enum": ["Empty", "Stable"]}
    assert schema["properties"]["parts"]["items"]["required"] == ["name"]
    assert schema["properties"]["offsets"]["anyOf"][0]["additionalProperties"]["type"] == "integer"
