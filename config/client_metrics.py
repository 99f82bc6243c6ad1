"""A subscription to clients' metrics (KIP-714): kept and described, though this broker collects no such metrics."""

import re
from collections.abc import Mapping
from typing import Final

from config.declared import Declaration
from config.errors import InvalidConfig, SettingsError
from config.values import ConfigType

_SHORTEST_INTERVAL_MS: Final = 100
_LONGEST_INTERVAL_MS: Final = 60 * 60 * 1000
_MATCHED: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

CLIENT_METRICS_SETTINGS: Final[Mapping[str, Declaration]] = {
    "interval.ms": Declaration(ConfigType.INT, "300000", "", None),
    "match": Declaration(ConfigType.LIST, "", "", None),
    "metrics": Declaration(ConfigType.LIST, "", "", None),
}
"""Every setting of a subscription by Kafka's name. Kafka's own tables do not have them."""


class InvalidSubscription(SettingsError):
    """A fault that Kafka answers with INVALID_REQUEST, not INVALID_CONFIG: an unknown name, a bad interval."""


def validate_client_metrics(overrides: Mapping[str, str]) -> None:
    """Check all settings of a subscription.

    Raises:
        InvalidSubscription: There is no such setting, or the interval is not between 100 ms and one hour.
        InvalidConfig: A value is not of its type, or matches clients by an unknown attribute.
    """
    for key, text in overrides.items():
        declaration = CLIENT_METRICS_SETTINGS.get(key)
        if declaration is None:
            raise InvalidSubscription(f"Unknown client metrics configuration: {key}")
        value = declaration.parse(key, text)
        if key == "interval.ms" and not _SHORTEST_INTERVAL_MS <= value <= _LONGEST_INTERVAL_MS:
            raise InvalidSubscription(
                f"Invalid value {value} for {key}, interval must be between {_SHORTEST_INTERVAL_MS} and "
                f"{_LONGEST_INTERVAL_MS} (1 hour)"
            )
        if key == "match":
            for entry in value:
                _check_match(key, entry)


def _check_match(key: str, entry: str) -> None:
    answer = f"Illegal client matching pattern: {entry}"
    name, separator, pattern = entry.partition("=")
    if not separator or name.strip() not in _MATCHED:
        raise InvalidConfig(key, entry, f"name=pattern with one of the names {', '.join(_MATCHED)}", answer)
    try:
        re.compile(pattern.strip())
    except re.error as error:
        raise InvalidConfig(key, entry, f"name=pattern with a regular expression: {error}", answer) from None
