"""The errors of settings; each is one sentence with the key, the value and the expected form."""


def invalid_value(key: str, value: object, why: str) -> str:
    """The sentence of Kafka's ``ConfigException``."""
    return f"Invalid value {value} for configuration {key}: {why}"


class SettingsError(Exception):
    """The settings cannot be used; ``str(error)`` is one sentence for the person who wrote them."""

    @property
    def answer(self) -> str:
        """The sentence for a client that asks for these settings: Kafka's words first, since programs look for them."""
        return str(self)


class InvalidConfig(SettingsError):
    """One setting's value is not among those allowed, or its name is not one that exists."""

    def __init__(self, key: str, value: str | None, expected: str, answer: str | None = None) -> None:
        """``answer`` is Kafka's sentence; without it, only the words are Kafka's that such sentences begin with."""
        self.key = key
        self.value = value
        self.expected = expected
        self._answer = answer or invalid_value(key, value, f"expected {expected}")
        shown = "no value" if value is None else f"'{value}'"
        super().__init__(f"{key} is {shown}, expected {expected}")

    @property
    def answer(self) -> str:
        return self._answer


class UnknownConfig(InvalidConfig):
    """No setting has this name."""

    def __init__(self, key: str, value: str | None, nearest: str | None, owner: str = "") -> None:
        """``owner`` has the settings among which there is none of this name: ``topic``, ``group``, or the broker."""
        kind = f"{owner} setting".lstrip()
        answer = f"Unknown {owner} config name: {key}" + (f" (did you mean {nearest}?)" if nearest else "")
        super().__init__(key, value, f"the name of a {kind}", answer)
        hint = f"; did you mean {nearest}?" if nearest else ""
        self.args = (f"{key} is not the name of a {kind} (its value is '{value or ''}'){hint}",)
