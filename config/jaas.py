"""JAAS configuration, the form in which Kafka's settings name the users of a SASL mechanism.

<login module> <flag> <option>=<value> <option>="<value>" ... ;

org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="wonder" user_bob="build";
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""[\0- ]+ | /\*.*?(?:\*/|\Z) | /.?[^\n\r]* | (?P<number>-?(?=[0-9.])[0-9]*\.?[0-9]*) """
    r"""| (?P<word>[A-Za-z_$\xa0-\U0010ffff][A-Za-z_$\xa0-\U0010ffff0-9.-]*) """
    r"""| (?P<quote>["'])(?P<quoted>(?:(?!(?P=quote))[^\\\n\r]|\\.)*)(?:(?P=quote)|(?=[\n\r]|\Z)) | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
"""What Java's `StreamTokenizer` finds: a slash is a comment to the end of the line, where a quoted text ends, too."""
_ESCAPE: Final = re.compile(r"\\(?:([0-3][0-7]{2}|[0-7]{1,2})|(.))", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class InvalidJaas(ValueError):
    """A text that is no JAAS configuration: what is wrong, without the text itself, which has passwords in it."""


class LoginModule(NamedTuple):
    """The one login module of a JAAS configuration."""

    name: str
    """The name of its Java class."""
    options: Mapping[str, str]


class _Token(NamedTuple):
    text: str | None
    """Of a word or a quoted text; None for what is neither."""
    sign: str = ""


_END: Final = _Token(None, ";")


def parse_jaas(text: str) -> LoginModule:
    """Read a configuration of exactly one login module. Raises `InvalidJaas`."""
    tokens = _tokens(text)
    modules = [_module(first, tokens) for first in tokens]
    if len(modules) != 1:
        raise InvalidJaas(f"it has {len(modules)} login modules, expected one")
    return modules[0]


def _module(first: _Token, tokens: Iterator[_Token]) -> LoginModule:
    """The login module that begins with this token. Of two options of one name the last one counts, as in Java."""
    flag = next(tokens, _END).text
    if not first.text or flag is None or flag.lower() not in _FLAGS:
        raise InvalidJaas(f"it does not begin with the class of a login module and one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    for number, key in enumerate(tokens, 1):
        if key == _END:
            return LoginModule(first.text, options)
        equals, value = next(tokens, _END), next(tokens, _END)
        if equals.sign != "=" or value.text is None:
            raise InvalidJaas(f"its option {number} is not of the form name=value")
        if key.text is not None:
            options[key.text] = value.text
    raise InvalidJaas("it does not end with a semicolon")


def _tokens(text: str) -> Iterator[_Token]:
    for found in _TOKEN.finditer(text):
        if found["quote"]:
            yield _Token(_ESCAPE.sub(_unescaped, found["quoted"]))
        elif found["word"]:
            yield _Token(found["word"])
        elif sign := found["number"] or found["other"]:
            yield _Token(None, sign)


def _unescaped(escape: re.Match[str]) -> str:
    octal, character = escape.groups()
    return chr(int(octal, 8)) if octal else _ESCAPED.get(character, character)
