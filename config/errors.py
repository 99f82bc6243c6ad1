"""The errors of settings; each is one sentence with the key, the value and the expected form."""


class SettingsError(Exception):
    """The settings cannot be used; ``str(error)`` is one sentence for the person who wrote them."""


class InvalidConfig(SettingsError):
    """One setting's value is not among those allowed, or its name is not one that exists."""

    def __init__(self, key: str, value: str | None, expected: str) -> None:
        self.key = key
        self.value = value
        self.expected = expected
        shown = "no value" if value is None else f"'{value}'"
        super().__init__(f"{key} is {shown}, expected {expected}")


class UnknownConfig(InvalidConfig):
    """No setting has this name."""

    def __init__(self, key: str, value: str | None, nearest: str | None, kind: str = "setting") -> None:
        super().__init__(key, value, f"the name of a {kind}")
        hint = f"; did you mean {nearest}?" if nearest else ""
        self.args = (f"{key} is not the name of a {kind} (its value is '{value or ''}'){hint}",)
