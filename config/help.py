"""The help text of each setting, read from server.yaml, where users read it too.

## Listeners                                   begins a section
# Where connections are accepted.              the help of the setting below
#listeners: PLAINTEXT://127.0.0.1:9092         the setting with its default, commented out
"""

import os
import re
from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

SERVER_YAML: Final = os.path.join(os.path.dirname(__file__), "server.yaml")
_SETTING: Final = r"#([a-z][a-z0-9.]*):(?: (.*))?"


class Help(NamedTuple):
    """One setting as server.yaml shows it."""

    section: str
    key: str
    default: str
    """The default as YAML text; empty if it is null."""
    line: str


@cache
def all_help() -> Mapping[str, Help]:
    """Every setting of server.yaml by name, in its order."""
    found: dict[str, Help] = {}
    section = ""
    words: list[str] = []
    with open(SERVER_YAML, encoding="utf-8") as file:
        for line in map(str.rstrip, file):
            shown = re.fullmatch(_SETTING, line)
            if shown:
                found[shown[1]] = Help(section, shown[1], shown[2] or "", " ".join(words))
            elif line.startswith("## "):
                section = line.removeprefix("## ")
            if shown or not line.startswith("# "):
                words = []
            else:
                words.append(line.removeprefix("# "))
    return found


def help_line(key: str) -> str | None:
    """The help text of a broker setting; None for a setting without an effect here."""
    entry = all_help().get(key)
    return entry.line if entry else None
