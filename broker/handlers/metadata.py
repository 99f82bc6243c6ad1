"""Metadata: which brokers there are, and who leads which partition (API key 3; KIP-430, KIP-516)."""

import logging
from collections.abc import Collection, Iterable, Sequence

from broker.controller.client import AutoCreation
from broker.handlers.replica_views import offline_replicas
from broker.metadata.brokers import Brokers, BrokersOnListener
from broker.metadata.cache import MetadataCache
from broker.metadata.image.topics import PartitionImage, TopicImage
from broker.metadata.topic_rules import CLUSTER_METADATA, INTERNAL_TOPICS, fault_of_name
from broker.request.context import (
    TOPIC_OPERATIONS,
    Operation,
    RequestContext,
    ResourceType,
)
from broker.request.faults import Fault, InvalidRequest, TopicAuthorizationFailed, TopicWithoutName
from broker.request.node import Node
from broker.runtime.counted import counted
from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.records.cluster_metadata import NO_LEADER
from protocol.schema import NO_UUID

log = logging.getLogger(__name__)

AskedTopic = MetadataRequest.Topic
TopicAnswer = MetadataResponse.Topic
Answer = MetadataResponse.Topic.Partition

LOOKUP_BY_ID_SINCE_VERSION = 12
LISTENER_NOT_FOUND_SINCE_VERSION = 6


class MetadataHandler:
    """Reads the published image."""

    def __init__(
        self,
        metadata: MetadataCache,
        brokers: Brokers,
        auto_creation: AutoCreation,
        node: Node,
        *,
        auto_create_topics_enable: bool,
    ) -> None:
        self._metadata = metadata
        self._brokers = brokers
        self._auto_creation = auto_creation
        self._node = node
        self._auto_create_topics_enable = auto_create_topics_enable

    def metadata(self, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        """Describe the brokers, and the topics asked for; missing ones are created if the client lets us."""
        asked = request.topics
        # In version 0 an empty list asks for everything; later null does.
        if asked is None or (context.api_version == 0 and not asked):
            return self._answer(request, context, self._all_topics(context))
        _check(asked, context.api_version)
        if any(topic.topic_id != NO_UUID for topic in asked):
            # Then ids alone count, as in Kafka: entries without one are passed over.
            ids = dict.fromkeys(topic.topic_id for topic in asked if topic.topic_id != NO_UUID)
            return self._answer(request, context, [self._by_id(topic_id, context) for topic_id in ids])
        names = dict.fromkeys(topic.name for topic in asked if topic.name is not None)
        return self._answer(request, context, self._by_name(names, request, context))

    def _answer(self, request: MetadataRequest, context: RequestContext, topics: list[TopicAnswer]) -> MetadataResponse:
        if request.include_topic_authorized_operations:
            # Of a topic that is not there, too: they are what the client may do, not what there is.
            for topic in topics:
                if topic.error_code not in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
                    topic.topic_authorized_operations = context.authorized(
                        TOPIC_OPERATIONS, ResourceType.TOPIC, topic.name or ""
                    )
        answer = MetadataResponse(
            brokers=[
                MetadataResponse.Broker(node_id=broker.broker_id, host=broker.host, port=broker.port, rack=broker.rack)
                for broker in self._brokers.on(context.peer.listener).alive
            ],
            cluster_id=self._node.cluster_id,
            controller_id=self._brokers.any_alive(),
            topics=topics,
        )
        if request.include_cluster_authorized_operations:
            answer.cluster_authorized_operations = context.authorized_on_cluster()
        return answer

    def _all_topics(self, context: RequestContext) -> list[TopicAnswer]:
        return [
            self._found(topic, context)
            for topic in self._metadata.image.topics.by_name.values()
            if context.sees(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]

    def _by_id(self, topic_id: bytes, context: RequestContext) -> TopicAnswer:
        try:
            topic = self._metadata.image.topics.of_id(topic_id)
            if not _may_describe(context, topic.name):
                raise TopicAuthorizationFailed(f"{context.session.principal} may not describe {topic.name}")
        except Fault as fault:
            return TopicAnswer(error_code=fault.code, name=None, topic_id=topic_id, partitions=[])
        return self._found(topic, context)

    def _by_name(self, names: Iterable[str], request: MetadataRequest, context: RequestContext) -> list[TopicAnswer]:
        """Topics that there are in the order of the request, and behind them those that there are not."""
        found: list[TopicAnswer] = []
        failed: list[TopicAnswer] = []
        missing: list[str] = []
        impossible: list[str] = []
        for name in names:
            if not _may_describe(context, name):
                failed.append(_without_topic(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif (topic := self._metadata.image.topics.by_name.get(name)) is not None:
                found.append(self._found(topic, context))
            elif fault_of_name(name) is not None:
                failed.append(_without_topic(name, ErrorCode.INVALID_TOPIC_EXCEPTION))
                impossible.append(name)
            else:
                failed.append(_without_topic(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                missing.append(name)
        if impossible:
            log.info(
                "%s requests %s that cannot exist, the first: %s",
                context.peer,
                counted(len(impossible), "topic"),
                fault_of_name(impossible[0]),
            )
        if missing and request.allow_auto_topic_creation and self._auto_create_topics_enable:
            forbidden = self._create(missing, context)
            for answer in failed:
                if answer.name in forbidden:
                    answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return found + failed

    def _found(self, topic: TopicImage, context: RequestContext) -> TopicAnswer:
        brokers = self._brokers.on(context.peer.listener)
        return TopicAnswer(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=_partition_answers(topic.partitions, brokers, context.api_version),
        )

    def _create(self, missing: Sequence[str], context: RequestContext) -> Collection[str]:
        """Begin to create topics: this answer says that they are unknown, the client's next question finds them.
        Returns those that the client may not create."""
        may_all = context.sees(Operation.CREATE, ResourceType.CLUSTER)
        forbidden = {
            name for name in missing if not (may_all or context.may(Operation.CREATE, ResourceType.TOPIC, name))
        }
        allowed = [name for name in missing if name != CLUSTER_METADATA and name not in forbidden]
        if allowed:
            self._auto_creation.auto_create(allowed, context)
        return forbidden


def _partition_answers(partitions: Iterable[PartitionImage], brokers: BrokersOnListener, version: int) -> list[Answer]:
    # One loop with few calls: answers with thousands of partitions are asked for often (bench: partitions).
    answers = []
    reachable = brokers.by_id
    for partition in partitions:
        leader = partition.leader
        answer = Answer(
            partition_index=partition.index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            offline_replicas=offline_replicas(partition, brokers),
        )
        if version == 0:
            _leave_out_unavailable(answer, brokers)
        if leader not in reachable:
            # A leader that is registered lacks only the listener.
            lacks_listener = version >= LISTENER_NOT_FOUND_SINCE_VERSION and leader in brokers.registered_ids
            answer.error_code = ErrorCode.LISTENER_NOT_FOUND if lacks_listener else ErrorCode.LEADER_NOT_AVAILABLE
            answer.leader_id = NO_LEADER
        answers.append(answer)
    return answers


def _leave_out_unavailable(answer: Answer, brokers: BrokersOnListener) -> None:
    """Version 0 has no offline replicas: the answer leaves brokers out that its client cannot reach, with an error."""
    replicas = [broker_id for broker_id in answer.replica_nodes if brokers.find_alive(broker_id) is not None]
    isr = [broker_id for broker_id in answer.isr_nodes if brokers.find_alive(broker_id) is not None]
    if len(replicas) < len(answer.replica_nodes) or len(isr) < len(answer.isr_nodes):
        answer.error_code = ErrorCode.REPLICA_NOT_AVAILABLE
    answer.replica_nodes, answer.isr_nodes = replicas, isr


def _check(asked: Sequence[AskedTopic], version: int) -> None:
    """Raises `InvalidRequest`, `TopicWithoutName`."""
    if version < LOOKUP_BY_ID_SINCE_VERSION:
        if any(topic.topic_id != NO_UUID or topic.name is None for topic in asked):
            raise InvalidRequest(f"topics are asked for by their ids in version {version} of Metadata")
    elif any(topic.topic_id == NO_UUID and topic.name is None for topic in asked):
        raise TopicWithoutName("a topic has neither a name nor an id")


def _may_describe(context: RequestContext, name: str) -> bool:
    return context.may(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _without_topic(name: str, code: ErrorCode) -> TopicAnswer:
    return TopicAnswer(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS, partitions=[])
