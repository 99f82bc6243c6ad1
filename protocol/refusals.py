"""The response in which everything carries one error code: one function for each API, compiled on first use.

What it puts where is read off the declarations (`protocol.schema.field`): the code and the sentence into the fields of
errors, into an array that mirrors the request's one element for each of its elements, and into a field without a
default what the request has under the same name. All else keeps its default, and an array without one is empty. What
the function of OffsetCommit looks like:

    def refuse(request, version, code, message):
        return Response(topics=[
            Topic(name=m0.name, topic_id=m0.topic_id, partitions=[
                Partition(partition_index=m1.partition_index, error_code=code) for m1 in m0.partitions
            ]) for m0 in request.topics
        ])
"""

from collections.abc import Callable
from dataclasses import MISSING
from typing import Any, Final

from protocol.error_counts import ERROR_CODES
from protocol.errors import ErrorCode
from protocol.schema import (
    NEWEST,
    ArrayOf,
    FieldLayout,
    Sized,
    StructOf,
    WireType,
    describe,
    layout,
    response_class,
)

ERROR_MESSAGE: Final = "error_message"
ITSELF: Final = "."
"""Mirrored instead of an array of the request: one element answers the request as a whole."""

Refuse = Callable[[Any, int, ErrorCode, str | None], Any]
"""Makes the response to a request in a version, in which everything carries the code and the sentence; None where the
request expects no response."""

_compiled: dict[type[Any], Refuse] = {}


def refusal(cls: type[Any]) -> Refuse:
    """The function for requests of this class.

    Raises:
        TypeError: the declaration of the response does not say what stands in one of its fields.
    """
    known = _compiled.get(cls)
    if known is None:
        known = _compiled[cls] = _Writer().function(cls)
    return known


class _Element:
    """What a struct of the response is made from: the request, or an element of one of its arrays."""

    def __init__(self, name: str, wire_type: WireType, since: int, depth: int) -> None:
        self.name = name
        """Of the variable that holds it."""
        self.is_struct = isinstance(wire_type, StructOf)
        """Or it is the value itself."""
        self.fields = {field.name: field for field in layout(wire_type.cls)} if isinstance(wire_type, StructOf) else {}
        self.since = since
        """The first version that has it."""
        self.depth = depth


class _Writer:
    """Writes the text of one function."""

    def __init__(self) -> None:
        self._names: dict[str, Any] = {}

    def function(self, cls: type[Any]) -> Refuse:
        request = _Element("request", StructOf(cls), 0, 0)
        lines = [
            f"    if request.{field.name} == {self._constant(field.unanswered)}: return None"
            for field in layout(cls)
            if field.unanswered is not MISSING
        ]
        lines.append(f"    return {self._struct(response_class(describe(cls).key), request)}")
        exec("\n".join(["def refuse(request, version, code, message):", *lines]), self._names)  # noqa: S102 - our own text
        refuse: Refuse = self._names["refuse"]
        return refuse

    def _struct(self, cls: type[Any], element: _Element) -> str:
        """The expression that makes a struct of the response."""
        values = {field.name: self._value(cls, field, element) for field in layout(cls)}
        given = ", ".join(f"{name}={value}" for name, value in values.items() if value is not None)
        return f"{self._constant(cls)}({given})"

    def _value(self, cls: type[Any], field: FieldLayout, element: _Element) -> str | None:
        """The expression of a field's value; None where it keeps its default."""
        if field.refused is not MISSING:
            return self._constant(field.refused)
        if field.name in ERROR_CODES:
            return "code"
        if field.name == ERROR_MESSAGE:
            if field.nullable_since != 0:
                return "message or ''"
            return (
                "message or None"
                if field.told is None
                else f"message if code in {self._constant(field.told)} else None"
            )
        if field.mirrors and isinstance(field.wire_type, ArrayOf):
            return self._array(field, field.wire_type.element, element)
        if field.mirrors and element.is_struct:
            return self._repeated(field, element, *field.mirrors)
        if field.has_default:
            return None
        if isinstance(field.wire_type, ArrayOf):
            return "[]"
        if not element.is_struct:
            return element.name
        if field.name in element.fields:
            return self._repeated(field, element, field.name)
        raise TypeError(f"{cls.__qualname__}.{field.name} has no default, and the request has nothing of that name")

    def _repeated(self, field: FieldLayout, element: _Element, name: str) -> str:
        asked, text = element.fields[name], f"{element.name}.{name}"
        if asked.nullable_since is None or field.wire_type is not Sized.STRING:
            return text
        may_be_null_since = max(asked.nullable_since, asked.since, element.since)
        can_be_null = field.nullable_since is not None and field.nullable_since <= may_be_null_since
        return text if can_be_null else f"{text} or ''"

    def _array(self, field: FieldLayout, made: WireType, element: _Element) -> str:
        """The elements that answer those of the request's arrays, array after array."""
        parts = [
            f"[{self._struct(made.cls, element)}]"
            if path == ITSELF and isinstance(made, StructOf)
            else self._elements(path.split("."), made, element)
            for path in field.mirrors
        ]
        text = " + ".join(parts)
        return text if field.mirrored_until == NEWEST else f"({text} if version <= {field.mirrored_until} else [])"

    def _elements(self, path: list[str], made: WireType, element: _Element) -> str:
        loops = ""
        for name in path:
            array = element.fields[name]
            assert isinstance(array.wire_type, ArrayOf), f"{name} is mirrored by an array and is none itself"
            values = f"{element.name}.{name}" + (" or ()" if array.nullable_since is not None else "")
            since = max(element.since, array.since)
            element = _Element(f"m{element.depth}", array.wire_type.element, since, element.depth + 1)
            loops += f" for {element.name} in {values}"
        value = self._struct(made.cls, element) if isinstance(made, StructOf) else element.name
        return f"[{value}{loops}]"

    def _constant(self, value: Any) -> str:
        if value == []:
            return "[]"  # a new one each time
        if value is None or isinstance(value, int | str | bytes):
            return repr(value)
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name
