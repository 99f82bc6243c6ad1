"""The principal of a client in an Envelope: a version, and `DefaultPrincipalData` (KIP-590)."""

from __future__ import annotations

import struct as binary
from typing import Final

from protocol.codec import decode, encode
from protocol.primitives import Buffer, Malformed
from protocol.schema import Bool, String, message

_VERSION: Final = binary.Struct(">h")


@message(key=0, versions=(0, 0), flexible_since=0)
class DefaultPrincipalData:
    type: String
    """`User`, for whom a client says that it is."""
    name: String
    token_authenticated: Bool = False


def encode_principal(principal: DefaultPrincipalData) -> bytes:
    """The bytes of a principal, as Kafka's own serializer writes it."""
    return _VERSION.pack(0) + encode(principal, 0)


def decode_principal(data: Buffer) -> DefaultPrincipalData:
    """The principal in ``data``, which `encode_principal` or Kafka's serializer has written. Raises `Malformed`."""
    if len(data) < _VERSION.size:
        raise Malformed(f"a principal of {len(data)} bytes has no version")
    (version,) = _VERSION.unpack_from(data)
    if version != 0:
        raise Malformed(f"a principal of version {version}, expected 0")
    return decode(DefaultPrincipalData, version, data, _VERSION.size)
