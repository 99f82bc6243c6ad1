"""CreateTopics, DeleteTopics and CreatePartitions (API keys 19, 20 and 37; KIP-4, KIP-195, KIP-516, KIP-525)."""

import logging
from collections.abc import Sequence

from broker.controller.client import ControllerClient
from broker.controller.partition_creation import GrowthResult, MorePartitions
from broker.controller.topic_creation import NewTopic, TopicResult
from broker.controller.topic_deletion import DeletionResult, UnwantedTopic
from broker.metadata.cache import MetadataCache
from broker.metadata.configs import ConfigView
from broker.request.code_versions import known_code
from broker.request.context import Operation, RequestContext, ResourceType
from broker.runtime.counted import counted
from config.described import ConfigEntry, describe_topic
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

log = logging.getLogger(__name__)

_FORBIDDEN = "Authorization failed."
TOPIC_IDS_SINCE_VERSION = 6

CREATION_STRICT_SINCE_VERSION = 6
GROWTH_STRICT_SINCE_VERSION = 3
DELETION_STRICT_SINCE_VERSION = 5
"""From these versions on a client is refused that has exceeded its quota of changes; before, it is throttled only."""


class TopicsHandler:
    """Asks the controller to create and delete topics, and to give them more partitions."""

    def __init__(self, controller: ControllerClient, metadata: MetadataCache, configs: ConfigView) -> None:
        self._controller = controller
        self._metadata = metadata
        self._configs = configs

    def create_topics(self, request: CreateTopicsRequest, context: RequestContext) -> None:
        """Answer once every topic that could be created is durable."""
        allowed: list[CreateTopicsRequest.Topic] = []
        refused: list[CreateTopicsResponse.Topic] = []
        may_all = context.sees(Operation.CREATE, ResourceType.CLUSTER)
        for topic in request.topics:
            if may_all or _may(context, Operation.CREATE, topic.name):
                allowed.append(topic)
            else:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                refused.append(
                    CreateTopicsResponse.Topic(name=topic.name, error_code=code, error_message=_FORBIDDEN, configs=[])
                )

        def created(results: Sequence[TopicResult]) -> None:
            answers = [self._created(result, context) for result in results]
            failed = [result for result in results if result.error is not ErrorCode.NONE]
            if failed:
                log.info(
                    "Refused to create %d of %s for %s, the first with %s: %s",
                    len(failed),
                    counted(len(results), "topic"),
                    context.peer,
                    failed[0].error.name,
                    failed[0].message,
                )
            context.respond(CreateTopicsResponse(topics=answers + refused))

        self._controller.create_topics(
            [_new_topic(topic) for topic in allowed],
            timeout_ms=request.timeout_ms,
            validate_only=request.validate_only,
            then=created,
            mutations=context.mutations(is_strict=context.api_version >= CREATION_STRICT_SINCE_VERSION),
        )

    def delete_topics(self, request: DeleteTopicsRequest, context: RequestContext) -> None:
        """Answer once every topic that could be deleted is durably so."""
        by_id = context.api_version >= TOPIC_IDS_SINCE_VERSION
        asked = (
            [UnwantedTopic(name=topic.name, topic_id=topic.topic_id) for topic in request.topics]
            if by_id
            else [UnwantedTopic(name=name) for name in request.topic_names]
        )
        allowed: list[UnwantedTopic] = []
        refused: list[DeletionResult] = []
        for topic in asked:
            refusal = self._refusal(topic, context)
            if refusal is None:
                allowed.append(topic)
            else:
                refused.append(refusal)

        def deleted(results: Sequence[DeletionResult]) -> None:
            answers = [_deleted(result, context.api_version) for result in [*results, *refused]]
            context.respond(DeleteTopicsResponse(responses=answers))

        self._controller.delete_topics(
            allowed,
            timeout_ms=request.timeout_ms,
            then=deleted,
            mutations=context.mutations(is_strict=context.api_version >= DELETION_STRICT_SINCE_VERSION),
        )

    def create_partitions(self, request: CreatePartitionsRequest, context: RequestContext) -> None:
        """Answer once every partition that could be added is durable."""
        allowed: list[CreatePartitionsRequest.Topic] = []
        refused: list[CreatePartitionsResponse.Result] = []
        for topic in request.topics:
            if _may(context, Operation.ALTER, topic.name):
                allowed.append(topic)
            else:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                refused.append(CreatePartitionsResponse.Result(name=topic.name, error_code=code))

        def created(results: Sequence[GrowthResult]) -> None:
            answers = [
                CreatePartitionsResponse.Result(
                    name=result.topic, error_code=result.error, error_message=result.message
                )
                for result in results
            ]
            context.respond(CreatePartitionsResponse(results=answers + refused))

        self._controller.create_partitions(
            [_more_partitions(topic) for topic in allowed],
            timeout_ms=request.timeout_ms,
            validate_only=request.validate_only,
            then=created,
            mutations=context.mutations(is_strict=context.api_version >= GROWTH_STRICT_SINCE_VERSION),
        )

    def _refusal(self, topic: UnwantedTopic, context: RequestContext) -> DeletionResult | None:
        """Why this client may not delete the topic; a name that it may not see stays unsaid."""
        name = topic.name
        if name is None:
            known = self._metadata.image.topics.by_id.get(topic.topic_id)
            if known is None:
                return None
            name = known.name
        is_seen = context.sees(Operation.DESCRIBE, ResourceType.TOPIC, name)
        if is_seen and name not in self._metadata.image.topics.by_name:
            return None  # the controller says that there is no such topic
        if (is_seen or topic.name is None) and _may(context, Operation.DELETE, name):
            return None
        return DeletionResult(
            name=name if is_seen or topic.name is not None else None,
            topic_id=topic.topic_id,
            error=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            message=_FORBIDDEN,
        )

    def _created(self, result: TopicResult, context: RequestContext) -> CreateTopicsResponse.Topic:
        if result.error is not ErrorCode.NONE:
            return CreateTopicsResponse.Topic(
                name=result.name, error_code=result.error, error_message=result.message, configs=[]
            )
        answer = CreateTopicsResponse.Topic(name=result.name, topic_id=result.topic_id)
        if context.sees(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, result.name):
            answer.num_partitions = result.partitions
            answer.replication_factor = result.replication_factor
            entries = describe_topic(result.configs, self._configs.broker_texts())
            answer.configs = [
                _described(entry._replace(value=result.configs.get(entry.name, entry.value))) for entry in entries
            ]
        else:
            answer.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            answer.configs = []
        return answer


def _may(context: RequestContext, operation: Operation, name: str) -> bool:
    return context.may(operation, ResourceType.TOPIC, name)


def _new_topic(topic: CreateTopicsRequest.Topic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        configs=[(config.name, config.value) for config in topic.configs],
    )


def _more_partitions(topic: CreatePartitionsRequest.Topic) -> MorePartitions:
    assignments = topic.assignments
    return MorePartitions(
        topic=topic.name,
        count=topic.count,
        assignments=None if assignments is None else [assignment.broker_ids for assignment in assignments],
    )


def _deleted(result: DeletionResult, version: int) -> DeleteTopicsResponse.Response:
    code = known_code(result.error, ApiKey.DELETE_TOPICS, version)
    return DeleteTopicsResponse.Response(
        name=result.name, topic_id=result.topic_id, error_code=code, error_message=result.message
    )


def _described(entry: ConfigEntry) -> CreateTopicsResponse.Topic.Config:
    return CreateTopicsResponse.Topic.Config(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
    )
