"""What a handler knows beside the request itself: who asks, in which version, and where the answer goes."""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol, runtime_checkable

from broker.request.response import NOTHING, ResponseSlot
from protocol.error_counts import error_counter
from protocol.headers import frame_response


class Operation(IntEnum):
    """What somebody wants to do, by the codes of Kafka's authorizer."""

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


class ResourceType(IntEnum):
    """What it is done to, by the codes of Kafka's authorizer."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


CLUSTER_NAME = "kafka-cluster"
"""What the one resource of type CLUSTER is called."""


def operations_mask(*operations: Operation) -> int:
    """Operations as answers carry them: one bit each."""
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS = operations_mask(
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
"""What there is to be allowed on a topic."""

CLUSTER_OPERATIONS = operations_mask(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
"""What there is to be allowed on the cluster."""

GROUP_OPERATIONS = operations_mask(
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
"""What there is to be allowed on a group."""


class ApiVersionRange(NamedTuple):
    """An API that is served, and the versions that are advertised for it."""

    api_key: int
    min_version: int
    max_version: int


class ServedApis(Protocol):
    """The registry, as handlers may see it."""

    def advertised(self) -> Sequence[ApiVersionRange]:
        """Every API served, by ascending key."""


@runtime_checkable
class Throttled(Protocol):
    """An answer that says how long the client is throttled."""

    throttle_time_ms: int


class RequestContext:
    """One request's surroundings. Handlers never see the connection."""

    __slots__ = ("api_version", "apis", "client_id", "correlation_id", "peer", "slot")

    def __init__(
        self, api_version: int, correlation_id: int, client_id: str, slot: ResponseSlot, apis: ServedApis
    ) -> None:
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.peer = slot.peer
        self.slot = slot
        self.apis = apis

    def may(self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the principal may do this to the resource. Everybody may, until there is an authorizer."""
        return True

    def respond(self, answer: object) -> None:
        """Fill the slot with ``answer``, encoded in the request's version; with the client's throttle time, where the
        answer has a field for it."""
        self.count_errors(answer)
        if self.peer.throttle_time_ms and isinstance(answer, Throttled):
            answer.throttle_time_ms = self.peer.throttle_time_ms
        self.slot.fill(frame_response(self.correlation_id, answer, self.api_version))

    def count_errors(self, answer: object) -> None:
        """Count the error codes of ``answer``, which the client may never see."""
        kind = self.slot.kind
        if kind is not None:
            error_counter(type(answer))(answer, kind.errors)

    def respond_nothing(self) -> None:
        """No answer is due (acks=0)."""
        self.slot.fill(NOTHING)

    def close_connection(self, reason: str) -> None:
        """The only answer there is: what was answered before goes out, then the connection closes."""
        self.slot.close_connection(reason)
