"""Which error codes stand in an answer, and how often: one function for each message, compiled on first use.

Kafka counts every code of an answer, NONE too: that of the answer as a whole and those of its topics, partitions and
other parts. What the functions look like for Produce:

    def count(message, codes):
        for m0 in message.responses or ():
            for m1 in m0.partition_responses or ():
                codes[m1.error_code] += 1
"""

from collections.abc import Callable, MutableMapping
from typing import Any, Final

from protocol.schema import ArrayOf, StructOf, layout

ERROR_CODES: Final = ("error_code", "partition_error_code")
"""What the fields of error codes are called."""

_OWN_CODE_UNCOUNTED: Final = frozenset({"MetadataResponse"})
"""Answers of which Kafka counts the codes of their parts only."""

Count = Callable[[Any, MutableMapping[int, int]], None]
"""Adds the codes of an answer to ``codes``, which has 0 for every new one."""

_compiled: dict[type[Any], Count] = {}


def error_counter(cls: type[Any]) -> Count:
    """The function for answers of this class."""
    known = _compiled.get(cls)
    if known is None:
        lines = _lines(cls, "message", 1)
        if cls.__name__ in _OWN_CODE_UNCOUNTED:
            lines = [line for line in lines if line != "    codes[message.error_code] += 1"]
        lines = lines or ["    codes[0] += 1"]
        names: dict[str, Any] = {}
        exec("\n".join(["def count(message, codes):", *lines]), names)  # noqa: S102 - our own text, from declarations
        known = _compiled[cls] = names["count"]
    return known


def _lines(cls: type[Any], name: str, depth: int) -> list[str]:
    """What counts the codes of a struct called ``name``; nothing where it has none."""
    indent = "    " * depth
    lines: list[str] = []
    for field in layout(cls):
        inner = f"m{depth}"
        match field.wire_type:
            case ArrayOf(StructOf(element)):
                if counting := _lines(element, inner, depth + 1):
                    lines += [f"{indent}for {inner} in {name}.{field.name} or ():", *counting]
            case StructOf(struct):
                if counting := _lines(struct, inner, depth + 1):
                    lines += [f"{indent}if ({inner} := {name}.{field.name}) is not None:", *counting]
            case _ if field.name in ERROR_CODES:
                lines.append(f"{indent}codes[{name}.{field.name}] += 1")
    return lines
