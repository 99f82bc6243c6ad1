"""What the metadata log says becomes logs and partitions: a subscriber of the published image."""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from broker.clock import Clock, Ids
from broker.metadata.configs import ConfigView
from broker.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from broker.offload import WorkerThread
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from broker.upkeep import Upkeep
from storage.errors import DiskFull, StorageError, TooManyOpenFiles
from storage.log_dir import LogDir
from storage.log_manager import LogManager
from storage.removal import PendingRemoval
from storage.topic_partition import TopicPartition

log = logging.getLogger(__name__)

RETRY_MS: Final = 1_000
"""How long a partition waits whose log found no room or no descriptor."""


class Hosting:
    """Keeps logs and partitions in step with the image. It is told, and never asks back."""

    def __init__(
        self,
        *,
        node_id: int,
        clock: Clock,
        ids: Ids,
        logs: LogManager,
        directories: Mapping[bytes, LogDir],
        replicas: ReplicaManager,
        configs: ConfigView,
        upkeep: Upkeep,
        worker: WorkerThread,
        on_disk_failure: Callable[[StorageError], None],
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self._ids = ids
        self._logs = logs
        self._directories = directories
        self._replicas = replicas
        self._configs = configs
        self._upkeep = upkeep
        self._worker = worker
        self._on_disk_failure = on_disk_failure
        self._waiting: dict[TopicPartition, tuple[TopicImage, PartitionImage]] = {}
        """Partitions whose log could not be made for want of something that may come back."""

    def host_all(self, image: MetadataImage) -> None:
        """Take in every partition that this node has a replica of; called once, when the logs are loaded."""
        for topic in image.topics_by_name.values():
            for partition in topic.partitions:
                self._host(topic, partition)

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Do what has changed, deletions first: a name may be both gone and new."""
        for topic in delta.deleted_topics:
            for gone in topic.partitions:
                self._drop(topic.name, gone.index)
        for topic in delta.created_topics.values():
            for new in topic.partitions:
                self._host(topic, new)
        for topic_partition, changed in delta.changed_partitions.items():
            hosted = self._replicas.find(*topic_partition)
            if hosted is None:
                self._host(image.topics_by_name[topic_partition.topic], changed)
            else:
                hosted.lead(
                    leader=changed.leader,
                    leader_epoch=changed.leader_epoch,
                    replicas=changed.replicas,
                    in_sync_replicas=frozenset(changed.isr),
                )
        for resource_type, name in delta.changed_configs:
            if resource_type == RESOURCE_TOPIC:
                self._configure(name, image)
            elif resource_type == RESOURCE_BROKER:
                for topic in image.topics_by_name.values():
                    self._configure(topic.name, image)

    def remove_later(self, removal: PendingRemoval) -> None:
        """Remove files that are out of use once their delay is over, in the worker thread."""
        self._upkeep.once(removal.delay_ms, lambda: self._worker.submit(removal.perform, _nothing, self._failed))

    def _host(self, topic: TopicImage, image: PartitionImage) -> None:
        if self._node_id not in image.replicas:
            return
        topic_partition = TopicPartition(topic.name, image.index)
        try:
            found = self._logs.create(
                topic_partition,
                topic.topic_id,
                self._configs.topic_config(topic.name),
                self._clock.now_ms(),
                self._directories.get(image.directory_of(self._node_id)),
            )
            partition = Partition(
                clock=self._clock,
                log=found,
                topic_id=topic.topic_id,
                node_id=self._node_id,
                leader=image.leader,
                leader_epoch=image.leader_epoch,
                replicas=image.replicas,
                in_sync_replicas=frozenset(image.isr),
                is_internal=topic.is_internal,
            )
        except (DiskFull, TooManyOpenFiles) as error:
            self._host_later(topic_partition, topic, image, error)
            return
        except StorageError as error:
            self._waiting.pop(topic_partition, None)
            self._failed(error)
            return
        self._replicas.host(partition)

    def _host_later(
        self, topic_partition: TopicPartition, topic: TopicImage, image: PartitionImage, error: StorageError
    ) -> None:
        if not self._waiting:
            log.error("%s has no log yet, trying again every %d ms: %s", topic_partition, RETRY_MS, error)
            self._upkeep.once(RETRY_MS, self._host_waiting)
        self._waiting[topic_partition] = topic, image

    def _host_waiting(self) -> None:
        for topic_partition, (topic, image) in tuple(self._waiting.items()):
            self._host(topic, image)
            if self._replicas.find(*topic_partition) is not None:
                del self._waiting[topic_partition]
                log.info("%s has its log now", topic_partition)
        if self._waiting:
            self._upkeep.once(RETRY_MS, self._host_waiting)

    def _drop(self, topic: str, index: int) -> None:
        self._waiting.pop(TopicPartition(topic, index), None)
        partition = self._replicas.find(topic, index)
        if partition is None:
            return
        self._replicas.drop(partition)
        try:
            removal = self._logs.delete(partition.topic_partition, self._ids.uuid().hex())
        except StorageError as error:
            self._failed(error)
            return
        if removal is not None:
            self.remove_later(removal)

    def _configure(self, topic: str, image: MetadataImage) -> None:
        known = image.topics_by_name.get(topic)
        if known is None:
            return
        config = self._configs.topic_config(topic)
        for partition in known.partitions:
            hosted = self._replicas.find(topic, partition.index)
            if hosted is not None:
                hosted.log.config = config

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, StorageError):
            raise error
        log.error("%s", error)
        self._on_disk_failure(error)


def _nothing(_: object) -> None:
    pass
