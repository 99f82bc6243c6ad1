"""The arguments of a call: dataclasses that are read from JSON, and described as JSON schemas."""

from __future__ import annotations

import dataclasses
import difflib
import types
from collections.abc import Mapping
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_KINDS: Final[Mapping[Any, tuple[str, str]]] = {
    bool: ("boolean", "true or false"),
    int: ("integer", "a whole number"),
    float: ("number", "a number"),
    str: ("string", "a text"),
    types.NoneType: ("null", "null"),
}
_MOST: Final = (1 << 63) - 1
"""The largest number that Kafka's protocol has."""
_MOST_NAMED: Final = 10
"""So many choices are named in a sentence."""
_NO_LIMITS: Final[Mapping[str, Any]] = {}


class BadArguments(Exception):
    """Why the arguments of a call cannot be taken: a sentence that names the argument."""


def argument(help: str, default: Any = dataclasses.MISSING, **rest: Any) -> Any:
    """A field of a call's arguments, with what its reader should know of it. ``least`` and ``most`` are the limits of
    its numbers, from 0 to those of 64 bits by default, and ``choices`` are all texts that it may be."""
    limits: dict[str, Any] = {name: rest.pop(name) for name in ("least", "most", "choices") if name in rest}
    if default is not dataclasses.MISSING:
        rest["default"] = default
    return dataclasses.field(metadata={"help": help, **limits}, **rest)


def read_arguments(kind: type[T], given: object) -> T:
    """Make an object of the dataclass ``kind`` out of a JSON object. Raises `BadArguments`."""
    found: T = _read(kind, given, "")
    return found


def schema_of(kind: Any, limits: Mapping[str, Any] = _NO_LIMITS) -> dict[str, Any]:
    """The JSON schema of a type that `read_arguments` can read."""
    alternatives = _alternatives(kind)
    if len(alternatives) > 1:
        return {"anyOf": [schema_of(one, limits) for one in alternatives]}
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        hints = get_type_hints(kind)
        fields = dataclasses.fields(kind)
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {
                one.name: {**schema_of(hints[one.name], one.metadata), "description": one.metadata.get("help", "")}
                for one in fields
            },
            "additionalProperties": False,
        }
        if required := [one.name for one in fields if _is_required(one)]:
            schema["required"] = required
        return schema
    if kind in _KINDS:
        schema = {"type": _KINDS[kind][0]}
        if kind in (int, float):
            schema |= {"minimum": limits.get("least", 0), "maximum": limits.get("most", _MOST)}
        if kind is str and "choices" in limits:
            schema["enum"] = list(limits["choices"])
        return schema
    if get_origin(kind) is list:
        return {"type": "array", "items": schema_of(get_args(kind)[0], limits)}
    assert get_origin(kind) is dict, f"{kind} has no JSON schema"
    return {"type": "object", "additionalProperties": schema_of(get_args(kind)[1], limits)}


def _read(kind: Any, given: object, where: str, limits: Mapping[str, Any] = _NO_LIMITS) -> Any:
    alternatives = _alternatives(kind)
    for one in alternatives:
        if _is_like(one, given):
            return _read_as(one, given, where, limits)
    expected = " or ".join(_expected(one) for one in alternatives if one is not types.NoneType)
    raise BadArguments(f"{where or 'the body'} is {shown(given)}, expected {expected}")


def _read_as(kind: Any, given: Any, where: str, limits: Mapping[str, Any]) -> Any:
    """``given``, which has the JSON type of ``kind``."""
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        return _read_object(kind, given, where)
    if get_origin(kind) is list:
        return [_read(get_args(kind)[0], one, f"{where}[{index}]", limits) for index, one in enumerate(given)]
    if get_origin(kind) is dict:
        for key in given:
            _check_text(f"a name in {where}", key, _NO_LIMITS)
        return {key: _read(get_args(kind)[1], one, f"{where}.{key}", limits) for key, one in given.items()}
    if kind in (int, float):
        least, most = limits.get("least", 0), limits.get("most", _MOST)
        if not least <= given <= most:
            raise BadArguments(f"{where} is {shown(given)}, expected {least} to {most}")
    if kind is str:
        _check_text(where, given, limits)
    return given


def _check_text(where: str, given: str, limits: Mapping[str, Any]) -> None:
    try:
        given.encode()
    except UnicodeEncodeError:
        raise BadArguments(f"{where} is {shown(given)}, which cannot be written as UTF-8") from None
    choices = limits.get("choices")
    if choices is not None and given not in choices:
        if len(choices) <= _MOST_NAMED:
            raise BadArguments(f"{where} is {shown(given)}, expected one of {', '.join(choices)}")
        near, *_ = (*difflib.get_close_matches(given, choices, 1), choices[0])
        raise BadArguments(f"{where} is {shown(given)}, expected one of {len(choices)} names, such as {near}")


def _read_object(kind: type, given: Mapping[str, object], where: str) -> Any:
    hints = get_type_hints(kind)
    fields = {one.name: one for one in dataclasses.fields(kind)}
    for key in given:
        if key not in fields:
            raise BadArguments(f"{where or 'the body'} has {shown(key)}, expected {_names(fields)}")
    for name, one in fields.items():
        if name not in given and _is_required(one):
            raise BadArguments(f"{where or 'the body'} lacks {name!r}: {one.metadata.get('help', 'it is required')}")
    return kind(
        **{
            key: _read(hints[key], value, f"{where}.{key}" if where else key, fields[key].metadata)
            for key, value in given.items()
        }
    )


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """The types of a union; a type alone otherwise."""
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _is_like(kind: Any, given: object) -> bool:
    """Whether ``given`` has the JSON type of ``kind``."""
    if kind in _KINDS:
        # JSON's true and false are no numbers, though Python's are.
        return isinstance(given, (int, float) if kind is float else kind) and (kind is bool) == isinstance(given, bool)
    return isinstance(given, list if get_origin(kind) is list else dict)


def _expected(kind: Any) -> str:
    if kind in _KINDS:
        return _KINDS[kind][1]
    return "a list" if get_origin(kind) is list else "an object"


def _names(fields: Mapping[str, object]) -> str:
    return f"only {', '.join(fields)}" if fields else "no argument"


def shown(given: object) -> str:
    """A value that was given, as a sentence may have it."""
    text = repr(given)
    return text if len(text) <= 60 else text[:60] + "…"
