"""Java properties files, read and written as ``java.util.Properties`` does.

    # comment       ! comment
    key=value       key: value       key value        white space around the separator belongs to neither
    key=one,\\
        two                                           a line that ends in an odd number of \\ goes on in the next
    dir=C:\\\\data    name=\\u00e9                        \\t \\n \\r \\f \\uXXXX; any other \\x is x; it is Latin-1

Of a key that appears twice, the last value counts.
"""

import re
from collections.abc import Iterator
from typing import Final

_BLANK: Final = " \t\f"
_PROPERTY: Final = r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)"
_ESCAPE: Final = r"\\(u[0-9a-fA-F]{4}|.)"
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_TO_ESCAPE: Final = {char: f"\\{letter}" for letter, char in _ESCAPED.items()} | {
    char: f"\\{char}" for char in "\\=:#!"
}


def parse_properties(content: str) -> dict[str, str]:
    """The values of a properties file by key; ``content`` is the file decoded as Latin-1.

    Raises:
        ValueError: ``\\u`` without four hexadecimal digits; its text is the end of a sentence about the file.
    """
    values: dict[str, str] = {}
    for line in _logical_lines(content):
        parts = re.fullmatch(_PROPERTY, line, re.DOTALL)
        assert parts is not None, f"a key may be empty and a value anything, but {line!r} has neither"
        key, value = map(_unescaped, parts.groups())
        values[key] = value
    return values


def escaped_value(value: str) -> str:
    """``value`` as it stands behind ``key=``, in ASCII."""
    escaped = "".join(map(_escaped_character, value))
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _escaped_character(character: str) -> str:
    if character in _TO_ESCAPE:
        return _TO_ESCAPE[character]
    if " " <= character <= "~":
        return character
    utf_16 = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{utf_16[at : at + 2].hex().upper()}" for at in range(0, len(utf_16), 2))


def _logical_lines(content: str) -> Iterator[str]:
    """Lines that are neither empty nor comments, with those joined that a backslash continues.

    A backslash alone continues nothing: the next line may be a comment.
    """
    begun = ""
    for line in re.split(r"\r\n|\r|\n", content):
        line = line.lstrip(_BLANK)
        if not begun and (not line or line[0] in "#!"):
            continue
        line = begun + line
        is_continued = _continues(line)
        begun = line[:-1] if is_continued else ""
        if not is_continued:
            yield line
    if begun:
        yield begun


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text

    def character(escape: re.Match[str]) -> str:
        code = escape[1]
        if code == "u":
            raise ValueError(f"'{text}', expected four hexadecimal digits after \\u")
        return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPED.get(code, code)

    unescaped = re.sub(_ESCAPE, character, text, flags=re.DOTALL)
    # A character beyond U+FFFF is written as the two halves that UTF-16 has for it.
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
