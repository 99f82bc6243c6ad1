"""Rules for topic names: which names are valid, which are internal topics, and which two names collide."""

import re
from typing import Final

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
CLUSTER_METADATA: Final = "__cluster_metadata"

INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})
"""Topics that coordinators write to and clients do not; ``__cluster_metadata`` is never shown as a topic at all."""

MAX_NAME_LENGTH: Final = 249
"""A partition's directory name must fit into 255 bytes: the name, a dash and five digits."""

_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


def fault_of_name(name: str) -> str | None:
    """Why ``name`` is no valid topic name, in Kafka's words; None if it is valid."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if _LEGAL_NAME.fullmatch(name) is None:
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, '.', "
            "'_' and '-'"
        )
    return None


def collision_key(name: str) -> str | None:
    """The key by which names collide: names with one key have the same metric name. None if ``name`` can't collide."""
    if "." in name or "_" in name:
        return name.replace(".", "_")
    return None
