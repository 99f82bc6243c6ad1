r"""Java's regular expressions (`java.util.regex.Pattern`), translated to those of Python.

A pattern is read as Java reads it, into nodes. All that Python would read otherwise (`\w`, `$`, `.`, classes with `&&`,
flags) is written out for it: a character is a set of code points, and a line's end is an assertion. What Java refuses,
and what Python cannot do, raises `InvalidPattern`.
"""

import itertools
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from config.java_characters import (
    ESCAPES,
    EVERY,
    LINE_ENDS,
    CharacterSet,
    complement,
    in_either_case,
    intersection,
    named_set,
    union,
)

_SPACE: Final = "\t\n\x0b\f\r "
_ENDS: Final = r"[\r\x85\u2028\u2029]"
_CHARACTER_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_LINE_BREAK: Final = r"(?:\r\n|[\n\x0b\f\r\x85\u2028\u2029])"
_UTF_16: Final = r"[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}|[0-9A-Fa-f]{4}"
_NEVER: Final = "(?!)"
_MOST_REPEATS: Final = (1 << 31) - 1
_FLAGS: Final = "idmsx"
_OTHER_FLAGS: Final = "cuU"
_MOST_WIDTHS: Final = 200
"""How many texts of different lengths a look-behind may be written out as."""


class InvalidPattern(ValueError):
    """A pattern that is none in Java, or that has no translation; the words end a sentence."""


@dataclass(slots=True, frozen=True)
class _Characters:
    """One character of a set."""

    ranges: CharacterSet


@dataclass(slots=True, frozen=True)
class _Assertion:
    """A condition that takes no character, in Python's words."""

    text: str


@dataclass(slots=True, frozen=True)
class _Raw:
    """Something that takes characters, in Python's words."""

    text: str


@dataclass(slots=True, frozen=True)
class _Sequence:
    nodes: "tuple[_Node, ...]"


@dataclass(slots=True, frozen=True)
class _Alternatives:
    nodes: "tuple[_Node, ...]"


@dataclass(slots=True, frozen=True)
class _Repeat:
    node: "_Node"
    least: int
    most: int | None
    mode: str
    """Empty for greedy, `?` for lazy, `+` for possessive."""


@dataclass(slots=True, frozen=True)
class _Group:
    node: "_Node"
    opening: str
    """`(` for a group that captures, `(?:`, `(?>`, or that of a look-around."""


_Node: TypeAlias = _Characters | _Assertion | _Raw | _Sequence | _Alternatives | _Repeat | _Group
_EMPTY: Final = _Sequence(())


class JavaPattern(NamedTuple):
    """A pattern of Java's that can be matched."""

    text: str
    """In Python's words."""
    groups: int
    names: Mapping[str, int]

    @property
    def compiled(self) -> re.Pattern[str]:
        """For Python, which keeps what it has compiled last."""
        return re.compile(self.text)

    def find(self, text: str) -> Iterator[re.Match[str]]:
        """The matches behind each other. After an empty one Java goes on at the next character, and Python does not."""
        position = 0
        while position <= len(text) and (found := self.compiled.search(text, position)):
            yield found
            position = found.end() + (found.end() == found.start())


def java_pattern(text: str) -> JavaPattern:
    """Translate a pattern. Raises `InvalidPattern`."""
    parser = _Parser(_unquoted(text))
    try:
        translated = _written(parser.whole())
        re.compile(translated)
    except re.error as error:
        raise InvalidPattern(f"it has no translation: {error}") from None
    except RecursionError:
        raise InvalidPattern("its groups are nested too deeply") from None
    return JavaPattern(translated, parser.groups, parser.names)


def _unquoted(text: str) -> str:
    r"""The pattern with `\Q…\E` written out."""

    def escaped(found: re.Match[str]) -> str:
        quoted = found["quoted"]
        if quoted is None:
            return found[0]
        return "".join(f"\\{one}" if one.isascii() and not one.isalnum() else rf"\x{ord(one):02x}" for one in quoted)

    return re.sub(r"\\Q(?P<quoted>.*?)(?:\\E|\Z)|\\.", escaped, text, flags=re.DOTALL)


class _Parser:
    """One pass over a pattern. The flags hold from where they stand to the end of the group around them."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._flags: frozenset[str] = frozenset()
        self._open: set[int] = set()
        self._missing: list[int] = []
        """References to groups that do not end before them."""
        self.groups = 0
        self.names: dict[str, int] = {}

    def whole(self) -> _Node:
        """The node of the whole pattern."""
        node = self._alternatives()
        if self._at < len(self._text):
            raise InvalidPattern("a parenthesis is closed that was not opened")
        if early := [number for number in self._missing if number <= self.groups]:
            raise InvalidPattern(f"a reference to group {early[0]} stands before the end of that group")
        return node

    # Characters of the pattern

    def _peek(self) -> str:
        """The next character that counts; empty at the end. With the flag x, white space and comments do not count."""
        if "x" in self._flags:
            while self._here() and self._here() in _SPACE + "#":
                if self._take() == "#":
                    ends = "\n" if "d" in self._flags else "\n\r\x85\u2028\u2029"
                    while self._here() and self._take() not in ends:
                        pass
        return self._here()

    def _here(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        self._at += 1
        return self._text[self._at - 1 : self._at]

    def _takes(self, wanted: str) -> bool:
        """Whether the pattern goes on with this, which is passed over then."""
        found = self._text.startswith(wanted, self._at)
        self._at += len(wanted) * found
        return found

    def _taken(self, pattern: str, expected: str) -> str:
        """What the pattern goes on with, as a regular expression of Python's."""
        found = re.compile(pattern, re.DOTALL).match(self._text, self._at)
        if found is None:
            raise InvalidPattern(f"{self._text[max(self._at - 2, 0) : self._at + 4]!r} stands where {expected} is due")
        self._at = found.end()
        return found[0]

    # Nodes

    def _alternatives(self) -> _Node:
        nodes = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            nodes.append(self._sequence())
        return nodes[0] if len(nodes) == 1 else _Alternatives(tuple(nodes))

    def _sequence(self) -> _Node:
        nodes: list[_Node] = []
        while (character := self._peek()) and character not in "|)":
            if character in "?*+":
                raise InvalidPattern(f"{character!r} stands behind nothing that could be repeated")
            node = self._group() if character == "(" else self._single(character)
            if node is not None:
                nodes.append(self._repeated(node))
        return _Sequence(tuple(nodes))

    def _single(self, character: str) -> _Node:
        if character == "{":
            return _EMPTY  # Java repeats the nothing that stands before it
        self._at += 1
        match character:
            case "[":
                return _Characters(self._class())
            case "\\":
                return self._escape()
            case "^":
                return _Assertion(self._line_start())
            case "$":
                return _Assertion(self._line_end(is_of_any_line="m" in self._flags))
            case ".":
                ends = ((10, 10),) if "d" in self._flags else LINE_ENDS
                return _Characters(EVERY if "s" in self._flags else complement(ends))
        return self._literal(ord(character))

    def _literal(self, code: int) -> _Characters:
        return _Characters(self._folded(((code, code),)))

    def _folded(self, ranges: CharacterSet) -> CharacterSet:
        return in_either_case(ranges) if "i" in self._flags else ranges

    def _line_start(self) -> str:
        if "m" not in self._flags:
            return r"\A"
        return r"(?!\Z)(?:\A|(?<=\n))" if "d" in self._flags else rf"(?!\Z)(?:\A|(?<=\n)|(?<={_ENDS})(?!(?<=\r)\n))"

    def _line_end(self, *, is_of_any_line: bool) -> str:
        if "d" in self._flags:
            return r"(?=\n|\Z)" if is_of_any_line else r"(?=\n?\Z)"
        if is_of_any_line:
            return rf"(?=(?<!\r)\n|{_ENDS}|\Z)"
        return rf"(?=(?:\r\n|(?<!\r)\n|{_ENDS})?\Z)"

    def _repeated(self, node: _Node) -> _Node:
        match self._peek():
            case "?":
                least, most = 0, 1
            case "*":
                least, most = 0, _MOST_REPEATS
            case "+":
                least, most = 1, _MOST_REPEATS
            case "{":
                least, most = self._counts()
            case _:
                return node
        self._at += 1
        mode = self._peek()
        if mode and mode in "?+":
            self._at += 1
        else:
            mode = ""
        return _Repeat(node, least, None if most == _MOST_REPEATS else most, mode)

    def _counts(self) -> tuple[int, int]:
        """The numbers in braces; what is read next is the closing one."""
        least, comma, most = self._taken(r"\{[0-9]+(?:,[0-9]*)?(?=\})", "a number of repeats")[1:].partition(",")
        counts = int(least), int(most or (_MOST_REPEATS if comma else least))
        if counts[0] > counts[1] or counts[1] > _MOST_REPEATS:
            raise InvalidPattern(f"{{{least}{comma}{most}}} is no range")
        return counts

    def _group(self) -> _Node | None:
        """A group; None for flags, which are no node."""
        self._at += 1
        flags, number = self._flags, 0
        if self._peek() != "?":
            opening = "("
        else:
            self._at += 1
            opening = next((f"(?{kind}" for kind in (":", "=", "!", ">", "<=", "<!") if self._takes(kind)), "")
        if not opening and self._takes("<"):
            opening, name = "(", self._taken(r"[A-Za-z][A-Za-z0-9]*(?=>)", "the name of a group")
            if name in self.names:
                raise InvalidPattern(f"two groups have the name {name}")
            self.names[name] = self.groups + 1
            self._at += 1
        elif not opening:
            self._read_flags()
            if self._peek() == ")":
                self._at += 1
                return None
            self._taken(":", "a colon behind flags")
            opening = "(?:"
        if opening == "(":
            self.groups += 1
            number = self.groups
            self._open.add(number)
        node = self._alternatives()
        if self._peek() != ")":
            raise InvalidPattern("a parenthesis is not closed")
        self._at += 1
        self._open.discard(number)
        self._flags = flags
        return _Group(node, opening)

    def _read_flags(self) -> None:
        words = self._taken(r"[A-Za-z]*(?:-[A-Za-z]*)?", "a flag")
        added, _, removed = words.partition("-")
        for flag in added + removed:
            if flag in _OTHER_FLAGS:
                raise InvalidPattern(f"the flag {flag} is not supported here")
            if flag not in _FLAGS:
                raise InvalidPattern(f"there is no flag {flag}")
        self._flags = self._flags.union(added).difference(removed)

    # Escapes

    def _escape(self) -> _Node:
        r"""What stands behind a backslash, outside of a class."""
        character = self._here()
        if character in "123456789" and character:
            return self._reference_by_number()
        self._at += 1
        match character:
            case "A":
                return _Assertion(r"\A")
            case "z":
                return _Assertion(r"\Z")
            case "Z":
                return _Assertion(self._line_end(is_of_any_line=False))
            case "b" | "B" if not (character == "b" and self._text.startswith("{g}", self._at)):
                return _Assertion(_boundary(is_one=character == "b"))
            case "R":
                return _Raw(_LINE_BREAK)
            case "k":
                name = self._taken(r"<[A-Za-z][A-Za-z0-9]*>", "the name of a group")[1:-1]
                if name not in self.names:
                    raise InvalidPattern(f"no group before it has the name {name}")
                return self._reference(self.names[name])
            case "b" | "G" | "X":
                raise InvalidPattern(f"\\{character} is not supported here")
        self._at -= 1
        found = self._escaped_set()
        return _Characters(found) if isinstance(found, tuple) else self._literal(found)

    def _escaped_set(self, *, is_range: bool = False) -> CharacterSet | int:
        r"""A set of characters or one code point: what may stand behind a backslash in a class, too."""
        character = self._take()
        lower = character.lower()
        if character == "v" and is_range:
            return 0x0B
        if lower in ESCAPES:
            return ESCAPES[lower] if character == lower else complement(ESCAPES[lower])
        if character in _CHARACTER_ESCAPES:
            return ord(_CHARACTER_ESCAPES[character])
        match character:
            case "p" | "P":
                return self._property(is_complement=character == "P")
            case "0":
                return int(self._taken("[0-3]?[0-7]{1,2}", "an octal number"), 8)
            case "x":
                digits = self._taken(r"[0-9A-Fa-f]{2}|\{[0-9A-Fa-f]+\}", "a hexadecimal number").strip("{}")
                if (code := int(digits, 16)) > EVERY[0][1]:
                    raise InvalidPattern(f"{digits} is no code point")
                return code
            case "u":
                units = self._taken(_UTF_16, "the number of a character").split("\\u")
                utf_16 = b"".join(int(unit, 16).to_bytes(2) for unit in units)
                return ord(utf_16.decode("utf-16-be", "surrogatepass"))
            case "c" if self._here():
                return ord(self._take()) ^ 64
            case "N":
                name = self._taken(r"\{[^}]*\}", "the name of a character")[1:-1]
                try:
                    return ord(unicodedata.lookup(name))
                except (KeyError, TypeError):
                    raise InvalidPattern(f"no character has the name {name}") from None
        if not character:
            raise InvalidPattern("it ends with a backslash")
        if character.isascii() and character.isalnum():
            raise InvalidPattern(f"\\{character} is no escape")
        return ord(character)

    def _property(self, *, is_complement: bool) -> CharacterSet:
        text = self._taken(r"\{[^}]+\}|[^{]", "a property of characters")
        name = text.removeprefix("{").removesuffix("}") if len(text) > 1 else text
        found = named_set(name, ignores_case="i" in self._flags)
        if found is None:
            raise InvalidPattern(f"\\p{{{name}}} is no set of characters that is known here")
        return complement(found) if is_complement else found

    def _reference_by_number(self) -> _Node:
        """A reference to a group before it: of the digits as many count as name a group."""
        number = int(self._take())
        while self._peek() in tuple("0123456789") and number * 10 + int(self._peek()) <= self.groups:
            number = number * 10 + int(self._take())
        return self._reference(number)

    def _reference(self, number: int) -> _Node:
        if number > self.groups or number in self._open:
            self._missing.append(number)
            return _Raw(_NEVER)
        return _Raw(f"(?ai:\\{number})" if "i" in self._flags else f"(?:\\{number})")

    # Classes

    def _class(self, *, is_nested: bool = True) -> CharacterSet:
        """The set of a class in brackets, or, not nested, of what stands between && and the next && or bracket."""
        is_complement = is_nested and self._takes("^")
        found: CharacterSet | None = None
        singles: CharacterSet = ()
        has_new_singles = False
        while True:
            character = self._peek()
            if not character:
                raise InvalidPattern("a class of characters is not closed")
            if character == "[":
                self._at += 1
                found = union(found or (), self._class())
                continue
            is_end = character == "]" and (found is not None or has_new_singles)
            is_intersection = character == "&" and self._takes("&&")
            right = self._right_of_intersection() if is_intersection else None
            if has_new_singles and (is_end or is_intersection):
                # Java keeps the single characters: those before an && come back with one behind it.
                found, has_new_singles = union(found or (), singles), False
            if is_end:
                self._at += is_nested
                return complement(found or ()) if is_complement else found or ()
            if is_intersection:
                if found is None and right is None:
                    raise InvalidPattern("&& stands between two classes that are empty")
                found = right if found is None else found if right is None else intersection(found, right)
                continue
            one, is_range = self._range()
            if is_range:
                found = union(found or (), one)
            else:
                singles, has_new_singles = union(singles, one), True

    def _right_of_intersection(self) -> CharacterSet | None:
        right: CharacterSet | None = None
        while (character := self._peek()) not in ("]", "&"):
            if character == "[":
                self._at += 1
                right = union(right or (), self._class())
            else:
                right = union(right or (), self._class(is_nested=False))
        return right

    def _range(self) -> tuple[CharacterSet, bool]:
        """The set of a character, and False, or that of a range or an escape, and True."""
        first = self._class_character()
        if isinstance(first, tuple):
            return first, True
        if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("[", "]"):
            self._at += 1
            self._peek()
            last = self._class_character(is_range=True)
            if isinstance(last, tuple) or last < first:
                raise InvalidPattern("a range of characters ends before it begins")
            return self._folded(((first, last),)), True
        return self._folded(((first, first),)), False

    def _class_character(self, *, is_range: bool = False) -> CharacterSet | int:
        if not self._here():
            raise InvalidPattern("a class of characters is not closed")
        character = self._take()
        return self._escaped_set(is_range=is_range) if character == "\\" else ord(character)


def _boundary(*, is_one: bool) -> str:
    """Where a word begins or ends. A letter is one of any alphabet, as in Java before 19, and marks go with it."""
    letters = named_set("LD") or ()
    word = _written(_Characters(union(letters, ESCAPES["w"], named_set("Mn") or ())))
    if is_one:
        return f"(?:(?<={word})(?!{word})|(?<!{word})(?={word}))"
    return f"(?:(?<={word})(?={word})|(?<!{word})(?!{word}))"


# Writing nodes as Python's pattern


def _written(node: _Node) -> str:
    match node:
        case _Characters(ranges):
            return _written_set(ranges)
        case _Assertion(text) | _Raw(text):
            return text
        case _Sequence(nodes):
            return "".join(map(_written, nodes))
        case _Alternatives(nodes):
            return "(?:" + "|".join(map(_written, nodes)) + ")"
        case _Group(inner, "(?<=" | "(?<!" as opening):
            behind = [f"{opening}{text})" for text in _texts_of_fixed_width(inner)]
            return "".join(behind) if opening == "(?<!" else f"(?:{'|'.join(behind)})"
        case _Group(inner, opening):
            return f"{opening}{_written(inner)})"
        case _Repeat(inner, least, most, mode):
            counts = f"{{{least},{'' if most is None else most}}}"
            text = f"(?:{_written(inner)}){counts}"
            return f"(?>{text})" if mode == "+" else text + mode


def _written_set(ranges: CharacterSet) -> str:
    if not ranges:
        return _NEVER
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return re.escape(chr(ranges[0][0]))
    return "[" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges) + "]"


def _texts_of_fixed_width(node: _Node) -> list[str]:
    """A node of a look-behind as texts of one width each, which is what Python takes. Raises `InvalidPattern`."""
    found: list[str]
    match node:
        case _Characters() | _Assertion() | _Group(_, "(?=" | "(?!" | "(?<=" | "(?<!"):
            return [_written(node)]
        case _Sequence(nodes):
            found = [""]
            for part in nodes:
                found = [before + text for before in found for text in _texts_of_fixed_width(part)]
                _check_number(found)
        case _Alternatives(nodes):
            found = [text for part in nodes for text in _texts_of_fixed_width(part)]
        case _Group(inner, "(?:"):
            return _texts_of_fixed_width(inner)
        case _Group(inner, "(") if len(texts := _texts_of_fixed_width(inner)) == 1:
            return [f"({texts[0]})"]
        case _Repeat(inner, least, int() as most, "" | "?"):
            texts = _texts_of_fixed_width(inner)
            found = []
            for times in range(least, most + 1):
                found += map("".join, itertools.islice(itertools.product(texts, repeat=times), _MOST_WIDTHS + 1))
                _check_number(found)
        case _:
            raise InvalidPattern("what it has in a look-behind is not supported there: its length may be any")
    _check_number(found)
    return found


def _check_number(texts: list[str]) -> None:
    if len(texts) > _MOST_WIDTHS:
        raise InvalidPattern("a look-behind has too many lengths")
