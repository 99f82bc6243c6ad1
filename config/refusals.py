"""Settings that the broker refuses at its start, because it cannot keep their promise, and the sentence for each."""

from collections.abc import Mapping
from typing import Final

from config.definitions import Definition
from config.values import parse_value

_MAX_REAUTH: Final = ".connections.max.reauth.ms"
"""Ends the name of a setting that is one of SASL, though its name does not say so."""

_REFUSED_UNLESS_EMPTY: Final[Mapping[str, str]] = {
    "config.providers": "values are not looked up elsewhere: write them into the file or give them with -o",
}


def is_security_key(key: str) -> bool:
    """Whether a setting, without a listener's prefix, belongs to TLS or SASL."""
    return key.startswith(("ssl.", "sasl.")) or ".sasl." in key or ".ssl." in key


def is_sasl_key(key: str) -> bool:
    """Whether a setting, without a listener's prefix, says how clients authenticate."""
    return key.startswith("sasl.") or ".sasl." in key or key.endswith(_MAX_REAUTH)


def check_security_value(key: str, definition: Definition, text: str) -> None:
    """Check the value of a setting of TLS or SASL; a secret is not looked at, since the sentence would repeat it.

    Raises:
        InvalidConfig: The text is not of the setting's type, or the value is not allowed.
    """
    if not definition.is_sensitive:
        parse_value(key, definition.type, definition.allowed, text)


def refused_sentence(key: str, text: str) -> str | None:
    """Why a value of a setting that exists is refused; None if it is accepted."""
    if text and key in _REFUSED_UNLESS_EMPTY:
        return f"{key} is '{text}', but {_REFUSED_UNLESS_EMPTY[key]}"
    if key == "security.inter.broker.protocol" and text != "PLAINTEXT":
        return f"{key} is '{text}', but brokers talk to each other without TLS and SASL here: leave it out"
    if key == "remote.log.storage.system.enable" and text.lower() == "true":
        return f"{key} is 'true', but there is no tiered storage here, and what lies in it could not be read"
    return None
