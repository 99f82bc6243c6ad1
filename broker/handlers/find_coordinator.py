"""FindCoordinator: which broker keeps a group, or the transactions of an id (API key 10; KIP-699: many at a time)."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.controller.client import AutoCreation
from broker.coordinators.partitioning import partition_of
from broker.metadata.cache import MetadataCache
from broker.metadata.topic_rules import CONSUMER_OFFSETS, TRANSACTION_STATE
from broker.replication.replica_manager import ReplicaManager
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import InvalidRequest
from broker.request.node import NO_NODE, NO_PORT, Node
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

Answer = FindCoordinatorResponse.Coordinator

MANY_KEYS_SINCE_VERSION: Final = 4
SHARE_SINCE_VERSION: Final = 6

_MESSAGES: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
}
"""What Kafka says in versions 1 to 3."""


GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2

_SHARE_KEY: Final = re.compile(r".+:[\w-]{22}:[+-]?\d+", re.ASCII | re.DOTALL)
"""Group, topic id in Base64, partition."""


class _Kept(NamedTuple):
    """What is kept for the keys of a type, and who may ask."""

    topic: str
    resource_type: ResourceType
    unauthorized: ErrorCode


_KEPT: Final[Mapping[int, _Kept]] = {
    GROUP: _Kept(CONSUMER_OFFSETS, ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    TRANSACTION: _Kept(
        TRANSACTION_STATE, ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    ),
}


class FindCoordinatorHandler:
    """Reads the published image; the topic that a coordinator needs is created with the first request for it."""

    def __init__(
        self, metadata: MetadataCache, auto_creation: AutoCreation, replicas: ReplicaManager, node: Node
    ) -> None:
        self._metadata = metadata
        self._auto_creation = auto_creation
        self._replicas = replicas
        self._node = node

    def find_coordinator(self, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
        """Name this node for each key whose partition it leads. Raises `InvalidRequest` for an unknown type of key."""
        if request.key_type not in (GROUP, TRANSACTION, SHARE):
            raise InvalidRequest(f"key type {request.key_type}; 0 is a group, 1 a transactional id")
        if context.api_version >= MANY_KEYS_SINCE_VERSION:
            return FindCoordinatorResponse(
                coordinators=[self._find(key, request.key_type, context) for key in request.coordinator_keys]
            )
        found = self._find(request.key, request.key_type, context)
        code = ErrorCode(found.error_code)
        return FindCoordinatorResponse(
            error_code=code,
            error_message=_MESSAGES.get(code, f"The coordinator is not known: {code.name}."),
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )

    def _find(self, key: str, key_type: int, context: RequestContext) -> Answer:
        kept = _KEPT.get(key_type)
        if kept is None:
            return self._find_for_share_group(key, context)
        if not context.may(Operation.DESCRIBE, kept.resource_type, key):
            return _no_coordinator(key, kept.unauthorized)
        topic = self._metadata.image.topics.by_name.get(kept.topic)
        if topic is None:
            self._auto_creation.auto_create([kept.topic])
            return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        hosted = self._replicas.find(kept.topic, partition_of(key, len(topic.partitions)))
        if hosted is None or not hosted.is_leader:
            return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        endpoint = self._node.endpoints[context.peer.listener]
        return Answer(key=key, node_id=self._node.node_id, host=endpoint.host, port=endpoint.port)

    def _find_for_share_group(self, key: str, context: RequestContext) -> Answer:
        """Answer that there is no coordinator: this broker has no share groups."""
        if context.api_version < SHARE_SINCE_VERSION or _SHARE_KEY.fullmatch(key) is None:
            return _no_coordinator(key, ErrorCode.INVALID_REQUEST)
        return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _no_coordinator(key: str, code: ErrorCode, message: str | None = "") -> Answer:
    return Answer(key=key, node_id=NO_NODE, host="", port=NO_PORT, error_code=code, error_message=message)
