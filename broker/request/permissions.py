"""What a principal may do to what, as handlers ask it."""

from enum import IntEnum
from typing import Protocol


class Operation(IntEnum):
    """What a principal wants to do, by the codes of Kafka's authorizer."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """The kind of a resource that an operation is for, by the codes of Kafka's authorizer."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Permissions(Protocol):
    """What one principal may do from one host."""

    @property
    def generation(self) -> int:
        """Rises whenever the permissions may have changed."""

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether the authorizer allows the principal this operation on the resource."""

    def may_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the authorizer allows the principal this operation on some resource of the type."""

    @property
    def logs_allowed(self) -> bool:
        """Whether what the principal is allowed is written down, too."""

    def log(self, operation: Operation, resource_type: ResourceType, name: str, *, request: str) -> None:
        """Write down that the principal was allowed this, or was not, when it sent a request."""


class Authorizer(Protocol):
    """Knows what each principal may do."""

    def permissions_of(self, principal: str, host: str) -> Permissions:
        """What a principal may do from a host, now and after each change."""
