"""Kafka's types of setting: how the text of a value is read, checked against what is allowed, and written again.

What is allowed is noted as Kafka's own lists note it, and read from that notation:

    [1,...]                      a number of at least 1
    [0,...,1]                    a number from 0 to 1
    [1,...,9] or -1              a number from 1 to 9, or -1
    [gzip, lz4, none]            one of these; in a list, any of these
    (case insensitive) [A, B]    one of these, in any case
    non-empty string             not empty; an entry of a list never is
    group name                   the name of a consumer group, or nothing
    [partitionId]:[brokerId],…   a list of pairs of numbers, or *
"""

import re
from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple

from config.errors import InvalidConfig, invalid_value

Value = bool | int | float | str | tuple[str, ...]
"""What a text becomes: BOOLEAN a bool; INT, SHORT and LONG an int; DOUBLE a float; LIST a tuple; the others a str."""


class ConfigType(IntEnum):
    """The types of a setting, by the codes of DescribeConfigs (KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_LIMITS: Final = {
    ConfigType.SHORT: (-(1 << 15), (1 << 15) - 1),
    ConfigType.INT: (-(1 << 31), (1 << 31) - 1),
    ConfigType.LONG: (-(1 << 63), (1 << 63) - 1),
}
_MOST_DIGITS: Final = 19
_LIST_SPACE: Final = " \t\n\v\f\r"
_JAVA_SPACE: Final = "".join(map(chr, range(0x21)))
# Patterns are compiled at first use: a start with default settings needs none of them.
_DECIMAL: Final = r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[dDfF]?"
_RANGE: Final = r"\[(-?[0-9]+),\.\.\.(?:,(-?[0-9]+))?\](?: or (-?[0-9]+))?"
_CHOICES: Final = r"(\(case insensitive\) )?\[([\w., :-]+)\]"
_OF_REPLICAS: Final = "[partitionId]"
_THROTTLED_REPLICA: Final = r"([0-9]+:[0-9]+)?"
_NOT_IN_A_NAME: Final = r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]"
"""A pattern for control characters and lone surrogates."""
_GROUP_NAME_BYTES: Final = 32_767
"""Bytes of the longest group name: longer ones do not fit into an OffsetCommit request."""
_BY_DURATION: Final = (
    r"by_duration:(?i:P(?=[0-9T])(?:[0-9]+D)?(?:T(?=[0-9])(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+(?:\.[0-9]{0,9})?S)?)?)"
)


def trimmed(text: str) -> str:
    """``text`` without the white space and control characters around it, as Java's ``String.trim`` cuts them."""
    return text.strip(_JAVA_SPACE)


def parse_value(key: str, type_: ConfigType, allowed: str, text: str) -> Any:
    """Read the text of one setting by its type and check it against what is allowed.

    Args:
        key: The setting's name, for the error only.
        type_: Decides how the text is read; a LIST is split at its commas.
        allowed: Kafka's notation of the values allowed; empty for all.
        text: The text in the file, not yet trimmed.

    Raises:
        InvalidConfig: The text is not of the type, or the value is not allowed.
    """
    rule = _rule(type_, allowed)
    value = read_value(type_, text, allowed)
    if value is None:
        not_of_type = "Expected value to be either true or false"
        if type_ != ConfigType.BOOLEAN:
            not_of_type = f"Not a number of type {type_.name}"
        raise InvalidConfig(key, text, rule.expected, invalid_value(key, text, not_of_type))
    if not rule.accepts(value):
        raise InvalidConfig(key, text, rule.expected, rule.refusal(key, value))
    return value


def render_value(value: Value) -> str:
    """The text that DescribeConfigs shows: lists joined by commas, booleans lower case, doubles as Java prints them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return java_double(value)
    return str(value)


def normalised(type_: ConfigType, text: str, allowed: str = "") -> str:
    """The text of a valid value as Kafka prints it: ``08`` is ``8``, ``TRUE`` is ``true``, ``a , b, a`` is ``a,b``."""
    value = read_value(type_, text, allowed)
    return text if value is None else render_value(value)


def java_double(value: float) -> str:
    """A double as Java prints it: ``0.5``, ``15.0``, ``1.7976931348623157E308``."""
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")
    sign, digits, exponent = _significant_digits(value)
    if digits == "0":
        return f"{sign}0.0"
    if -3 <= exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    if 0 <= exponent < 7:
        whole = digits[: exponent + 1].ljust(exponent + 1, "0")
        return f"{sign}{whole}.{digits[exponent + 1 :] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _significant_digits(value: float) -> tuple[str, str, int]:
    """Sign, digits without zeros around them, and the exponent of the first digit."""
    mantissa, _, shift = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    exponent = int(shift or 0) + len(whole) - 1 - (len(whole + fraction) - len(digits))
    return ("-" if str(value).startswith("-") else ""), digits.rstrip("0") or "0", exponent


def list_entries(text: str) -> tuple[str, ...]:
    """The entries of a list, repeated ones included."""
    text = trimmed(text)
    return tuple(part.strip(_LIST_SPACE) for part in text.split(",")) if text else ()


def read_value(type_: ConfigType, text: str, allowed: str = "") -> Value | None:
    """The value of a text, None if it is not of the type; the allowed values are not checked.

    A list keeps each entry once, as in Kafka (KIP-1161), except a list of throttled replicas.
    """
    text = trimmed(text)
    if type_ in _LIMITS:
        digits = text[1:] if text[:1] in ("+", "-") else text
        if not (digits.isascii() and digits.isdigit()):
            return None
        significant = digits.lstrip("0") or "0"
        if len(significant) > _MOST_DIGITS:
            return None  # int() raises where there are thousands
        number = -int(significant) if text[0] == "-" else int(significant)
        lowest, highest = _LIMITS[type_]
        return number if lowest <= number <= highest else None
    if type_ == ConfigType.BOOLEAN:
        return {"true": True, "false": False}.get(text.lower())
    if type_ == ConfigType.DOUBLE:
        decimal = re.fullmatch(_DECIMAL, text)
        return float(decimal[1]) if decimal else None
    if type_ == ConfigType.LIST:
        entries = list_entries(text)
        return entries if allowed.startswith(_OF_REPLICAS) else tuple(dict.fromkeys(entries))
    return text


class _Rule(NamedTuple):
    """A parsed notation of allowed values."""

    accepts: Callable[[Any], bool]
    expected: str
    refusal: Callable[[str, Any], str]
    """Kafka's sentence for a key and a value that is not accepted."""


def _anything(expected: str) -> _Rule:
    return _Rule(lambda value: True, expected, lambda key, value: "")


@lru_cache(maxsize=256)
def _rule(type_: ConfigType, allowed: str) -> _Rule:
    if type_ in _LIMITS or type_ == ConfigType.DOUBLE:
        return _number_rule(type_, allowed)
    if type_ == ConfigType.BOOLEAN:
        return _anything("true or false")
    if allowed.startswith(_OF_REPLICAS):
        return _Rule(
            _is_throttled_replicas,
            "a list of partition:broker pairs such as 0:1,1:1, or *",
            lambda key, value: invalid_value(
                key,
                f"[{', '.join(value)}]",
                f"{key} must be the literal '*' or a list of replicas in the following format: {allowed}",
            ),
        )
    if choices := re.fullmatch(_CHOICES, allowed):
        return _choice_rule(type_, choices[2].split(", "), ignore_case=choices[1] is not None)
    if type_ == ConfigType.LIST:
        return _Rule(all, "a comma-separated list without empty entries", lambda key, value: _empty_entry(key))
    if allowed == "group name":
        expected = f"the name of a group, of at most {_GROUP_NAME_BYTES} bytes without control characters"
        return _Rule(_is_group_name, expected, lambda key, value: invalid_value(key, value, f"expected {expected}"))
    if allowed == "non-empty string":
        return _Rule(
            bool, "a text that is not empty", lambda key, value: invalid_value(key, value, "String must be non-empty")
        )
    return _anything("a text")


def _number_rule(type_: ConfigType, allowed: str) -> _Rule:
    lowest, highest = _LIMITS.get(type_, (float("-inf"), float("inf")))
    exception: int | None = None
    if bounds := re.fullmatch(_RANGE, allowed):
        lowest = int(bounds[1])
        highest = int(bounds[2]) if bounds[2] else highest
        exception = int(bounds[3]) if bounds[3] else None
    kind = "a number" if type_ == ConfigType.DOUBLE else "a whole number"
    if lowest == float("-inf"):
        expected = kind
    else:
        expected = f"{kind} of at least {lowest}" if highest == float("inf") else f"{kind} from {lowest} to {highest}"
    if exception is not None:
        expected += f", or {exception}"

    def refusal(key: str, value: float) -> str:
        if exception is not None:
            why = f"Value must be between {lowest} and {highest} or equal to {exception}"
        elif value < lowest:
            why = f"Value must be at least {lowest}"
        else:
            why = f"Value must be no more than {highest}"
        return invalid_value(key, render_value(value), why)

    return _Rule(lambda value: lowest <= value <= highest or value == exception, expected, refusal)


def _choice_rule(type_: ConfigType, choices: list[str], *, ignore_case: bool) -> _Rule:
    listed = ", ".join(choices)

    def refusal(key: str, value: object) -> str:
        return invalid_value(
            key, value, f"String must be one of{' (case insensitive)' if ignore_case else ''}: {listed}"
        )

    def refusal_of_list(key: str, value: tuple[str, ...]) -> str:
        return next(refusal(key, entry) if entry else _empty_entry(key) for entry in value if entry not in choices)

    if type_ == ConfigType.LIST:
        return _Rule(
            lambda value: set(value) <= set(choices), f"a comma-separated list of any of {listed}", refusal_of_list
        )
    if "by_duration:PnDTnHnMn.nS" in choices:
        return _Rule(
            lambda value: value in choices[:-1] or re.fullmatch(_BY_DURATION, value) is not None,
            f"one of {listed}",
            lambda key, value: invalid_value(
                key,
                value,
                f"Invalid value `{value}` for configuration {key}. The value must be either 'earliest', 'latest' or of "
                "the format 'by_duration:<PnDTnHnMn.nS>'.",
            ),
        )
    if ignore_case:
        return _Rule(lambda value: value.upper() in choices, f"one of {listed}, in any case", refusal)
    return _Rule(lambda value: value in choices, f"one of {listed}", refusal)


def _empty_entry(key: str) -> str:
    return f"Configuration '{key}' values must not be empty."


def _is_group_name(value: str) -> bool:
    return re.search(_NOT_IN_A_NAME, value) is None and len(value.encode()) <= _GROUP_NAME_BYTES


def _is_throttled_replicas(value: tuple[str, ...]) -> bool:
    return value == ("*",) or all(re.fullmatch(_THROTTLED_REPLICA, pair) for pair in value)
