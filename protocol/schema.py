"""How messages are declared: the types of fields, the decorators, and the layout that is read off a declaration.

A message is used like any dataclass, keyword-only and with slots; one class stands for all its versions::

    @api_message(ApiKey.METADATA)
    class MetadataRequest:
        topics: Array[Topic] | None = field(nullable_since=1)
        allow_auto_topic_creation: Bool = field(since=4, default=True)

        @struct
        class Topic:
            topic_id: Uuid = field(since=10, default=NO_UUID)
            name: String | None = field(nullable_since=10)

Fields stand in the order of the wire. Their versions are written on them and nowhere else. A field that some
version lacks needs a default, which is what it holds after decoding that version. Annotations are read on first
use, so a struct may stand below the field that holds it. The versions of an API stand in `protocol.api_keys`.
"""

import dataclasses
import struct as binary
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from enum import Enum
from functools import partial
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)

from protocol.api_keys import ApiKey, Versions
from protocol.errors import ErrorCode
from protocol.primitives import Chunk

T = TypeVar("T")

NEWEST: Final = 0x7FFF
"""Versions are int16 on the wire: no version is newer."""


class Fixed(NamedTuple):
    """A type of fixed size, by its letter in `struct`."""

    format: str

    @property
    def size(self) -> int:
        """In bytes."""
        return binary.calcsize(">" + self.format)


class Sized(Enum):
    """A type that carries its length."""

    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"


class ArrayOf(NamedTuple):
    """An array; its elements are never null."""

    element: "WireType"


class StructOf(NamedTuple):
    """Another declared class in its place."""

    cls: type[Any]


WireType: TypeAlias = Fixed | Sized | ArrayOf | StructOf

Int8: TypeAlias = Annotated[int, Fixed("b")]
Int16: TypeAlias = Annotated[int, Fixed("h")]
Int32: TypeAlias = Annotated[int, Fixed("i")]
Int64: TypeAlias = Annotated[int, Fixed("q")]
UInt16: TypeAlias = Annotated[int, Fixed("H")]
UInt32: TypeAlias = Annotated[int, Fixed("I")]
Float64: TypeAlias = Annotated[float, Fixed("d")]
Bool: TypeAlias = Annotated[bool, Fixed("?")]
Uuid: TypeAlias = Annotated[bytes, Fixed("16s")]
"""Sixteen raw bytes: a `uuid.UUID` costs more to make than the rest of a struct."""
String: TypeAlias = Annotated[str, Sized.STRING]
Bytes: TypeAlias = Annotated[bytes, Sized.BYTES]
Records: TypeAlias = Annotated[Chunk, Sized.RECORDS]
"""Record batches, not looked into. Decoded as a view of the frame without a copy; encoded from any chunk, which
leaves the encoder untouched."""
ReceivedRecords: TypeAlias = Annotated[memoryview, Sized.RECORDS]
"""`Records` of a message that the broker only reads; the encoder takes any chunk here too."""
Array: TypeAlias = list[T]

NO_UUID: Final = bytes(16)
"""What stands for "no id" in a field that cannot be null."""


def field(
    *,
    since: int = 0,
    until: int = NEWEST,
    tag: int | None = None,
    nullable_since: int | None = None,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    mirrors: str | tuple[str, ...] | None = None,
    mirrored_until: int = NEWEST,
    refused: Any = MISSING,
    told: tuple[ErrorCode, ...] | None = None,
    unanswered: Any = MISSING,
) -> Any:
    """A field that some versions lack, or that stands among the tagged fields, has a default, or is said more of.

    ``since`` and ``until`` are the first and last version that have it, ``nullable_since`` the first version in which
    null is allowed (with ``| None`` in the annotation and without this: every version).

    The others say what stands in the response that refuses a request (`protocol.refusals`). ``mirrors`` names the
    field of the request that the field repeats, up to version ``mirrored_until``; of an array that is the array whose
    elements it answers, one by one: several names are several arrays, and ``"dirs.topics"`` is the topics of all dirs.
    ``refused`` is the value of a field that repeats nothing. ``told`` are the codes whose sentence stands in an error
    message; None: every code's. A request whose field has the value ``unanswered`` expects no response.
    """
    metadata = {
        "since": since,
        "until": until,
        "tag": tag,
        "nullable_since": nullable_since,
        "mirrors": (mirrors,) if isinstance(mirrors, str) else mirrors or (),
        "mirrored_until": mirrored_until,
        "refused": refused,
        "told": told,
        "unanswered": unanswered,
    }
    return dataclasses.field(default=default, default_factory=default_factory, metadata=metadata)


class MessageInfo(NamedTuple):
    """What a message is, beside its fields."""

    name: str
    key: int
    versions: Versions
    """Those spoken here."""
    flexible_since: int | None
    """The first version with compact lengths and tagged fields; None where no version has them."""

    @property
    def is_request(self) -> bool:
        return self.name.endswith("Request")

    def is_flexible(self, version: int) -> bool:
        return self.flexible_since is not None and version >= self.flexible_since


_api_messages: dict[tuple[int, bool], type[Any]] = {}
"""By API key: the request (True) and the response (False)."""


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def api_message(key: ApiKey) -> Callable[[type[T]], type[T]]:
    """Declare the request or the response of an API."""
    declare = message(key=key, versions=key.versions, flexible_since=key.flexible_since)

    def declare_api(cls: type[T]) -> type[T]:
        declared = declare(cls)
        _api_messages[key, describe(declared).is_request] = declared
        return declared

    return declare_api


def request_class(key: int) -> type[Any]:
    """The request of an API. Raises `KeyError` until the module of ``protocol.messages`` with it is imported."""
    return _api_messages[key, True]


def response_class(key: int) -> type[Any]:
    """The response of an API. Raises `KeyError` until the module of ``protocol.messages`` with it is imported."""
    return _api_messages[key, False]


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def message(*, key: int, versions: Versions, flexible_since: int | None) -> Callable[[type[T]], type[T]]:
    """Declare what is stored in a record, by the type of the record."""

    def declare(cls: type[T]) -> type[T]:
        declared = _declare(cls, frozen=False)
        info = MessageInfo(name=cls.__name__, key=key, versions=versions, flexible_since=flexible_since)
        declared.__message_info__ = info  # type: ignore[attr-defined]
        return declared

    return declare


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def struct(cls: type[T]) -> type[T]:
    """Declare what stands inside a message."""
    return _declare(cls, frozen=False)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def frozen_struct(cls: type[T]) -> type[T]:
    """Declare a struct that can be a default: all messages share the one object."""
    return _declare(cls, frozen=True)


_OF_EVERY_CLASS: Final = {"__dict__", "__weakref__"}

_declarations: dict[type[Any], type[Any]] = {}
"""What each struct was declared by."""

_known_fields: "dict[type[Any], tuple[dataclasses.Field[Any], ...]]" = {}


def _declare(cls: type[T], *, frozen: bool) -> type[T]:
    """Make what behaves like a keyword-only dataclass with slots, of which everything is made on first use.

    There are more than two hundred of them when the daemon starts, most of which are never used, and it has 150 ms for
    everything (bench: imports, start).
    """
    names = cls.__annotations__
    body = {name: value for name, value in vars(cls).items() if name not in names and name not in _OF_EVERY_CLASS}
    body.update(
        __slots__=tuple(names),
        __doc__=cls.__doc__ or f"{cls.__qualname__}, as it is on the wire.",
        __dataclass_fields__=_FieldsOnFirstUse(),
        __init__=_init_on_first_use,
        __repr__=_represent,
        __eq__=_equals,
        __hash__=_hash if frozen else None,
    )
    if frozen:
        body.update(__setattr__=_refuse_change, __delattr__=_refuse_change)
    made: Any = type(cls.__name__, cls.__bases__, body)
    made.__qualname__ = cls.__qualname__
    _declarations[made] = cls
    declared: type[T] = made
    return declared


def _fields(cls: type[Any]) -> "tuple[dataclasses.Field[Any], ...]":
    """The fields of a struct as they were declared."""
    known = _known_fields.get(cls)
    if known is None:
        declaration = _declarations[cls]
        found = []
        for name in cls.__slots__:
            value = vars(declaration).get(name, MISSING)
            declared = value if isinstance(value, dataclasses.Field) else dataclasses.field(default=value)
            declared.name = name
            found.append(declared)
        known = _known_fields[cls] = tuple(found)
    return known


class _FieldsOnFirstUse:
    """Lets `dataclasses.replace`, `fields` and `asdict` take a struct for a dataclass."""

    def __get__(self, instance: object, owner: type[Any]) -> "dict[str, dataclasses.Field[Any]]":
        _fields(owner)  # as they were declared: `dataclass` takes them out of their class
        declaration = _declarations[owner]
        declaration.__doc__ = owner.__doc__  # without one, `dataclass` writes out the signature
        declared: Any = dataclass(kw_only=True, init=False, repr=False, eq=False)(declaration)
        fields: dict[str, dataclasses.Field[Any]] = declared.__dataclass_fields__
        owner.__dataclass_fields__ = fields
        return fields


def is_frozen(cls: type[Any]) -> bool:
    """Whether a struct cannot be changed."""
    return cls.__setattr__ is _refuse_change


def _refuse_change(self: Any, name: str, *_: object) -> None:
    raise dataclasses.FrozenInstanceError(f"{name} of {type(self).__qualname__} cannot be changed")


def _init_on_first_use(self: Any, **given: Any) -> None:
    cls = type(self)
    parameters, lines = [], []
    names: dict[str, Any] = {"MISSING": MISSING, "set_frozen": object.__setattr__}
    for declared in _fields(cls):
        name = value = declared.name
        if declared.default is not MISSING:
            names[f"default_{name}"] = declared.default
            parameters.append(f"{name}=default_{name}")
        elif declared.default_factory is not MISSING:
            names[f"make_{name}"] = declared.default_factory
            parameters.append(f"{name}=MISSING")
            value = f"make_{name}() if {name} is MISSING else {name}"
        else:
            parameters.append(name)
        lines.append(f"    set_frozen(self, {name!r}, {value})" if is_frozen(cls) else f"    self.{name} = {value}")
    text = f"def __init__({', '.join(['self', '*', *parameters] if parameters else ['self'])}):\n"
    exec(text + "\n".join(lines or ["    pass"]), names)  # noqa: S102 - our own text, from our own declarations
    made = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = made
    made(self, **given)


def _represent(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"


def _equals(self: Any, other: Any) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)


def _hash(self: Any) -> int:
    return hash(tuple(getattr(self, name) for name in self.__slots__))


class FieldLayout(NamedTuple):
    """Where and how a field stands on the wire."""

    name: str
    wire_type: WireType
    since: int
    until: int
    tag: int | None
    nullable_since: int | None
    """None: never null."""
    default: Any
    """`MISSING` where every version has the field and the maker must give it, or where there is a factory."""
    default_factory: Any
    mirrors: tuple[str, ...] = ()
    mirrored_until: int = NEWEST
    refused: Any = MISSING
    told: tuple[ErrorCode, ...] | None = None
    unanswered: Any = MISSING

    @property
    def has_default(self) -> bool:
        return self.default is not MISSING or self.default_factory is not MISSING

    def is_in(self, version: int) -> bool:
        return self.since <= version <= self.until

    def is_nullable(self, version: int) -> bool:
        return self.nullable_since is not None and version >= self.nullable_since

    def make_default(self) -> Any:
        return self.default if self.default_factory is MISSING else self.default_factory()


def describe(cls: type[Any]) -> MessageInfo:
    """Return what a message is beside its fields; raises `TypeError` for any other class."""
    info = getattr(cls, "__message_info__", None)
    if not isinstance(info, MessageInfo):
        raise TypeError(f"{cls.__qualname__} is not declared as a message")
    return info


_layouts: dict[type[Any], tuple[FieldLayout, ...]] = {}


def layout(cls: type[Any]) -> tuple[FieldLayout, ...]:
    """Return the fields of a message or struct in the order of the wire."""
    known = _layouts.get(cls)
    if known is None:
        known = _layouts[cls] = tuple(map(partial(_field_layout, cls), _fields(cls), _annotations(cls)))
    return known


def _annotations(cls: type[Any]) -> list[Any]:
    """The annotations of a struct's fields.

    They are read in one piece: `get_type_hints` compiles them one by one, and a start reads dozens (bench: start).
    """
    text = ", ".join(cls.__annotations__.values())
    found: list[Any] = eval(f"[{text}]", vars(sys.modules[cls.__module__]), dict(vars(cls)))  # noqa: S307
    return found


_NOTHING_SAID: Final[Mapping[str, Any]] = field().metadata
"""Of a field that is declared without `field`."""


def _field_layout(cls: type[Any], declared: "dataclasses.Field[Any]", hint: Any) -> FieldLayout:
    metadata: Any = declared.metadata or _NOTHING_SAID
    nullable_since = metadata["nullable_since"]
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (alternative for alternative in get_args(hint) if alternative is not type(None))
        nullable_since = nullable_since or 0
    elif nullable_since is not None:
        raise TypeError(f"{cls.__qualname__}.{declared.name} has nullable_since, but its type has no `| None`")
    found = FieldLayout(
        name=declared.name,
        wire_type=_wire_type(hint, f"{cls.__qualname__}.{declared.name}"),
        since=metadata["since"],
        until=metadata["until"],
        tag=metadata["tag"],
        nullable_since=nullable_since,
        default=declared.default,
        default_factory=declared.default_factory,
        mirrors=metadata["mirrors"],
        mirrored_until=metadata["mirrored_until"],
        refused=metadata["refused"],
        told=metadata["told"],
        unanswered=metadata["unanswered"],
    )
    may_be_absent = found.since > 0 or found.until < NEWEST or found.tag is not None
    if may_be_absent and not found.has_default:
        raise TypeError(f"{cls.__qualname__}.{declared.name} is not in every version and has no default")
    return found


def _wire_type(hint: Any, what: str) -> WireType:
    if get_origin(hint) is Annotated:
        marker = get_args(hint)[1]
        if isinstance(marker, Fixed | Sized):
            return marker
    elif get_origin(hint) is list:
        return ArrayOf(_wire_type(get_args(hint)[0], what))
    elif hint in _declarations:
        return StructOf(hint)
    raise TypeError(f"{what} is declared as {hint!r}, which has no form on the wire")
