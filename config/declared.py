"""Declaring settings as the fields of a class, each with Kafka's type, its default as text and the allowed values.

A field's name is Kafka's name with underscores for the dots: ``log_retention_ms`` is ``log.retention.ms``. The purpose
of a setting is in server.yaml, in the words of a user.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Never, Self, dataclass_transform

from config.values import ConfigType, parse_value, read_value


class Declaration(NamedTuple):
    """The declaration of one setting, in the notation of kafka_settings.tsv."""

    type: ConfigType
    default: str | None
    """The default as text; None where Kafka's default is null."""
    allowed: str
    convert: Callable[[Any], Any] | None
    """Converts the parsed value to the field's type; None where the field has the parsed value."""

    def parse(self, key: str, text: str) -> Any:
        """The value of the field for this text.

        Raises:
            InvalidConfig: The text is not of the type, or the value is not allowed.
        """
        value = parse_value(key, self.type, self.allowed, text)
        return value if self.convert is None else self.convert(value)

    def default_value(self) -> Any:
        """The value of the field where the setting is not given.

        Not checked against `allowed`, which would cost every start two milliseconds: a test does it for all.
        """
        if self.default is None:
            return None
        value: Any = read_value(self.type, self.default)
        return value if self.convert is None else self.convert(value)


def setting(
    type_: ConfigType, default: str | None, allowed: str = "", convert: Callable[[Any], Any] | None = None
) -> Any:
    """A field that is a setting of this type, with its default and the values allowed for it."""
    return Declaration(type_, default, allowed, convert)


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Settings:
    """The base of a class of settings: made of keywords, never changed, compared and hashed by its values.

    For readers and type checkers a frozen dataclass. `dataclass` itself would take a twentieth of a start for a
    hundred fields (bench: imports).
    """

    declarations: ClassVar[Mapping[str, Declaration]]
    """Every setting by Kafka's name, in the order of the fields."""
    _defaults: ClassVar[Mapping[str, Any]]
    """The default of every field, derived fields included."""

    def __init_subclass__(cls) -> None:
        fields = {name: vars(cls)[name] for name in cls.__annotations__}
        declared = {name: value for name, value in fields.items() if isinstance(value, Declaration)}
        cls.declarations = {name.replace("_", "."): declaration for name, declaration in declared.items()}
        cls._defaults = fields | {name: declaration.default_value() for name, declaration in declared.items()}
        for name in fields:
            delattr(cls, name)  # an attribute that its class has too is found at half the speed

    def __init__(self, **values: Any) -> None:
        if unknown := values.keys() - self._defaults.keys():
            raise TypeError(f"{type(self).__name__} has no field {sorted(unknown)}")
        vars(self).update(self._defaults, **values)
        self._complete()

    def _complete(self) -> None:
        """Give values to the fields that follow from others."""

    def replace(self, **values: Any) -> Self:
        """A copy of the settings with these changes."""
        return type(self)(**(vars(self) | values))

    @classmethod
    def default_of(cls, key: str) -> Any:
        """The default of a setting, by Kafka's name."""
        return cls._defaults[field_name(key)]

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Every field's name and value."""
        return iter(vars(self).items())

    def __repr__(self) -> str:
        secrets = {field_name(key) for key, one in self.declarations.items() if one.type is ConfigType.PASSWORD}
        shown = ((name, "(hidden)" if name in secrets else value) for name, value in self if name != "given")
        changed = (f"{name}={value!r}" for name, value in shown if value != self._defaults[name])
        return f"{type(self).__name__}({', '.join(changed)})"

    def __eq__(self, other: object) -> bool:
        return vars(other) == vars(self) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError(f"settings are not changed, but {name} was to be {value!r}")

    def __delattr__(self, name: str) -> Never:
        raise AttributeError(f"settings are not changed, but {name} was to go")


def field_name(key: str) -> str:
    """The field that holds a setting: Kafka's name with underscores for the dots."""
    return key.replace(".", "_")
