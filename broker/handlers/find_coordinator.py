"""FindCoordinator: which broker keeps a group, or the transactions of an id (API key 10; KIP-699: many at a time)."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.controller.client import AutoCreation
from broker.coordinators.partitioning import partition_of
from broker.metadata.brokers import Brokers
from broker.metadata.cache import MetadataCache
from broker.metadata.image.topics import TopicImage
from broker.metadata.topic_rules import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import InvalidRequest
from broker.request.node import NO_NODE, NO_PORT
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


_UNAUTHORIZED: Final = "Cluster authorization failed."

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2

_SHARE_KEY: Final = re.compile(r"(.+):([\w-]{22}):([+-]?\d+)", re.ASCII | re.DOTALL)
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

    def __init__(self, metadata: MetadataCache, brokers: Brokers, auto_creation: AutoCreation) -> None:
        self._metadata = metadata
        self._brokers = brokers
        self._auto_creation = auto_creation

    def find_coordinator(self, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
        """Name the leader of each key's partition. Raises `InvalidRequest` for an unknown type of key."""
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
        return self._leader(key, topic, partition_of(key, len(topic.partitions)), context)

    def _find_for_share_group(self, key: str, context: RequestContext) -> Answer:
        """The share coordinator of a share partition."""
        if not context.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
            return _no_coordinator(key, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, _UNAUTHORIZED)
        hashed = _hashed_share_key(key) if context.api_version >= SHARE_SINCE_VERSION else None
        if hashed is None:
            return _no_coordinator(key, ErrorCode.INVALID_REQUEST)
        topic = self._metadata.image.topics.by_name.get(SHARE_GROUP_STATE)
        if topic is None:
            self._auto_creation.auto_create([SHARE_GROUP_STATE])
            return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self._leader(key, topic, partition_of(hashed, len(topic.partitions)), context)

    def _leader(self, key: str, topic: TopicImage, index: int, context: RequestContext) -> Answer:
        """The partition's leader, at its address on the listener that was asked."""
        partition = topic.partition(index)
        leader = None if partition is None else self._brokers.on(context.peer.listener).find_alive(partition.leader)
        if leader is None:
            return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return Answer(key=key, node_id=leader.broker_id, host=leader.host, port=leader.port)


def _hashed_share_key(key: str) -> str | None:
    """The key as its partition follows from it: the partition number without sign and leading zeros, and the topic id
    as Kafka writes it, whose last character has four unused bits; None for a key that is none."""
    parts = _SHARE_KEY.fullmatch(key)
    if parts is None:
        return None
    group, topic_id, partition = parts.groups()
    if not -0x8000_0000 <= int(partition) <= 0x7FFF_FFFF:
        return None
    topic_id = urlsafe_b64encode(urlsafe_b64decode(f"{topic_id}==")).decode().rstrip("=")
    return f"{group}:{topic_id}:{int(partition)}"


def _no_coordinator(key: str, code: ErrorCode, message: str | None = "") -> Answer:
    return Answer(key=key, node_id=NO_NODE, host="", port=NO_PORT, error_code=code, error_message=message)
