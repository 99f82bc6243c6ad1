"""Rules that make a user's name of the subject of a client's certificate: `ssl.principal.mapping.rules` (KIP-371).

    RULE:^CN=([^,]*),.*$/$1/L,RULE:^.*OU=(.*?),.*$/$1/,DEFAULT

The first rule whose pattern matches the whole subject counts. `$1` is the first group of the pattern; L and U make the
name lower or upper case. DEFAULT is the subject as it is.
"""

import re
from typing import Final, NamedTuple

DEFAULT: Final = "DEFAULT"

_RULE: Final = r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)|)\s*(?:[,\n]|$)"
_REFERENCE: Final = r"\$([0-9]+)"
_NAMED_GROUP: Final = r"\(\?<(?=[A-Za-z])"
"""The beginning of a named group as Java writes it."""


class InvalidRules(Exception):
    """Why rules cannot be read; the words end a sentence."""


class Rule(NamedTuple):
    """One rule. ``pattern`` None is DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""

    def name_of(self, subject: str) -> str | None:
        """The name that the rule makes; None where its pattern does not match."""
        if self.pattern is None:
            return subject
        if not self.pattern.fullmatch(subject):
            return None
        name = self.pattern.sub(self._replaced, subject)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name

    def _replaced(self, match: re.Match[str]) -> str:
        """The replacement for one match. A number that is no group's stays as it is, as in Kafka."""

        def group(reference: re.Match[str]) -> str:
            number = int(reference[1])
            return reference[0] if number > match.re.groups else match[number] or ""

        return _unescaped(re.sub(_REFERENCE, group, self.replacement))


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Read rules that stand behind each other, separated by commas or ends of lines. Raises `InvalidRules`."""
    text = text.strip()
    rules: list[Rule] = []
    position = 0
    while position < len(text):
        found = re.compile(_RULE).match(text, position)
        if found is None:
            raise InvalidRules(f"no rule begins with {text[position : position + 40]!r}")
        position = found.end()
        default, pattern, replacement, case = found.groups()
        if default:
            rules.append(Rule(None))
        elif pattern is not None:
            rules.append(Rule(_compiled(pattern), replacement, case))
    if not rules:
        raise InvalidRules("there is no rule")
    return tuple(rules)


def name_of(subject: str, rules: tuple[Rule, ...]) -> str | None:
    """The name of a user whose certificate has this subject; None where no rule matches."""
    return next((name for rule in rules if (name := rule.name_of(subject)) is not None), None)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(re.sub(_NAMED_GROUP, "(?P<", pattern))
    except re.error as error:
        raise InvalidRules(f"{pattern!r} is no pattern: {error}") from None


def _unescaped(text: str) -> str:
    r"""Without the backslash before a character, as `\/` stands for `/`."""
    return re.sub(r"\\(.)", r"\1", text)
