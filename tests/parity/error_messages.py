"""Which error messages are compared by their words, and what may stand around or behind these."""

from __future__ import annotations

import re
from typing import Any, Final

COMPARED: Final = frozenset(
    {
        *("CREATE_TOPICS", "DELETE_TOPICS", "CREATE_PARTITIONS", "ALTER_PARTITION_REASSIGNMENTS", "ELECT_LEADERS"),
        *("ALTER_CONFIGS", "INCREMENTAL_ALTER_CONFIGS", "DESCRIBE_CONFIGS"),
        *("CREATE_ACLS", "DELETE_ACLS", "DESCRIBE_ACLS"),
        *("ALTER_CLIENT_QUOTAS", "DESCRIBE_CLIENT_QUOTAS"),
        *("ALTER_USER_SCRAM_CREDENTIALS", "DESCRIBE_USER_SCRAM_CREDENTIALS", "SASL_AUTHENTICATE"),
        *("DESCRIBE_CLUSTER", "DESCRIBE_GROUPS", "DESCRIBE_QUORUM", "FIND_COORDINATOR"),
    }
)
"""The APIs of administrators, whose programs look for Kafka's words in error messages."""

SOME_TEXT: Final = "<text>"
"""Stands instead of a message whose words are not compared."""

_WRAPPED: Final = re.compile(
    r"requirement failed: (?P<required>.*)|"
    r"Invalid value org\.apache\.kafka\.common\.config\.ConfigException: (?P<invalid>.*) "
    r"for configuration Invalid dynamic configuration"
)
"""What Java and Scala put around the words of an error."""


def words(message: Any, api: str) -> Any:
    """What is compared of an error message of an API: its words, or whether there is one, which may be empty."""
    if not isinstance(message, str) or not message:
        return message
    if api not in COMPARED:
        return SOME_TEXT
    wrapped = _WRAPPED.fullmatch(message)
    return message if wrapped is None else wrapped["required"] or wrapped["invalid"]


def begins_with_kafkas_words(kafka: Any, ours: Any) -> bool:
    """Whether our message is Kafka's, and more behind it."""
    return isinstance(kafka, str) and isinstance(ours, str) and kafka != "" and ours.startswith(kafka)


def says_nothing_special(kafka: Any, ours: Any) -> bool:
    """Whether Kafka's message is that of every INVALID_REQUEST."""
    return str(kafka).startswith("This most likely occurs because of a request being malformed")
