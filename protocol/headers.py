"""What stands before every body, and the frame around both.

    request   size i32 | api key i16 | api version i16 | correlation id i32 | client id: i16 length, bytes | [tags]
    response  size i32 | correlation id i32 | [tags]

Both have tagged fields where the version of their API is flexible; the client id keeps its two-byte length there.
The answer to ApiVersions never has them, since its reader does not know yet what we speak.
"""

import struct as binary
from typing import Any, Final, TypeVar

from protocol.api_keys import FLEXIBLE_SINCE, ApiKey
from protocol.codec import Chunk, Unencodable, Writer, decode, encode, writer
from protocol.primitives import Buffer, Malformed, skip_tagged_fields
from protocol.schema import describe

M = TypeVar("M")

_API: Final = binary.Struct(">hh")
_REQUEST: Final = binary.Struct(">hhih")
_SIZE: Final = binary.Struct(">i")
_SIZE_AND_CORRELATION_ID: Final = binary.Struct(">ii")
_NEVER: Final = 0x7FFF + 1

_read_request = _REQUEST.unpack_from
_flexible_since = FLEXIBLE_SINCE.get


class RequestHeader:
    """Who asks what, and in which version. ``client_id`` is empty where the client gave none."""

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id")

    def __init__(self, api_key: int, api_version: int, correlation_id: int, client_id: str) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id

    def __repr__(self) -> str:
        return (
            f"RequestHeader(api_key={self.api_key}, api_version={self.api_version}, "
            f"correlation_id={self.correlation_id}, client_id={self.client_id!r})"
        )


def peek_api(frame: Buffer) -> tuple[int, int]:
    """Return the API key and version of a request, known here or not. Raises `Malformed` below four bytes."""
    if len(frame) < _API.size:
        raise Malformed(f"a request of {len(frame)} bytes has no API key and version")
    api_key, api_version = _API.unpack_from(frame)
    return api_key, api_version


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Read the header of a request without its size; return it and the position of the body.

    An API that is not known here is read as one without tagged fields: the caller sees its key. Raises `Malformed`.
    """
    # Every request passes here, so it is written out: one struct call, half a microsecond.
    if len(frame) < 10:
        raise Malformed(f"a request of {len(frame)} bytes is shorter than its header")
    api_key, api_version, correlation_id, length = _read_request(frame)
    if length > 0:
        position = 10 + length
        if position > len(frame):
            raise Malformed(f"a client id of {length} bytes with {len(frame) - 10} bytes left")
        client_id = str(frame[10:position], "utf-8", "replace")
    elif length >= -1:
        position = 10
        client_id = ""
    else:
        raise Malformed(f"a client id of {length} bytes")
    if api_version >= _flexible_since(api_key, _NEVER):
        try:
            if frame[position]:
                position = skip_tagged_fields(frame, position)
            else:
                position += 1
        except IndexError as problem:
            raise Malformed("a request ends inside its header's tagged fields") from problem
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def frame_response(correlation_id: int, answer: object, version: int) -> list[Chunk]:
    """Return an answer as chunks, the first of them beginning with the size of all."""
    known = _response_frames.get((type(answer), version))
    if known is None:
        known = _response_frame(type(answer), version)
    prefix, write = known
    chunks: list[Chunk] = []
    out = bytearray(prefix)
    last = write(answer, out, chunks)
    if not chunks:
        _SIZE_AND_CORRELATION_ID.pack_into(out, 0, len(out) - 4, correlation_id)
        return [out]
    if last:
        chunks.append(last)
    return finish_response(chunks, correlation_id)


def begin_response(cls: type[Any], version: int) -> bytearray:
    """Return what stands before the body of an answer, for one that is written by hand; `finish_response` fills it."""
    known = _response_frames.get((cls, version))
    return bytearray((known or _response_frame(cls, version))[0])


def finish_response(chunks: list[Chunk], correlation_id: int) -> list[Chunk]:
    """Put size and correlation id into the first chunk, which is a bytearray from `begin_response`."""
    _SIZE_AND_CORRELATION_ID.pack_into(chunks[0], 0, sum(map(len, chunks)) - 4, correlation_id)  # type: ignore[arg-type]
    return chunks


def encode_request(correlation_id: int, client_id: str | None, message: object, version: int) -> bytes:
    """Return a request in one piece, its size included."""
    info = describe(type(message))
    encoded_client_id = b"" if client_id is None else client_id.encode()
    if len(encoded_client_id) > 0x7FFF:
        raise Unencodable(f"the client id is {len(encoded_client_id)} bytes long, the most is {0x7FFF}")
    length = -1 if client_id is None else len(encoded_client_id)
    header = _REQUEST.pack(info.key, version, correlation_id, length) + encoded_client_id
    if info.is_flexible(version):
        header += b"\0"
    body = encode(message, version)
    return _SIZE.pack(len(header) + len(body)) + header + body


def decode_response(cls: type[M], version: int, payload: Buffer) -> tuple[int, M]:
    """Read an answer without its size; return its correlation id and itself. Raises `Malformed`."""
    if len(payload) < 4:
        raise Malformed(f"an answer of {len(payload)} bytes has no correlation id")
    (correlation_id,) = _SIZE.unpack_from(payload)
    position = 4
    if _has_tagged_header(cls, version):
        try:
            position = skip_tagged_fields(payload, position)
        except IndexError as problem:
            raise Malformed("an answer ends inside its header's tagged fields") from problem
    return correlation_id, decode(cls, version, payload, position)


_response_frames: dict[tuple[type[Any], int], tuple[bytes, Writer]] = {}


def _response_frame(cls: type[Any], version: int) -> tuple[bytes, Writer]:
    prefix = bytes(9 if _has_tagged_header(cls, version) else 8)
    made = _response_frames[cls, version] = prefix, writer(cls, version)
    return made


def _has_tagged_header(cls: type[Any], version: int) -> bool:
    info = describe(cls)
    return info.key != ApiKey.API_VERSIONS and info.is_flexible(version)
