"""The pipeline's client of the broker: topics, bounds of partitions, offsets by time and by group, configs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from pipeline.errors import BrokerError as BrokerError
from pipeline.group_client import Commit as Commit
from pipeline.group_client import GroupClient
from pipeline.reading.ranges import Bounds
from storage.sentinels import NO_EPOCH, NO_OFFSET
from storage.topic_partition import TopicPartition

T = TypeVar("T")

TIMEOUT_S: Final = 30.0
_RETRY_S: Final = 0.05
_NOT_YET: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    # The leader is named, and has not heard of it.
    KafkaError.UNKNOWN_LEADER_EPOCH,
    # librdkafka's own word for it, where none of the partitions has a leader.
    KafkaError._NOENT,
)
_MOST_SILENT: Final = 0


class TopicSeen(NamedTuple):
    """A topic as the broker describes it."""

    name: str
    partitions: Sequence[int]
    is_internal: bool


class Broker:
    """A client of the broker at an address. All methods raise BrokerError. It may be pickled: the copy connects anew.

    `properties` are options of librdkafka, for brokers that need more than an address.
    """

    def __init__(
        self, bootstrap: str, *, properties: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.bootstrap = bootstrap
        self._properties = dict(properties or {})
        self._timeout_s = timeout_s
        self._client: AdminClient | None = None
        self._groups = GroupClient(bootstrap, timeout_s)

    def __reduce__(self) -> tuple[Callable[..., Broker], tuple[str, dict[str, str], float]]:
        return _connected_anew, (self.bootstrap, self._properties, self._timeout_s)

    # What there is

    def cluster_id(self) -> str:
        """The cluster's id, which distinguishes one broker's data from another's."""
        found: str = self._answer(self._admin.describe_cluster(request_timeout=self._timeout_s)).cluster_id
        return found

    def topics(self) -> dict[str, TopicSeen]:
        """All topics by name, internal topics included."""
        names = list(self._listed())
        if not names:
            return {}
        described = self._admin.describe_topics(TopicCollection(names), request_timeout=self._timeout_s)
        found = {}
        for name, future in described.items():
            try:
                topic = self._answer(future, f"topic {name}")
            except BrokerError as error:
                if error.code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue  # deleted meanwhile
                raise
            partitions = sorted(partition.id for partition in topic.partitions)
            found[name] = TopicSeen(name, partitions, topic.is_internal)
        return found

    def _listed(self, topic: str | None = None) -> Iterable[str]:
        """The names of all topics, or only ``topic``, as the broker knows them now."""
        try:
            names: Iterable[str] = self._admin.list_topics(topic, timeout=self._timeout_s).topics
        except KafkaException as error:
            raise self._error(error, "") from error
        return names

    # Offsets

    def bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """The offsets between which each of these partitions can be read now."""
        wanted = list(partitions)
        start = self._offsets(dict.fromkeys(wanted, OffsetSpec.earliest()))
        # The stable end first: it never lies behind the high watermark that is asked for later.
        stable = self._offsets(dict.fromkeys(wanted, OffsetSpec.latest()), IsolationLevel.READ_COMMITTED)
        end = self._offsets(dict.fromkeys(wanted, OffsetSpec.latest()))
        return {place: Bounds(start[place], end[place], stable[place]) for place in wanted}

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """For each partition the first offset whose record has this timestamp (ms since 1970) or a later one; None
        where there is no such record."""
        found = self._offsets({place: OffsetSpec.for_timestamp(time_ms) for place, time_ms in times_ms.items()})
        return {place: None if offset == NO_OFFSET else offset for place, offset in found.items()}

    def _offsets(
        self, wanted: Mapping[TopicPartition, Any], isolation: Any = IsolationLevel.READ_UNCOMMITTED
    ) -> dict[TopicPartition, int]:
        if not wanted:
            return {}
        asked = {Place(*place): spec for place, spec in wanted.items()}
        answers = self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=self._timeout_s)
        return {
            TopicPartition(place.topic, place.partition): self._answer(
                future, f"offsets of {place.topic}-{place.partition}"
            ).offset
            for place, future in answers.items()
        }

    # Groups

    def groups(self) -> list[str]:
        """The groups that the broker knows, with members or only with offsets."""
        return self._groups.groups()

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The group's committed offsets; none for an unknown group."""
        return {place: commit.offset for place, commit in self.commits(group).items()}

    def commits(self, group: str) -> dict[TopicPartition, Commit]:
        """The group's committed offsets with leader epoch and metadata."""
        return self._groups.commits(group)

    def commit(self, group: str, offsets: Mapping[TopicPartition, int | Commit]) -> None:
        """Commit offsets for a group without members. The group is created if it does not exist."""
        commits = {place: Commit(to, NO_EPOCH, "") if isinstance(to, int) else to for place, to in offsets.items()}
        if commits:
            self._groups.commit(group, commits)

    # Topics' configs and their making

    def topic_configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """The configs that are set on each topic; without the broker's defaults."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
        if not resources:
            return {}
        answers = self._admin.describe_configs(resources, request_timeout=self._timeout_s)
        return {
            resource.name: {
                entry.name: entry.value
                for entry in self._answer(future, f"configs of topic {resource.name}").values()
                if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
            }
            for resource, future in answers.items()
        }

    def alter_topic_configs(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Set these configs of a topic; None removes a config. Other configs stay as they are."""
        entries = [
            ConfigEntry(name, value or "", incremental_operation=_operation(value)) for name, value in changes.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        answers = self._admin.incremental_alter_configs([resource], request_timeout=self._timeout_s)
        for future in answers.values():
            self._answer(future, f"configs of topic {topic}")

    def check_topic(self, name: str, *, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        """Raise BrokerError if the broker would not create such a topic."""
        self._create_topic(name, partitions, configs, validate_only=True)

    def _create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str] | None, *, validate_only: bool
    ) -> None:
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(configs or {}))
        answers = self._admin.create_topics([new], request_timeout=self._timeout_s, validate_only=validate_only)
        self._answer(answers[name], f"topic {name}")

    def create_topic(self, name: str, *, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic with one replica a partition. Its partitions have leaders when this returns."""
        self._create_topic(name, partitions, configs, validate_only=False)
        # Partitions become leaders after the answer.
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                # librdkafka remembers for long that a topic had no leaders; it forgets that when it learns of leaders.
                self._listed(name)
                self._offsets({TopicPartition(name, number): OffsetSpec.latest() for number in range(partitions)})
            except BrokerError as error:
                if error.code not in _NOT_YET or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)
            else:
                return

    # The way to it

    @property
    def _admin(self) -> Any:
        if self._client is None:
            # What librdkafka would write to stderr (a refused connection) comes as an error of the call, too.
            own = {"bootstrap.servers": self.bootstrap, "log_level": _MOST_SILENT, "client.id": "ottla-pipeline"}
            self._client = AdminClient({**own, **self._properties})
        return self._client

    def _answer(self, future: Future[T], subject: str = "") -> T:
        try:
            return future.result(self._timeout_s + 1)
        except KafkaException as error:
            raise self._error(error, subject) from error
        except TimeoutError as error:
            raise BrokerError(
                f"the broker at {self.bootstrap} did not answer within {self._timeout_s:.0f} s"
            ) from error

    def _error(self, error: KafkaException, subject: str) -> BrokerError:
        said = error.args[0]
        about = f" ({subject})" if subject else ""
        if said.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            return BrokerError(
                f"the broker at {self.bootstrap} did not answer within {self._timeout_s:.0f} s{about}: {said.str()}"
            )
        return BrokerError(f"the broker at {self.bootstrap} refused{about}: {said.name()}, {said.str()}", said.code())


def _operation(value: str | None) -> Any:
    return AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET


def _connected_anew(bootstrap: str, properties: Mapping[str, str], timeout_s: float) -> Broker:
    return Broker(bootstrap, properties=properties, timeout_s=timeout_s)
