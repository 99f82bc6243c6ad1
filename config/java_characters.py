r"""Sets of characters, as Java's regular expressions name them: `\w`, `\p{Lu}`, `\p{Alpha}`, `\p{IsGreek}`.

A set is the ranges of its code points: in order, apart from each other, both ends included.
"""

import itertools
import sys
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Final, TypeAlias, TypeVar

CharacterSet: TypeAlias = tuple[tuple[int, int], ...]
_Kind = TypeVar("_Kind")

_LAST: Final = sys.maxunicode
_SURROGATES: Final = (0xD800, 0xDFFF)
_SCRIPTS_AT_A_TIME: Final = ((0, _SURROGATES[0] - 1), (_SURROGATES[1] + 1, _LAST))

EVERY: Final[CharacterSet] = ((0, _LAST),)
LINE_ENDS: Final[CharacterSet] = ((0x0A, 0x0A), (0x0D, 0x0D), (0x85, 0x85), (0x2028, 0x2029))
_DIGITS: Final = ((0x30, 0x39),)
_UPPER: Final = ((0x41, 0x5A),)
_LOWER: Final = ((0x61, 0x7A),)
_ALPHA: Final = _UPPER + _LOWER
_SPACE: Final = ((0x09, 0x0D), (0x20, 0x20))
_WHITE_SPACE: Final = (
    *((0x09, 0x0D), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A)),
    *((0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)),
)
_HORIZONTAL: Final = (
    *((0x09, 0x09), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x180E, 0x180E), (0x2000, 0x200A)),
    *((0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)),
)
_VERTICAL: Final = ((0x0A, 0x0D), (0x85, 0x85), (0x2028, 0x2029))

ESCAPES: Final[dict[str, CharacterSet]] = {
    "d": _DIGITS,
    "h": _HORIZONTAL,
    "s": _SPACE,
    "v": _VERTICAL,
    "w": (*_DIGITS, *_UPPER, (0x5F, 0x5F), *_LOWER),
}
"""The sets of `\\d` and the like; of the capital letter, what is not in the set."""

_NAMED: Final[dict[str, CharacterSet]] = {
    "ASCII": ((0, 0x7F),),
    "Alnum": _DIGITS + _ALPHA,
    "Alpha": _ALPHA,
    "Blank": ((0x09, 0x09), (0x20, 0x20)),
    "Cntrl": ((0, 0x1F), (0x7F, 0x7F)),
    "Digit": _DIGITS,
    "Graph": ((0x21, 0x7E),),
    "L1": ((0, 0xFF),),
    "Lower": _LOWER,
    "Print": ((0x20, 0x7E),),
    "Punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "Space": _SPACE,
    "Upper": _UPPER,
    "XDigit": (*_DIGITS, (0x41, 0x46), (0x61, 0x66)),
    "all": EVERY,
}
_OF_CATEGORIES: Final = {
    "LC": ("Lu", "Ll", "Lt"),
    "LD": ("L", "Nd"),
    "IsCONTROL": ("Cc",),
    "IsDIGIT": ("Nd",),
    "IsLETTER": ("L",),
    "IsPUNCTUATION": ("P",),
    "javaDigit": ("Nd",),
    "javaLetter": ("L",),
    "javaLetterOrDigit": ("L", "Nd"),
}
_CASES: Final[dict[str, Callable[[str], bool]]] = {
    "IsLOWERCASE": str.islower,
    "IsUPPERCASE": str.isupper,
    "javaLowerCase": str.islower,
    "javaUpperCase": str.isupper,
}
_OF_ONE_CASE: Final = frozenset({"Lu", "Ll", "Lt", *_CASES})


def union(*sets: CharacterSet) -> CharacterSet:
    """What is in one of the sets at least."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(one for ranges in sets for one in ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return tuple(merged)


def complement(ranges: CharacterSet) -> CharacterSet:
    """What is not in the set."""
    starts = [0, *(last + 1 for _, last in ranges)]
    ends = [*(first - 1 for first, _ in ranges), _LAST]
    return tuple((start, end) for start, end in zip(starts, ends, strict=True) if start <= end)


def intersection(left: CharacterSet, right: CharacterSet) -> CharacterSet:
    """What is in both sets."""
    return complement(union(complement(left), complement(right)))


def in_either_case(ranges: CharacterSet) -> CharacterSet:
    """The set with both cases of the ASCII letters in it."""
    upper, lower = intersection(ranges, _UPPER), intersection(ranges, _LOWER)
    distance = _LOWER[0][0] - _UPPER[0][0]
    lowered = ((first + distance, last + distance) for first, last in upper)
    raised = ((first - distance, last - distance) for first, last in lower)
    return union(ranges, tuple(lowered), tuple(raised))


@cache
def named_set(name: str, *, ignores_case: bool = False) -> CharacterSet | None:
    r"""The set that `\p{name}` stands for; None if there is no such set here."""
    if name.startswith("Is"):
        upper = "Is" + name[2:].upper().replace("_", "")
        if upper == "IsWHITESPACE":
            return _WHITE_SPACE
        if upper in _OF_CATEGORIES or upper in _CASES:
            name = upper
        elif (found := named_set(name[2:], ignores_case=ignores_case)) is not None:
            return found
        else:
            return _script(name[2:])
    kind, _, value = name.partition("=")
    if value:
        kind = kind.lower()
        if kind in ("sc", "script"):
            return _script(value)
        return named_set(value, ignores_case=ignores_case) if kind in ("gc", "general_category") else None
    if ignores_case and name in ("Lower", "Upper"):
        return _ALPHA
    if ignores_case and name in _OF_ONE_CASE:
        name = "LC"
    if name in _NAMED:
        return _NAMED[name]
    if is_in := _CASES.get(name):
        return _kinds(is_in)[True]
    wanted = _OF_CATEGORIES.get(name, (name,) if name else ())
    sets = [ranges for category, ranges in _categories().items() if category.startswith(wanted)]
    return union(*sets) if sets else None


@cache
def _categories() -> dict[str, CharacterSet]:
    """The characters of each general category."""
    return _kinds(unicodedata.category)


def _kinds(kind_of: Callable[[str], _Kind]) -> dict[_Kind, CharacterSet]:
    """All characters by the kind that a function says."""
    kinds: dict[_Kind, list[tuple[int, int]]] = {}
    first = 0
    for kind, run in itertools.groupby(map(kind_of, map(chr, range(_LAST + 1)))):
        end = first + sum(1 for _ in run)
        kinds.setdefault(kind, []).append((first, end - 1))
        first = end
    return {kind: tuple(ranges) for kind, ranges in kinds.items()}


def _script(name: str) -> CharacterSet | None:
    """The characters of a script, which RE2 knows and Python does not."""
    import re2

    options = re2.Options()
    options.log_errors = False
    title = "_".join(word.capitalize() for word in name.split("_"))
    try:
        pattern = re2.compile(rf"\p{{{title}}}+", options)
    except re2.error:
        return None
    return tuple(
        (start + found.start(), start + found.end() - 1)
        for start, end in _SCRIPTS_AT_A_TIME
        for found in pattern.finditer("".join(map(chr, range(start, end + 1))))
    )
