"""Certificate: what the broker needs to know of an X.509 certificate, read from its bytes."""

import calendar
import time
from typing import Final, NamedTuple

from broker.security.tls.der import OBJECT_IDENTIFIER, SEQUENCE, MalformedDer, Value, contents, object_identifier
from broker.security.tls.distinguished_name import rfc2253

_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_ALTERNATIVE_NAMES: Final = "2.5.29.17"
_FIELDS: Final = 6
_TIMES: Final = 2
_FIRST_YEAR_OF_1900S: Final = 50
_MS: Final = 1000


class Certificate(NamedTuple):
    """A certificate."""

    subject: str
    """Its subject as Java prints one (RFC 2253)."""
    not_before_ms: int
    not_after_ms: int
    alternative_names: frozenset[bytes]
    """Names of hosts, each with its kind, as they stand in the certificate."""


def parse_certificate(der: bytes) -> Certificate:
    """Read a certificate. Raises `MalformedDer`."""
    fields = contents(contents(der, SEQUENCE)[0].encoded, SEQUENCE) if contents(der, SEQUENCE) else []
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) < _FIELDS:
        raise MalformedDer("a certificate lacks fields")
    validity = contents(fields[3].encoded, SEQUENCE)
    if len(validity) != _TIMES:
        raise MalformedDer("a certificate is valid between two times")
    extensions = next((field for field in fields[_FIELDS:] if field.tag == _EXTENSIONS), None)
    return Certificate(
        subject=rfc2253(fields[4].encoded),
        not_before_ms=_time_ms(validity[0]),
        not_after_ms=_time_ms(validity[1]),
        alternative_names=frozenset() if extensions is None else _alternative_names(extensions),
    )


def _time_ms(value: Value) -> int:
    text = value.content.decode("ascii", "replace")
    if value.tag == _UTC_TIME:
        text = ("19" if text[:2] >= str(_FIRST_YEAR_OF_1900S) else "20") + text
    elif value.tag != _GENERALIZED_TIME:
        raise MalformedDer(f"tag {value.tag} where a time is due")
    try:
        return calendar.timegm(time.strptime(text, "%Y%m%d%H%M%SZ")) * _MS
    except ValueError:
        raise MalformedDer(f"{text!r} is no time") from None


def _alternative_names(extensions: Value) -> frozenset[bytes]:
    for extension in contents(extensions.content, SEQUENCE):
        parts = contents(extension.encoded, SEQUENCE)
        if not parts or parts[0].tag != OBJECT_IDENTIFIER:
            raise MalformedDer("an extension has no name")
        if object_identifier(parts[0].content) == _ALTERNATIVE_NAMES:
            return frozenset(name.encoded for name in contents(parts[-1].content, SEQUENCE))
    return frozenset()
