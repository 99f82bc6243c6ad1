"""Sources of settings: a YAML file, a Java properties file, the command line; each gives texts by name.

YAML is read without guessing at types, since YAML's guesses are not Kafka's: it takes 22:22 for the number 1342 and on
for true. A properties file is read as Java reads it, which is Latin-1. Editors on Windows begin a file with a byte
order mark: that of UTF-8 is passed over, and that of UTF-16 decides how the file is decoded.
"""

import codecs
import re
from typing import Any, Final

import yaml

from config.errors import SettingsError
from config.properties import parse_properties

_YAML_LOADER: Final[Any] = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_YAML_NULL: Final = ("", "~", "null")


def read_settings_file(path: str) -> dict[str, str]:
    """The settings of a file: YAML or Java properties, by its extension or else by its content.

    Raises:
        SettingsError: The file cannot be read or understood.
    """
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error.strerror}") from error
    name = path.lower()
    if name.endswith((".yaml", ".yml")):
        return read_yaml(content, path)
    text = _decoded(content, path)
    if name.endswith(".properties") or _looks_like_properties(text):
        return read_properties(text, path)
    return read_yaml(content, path)


def _decoded(content: bytes, path: str) -> str:
    """A properties file as text: Latin-1, unless a byte order mark says that it is UTF-16."""
    is_utf_16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = content.decode("utf-16") if is_utf_16 else content.removeprefix(codecs.BOM_UTF8).decode("latin-1")
    except UnicodeDecodeError as error:
        raise SettingsError(f"the settings file {path} begins as UTF-16 and is none: {error.reason}") from None
    if "\0" in text:
        raise SettingsError(f"the settings file {path} holds bytes of zero, expected a text file in Latin-1")
    return text


def split_override(argument: str) -> tuple[str, str]:
    """The name and the text of a ``key=value`` from the command line.

    Raises:
        SettingsError: There is no ``=``, or nothing before it.
    """
    key, separator, text = argument.partition("=")
    if not separator or not key.strip():
        raise SettingsError(f"-o {argument} is not a setting, expected key=value such as -o node.id=2")
    return key.strip(), text


def read_yaml(content: bytes | str, path: str) -> dict[str, str]:
    """The settings of a flat YAML mapping; a sequence is a list, and a key without a value is not set.

    Raises:
        SettingsError: It is no YAML, not flat, or has a key twice.
    """
    try:
        root = yaml.compose(content, Loader=_YAML_LOADER)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"the settings file {path} is not YAML: {' '.join(str(error).split())}") from error
    if root is None:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise SettingsError(f"the settings file {path} holds no settings, expected lines such as 'node.id: 1'")
    texts: dict[str, str] = {}
    lines: dict[str, int] = {}
    for key_node, value_node in root.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise SettingsError(f"line {line} of {path} begins with no name, expected a line such as 'node.id: 1'")
        key = key_node.value
        if key in lines:
            raise SettingsError(f"{key} stands in lines {lines[key]} and {line} of {path}, expected it once")
        lines[key] = line
        text = _yaml_text(key, value_node, f"line {line} of {path}")
        if text is not None:
            texts[key] = text
    return texts


def _yaml_text(key: str, node: Any, place: str) -> str | None:
    """The text of a value; None if it is not set."""
    if isinstance(node, yaml.ScalarNode):
        is_null = not node.style and node.value in _YAML_NULL
        return None if is_null else str(node.value)
    if isinstance(node, yaml.SequenceNode) and all(isinstance(entry, yaml.ScalarNode) for entry in node.value):
        return ",".join(entry.value for entry in node.value)
    raise SettingsError(
        f"{key} in {place} holds settings of its own, expected a text or a list: names are flat, as in '{key}.…: value'"
    )


def read_properties(content: str, path: str) -> dict[str, str]:
    """The settings of a Java properties file; of a key that appears twice, the last value counts.

    Raises:
        SettingsError: An escape is cut short.
    """
    try:
        return parse_properties(content)
    except ValueError as error:
        raise SettingsError(f"the settings file {path} has {error}") from None


def _looks_like_properties(content: str) -> bool:
    """Whether the first setting of a file without a known extension is written as ``key=value``."""
    for line in content.splitlines():
        line = line.strip()
        if line and line[0] not in "#!":
            return re.match(r"[^\s:=]+\s*=", line) is not None
    return False
