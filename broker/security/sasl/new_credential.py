"""Reads `--add-scram`, in the words of `kafka-storage format`, and makes the credential of it.

SCRAM-SHA-256=[name=alice,password=wonder]
SCRAM-SHA-512=[name=alice,password="a,b",iterations=8192,salt="<Base64>"]
SCRAM-SHA-512=[name=alice,saltedpassword="<Base64>",salt="<Base64>",iterations=8192]
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from typing import Final

from broker.security.sasl.credentials import MECHANISM_CODES
from broker.security.sasl.scram import LEAST_ITERATIONS, MOST_ITERATIONS, ScramHash
from config.errors import SettingsError
from protocol.records.cluster_metadata import UserScramCredentialRecord

_OPTION: Final = "--add-scram"
_ARGUMENT: Final = re.compile(r"(?P<mechanism>[^=]+)=\[(?P<parts>.*)\]", re.DOTALL)
_PART: Final = re.compile(r'([a-z]+)=(?:"([^"]*)"|([^,"]*))(?:,|$)')
_PARTS: Final = ("name", "password", "iterations", "salt", "saltedpassword")
_FORM: Final = f"{_OPTION} 'SCRAM-SHA-256=[name=alice,password=...]'"
_SALT_BYTES: Final = 16


def read_credential(text: str, random_bytes: Callable[[int], bytes]) -> UserScramCredentialRecord:
    """The record of one `--add-scram`.

    Raises:
        SettingsError: The text is not of the form. The sentence has no password.
    """
    found = _ARGUMENT.fullmatch(text.strip())
    mechanisms = {hash_.value: hash_ for hash_ in ScramHash}
    if found is None or found["mechanism"] not in mechanisms:
        raise SettingsError(f"{_OPTION} cannot be read, expected {_FORM}, with one of {', '.join(mechanisms)}")
    parts = _parts_of(found["parts"])
    hash_ = mechanisms[found["mechanism"]]
    if not parts.get("name"):
        raise SettingsError(f"{_OPTION} has no name, expected {_FORM}")
    if ("password" in parts) == ("saltedpassword" in parts):
        raise SettingsError(f"{_OPTION} of {parts['name']} has to have one of password and saltedpassword")
    if "saltedpassword" in parts and "salt" not in parts:
        raise SettingsError(f"{_OPTION} of {parts['name']} has a saltedpassword, expected its salt, too")
    iterations = _iterations(parts)
    if "salt" in parts:
        salt = _from_base64(parts, "salt")
    else:
        salt = base64.b32encode(random_bytes(_SALT_BYTES)).rstrip(b"=").lower()
    if "saltedpassword" in parts:
        salted = _from_base64(parts, "saltedpassword")
    else:
        salted = hashlib.pbkdf2_hmac(hash_.digest, parts["password"].encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", hash_.digest)
    return UserScramCredentialRecord(
        name=parts["name"],
        mechanism=MECHANISM_CODES[hash_],
        salt=salt,
        stored_key=hashlib.new(hash_.digest, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", hash_.digest),
        iterations=iterations,
    )


def _parts_of(text: str) -> Mapping[str, str]:
    parts: dict[str, str] = {}
    position = 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None or part[1] not in _PARTS or part[1] in parts:
            raise SettingsError(f"{_OPTION} cannot be read, expected {_FORM}, of {', '.join(_PARTS)} each once at most")
        parts[part[1]] = part[2] if part[2] is not None else part[3]
        position = part.end()
    return parts


def _iterations(parts: Mapping[str, str]) -> int:
    text = parts.get("iterations", str(LEAST_ITERATIONS))
    if not text.isdecimal() or len(text) > len(str(MOST_ITERATIONS)):
        iterations = 0
    else:
        iterations = int(text)
    if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise SettingsError(
            f"{_OPTION} of {parts['name']} has {text} iterations, expected {LEAST_ITERATIONS} to {MOST_ITERATIONS}"
        )
    return iterations


def _from_base64(parts: Mapping[str, str], part: str) -> bytes:
    try:
        found = base64.b64decode(parts[part], validate=True)
    except binascii.Error:
        found = b""
    if not found:
        raise SettingsError(f"{_OPTION} of {parts['name']} has a {part} that is no Base64")
    return found
