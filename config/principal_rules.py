"""Rules that make a user's name of the subject of a client's certificate: `ssl.principal.mapping.rules` (KIP-371).

    RULE:^CN=([^,]*),.*$/$1/L,RULE:^.*OU=(.*?),.*$/$1/,DEFAULT

The first rule whose pattern matches the whole subject counts: the name is the subject with every match of the pattern
replaced. Patterns and replacements are Java's. L and U make the name lower or upper case. DEFAULT is the subject as it
is.
"""

import re
from typing import Final, NamedTuple

from config.java_pattern import InvalidPattern, JavaPattern, java_pattern

DEFAULT: Final = "DEFAULT"

_PART: Final = r"((?:\\.|[^\\/])*)"
_RULE: Final = f"RULE:{_PART}/{_PART}/([LU]?)"
_SEPARATED: Final = rf"\s*({DEFAULT}|{_RULE}.*?|.*?)\s*(?:,\s*|$)"
"""What stands between commas. As in Kafka, text before an end of line that no comma follows is passed over."""
_JAVA_SPACE: Final = "".join(map(chr, range(0x21)))
_REFERENCE: Final = r"\$([0-9]+)"
_REPLACEMENT: Final = r"\\(?P<escaped>.)|\$\{(?P<name>[A-Za-z][A-Za-z0-9]*)\}|\$(?P<number>[0-9]+)|(?P<text>[^\\$]+)"


class InvalidRules(Exception):
    """Why rules cannot be read; the words end a sentence."""


class Rule(NamedTuple):
    """One rule. ``pattern`` None is DEFAULT."""

    pattern: JavaPattern | None
    replacement: tuple[str | int, ...] = ()
    """Texts, and numbers of groups."""
    case: str = ""

    def name_of(self, subject: str) -> str | None:
        """The name that the rule makes; None where its pattern does not match."""
        if self.pattern is None:
            return subject
        if not self.pattern.compiled.fullmatch(subject):
            return None
        name, position = "", 0
        for match in self.pattern.find(subject):
            replaced = (part if isinstance(part, str) else match[part] or "" for part in self.replacement)
            name += subject[position : match.start()] + "".join(replaced)
            position = match.end()
        name += subject[position:]
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Read rules that stand behind each other, separated by commas. Raises `InvalidRules`."""
    rules = [_rule(one) for one in _separated(text.strip(_JAVA_SPACE)) if one]
    if not rules:
        raise InvalidRules("there is no rule")
    return tuple(rules)


def name_of(subject: str, rules: tuple[Rule, ...]) -> str | None:
    """The name of a user whose certificate has this subject; None where no rule matches."""
    return next((name for rule in rules if (name := rule.name_of(subject)) is not None), None)


def _separated(text: str) -> list[str]:
    return [match[1] for match in java_pattern(_SEPARATED).find(text)]


def _rule(text: str) -> Rule:
    if text == DEFAULT:
        return Rule(None)
    found = re.fullmatch(_RULE, text, re.DOTALL)
    if found is None:
        raise InvalidRules(f"{text!r} is no rule")
    pattern, replacement, case = found.groups()
    try:
        translated = java_pattern(pattern)
    except InvalidPattern as reason:
        raise InvalidRules(f"the pattern {pattern!r} of a rule cannot be used: {reason}") from None
    return Rule(translated, _replacement(replacement, translated), case)


def _replacement(text: str, pattern: JavaPattern) -> tuple[str | int, ...]:
    """The parts of a replacement, as `java.util.regex.Matcher` reads it. Raises `InvalidRules`."""
    parts: list[str | int] = []
    text, position = _with_unknown_escaped(text, pattern.groups), 0
    while position < len(text):
        found = re.compile(_REPLACEMENT, re.DOTALL).match(text, position)
        if found is None:
            raise InvalidRules(f"the replacement {text!r} of a rule has {text[position:]!r}, which stands for no group")
        position = found.end()
        if found["number"]:
            digits = found["number"]
            while len(digits) > 1 and int(digits) > pattern.groups:
                digits = digits[:-1]
            position = found.start("number") + len(digits)
            parts.append(int(digits))
        elif found["name"]:
            parts.append(pattern.names.get(found["name"], pattern.groups + 1))
        else:
            parts.append(found["escaped"] or found["text"])
        if isinstance(parts[-1], int) and parts[-1] > pattern.groups:
            raise InvalidRules(f"the replacement {text!r} of a rule has {found[0]!r}, and there is no such group")
    return tuple(parts)


def _with_unknown_escaped(text: str, groups: int) -> str:
    """The replacement with a backslash before each number that is no group's: such a number stays as it is.

    Kafka does so where the pattern has groups. The backslash of a second such number stands one character too early, as
    there, and that of a third one two.
    """
    if not groups:
        return text
    escaped = text
    for reference in re.finditer(_REFERENCE, text):
        number = reference[1]
        while len(number) > 1 and int(number) > groups:
            number = number[:-1]
        if not number.startswith("0") and int(number) > groups:
            escaped = f"{escaped[: reference.start()]}\\{escaped[reference.start() :]}"
    return escaped
