"""Every message and stored record that is declared, and what hypothesis needs to make some."""

import importlib
import pkgutil
from dataclasses import MISSING
from typing import Any

from hypothesis import strategies as st

import protocol.messages
import protocol.records
from protocol.schema import ArrayOf, Fixed, MessageInfo, Sized, StructOf, WireType, describe, layout


def _declared_in(package: Any) -> list[type[Any]]:
    found = []
    for module_info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        module = importlib.import_module(module_info.name)
        found += [
            thing
            for thing in vars(module).values()
            if isinstance(thing, type) and hasattr(thing, "__message_info__") and thing.__module__ == module.__name__
        ]
    return found


def _versions(classes: list[type[Any]]) -> list[tuple[type[Any], int]]:
    return [(cls, version) for cls in classes for version in _range(describe(cls))]


def _range(info: MessageInfo) -> range:
    return range(info.versions[0], info.versions[1] + 1)


MESSAGES = _declared_in(protocol.messages)
STORED = _declared_in(protocol.records)
EVERY_VERSION = _versions(MESSAGES + STORED)
EVERY_MESSAGE_VERSION = _versions(MESSAGES)


def label(thing: Any) -> str:
    return thing.__qualname__ if isinstance(thing, type) else f"v{thing}"


_INTEGERS = {"b": 8, "h": 16, "i": 32, "q": 64}
_UNSIGNED = {"H": 16, "I": 32}


def examples(cls: type[Any], version: int) -> st.SearchStrategy[Any]:
    """Messages whose fields differ from their defaults only where ``version`` has them."""
    info = describe(cls)
    return _structs(cls, version, info.is_flexible(version))


def _structs(cls: type[Any], version: int, flexible: bool) -> st.SearchStrategy[Any]:
    given = {}
    for field in layout(cls):
        if not field.is_in(version) or (field.tag is not None and not flexible):
            continue
        values = _values(field.wire_type, version, flexible)
        if field.is_nullable(version):
            values = st.none() | values
        if field.default is not MISSING:
            values = st.just(field.default) | values
        given[field.name] = values
    return st.builds(cls, **given)


def _values(wire_type: WireType, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    if isinstance(wire_type, StructOf):
        return _structs(wire_type.cls, version, flexible)
    if isinstance(wire_type, ArrayOf):
        return st.lists(_values(wire_type.element, version, flexible), max_size=3)
    if wire_type is Sized.STRING:
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    if wire_type is Sized.BYTES:
        return st.binary(max_size=8)
    if wire_type is Sized.RECORDS:
        return st.binary(max_size=16).map(memoryview)
    assert isinstance(wire_type, Fixed)
    if wire_type.format in _INTEGERS:
        most = 1 << _INTEGERS[wire_type.format] - 1
        return st.integers(-most, most - 1)
    if wire_type.format in _UNSIGNED:
        return st.integers(0, (1 << _UNSIGNED[wire_type.format]) - 1)
    if wire_type.format == "?":
        return st.booleans()
    if wire_type.format == "d":
        return st.floats(allow_nan=False)
    assert wire_type.format == "16s"
    return st.binary(min_size=16, max_size=16)
