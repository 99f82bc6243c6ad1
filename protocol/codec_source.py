"""The source of the codecs, made from a message's declaration.

It is ordinary Python: `codec` registers it with `linecache`, so a traceback shows its lines and a debugger steps
through it; `codec.source` returns it. Neighbouring fields of fixed
size, and the lengths and tag counts among them, become one `struct` call. Decoding makes objects with
`object.__new__`, half the price of the constructor: the source assigns every slot, and a field that the version lacks
gets its default.
"""

import struct as binary
from abc import ABC, abstractmethod
from dataclasses import MISSING
from functools import lru_cache
from typing import Any, Final

from protocol.primitives import (
    MOST_ELEMENTS,
    Buffer,
    Malformed,
    Unencodable,
    encode_uvarint,
    read_uvarint,
    skip_counted_fields,
    too_many_elements,
)
from protocol.schema import ArrayOf, FieldLayout, Fixed, Sized, StructOf, WireType, describe, is_frozen, layout

LONGEST_STRING: Final = 0x7FFF
"""In bytes of UTF-8; Kafka refuses longer ones even where the length would fit."""


@lru_cache(256)  # the peer chooses the counts, so there is a bound
def _many(format: str, count: int) -> binary.Struct:
    return binary.Struct(">" + format * count if len(format) > 1 else f">{count}{format}")


def _fixed_array(format: str, count: int, buffer: Buffer, position: int) -> list[Any]:
    return list(_many(format, count).unpack_from(buffer, position))


def _refused_length(what: str, length: int, left: int) -> Malformed:
    if length == -1:
        return Malformed(f"{what} is null, which this version does not allow")
    return Malformed(f"{what} has length {length} with {left} bytes left")


def _refused_tag(tag: int, size: int, read: int) -> Malformed:
    return Malformed(f"the value of tag {tag} is {read} bytes long, its size says {size}")


def _long_string(what: str, length: int) -> bytes:
    if length > LONGEST_STRING:
        raise Unencodable(f"{what} is {length} bytes long, the most is {LONGEST_STRING}")
    return encode_uvarint(length + 1)


def _smallest(wire_type: WireType, version: int, flexible: bool) -> int:
    """How few bytes a value can take: what an array's count is held against."""
    if isinstance(wire_type, Fixed):
        return wire_type.size
    if isinstance(wire_type, StructOf):
        fields = [field for field in layout(wire_type.cls) if field.is_in(version) and field.tag is None]
        return flexible + sum(
            1
            if field.is_nullable(version) and isinstance(field.wire_type, StructOf)
            else _smallest(field.wire_type, version, flexible)
            for field in fields
        )
    if flexible:
        return 1
    return 2 if wire_type is Sized.STRING else 4


class _Source(ABC):
    """Source as it grows, the objects it names, and the run of fixed fields not yet written out."""

    verb: str

    def __init__(self, cls: type[Any], version: int) -> None:
        info = describe(cls)
        if not info.versions[0] <= version <= info.versions[1]:
            first, last = info.versions
            raise ValueError(f"{info.name} has versions {first} to {last}, not {version}")
        self.cls = cls
        self.version = version
        self.flexible = info.is_flexible(version)
        self.lines: list[str] = []
        self.indent = 0
        self.names: dict[str, Any] = {}
        self.packers: dict[str, str] = {}
        self.counted = 0
        self.run: list[tuple[str, str]] = []

    @abstractmethod
    def text(self) -> str:
        """Return the whole function."""

    def line(self, text: str) -> None:
        assert not self.run, "a run of fixed fields has to be flushed first"
        self.aside(text)

    def aside(self, text: str) -> None:
        """Add a line that neither reads nor writes bytes, so that it may stand before a run still open."""
        self.lines.append("    " * self.indent + text)

    def fresh(self, prefix: str) -> str:
        self.counted += 1
        return f"{prefix}{self.counted}"

    def name(self, prefix: str, thing: object) -> str:
        for name, known in self.names.items():
            if known is thing and name.startswith(prefix):
                return name
        name = self.fresh(prefix)
        self.names[name] = thing
        return name

    def present(self, cls: type[Any]) -> tuple[list[FieldLayout], list[FieldLayout]]:
        """The version's fields of ``cls``: in their place, and tagged (by ascending tag)."""
        fields = [field for field in layout(cls) if field.is_in(self.version)]
        tagged = [field for field in fields if field.tag is not None and self.flexible]
        return [field for field in fields if field.tag is None], sorted(tagged, key=lambda field: field.tag or 0)

    def packer(self, formats: str, method: str) -> str:
        """Return the name of a `struct` method for a run of formats."""
        known = self.packers.get(formats)
        if known is None:
            known = self.packers[formats] = self.fresh(method)
            self.names[known] = getattr(binary.Struct(">" + formats), method)
        return known


class DecoderSource(_Source):
    """Writes ``decode(buf, pos)``."""

    verb = "decode"

    def text(self) -> str:
        self.names.update(
            new=object.__new__,
            Malformed=Malformed,
            unreadable=(binary.error, IndexError),
            read_uvarint=read_uvarint,
            skip_counted_fields=skip_counted_fields,
            fixed_array=_fixed_array,
            refused_length=_refused_length,
            refused_tag=_refused_tag,
            too_many_elements=too_many_elements,
        )
        self.line("def decode(buf, pos):")
        self.indent = 1
        self.line("try:")
        self.indent = 2
        self.line("limit = len(buf)")
        start = len(self.lines)
        result = self.struct(self.cls)
        self.flush()
        self.line(f"return {result}, pos")
        if any("view[" in line for line in self.lines):
            self.lines.insert(start, "    " * self.indent + "view = memoryview(buf)")
        if any("elements_left" in line for line in self.lines):
            self.lines.insert(start, "    " * self.indent + f"elements_left = {MOST_ELEMENTS}")
        self.indent = 1
        self.line("except unreadable as problem:")
        self.indent = 2
        what = f"{self.cls.__qualname__} v{self.version} cannot be read: "
        self.line(f"raise Malformed({what!r} + str(problem)) from problem")
        return "\n".join(self.lines) + "\n"

    def fixed(self, target: str, format: str) -> None:
        self.run.append((target, format))

    def flush(self) -> None:
        if len(self.run) == 1 and self.run[0][1] == "B":
            target = self.run.pop()[0]
            self.line(f"{target} = buf[pos]")
            self.line("pos += 1")
        elif self.run:
            targets = "".join(f"{target}, " for target, _ in self.run)
            formats = "".join(format for _, format in self.run)
            self.run = []
            self.line(f"{targets}= {self.packer(formats, 'unpack_from')}(buf, pos)")
            self.line(f"pos += {binary.calcsize('>' + formats)}")

    def struct(self, cls: type[Any]) -> str:
        """Read a struct and return the variable that holds it. A run may be open before and after."""
        frozen = is_frozen(cls)
        made = self.fresh("m")
        targets = {field.name: f"{made}_{field.name}" if frozen else f"{made}.{field.name}" for field in layout(cls)}
        placed, tagged = self.present(cls)
        if not frozen:
            self.flush()
            self.line(f"{made} = new({self.name('class_', cls)})")
        for field in layout(cls):
            if field not in placed:
                self.flush()
                self.line(f"{targets[field.name]} = {self.default(field)}")
        for field in placed:
            self.value(field.wire_type, targets[field.name], f"{cls.__qualname__}.{field.name}", self.nullable(field))
        if self.flexible:
            self.tagged_fields(tagged, targets, cls)
        if frozen:
            self.flush()
            given = ", ".join(f"{name}={target}" for name, target in targets.items())
            self.line(f"{made} = {self.name('class_', cls)}({given})")
        return made

    def nullable(self, field: FieldLayout) -> bool:
        return field.is_nullable(self.version)

    def default(self, field: FieldLayout) -> str:
        if field.default_factory is list:
            return "[]"
        if field.default_factory is not MISSING:
            return f"{self.name('make_', field.default_factory)}()"
        if isinstance(field.default, bool | int | str | float | None):
            return repr(field.default)
        return self.name("default_", field.default)

    def value(self, wire_type: WireType, target: str, what: str, nullable: bool) -> None:
        if isinstance(wire_type, Fixed):
            assert not nullable, f"{what} has a fixed size and cannot be null"
            self.fixed(target, wire_type.format)
        elif isinstance(wire_type, StructOf):
            if nullable:
                marker = self.fresh("n")
                self.fixed(marker, "b")
                self.flush()
                self.null_or(f"{marker} >= 0", target, wire_type)
            else:
                self.move(self.struct(wire_type.cls), target)
        elif isinstance(wire_type, ArrayOf):
            self.array(wire_type.element, target, what, nullable)
        else:
            self.sized(wire_type, target, what, nullable)

    def move(self, made: str, target: str) -> None:
        self.flush()
        self.line(f"{target} = {made}")

    def null_or(self, condition: str, target: str, wire_type: StructOf) -> None:
        self.line(f"if {condition}:")
        self.indent += 1
        self.move(self.struct(wire_type.cls), target)
        self.indent -= 1
        self.line("else:")
        self.line(f"    {target} = None")

    def length(self, format: str, what: str, longest: int | None = None) -> tuple[str, str]:
        """Read a length; return its variable and the expression of the length, which is -1 for null."""
        counted = self.fresh("n")
        self.fixed(counted, "B" if self.flexible else format)
        self.flush()
        if not self.flexible:
            return counted, counted
        self.line(f"if {counted} > 127:")
        self.line(f"    {counted}, pos = read_uvarint(buf, pos - 1)")
        if longest is not None:
            self.line(f"    if {counted} > {longest + 1}:")
            self.line(f"        raise refused_length({what!r}, {counted} - 1, limit - pos)")
        return counted, f"{counted} - 1"

    def sized(self, kind: Sized, target: str, what: str, nullable: bool) -> None:
        text = kind is Sized.STRING
        counted, length = self.length("h" if text else "i", what, LONGEST_STRING if text else None)
        end = self.fresh("end")
        if nullable:
            self.line(f"if {counted} == {0 if self.flexible else -1}:")
            self.line(f"    {target} = None")
            self.line("else:")
            self.indent += 1
        self.line(f"{end} = pos + {length}")
        self.line(f"if not pos <= {end} <= limit:")
        self.line(f"    raise refused_length({what!r}, {length}, limit - pos)")
        taken = {
            Sized.STRING: f"str(buf[pos:{end}], 'utf-8', 'replace')",
            Sized.BYTES: f"bytes(buf[pos:{end}])",
            Sized.RECORDS: f"view[pos:{end}]",
        }
        self.line(f"{target} = {taken[kind]}")
        self.line(f"pos = {end}")
        if nullable:
            self.indent -= 1

    def array(self, element: WireType, target: str, what: str, nullable: bool) -> None:
        counted, length = self.length("i", what)
        smallest = _smallest(element, self.version, self.flexible)
        assert smallest > 0, f"{what}: elements without bytes cannot be counted against the bytes left"
        if nullable:
            self.line(f"if {counted} == {0 if self.flexible else -1}:")
            self.line(f"    {target} = None")
            self.line("else:")
            self.indent += 1
        at_least = 1 if self.flexible else 0
        size = f"({length}) * {smallest}" if smallest > 1 else length
        self.line(f"if {counted} < {at_least} or {size} > limit - pos:")
        self.line(f"    raise refused_length({what!r}, {length}, limit - pos)")
        self.count_elements(what, length)
        if isinstance(element, Fixed):
            self.line(f"{target} = fixed_array({element.format!r}, {length}, buf, pos)")
            self.line(f"pos += {size}")
        else:
            items = self.fresh("items")
            self.line(f"{target} = {items} = []")
            self.line(f"for _ in range({length}):")
            self.indent += 1
            if isinstance(element, StructOf):
                item = self.struct(element.cls)
            else:
                item = self.fresh("item")
                self.value(element, item, what, False)
            self.flush()
            self.line(f"{items}.append({item})")
            self.indent -= 1
        if nullable:
            self.indent -= 1

    def count_elements(self, what: str, length: str) -> None:
        self.line(f"elements_left -= {length}")
        self.line("if elements_left < 0:")
        self.line(f"    raise too_many_elements({what!r}, {length})")

    def tagged_fields(self, tagged: list[FieldLayout], targets: dict[str, str], cls: type[Any]) -> None:
        count = self.fresh("tags")
        self.fixed(count, "B")
        self.flush()
        self.line(f"if {count}:")
        self.indent += 1
        self.line(f"if {count} > 127:")
        self.line(f"    {count}, pos = read_uvarint(buf, pos - 1)")
        self.count_elements(f"{cls.__qualname__}, its tagged fields", count)
        if not tagged:
            self.line(f"pos = skip_counted_fields(buf, pos, {count})")
            self.indent -= 1
            return
        tag, size, end = self.fresh("tag"), self.fresh("size"), self.fresh("end")
        self.line(f"for _ in range({count}):")
        self.indent += 1
        self.fixed(tag, "B")
        self.fixed(size, "B")
        self.flush()
        self.line(f"if {tag} > 127 or {size} > 127:")
        self.line(f"    {tag}, pos = read_uvarint(buf, pos - 2)")
        self.line(f"    {size}, pos = read_uvarint(buf, pos)")
        self.line(f"{end} = pos + {size}")
        self.line(f"if {end} > limit:")
        self.line(f"    raise refused_length({cls.__qualname__ + ', a tagged field'!r}, {size}, limit - pos)")
        for position, field in enumerate(tagged):
            self.line(f"{'elif' if position else 'if'} {tag} == {field.tag}:")
            self.indent += 1
            what = f"{cls.__qualname__}.{field.name}"
            target = targets[field.name]
            if isinstance(field.wire_type, StructOf) and self.nullable(field):
                marker = self.fresh("n")
                self.line(f"{marker}, pos = read_uvarint(buf, pos)")
                self.null_or(marker, target, field.wire_type)
            else:
                self.value(field.wire_type, target, what, self.nullable(field))
                self.flush()
            self.line(f"if pos != {end}:")
            self.line(f"    raise refused_tag({tag}, {size}, pos - {end} + {size})")
            self.indent -= 1
        self.line("else:")
        self.line(f"    pos = {end}")
        self.indent -= 2


class WriterSource(_Source):
    """Writes ``write(m0, out, chunks)``."""

    verb = "write"

    def text(self) -> str:
        self.names.update(
            Unencodable=Unencodable,
            misfits=(binary.error, AttributeError, TypeError, UnicodeEncodeError),
            uvarint=encode_uvarint,
            many=_many,
            long_string=_long_string,
        )
        self.out = "out"
        self.line("def write(m0, out, chunks):")
        self.indent = 1
        self.line("try:")
        self.indent = 2
        self.struct(self.cls, "m0")
        self.flush()
        self.line("return out")
        self.indent = 1
        self.line("except misfits as problem:")
        self.indent = 2
        what = f"{self.cls.__qualname__} cannot be written in version {self.version}: "
        self.line(f"raise Unencodable({what!r} + str(problem)) from problem")
        return "\n".join(self.lines) + "\n"

    def fixed(self, value: str | None, format: str) -> None:
        """Add to the run; ``x`` (a zero byte) has no value."""
        self.run.append((value or "", format))

    def flush(self) -> None:
        if self.run:
            values = ", ".join(value for value, _ in self.run if value)
            formats = "".join(format for _, format in self.run)
            self.run = []
            if not values:
                self.line(f"{self.out} += {bytes(len(formats))!r}")
            else:
                self.line(f"{self.out} += {self.packer(formats, 'pack')}({values})")

    def struct(self, cls: type[Any], made: str) -> None:
        """Write a struct; a run may be open before and after."""
        placed, tagged = self.present(cls)
        for field in placed:
            self.value(
                field.wire_type, f"{made}.{field.name}", f"{cls.__qualname__}.{field.name}", self.nullable(field)
            )
        if self.flexible:
            self.tagged_fields(tagged, made, cls)

    def nullable(self, field: FieldLayout) -> bool:
        return field.is_nullable(self.version)

    def value(self, wire_type: WireType, given: str, what: str, nullable: bool) -> None:
        if isinstance(wire_type, Fixed):
            assert not nullable, f"{what} has a fixed size and cannot be null"
            self.fixed(given, wire_type.format)
        elif isinstance(wire_type, StructOf):
            inner = self.fresh("m")
            self.flush()
            self.line(f"{inner} = {given}")
            if nullable:
                self.null_or(inner, wire_type, null="255", present="1")
            else:
                self.struct(wire_type.cls, inner)
        elif isinstance(wire_type, ArrayOf):
            self.array(wire_type.element, given, what, nullable)
        else:
            self.sized(wire_type, given, what, nullable)

    def null_or(self, inner: str, wire_type: StructOf, null: str, present: str) -> None:
        self.line(f"if {inner} is None:")
        self.line(f"    {self.out}.append({null})")
        self.line("else:")
        self.indent += 1
        self.line(f"{self.out}.append({present})")
        self.struct(wire_type.cls, inner)
        self.flush()
        self.indent -= 1

    def null(self, given: str, format: str) -> None:
        """Open the branch of a value that is there, after the one of null."""
        self.flush()
        self.line(f"if {given} is None:")
        self.line(
            f"    {self.out} += {self.name('null_', bytes(1) if self.flexible else binary.pack('>' + format, -1))}"
        )
        self.line("else:")
        self.indent += 1

    def length(self, length: str, format: str, what: str | None = None) -> None:
        """Write a length, which may end up in the run; ``what`` names a string."""
        if not self.flexible:
            self.fixed(length, format)
            return
        self.flush()
        self.line(f"if {length} < 127:")
        self.line(f"    {self.out}.append({length} + 1)")
        self.line("else:")
        longer = f"uvarint({length} + 1)" if what is None else f"long_string({what!r}, {length})"
        self.line(f"    {self.out} += {longer}")

    def sized(self, kind: Sized, given: str, what: str, nullable: bool) -> None:
        taken, counted = self.fresh("v"), self.fresh("n")
        self.aside(f"{taken} = {given}")
        format = "h" if kind is Sized.STRING else "i"
        if nullable:
            self.null(taken, format)
        if kind is Sized.STRING:
            self.aside(f"{taken} = {taken}.encode()")
        self.aside(f"{counted} = len({taken})")
        self.length(counted, format, what if kind is Sized.STRING else None)
        self.flush()
        if kind is Sized.RECORDS:
            assert self.out == "out", f"{what}: records do not stand in a tagged field"
            self.line(f"if {counted}:")
            self.line("    chunks.append(out)")
            self.line(f"    chunks.append({taken})")
            self.line("    out = bytearray()")
        else:
            self.line(f"{self.out} += {taken}")
        if nullable:
            self.indent -= 1

    def array(self, element: WireType, given: str, what: str, nullable: bool) -> None:
        items, counted = self.fresh("v"), self.fresh("n")
        self.aside(f"{items} = {given}")
        if nullable:
            self.null(items, "i")
        self.aside(f"{counted} = len({items})")
        self.length(counted, "i")
        self.flush()
        if isinstance(element, Fixed):
            self.line(f"{self.out} += many({element.format!r}, {counted}).pack(*{items})")
        else:
            item = self.fresh("m")
            self.line(f"for {item} in {items}:")
            self.indent += 1
            if isinstance(element, StructOf):
                self.struct(element.cls, item)
            else:
                self.value(element, item, what, False)
            self.flush()
            self.indent -= 1
        if nullable:
            self.indent -= 1

    def tagged_fields(self, tagged: list[FieldLayout], made: str, cls: type[Any]) -> None:
        """Write the tagged fields that differ from their defaults."""
        if not tagged:
            self.fixed(None, "x")
            return
        self.flush()
        conditions = {field.name: self.differs(field, made) for field in tagged}
        count = self.fresh("tags")
        self.line(f"{count} = {' + '.join(f'({condition})' for condition in conditions.values())}")
        self.line(f"{self.out}.append({count})")
        self.line(f"if {count}:")
        self.indent += 1
        for field in tagged:
            self.line(f"if {conditions[field.name]}:")
            self.indent += 1
            if isinstance(field.wire_type, Fixed):
                beginning = encode_uvarint(field.tag or 0) + encode_uvarint(field.wire_type.size)
                self.line(f"{self.out} += {beginning!r}")
                self.fixed(f"{made}.{field.name}", field.wire_type.format)
                self.flush()
                self.indent -= 1
                continue
            outer, self.out = self.out, self.fresh("out")
            self.line(f"{self.out} = bytearray()")
            given = f"{made}.{field.name}"
            if isinstance(field.wire_type, StructOf) and self.nullable(field):
                inner = self.fresh("m")
                self.line(f"{inner} = {given}")
                self.null_or(inner, field.wire_type, null="0", present="1")
            else:
                self.value(field.wire_type, given, f"{cls.__qualname__}.{field.name}", self.nullable(field))
                self.flush()
            self.line(f"{outer} += uvarint({field.tag}) + uvarint(len({self.out})) + {self.out}")
            self.out = outer
            self.indent -= 1
        self.indent -= 1

    def differs(self, field: FieldLayout, made: str) -> str:
        given = f"{made}.{field.name}"
        default = field.make_default()
        if default is None:
            return f"{given} is not None"
        if isinstance(default, int | str | bytes | float | list):
            return f"{given} != {default!r}"
        shared = self.name("default_", default)
        # Almost always it is the default itself, and comparing structs is slow.
        return f"{given} is not {shared} and {given} != {shared}"
