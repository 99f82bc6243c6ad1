"""What a handler knows beside the request itself: the session, the version, and where the answer goes."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from broker.request.permissions import Operation as Operation
from broker.request.permissions import ResourceType as ResourceType
from broker.request.quota import MutationQuota, RequestQuota
from broker.request.response import NOTHING, ResponseSlot
from broker.request.session import Peer
from protocol.error_counts import error_counter
from protocol.errors import ErrorCode
from protocol.headers import frame_response
from protocol.refusals import refusal

CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


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
"""Every operation that may be allowed on a topic."""

CLUSTER_OPERATIONS = operations_mask(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
"""Every operation that may be allowed on the cluster."""

GROUP_OPERATIONS = operations_mask(
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
"""Every operation that may be allowed on a group."""


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
class TellsThrottleTime(Protocol):
    """An answer with a field for the time that its client is throttled for. The codec leaves the field out of versions
    that do not have it."""

    throttle_time_ms: int


class RequestContext:
    """One request's surroundings. Handlers never see the connection."""

    __slots__ = ("api_version", "apis", "client_id", "correlation_id", "quota", "session", "slot")

    def __init__(
        self, api_version: int, correlation_id: int, client_id: str, slot: ResponseSlot, apis: ServedApis
    ) -> None:
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.session = slot.session
        self.slot = slot
        self.apis = apis
        self.quota: RequestQuota | None = None
        """The quotas for the request; None where nothing limits its client."""

    @property
    def peer(self) -> Peer:
        """The other end of the connection."""
        return self.session.peer

    def may(self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the session's principal may do this to the resource, which the request is refused without: that is
        logged then."""
        permissions = self.session.permissions
        if permissions is None:
            return True
        is_allowed = permissions.may(operation, resource_type, name)
        if not is_allowed or permissions.logs_allowed:
            permissions.log(operation, resource_type, name, request=self._request_name)
        return is_allowed

    def sees(self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """The same for what is left out of an answer, or done in another way, without a word."""
        permissions = self.session.permissions
        if permissions is None:
            return True
        is_allowed = permissions.may(operation, resource_type, name)
        if is_allowed and permissions.logs_allowed:
            permissions.log(operation, resource_type, name, request=self._request_name)
        return is_allowed

    @property
    def _request_name(self) -> str:
        kind = self.slot.kind
        return "" if kind is None else kind.name

    def may_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the session's principal may do this to some resource of the type."""
        permissions = self.session.permissions
        return permissions is None or permissions.may_any(operation, resource_type)

    def authorized(self, operations: int, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Those of ``operations`` (`operations_mask`) that the session's principal may do to the resource."""
        permissions = self.session.permissions
        if permissions is None:
            return operations
        return operations_mask(
            *(
                operation
                for operation in Operation
                if operations & 1 << operation and permissions.may(operation, resource_type, name)
            )
        )

    def authorized_on_cluster(self) -> int:
        """Those of `CLUSTER_OPERATIONS` that the session's principal may do; none, where it may not see the cluster."""
        if not self.may(Operation.DESCRIBE, ResourceType.CLUSTER):
            return 0
        return self.authorized(CLUSTER_OPERATIONS, ResourceType.CLUSTER)

    def respond(self, answer: object) -> None:
        """Fill the slot with ``answer``, encoded in the request's version."""
        throttle_time_ms = self.charge()
        throttle_time_ms = throttle_time_ms or self.session.throttle_time_ms
        if throttle_time_ms and isinstance(answer, TellsThrottleTime):
            answer.throttle_time_ms = throttle_time_ms
        self.count_errors(answer)
        self.slot.fill(frame_response(self.correlation_id, answer, self.api_version))

    def throttle(self, throttle_time_ms: int) -> None:
        """The request has exceeded a quota. Its answer, which is still to be given, says so and is sent at once; then
        nothing more of the connection is read or evaluated for ``throttle_time_ms`` (KIP-219)."""
        if self.slot.kind is not None:
            self.slot.kind.api.throttle.record(throttle_time_ms)
        self.slot.throttle(throttle_time_ms)

    def mutations(self, *, is_strict: bool, is_told: bool = True) -> MutationQuota | None:
        """The quota of changes of topics, as `RequestQuota.mutations`; None where nothing limits the client."""
        return None if self.quota is None else self.quota.mutations(is_strict=is_strict, is_told=is_told)

    def charge(self, *, is_answered: bool = True) -> int:
        """Charge the client for the request, and return for how long the client is throttled. `respond` does it."""
        throttle_time_ms = 0 if self.quota is None else self.quota.settle(is_answered=is_answered)
        if throttle_time_ms:
            self.throttle(throttle_time_ms)
        return throttle_time_ms

    def refuse(self, request: object, code: ErrorCode, message: str | None) -> None:
        """Fill the slot with the answer in which everything that the request names carries ``code``."""
        answer = refusal(type(request))(request, self.api_version, code, message)
        if answer is None:
            name = type(request).__name__
            self.close_connection(f"a {name} that expects no answer has failed with {code.name}: {message}")
        else:
            self.respond(answer)

    def count_errors(self, answer: object) -> None:
        """Count the error codes of ``answer``, which may never be sent."""
        kind = self.slot.kind
        if kind is not None:
            error_counter(type(answer))(answer, kind.errors)

    def respond_nothing(self) -> None:
        """The client expects no answer (acks=0)."""
        self.charge(is_answered=False)
        self.slot.fill(NOTHING)

    def close_connection(self, reason: str) -> None:
        """Answer by closing: the answers to earlier requests are sent, then the connection closes."""
        self.slot.close_connection(reason)
