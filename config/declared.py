"""How a setting is declared: a dataclass field with Kafka's type, its default as text, and what values are allowed.

A field's name is Kafka's name with underscores for the dots: ``log_retention_ms`` is ``log.retention.ms``. What a
setting is for stands in server.yaml, in the words of a user.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from config.values import ConfigType, parse_value, read_value

_METADATA_KEY: Final = "setting"


class Declaration(NamedTuple):
    """What the code says about one setting, in the notation of kafka_settings.tsv."""

    type: ConfigType
    default: str | None
    """None where Kafka's default is null."""
    allowed: str
    convert: Callable[[Any], Any] | None
    """Makes the field's own type out of the parsed value; None where it is the parsed value itself."""

    def parse(self, key: str, text: str) -> Any:
        """The value of the field for this text.

        Raises:
            InvalidConfig: The text is not of the type, or the value is not allowed.
        """
        value = parse_value(key, self.type, self.allowed, text)
        return value if self.convert is None else self.convert(value)


class ManySettings:
    """The base of a frozen dataclass of settings that is compared and hashed by the values of its fields.

    What `dataclass` makes to compare and to print a hundred fields would be compiled at every start.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in type(self).__dataclass_fields__)  # type: ignore[attr-defined]


def setting(
    type_: ConfigType, default: str | None, allowed: str = "", convert: Callable[[Any], Any] | None = None
) -> Any:
    """A dataclass field that is a setting of this type, with its default and the values allowed for it."""
    declaration = Declaration(type_, default, allowed, convert)
    # Not checked against `allowed`, which would cost every start two milliseconds: a test does it for all.
    value: Any = None if default is None else read_value(type_, default)
    if convert is not None and default is not None:
        value = convert(value)
    return dataclasses.field(default=value, metadata={_METADATA_KEY: declaration})


def declared_settings(settings_class: type) -> Mapping[str, Declaration]:
    """Every setting that a dataclass declares, by Kafka's name, in the order of the fields."""
    return {
        field.name.replace("_", "."): field.metadata[_METADATA_KEY]
        for field in dataclasses.fields(settings_class)
        if _METADATA_KEY in field.metadata
    }


def field_name(key: str) -> str:
    """The field that holds a setting: Kafka's name with underscores for the dots."""
    return key.replace(".", "_")
