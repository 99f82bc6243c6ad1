"""How a broker writes the principal of a client into an Envelope: a version, and `DefaultPrincipalData` (KIP-590)."""

from __future__ import annotations

import struct as binary
from typing import Final

from protocol.codec import encode
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
