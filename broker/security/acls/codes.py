"""The codes that only ACLs have: how an ACL names resources, and whether it allows or denies."""

from enum import IntEnum
from typing import Final


class PatternType(IntEnum):
    """How an ACL, or a filter of ACLs, names resources."""

    ANY = 1
    """Of a filter: ACLs of this name, literal or prefixed."""
    MATCH = 2
    """Of a filter: all ACLs that concern a resource of this name."""
    LITERAL = 3
    PREFIXED = 4


class PermissionType(IntEnum):
    """Whether an ACL allows or denies."""

    DENY = 2
    ALLOW = 3


UNKNOWN: Final = 0
"""A code that the client itself does not know."""
ANY: Final = 1
"""In a filter: every resource type, operation or permission type."""
ALL: Final = 2
"""The operation of an ACL that stands for every operation."""

WILDCARD: Final = "*"
"""As a literal name: every resource of the type. As a host: every host."""
EVERYBODY: Final = "User:*"
"""The principal of an ACL that holds for every user."""
