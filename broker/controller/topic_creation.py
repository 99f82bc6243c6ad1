"""Creation of topics: every check of CreateTopics in Kafka's order, then the records of topic and partitions.

The sentences begin with Kafka's words, since programs look for them.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from broker.controller.placement import MAX_PARTITIONS_PER_REQUEST, Placement
from broker.metadata.automatic_topics import AutomaticTopic
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.records import Record
from broker.metadata.image.topics import partition_record
from broker.metadata.topic_rules import CLUSTER_METADATA, collision_key, fault_of_name
from broker.request.faults import (
    Fault,
    InvalidConfiguration,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    TopicAlreadyExists,
)
from broker.request.quota import MutationQuota
from broker.runtime.clock import Ids
from broker.runtime.counted import counted
from config.errors import InvalidConfig
from config.log_config import LogConfig, validate_topic_overrides
from config.resources import ConfigResource
from protocol.errors import ErrorCode
from protocol.records.cluster_metadata import ClearElrRecord, ConfigRecord, TopicRecord
from protocol.schema import NO_UUID

log = logging.getLogger(__name__)

BROKER_DEFAULT: Final = -1
"""A number of partitions or replicas that the broker's settings decide."""


class NewTopic(NamedTuple):
    """A topic that a client asks to create."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    """(partition, broker ids) where the client places the replicas itself; the two numbers above are -1 then."""
    configs: Sequence[tuple[str, str | None]] = ()
    """Pairs (name, value); of a name that comes twice, the last value counts."""

    @classmethod
    def automatic(cls, name: str, topic: AutomaticTopic) -> "NewTopic":
        """A topic that is created without CreateTopics."""
        return cls(name, topic.partitions, topic.replication_factor, configs=topic.configs)


class TopicResult(NamedTuple):
    """The result for one topic. After an error, the fields behind it have no meaning."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: bytes = NO_UUID
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}
    """The configs set on the topic itself."""


class CreationDefaults(NamedTuple):
    """The broker's defaults for what a new topic does not specify."""

    partitions: int
    replication_factor: int
    log_config: LogConfig
    clamps_replication_factor: bool = False
    """Whether a topic that asks for more replicas than there are brokers gets a replica on each."""


class TopicPlanner:
    """Plans new topics against one image: the records to append, and what to answer once they are durable."""

    def __init__(
        self,
        image: MetadataImage,
        *,
        ids: Ids,
        placement: Placement,
        defaults: CreationDefaults,
        mutations: MutationQuota | None = None,
    ) -> None:
        """``mutations`` is charged for each topic; None where nothing limits the client."""
        self._mutations = mutations
        self._image = image
        self._ids = ids
        self._placement = placement
        self._defaults = defaults
        self.records: list[Record] = []

    def plan(self, topics: Sequence[NewTopic]) -> list[TopicResult]:
        """Check all topics of one request and collect the records of those that pass.

        The answer has the topics in the order of the request. Names that come more than once are at the end with
        one entry each, and so is ``__cluster_metadata``: no topic of such a name is created.
        """
        if too_many := self._excessive(topics):
            return [
                TopicResult(name=topic.name, error=ErrorCode.POLICY_VIOLATION, message=too_many) for topic in topics
            ]
        times = Counter(topic.name for topic in topics)
        results = [
            self._plan_one(topic) for topic in topics if times[topic.name] == 1 and topic.name != CLUSTER_METADATA
        ]
        results += [
            _refusal(name, InvalidRequest("Duplicate topic name.")) for name, count in times.items() if count > 1
        ]
        if times[CLUSTER_METADATA] == 1:
            text = f"Creation of internal topic {CLUSTER_METADATA} is prohibited."
            results.append(_refusal(CLUSTER_METADATA, InvalidRequest(text)))
        return results

    def _excessive(self, topics: Sequence[NewTopic]) -> str | None:
        wanted = 0
        for topic in topics:
            if topic.assignments:
                wanted += len(topic.assignments)
            else:
                wanted += self._defaults.partitions if topic.partitions == BROKER_DEFAULT else max(topic.partitions, 0)
        if wanted <= MAX_PARTITIONS_PER_REQUEST:
            return None
        return (
            f"Excessively large number of partitions per request. {wanted} are asked for, {MAX_PARTITIONS_PER_REQUEST} "
            "are allowed."
        )

    def _plan_one(self, topic: NewTopic) -> TopicResult:
        try:
            self._check_name(topic.name)
            configs = self._checked_configs(topic)
            replicas = self._assigned(topic) if topic.assignments else self._placed(topic)
            if self._mutations is not None:
                self._mutations.charge(len(replicas))
        except Fault as fault:
            return _refusal(topic.name, fault)
        topic_id = self._ids.uuid()
        self._add_records(topic.name, topic_id, replicas, configs)
        return TopicResult(
            name=topic.name,
            topic_id=topic_id,
            partitions=len(replicas),
            replication_factor=len(replicas[0]),
            configs=configs,
        )

    def _check_name(self, name: str) -> None:
        if name in self._image.topics.by_name:
            raise TopicAlreadyExists(f"Topic '{name}' already exists.")
        fault = fault_of_name(name)
        if fault is not None:
            raise InvalidTopic(fault)
        key = collision_key(name)
        # Only topics that are there count: of two new names alike in one request, both are created, as Kafka does it.
        alike = self._image.topics.names_by_collision_key.get(key) if key is not None else None
        if alike:
            raise InvalidTopic(f"Topic '{name}' collides with existing topic: {min(alike)}")

    def _checked_configs(self, topic: NewTopic) -> dict[str, str]:
        nulls = [key for key, value in topic.configs if value is None]
        if nulls:
            raise InvalidConfiguration(f"Null value not supported for topic configs: {', '.join(nulls)}")
        configs = {key: value for key, value in topic.configs if value is not None}
        try:
            validate_topic_overrides(configs, self._defaults.log_config)
        except InvalidConfig as error:
            raise InvalidConfiguration(error.answer) from None
        return configs

    def _assigned(self, topic: NewTopic) -> list[list[int]]:
        """The brokers of each partition as the client places them."""
        if topic.replication_factor != BROKER_DEFAULT:
            raise InvalidRequest(
                "A manual partition assignment was specified, but replication factor was not set to -1."
            )
        if topic.partitions != BROKER_DEFAULT:
            raise InvalidRequest("A manual partition assignment was specified, but numPartitions was not set to -1.")
        replicas: dict[int, list[int]] = {}
        for index, brokers in topic.assignments:
            if index in replicas:
                raise InvalidReplicaAssignment(f"Found multiple manual partition assignments for partition {index}")
            first = next(iter(replicas.values()), None)
            self._placement.check_assignment(index, brokers, None if first is None else len(first))
            replicas[index] = list(brokers)
        indexes = sorted(replicas)
        if indexes != list(range(len(indexes))):
            raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")
        return [replicas[index] for index in indexes]

    def _placed(self, topic: NewTopic) -> list[list[int]]:
        """The brokers of each partition as we place them."""
        if topic.replication_factor == 0 or topic.replication_factor < BROKER_DEFAULT:
            raise InvalidReplicationFactor("Replication factor must be larger than 0, or -1 to use the default value.")
        if topic.partitions == 0 or topic.partitions < BROKER_DEFAULT:
            raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
        count = self._defaults.partitions if topic.partitions == BROKER_DEFAULT else topic.partitions
        factor = topic.replication_factor
        if factor == BROKER_DEFAULT:
            factor = self._defaults.replication_factor
        if self._defaults.clamps_replication_factor and factor > self._placement.brokers > 0:
            log.info(
                "topic %s gets %s instead of %d (ottla.replication.factor.clamp)",
                *(topic.name, counted(self._placement.brokers, "replica"), factor),
            )
            factor = self._placement.brokers
        try:
            return self._placement.place(count, factor)
        except InvalidReplicationFactor as fault:
            raise InvalidReplicationFactor(f"Unable to replicate the partition {factor} time(s): {fault}") from None

    def _add_records(self, name: str, topic_id: bytes, replicas: list[list[int]], configs: dict[str, str]) -> None:
        self.records.append(TopicRecord(name=name, topic_id=topic_id))
        for key, value in configs.items():
            self.records.append(
                ConfigRecord(resource_type=ConfigResource.TOPIC, resource_name=name, name=key, value=value)
            )
        if "min.insync.replicas" in configs and self._image.features.has_eligible_leader_replicas:
            self.records.append(ClearElrRecord(topic_name=name))
        for index, brokers in enumerate(replicas):
            partition = self._placement.partition(index, brokers)
            self.records.append(partition_record(topic_id, partition))


def _refusal(name: str, fault: Fault) -> TopicResult:
    return TopicResult(name=name, error=fault.code, message=str(fault) or None)
