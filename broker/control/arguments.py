"""The arguments of a call: dataclasses that are read from JSON, and described as JSON schemas."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_KINDS: Final[Mapping[type, tuple[str, str]]] = {
    bool: ("boolean", "true or false"),
    int: ("integer", "a whole number"),
    float: ("number", "a number"),
    str: ("string", "a text"),
}


class BadArguments(Exception):
    """Why the arguments of a call cannot be taken, in one sentence."""


def read_arguments(kind: type[T], given: object) -> T:
    """Make an object of the dataclass ``kind`` out of a JSON object. Raises `BadArguments`."""
    found: T = _read(kind, given, "the body")
    return found


def schema_of(kind: Any) -> dict[str, Any]:
    """The JSON schema of a type that `read_arguments` can read."""
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        hints = get_type_hints(kind)
        fields = dataclasses.fields(kind)
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {
                one.name: {**schema_of(hints[one.name]), "description": one.metadata.get("help", "")} for one in fields
            },
            "additionalProperties": False,
        }
        if required := [one.name for one in fields if _is_required(one)]:
            schema["required"] = required
        return schema
    if (bare := _without_none(kind)) is not kind:
        found = schema_of(bare)
        return {**found, "type": [found["type"], "null"]}
    if kind in _KINDS:
        return {"type": _KINDS[kind][0]}
    if get_origin(kind) is list:
        return {"type": "array", "items": schema_of(get_args(kind)[0])}
    assert get_origin(kind) is dict, f"{kind} has no JSON schema"
    return {"type": "object", "additionalProperties": schema_of(get_args(kind)[1])}


def _read(kind: Any, given: object, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        return _read_object(kind, given, where)
    if (bare := _without_none(kind)) is not kind:
        return None if given is None else _read(bare, given, where)
    if kind in _KINDS:
        # JSON's true is no number, though Python's is.
        if not isinstance(given, (int, float) if kind is float else kind) or (kind is not bool and given is True):
            raise BadArguments(f"{where} is {_shown(given)}, expected {_KINDS[kind][1]}")
        return given
    if get_origin(kind) is list:
        if not isinstance(given, list):
            raise BadArguments(f"{where} is {_shown(given)}, expected a list")
        return [_read(get_args(kind)[0], one, f"{where}[{index}]") for index, one in enumerate(given)]
    if not isinstance(given, dict):
        raise BadArguments(f"{where} is {_shown(given)}, expected an object")
    return {key: _read(get_args(kind)[1], one, f"{where}.{key}") for key, one in given.items()}


def _read_object(kind: type, given: object, where: str) -> Any:
    if not isinstance(given, dict):
        raise BadArguments(f"{where} is {_shown(given)}, expected an object")
    hints = get_type_hints(kind)
    fields = {one.name: one for one in dataclasses.fields(kind)}
    for key in given:
        if key not in fields:
            raise BadArguments(f"{where} has {key!r}, expected {_names(fields)}")
    for name, one in fields.items():
        if name not in given and _is_required(one):
            raise BadArguments(f"{where} lacks {name!r}: {one.metadata.get('help', 'it is required')}")
    return kind(**{key: _read(hints[key], value, f"{where}.{key}") for key, value in given.items()})


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _without_none(kind: Any) -> Any:
    """``kind`` of ``kind | None``; any other type as it is."""
    if get_origin(kind) in (Union, types.UnionType):
        (bare,) = (one for one in get_args(kind) if one is not type(None))
        return bare
    return kind


def _names(fields: Mapping[str, object]) -> str:
    return f"only {', '.join(fields)}" if fields else "no argument"


def _shown(given: object) -> str:
    text = repr(given)
    return text if len(text) <= 60 else text[:60] + "…"
