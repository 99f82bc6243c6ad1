"""A slow codec to hold the generated one against: it walks the layout field by field, sharing no code with it."""

import struct
from typing import Any

from protocol.schema import ArrayOf, FieldLayout, Fixed, Sized, StructOf, WireType, describe, layout


def interpret(cls: type[Any], version: int, data: bytes) -> tuple[Any, int]:
    """Read a message that is known to be well-formed; return it and how many bytes it took."""
    reader = _Reader(data, version, describe(cls).is_flexible(version))
    return reader.struct(cls), reader.position


def write(message: Any, version: int) -> bytes:
    """Return the bytes of a message."""
    return _Writer(version, describe(type(message)).is_flexible(version)).struct(message)


class _Reader:
    def __init__(self, data: bytes, version: int, flexible: bool) -> None:
        self.data, self.version, self.flexible, self.position = data, version, flexible, 0

    def take(self, size: int) -> bytes:
        assert 0 <= size <= len(self.data) - self.position
        self.position += size
        return self.data[self.position - size : self.position]

    def number(self, format: str) -> Any:
        return struct.unpack(">" + format, self.take(struct.calcsize(">" + format)))[0]

    def uvarint(self) -> int:
        byte = self.take(1)[0]
        return byte if byte < 128 else byte - 128 + (self.uvarint() << 7)

    def struct(self, cls: type[Any]) -> Any:
        values = {field.name: field.make_default() for field in layout(cls) if field.has_default}
        for field in layout(cls):
            if field.is_in(self.version) and field.tag is None:
                values[field.name] = self.field(field, in_tag=False)
        if self.flexible:
            tagged = {field.tag: field for field in layout(cls) if field.is_in(self.version) and field.tag is not None}
            for _ in range(self.uvarint()):
                tag, size = self.uvarint(), self.uvarint()
                end = self.position + size
                if tag in tagged:
                    values[tagged[tag].name] = self.field(tagged[tag], in_tag=True)
                    assert self.position == end
                self.position = end
        return cls(**values)

    def field(self, field: FieldLayout, *, in_tag: bool) -> Any:
        nullable = field.is_nullable(self.version)
        if isinstance(field.wire_type, StructOf) and nullable:
            present = self.uvarint() if in_tag else self.number("b") >= 0
            return self.struct(field.wire_type.cls) if present else None
        value = self.value(field.wire_type)
        assert value is not None or nullable
        return value

    def value(self, wire_type: WireType) -> Any:
        if isinstance(wire_type, Fixed):
            return self.number(wire_type.format)
        if isinstance(wire_type, StructOf):
            return self.struct(wire_type.cls)
        length = self.uvarint() - 1 if self.flexible else self.number("h" if wire_type is Sized.STRING else "i")
        if length == -1:
            return None
        if isinstance(wire_type, ArrayOf):
            return [self.value(wire_type.element) for _ in range(length)]
        taken = self.take(length)
        if wire_type is Sized.STRING:
            return taken.decode(errors="replace")
        return memoryview(taken) if wire_type is Sized.RECORDS else taken


class _Writer:
    def __init__(self, version: int, flexible: bool) -> None:
        self.version, self.flexible = version, flexible

    def uvarint(self, number: int) -> bytes:
        return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + self.uvarint(number >> 7)

    def struct(self, message: Any) -> bytes:
        present = [field for field in layout(type(message)) if field.is_in(self.version)]
        written = b"".join(
            self.field(field, getattr(message, field.name), in_tag=False) for field in present if field.tag is None
        )
        if not self.flexible:
            return written
        tagged = {
            field.tag: self.field(field, getattr(message, field.name), in_tag=True)
            for field in present
            if field.tag is not None and getattr(message, field.name) != field.make_default()
        }
        sections = [self.uvarint(tag) + self.uvarint(len(value)) + value for tag, value in sorted(tagged.items())]
        return written + self.uvarint(len(sections)) + b"".join(sections)

    def field(self, field: FieldLayout, value: Any, *, in_tag: bool) -> bytes:
        if isinstance(field.wire_type, StructOf) and field.is_nullable(self.version):
            if value is None:
                return b"\0" if in_tag else b"\xff"
            return b"\1" + self.struct(value)
        return self.value(field.wire_type, value)

    def value(self, wire_type: WireType, value: Any) -> bytes:
        if isinstance(wire_type, Fixed):
            return struct.pack(">" + wire_type.format, value)
        if isinstance(wire_type, StructOf):
            return self.struct(value)
        if isinstance(value, str):
            value = value.encode()
        length = -1 if value is None else len(value)
        written = (
            self.uvarint(length + 1)
            if self.flexible
            else struct.pack(">h" if wire_type is Sized.STRING else ">i", length)
        )
        if value is None:
            return written
        if isinstance(wire_type, ArrayOf):
            return written + b"".join(self.value(wire_type.element, item) for item in value)
        return written + bytes(value)
