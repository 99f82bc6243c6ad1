"""ListenerTexts: the texts of TLS and SASL settings for one listener, the most specific name first, as in Kafka.

listener.name.<listener>.<mechanism>.<setting>     of one SASL mechanism on one listener
listener.name.<listener>.<setting>                 of one listener
<setting>                                          of all listeners
"""

from collections.abc import Mapping
from typing import Final

_LISTENER_PREFIX: Final = "listener.name."


class ListenerTexts:
    """The settings that are given, as one listener has them."""

    def __init__(self, listener: str, given: Mapping[str, str]) -> None:
        """``given`` has the texts of all settings, by their full names."""
        self._prefix = f"{_LISTENER_PREFIX}{listener.lower()}."
        self._given = given

    def name(self, setting: str, mechanism: str | None = None) -> str | None:
        """The full name under which a setting is given for this listener; None if it is not given.

        ``mechanism`` is a SASL mechanism for which the setting may be given by itself, such as `SCRAM-SHA-256`.
        """
        names = [f"{self._prefix}{setting}", setting]
        if mechanism is not None:
            names.insert(0, f"{self._prefix}{mechanism.lower()}.{setting}")
        return next((name for name in names if name in self._given), None)

    def text(self, setting: str, mechanism: str | None = None) -> str | None:
        """The text of a setting for this listener; None if it is not given."""
        name = self.name(setting, mechanism)
        return None if name is None else self._given[name]
