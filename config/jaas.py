"""JAAS configuration, the form in which Kafka's settings name the users of a SASL mechanism.

<login module> <flag> <option>=<value> <option>="<value>" ... ;

org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="wonder" user_bob="build";
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/ | "(?P<double>(?:[^"\\]|\\.)*)" | '(?P<single>(?:[^'\\]|\\.)*)' | (?P<sign>[=;]) """
    r"""| (?P<word>[^\s=;"']+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r"}


class InvalidJaas(ValueError):
    """A text that is no JAAS configuration: what is wrong, without the text itself, which has passwords in it."""


class LoginModule(NamedTuple):
    """The one login module of a JAAS configuration."""

    name: str
    """The name of its Java class."""
    options: Mapping[str, str]


class _Token(NamedTuple):
    text: str
    is_sign: bool


def parse_jaas(text: str) -> LoginModule:
    """Read a configuration of exactly one login module. Raises `InvalidJaas`."""
    tokens = list(_tokens(text))
    if not tokens or tokens[-1] != _Token(";", is_sign=True):
        raise InvalidJaas("it does not end with a semicolon")
    del tokens[-1]
    if any(token == _Token(";", is_sign=True) for token in tokens):
        raise InvalidJaas("it has several login modules, expected one")
    if len(tokens) < 2 or tokens[0].is_sign or tokens[1].text.lower() not in _FLAGS:
        raise InvalidJaas(f"it does not begin with the class of a login module and one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    rest = tokens[2:]
    for number in range(0, len(rest), 3):
        option = rest[number : number + 3]
        if len(option) < 3 or [token.is_sign for token in option] != [False, True, False]:
            raise InvalidJaas(f"its option {number // 3 + 1} is not of the form name=value")
        name = option[0].text
        if name in options:
            raise InvalidJaas(f"its option {number // 3 + 1} has the name of an option before it")
        options[name] = option[2].text
    return LoginModule(tokens[0].text, options)


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise InvalidJaas("a quotation mark in it is not closed")
        position = found.end()
        if (sign := found["sign"]) is not None:
            yield _Token(sign, is_sign=True)
        elif (word := found["word"]) is not None:
            yield _Token(word, is_sign=False)
        else:
            quoted = found["double"] if found["double"] is not None else found["single"]
            if quoted is not None:
                yield _Token(_ESCAPE.sub(_unescaped, quoted), is_sign=False)


def _unescaped(escape: re.Match[str]) -> str:
    return _ESCAPED.get(escape[1], escape[1])
