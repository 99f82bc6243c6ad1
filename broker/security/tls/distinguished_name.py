"""The subject of a certificate as text: RFC 2253 as Java's `X500Principal.getName` has it, to the letter.

Principals and ACLs name users by this text, so that a user has to have the same name here and in Kafka.
"""

from typing import Final

from broker.security.tls.der import OBJECT_IDENTIFIER, SEQUENCE, SET, MalformedDer, Value, contents, object_identifier

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""The tags of UTF8String, PrintableString, T61String, IA5String, GeneralString and BMPString. Java reads the content of
each of them as UTF-8."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_SPACE: Final = " \r"
_PAIR: Final = 2


def rfc2253(name: bytes) -> str:
    """The text of a distinguished name, its last part first. Raises `MalformedDer`."""
    return ",".join(
        "+".join(_attribute(attribute) for attribute in contents(part.encoded, SET))
        for part in reversed(contents(name, SEQUENCE))
    )


def _attribute(attribute: Value) -> str:
    parts = contents(attribute.encoded, SEQUENCE)
    if len(parts) != _PAIR or parts[0].tag != OBJECT_IDENTIFIER:
        raise MalformedDer("an attribute of a name is a type and a value")
    kind = object_identifier(parts[0].content)
    keyword = _KEYWORDS.get(kind)
    if keyword is None or parts[1].tag not in _TEXTS:
        return f"{keyword or kind}=#{parts[1].encoded.hex()}"
    return f"{keyword}={_escaped(parts[1].content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    shown = "".join("\\00" if one == "\0" else f"\\{one}" if one in _ESCAPED else one for one in text)
    inner = shown.lstrip(_SPACE)
    before = shown[: len(shown) - len(inner)]
    after = inner[len(inner.rstrip(_SPACE)) :]
    return "".join(
        ("".join(f"\\{space}" for space in before), inner.rstrip(_SPACE), "".join(f"\\{space}" for space in after))
    )
