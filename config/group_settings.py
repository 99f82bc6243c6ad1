"""Validation of group configs, within the broker's limits (KIP-848, KIP-932, KIP-1071, KIP-1191)."""

from collections.abc import Mapping
from typing import Any

from config.definitions import definitions, group_definition
from config.errors import InvalidConfig, UnknownConfig
from config.resources import BrokerTexts
from config.similar import most_similar
from config.values import ConfigType, list_entries, parse_value


def validate_group_overrides(overrides: Mapping[str, str], broker: BrokerTexts) -> None:
    """Check the new configs of a group.

    Raises:
        InvalidConfig: A name does not exist, a value is of the wrong type or not allowed, or is outside the limits of
            the broker, such as ``group.consumer.max.session.timeout.ms``.
    """
    for key, text in overrides.items():
        known = group_definition(key)
        if known is None:
            raise UnknownConfig(key, text, most_similar(key, definitions("group")), "group")
        value = parse_value(key, known.type, known.allowed, text)
        if isinstance(value, int):
            check_group_limits(key, value, f"group.{key}", broker)
        if key == "errors.deadletterqueue.topic.name" and value.startswith("__"):
            answer = f"{key}: DLQ topic name must not start with '__'"
            raise InvalidConfig(key, text, "a name that does not begin with two underscores", answer)
        if key == "streams.rack.aware.assignment.tags" and len(list_entries(text)) > len(value):
            raise InvalidConfig(key, text, "each tag once", f"{key} must not contain duplicate tag keys.")
        if key == "streams.assignor.name" and value not in (assignors := _streams_assignors(broker)):
            listed = ", ".join(assignors)
            answer = f"{key} '{value}' is not a registered task assignor. Registered assignors are: [{listed}]."
            raise InvalidConfig(key, text, f"one of group.streams.assignors: {listed}", answer)


def _streams_assignors(broker: BrokerTexts) -> tuple[str, ...]:
    key = "group.streams.assignors"
    assignors: tuple[str, ...] = parse_value(key, ConfigType.LIST, "", broker.text(key) or "")
    return assignors


def group_value(key: str, overrides: Mapping[str, str], broker: BrokerTexts) -> Any:
    """The value in force of a group's config.

    Args:
        key: The name of a config of groups, ``consumer.session.timeout.ms``.
        overrides: The group's own configs.
        broker: The broker's settings, which have the values of groups without own ones, and the limits. A number
            outside of the limits counts as the nearest limit: they may have become narrower since it was set.
    """
    known = group_definition(key)
    if known is None:
        raise KeyError(key)
    text = overrides.get(key)
    if text is None:
        text = broker.text(known.synonyms[0]) if known.synonyms else known.default
    value = parse_value(key, known.type, known.allowed, text or "")
    if isinstance(value, int) and not isinstance(value, bool):
        least, most = (broker.text(limit_key) for limit_key in _limit_keys(f"group.{key}"))
        if least is not None:
            value = max(value, int(least))
        if most is not None:
            value = min(value, int(most))
    return value


def _limit_keys(broker_key: str) -> tuple[str, str]:
    """The settings with the least and the most that a setting of groups may be; they need not exist."""
    kind, _, name = broker_key.removeprefix("group.").partition(".")
    least, most = (f"group.{kind}.{limit}.{name.removeprefix('num.')}" for limit in ("min", "max"))
    return least, most


def check_group_limits(key: str, value: int, broker_key: str, broker: BrokerTexts) -> None:
    """Check a number against the least and the most that the broker's settings allow, where there are such settings.

    Args:
        key: The name of the config, for the error.
        value: The new value.
        broker_key: The broker's own value for it, ``group.consumer.session.timeout.ms``: the limits are called
            ``group.consumer.min.session.timeout.ms`` and ``group.consumer.max.session.timeout.ms``.
        broker: The broker's settings.

    Raises:
        InvalidConfig: The value is outside of the limits.
    """
    keys = _limit_keys(broker_key)
    least, most = (broker.text(limit_key) for limit_key in keys)
    for limit_key, text, word, relation, is_kept in (
        (keys[0], least, "least", "greater", int.__ge__),
        (keys[1], most, "most", "less", int.__le__),
    ):
        if text is None or is_kept(value, int(text)):
            continue
        if key == broker_key:
            answer = f"{key} must be {relation} than or equal to {limit_key}"
        elif least is not None and most is not None:
            answer = f"{key} must be in the range {least} to {most} inclusive."
        else:
            answer = f"{key} must be {relation} than or equal to {text}"
        raise InvalidConfig(key, str(value), f"at {word} {limit_key}, which is {text}", answer)
