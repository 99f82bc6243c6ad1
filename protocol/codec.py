"""Messages to bytes and back: one function for each message, version and direction, compiled on first use.

Reading is strict where strictness protects us: no length is believed before it is compared with the bytes left, so
nothing is allocated for an announced size, and whatever cannot be read is `Malformed`. Bytes behind a complete message
are left alone. Writing leaves out what a version cannot say, whatever its value: one answer serves all versions.
(Kafka refuses that for some fields; which ones matters to a client, which could lose a wish, not to a broker.)
"""

import linecache
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from protocol.codec_source import DecoderSource, WriterSource
from protocol.primitives import Buffer
from protocol.primitives import Chunk as Chunk
from protocol.primitives import Malformed as Malformed
from protocol.primitives import SizedRegion as SizedRegion
from protocol.primitives import Unencodable as Unencodable

M = TypeVar("M")

Writer = Callable[[Any, bytearray, list[Chunk]], bytearray]
"""Appends a message to the bytes so far. Where records come, finished chunks go to the list and a new one is begun;
the one under way is returned."""


def decode(cls: type[M], version: int, buffer: Buffer, position: int = 0) -> M:
    """Read a message; bytes behind it are ignored. Raises `Malformed`."""
    return decoder(cls, version)(buffer, position)[0]


def decoder(cls: type[M], version: int) -> Callable[[Buffer, int], tuple[M, int]]:
    """Return the function that reads ``cls`` at a position and returns it with the position behind it."""
    known: Callable[[Buffer, int], tuple[M, int]] | None = _decoders.get((cls, version))
    if known is None:
        known = _decoders[cls, version] = _compile(cls, version, DecoderSource)
    return known


def encode(message: object, version: int) -> bytes:
    """Return the message in one piece, its records copied in (so they have to be bytes). Raises `Unencodable`."""
    return b"".join(cast("list[bytes]", _encode_chunks(writer(type(message), version), message)))


def encoder(cls: type[M], version: int) -> Callable[[M], list[Chunk]]:
    """Return the function that turns a message into chunks: records stand alone, all else is joined."""
    return partial(_encode_chunks, writer(cls, version))


def writer(cls: type[Any], version: int) -> Writer:
    """Return the function that appends a message to bytes that are already there."""
    known = _writers.get((cls, version))
    if known is None:
        known = _writers[cls, version] = _compile(cls, version, WriterSource)
    return known


def source(cls: type[Any], version: int, *, decoding: bool) -> str:
    """Return the generated source, to be read."""
    made = (DecoderSource if decoding else WriterSource)(cls, version)
    return made.text()


def _encode_chunks(write: Writer, message: object) -> list[Chunk]:
    chunks: list[Chunk] = []
    last = write(message, bytearray(), chunks)
    if last or not chunks:
        chunks.append(last)
    return chunks


_decoders: dict[tuple[type[Any], int], Any] = {}
_writers: dict[tuple[type[Any], int], Writer] = {}


def _compile(cls: type[Any], version: int, kind: type[DecoderSource] | type[WriterSource]) -> Any:
    made = kind(cls, version)
    text = made.text()
    file_name = f"<{kind.verb} {cls.__qualname__} v{version}>"
    linecache.cache[file_name] = (len(text), None, text.splitlines(keepends=True), file_name)
    exec(compile(text, file_name, "exec"), made.names)  # noqa: S102 - our own text, from our own declarations
    return made.names[kind.verb]
