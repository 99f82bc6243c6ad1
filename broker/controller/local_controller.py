"""LocalController: the controller in this process checks changes, writes records, and answers once they are durable.

The planners are imported with the first change: a start, and a broker whose topics exist, need none of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from broker.controller.client import Heartbeat, HeartbeatAnswer
from broker.controller.placement import Placement, is_online
from broker.metadata.configs import ConfigView
from broker.metadata.image.metadata_image import MetadataDelta, MetadataImage
from broker.metadata.image.records import Record
from broker.metadata.image.topics import PartitionImage, TopicImage
from broker.metadata.loader import MetadataLoader, MetadataTransaction
from broker.metadata.producer_ids import BLOCK_SIZE
from broker.metadata.record_versions import version_of
from broker.metadata.registration import CONTROLLERS_REGISTER_SINCE, Registration
from broker.metadata.topic_rules import CONSUMER_OFFSETS, TRANSACTION_STATE
from broker.raft.single_voter_log import SingleVoterLog
from broker.request.faults import (
    BrokerIdNotRegistered,
    ControllerIdNotRegistered,
    Fault,
    InvalidRequest,
    UnsupportedVersion,
)
from broker.runtime.clock import Ids
from config.broker_settings import BrokerSettings
from protocol.errors import ErrorCode
from protocol.records.cluster_metadata import (
    NO_LEADER,
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from storage.errors import DiskFull, TooManyOpenFiles
from storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from broker.controller.config_alteration import Alteration, AlterationResult, Replacement
    from broker.controller.partition_creation import GrowthResult, MorePartitions
    from broker.controller.scram_credentials import CredentialResult, Deletion, Upsertion
    from broker.controller.topic_creation import NewTopic, TopicResult
    from broker.controller.topic_deletion import DeletionResult, UnwantedTopic

log = logging.getLogger(__name__)

DIRECTORIES_REGISTER_SINCE: Final = 17
"""The metadata.version (3.7-IV2) from which on brokers register their log directories (KIP-858)."""

CONTROLLERS_UNREGISTER_SINCE: Final = 33
"""The metadata.version (4.4-IV2) from which on a controller's registration can be taken back."""


class LocalController:
    """A `ControllerClient` that writes the metadata log itself.

    It decides on the image of all appended records, durable or not: of two requests in one turn, the second sees the
    changes of the first. Other readers use `MetadataCache`, whose image has durable records only.

    ``then`` is called on the loop, after the subscribers; before the method returns, if nothing has to be waited for.
    """

    def __init__(self, raft: SingleVoterLog, metadata: MetadataLoader, *, ids: Ids, settings: BrokerSettings) -> None:
        """``metadata`` has replayed all records in the log of ``raft``."""
        self._raft = raft
        self._ids = ids
        self._settings = settings
        self._directories: list[bytes] = []
        """The ids of the log directories that are online, in the order of ``log.dirs``."""
        self.image: MetadataImage = metadata.image
        """The image of everything that has been appended."""
        self._transaction = MetadataTransaction()
        self._was_in_transaction = metadata.is_in_transaction
        self._configs = ConfigView(self, settings)

    @property
    def broker_epoch(self) -> int:
        """The offset of this node's registration; the clean-shutdown marker names it. -1 before `register`."""
        broker = self.image.cluster.brokers.get(self._settings.node_id)
        return -1 if broker is None else broker.broker_epoch

    # The broker's own life

    def register(
        self,
        registration: Registration,
        *,
        bootstrap: Sequence[Record],
        was_clean: bool,
        found: Mapping[TopicPartition, bytes],
        then: Callable[[], None],
    ) -> None:
        """Register this run of the node, and make it lead the partitions that it has replicas of.

        A partition without leader, as Kafka leaves all of them at a clean stop, gets this node. After an unclean stop
        every partition gets a new leader epoch, so that a consumer that has read lost records can notice. No node leads
        a partition whose log directory is not online.
        """
        self._directories = list(registration.directories)
        if self._was_in_transaction:
            # The planner's records are in no image yet, so there is nothing to undo in `image`.
            self._raft.append([(AbortTransactionRecord(reason="the node that began it is gone"), 0)], _nothing)
        if self.image.features.metadata_version == 0:
            self._append([BeginTransactionRecord(name="Bootstrap records"), *bootstrap, EndTransactionRecord()])
        if self.image.features.metadata_version >= CONTROLLERS_REGISTER_SINCE:
            self._append([registration.controller_record()])
        self._append([registration.broker_record(self._raft.end_offset)])
        changes: list[Record] = []
        offline = 0
        for topic in self.image.topics.by_name.values():
            for partition in topic.partitions:
                where = found.get(TopicPartition(topic.name, partition.index))
                if where is not None or self._is_online(partition):
                    change = self._lead(topic, partition, is_new_epoch=not was_clean, where=where)
                else:
                    change = self._leave_leaderless(topic, partition)
                    offline += 1
                if change is not None:
                    changes.append(change)
        if offline:
            log.error("%d partitions are offline: their log directories are not available", offline)
        if changes:
            log.info("leading %d partitions in a new leader epoch", len(changes))
            self._append(changes)
        self._raft.when_durable(then)

    def heartbeat(self, heartbeat: Heartbeat, then: Callable[[HeartbeatAnswer], None]) -> None:
        """A broker that asks to stop is fenced, and may stop once that is durable: no other broker takes over."""
        if not heartbeat.wants_shutdown:
            is_fenced = self.image.cluster.brokers[self._settings.node_id].fenced
            then(HeartbeatAnswer(heartbeat.metadata_offset >= self.broker_epoch, is_fenced, should_shut_down=False))
            return
        change = BrokerRegistrationChangeRecord(
            broker_id=self._settings.node_id, broker_epoch=self.broker_epoch, fenced=1
        )
        self._append([change], lambda: then(HeartbeatAnswer(True, is_fenced=True, should_shut_down=True)))

    def directory_failed(self, directory: bytes | None, partitions: Collection[TopicPartition]) -> None:
        """Make the partitions of the directory leaderless. Raises StorageError; it may be called again then."""
        if directory in self._directories:
            self._directories.remove(directory)
        changes: list[Record] = []
        for topic in self.image.topics.by_name.values():
            for partition in topic.partitions:
                if (
                    directory is not None and partition.directory_of(self._settings.node_id) == directory
                ) or TopicPartition(topic.name, partition.index) in partitions:
                    change = self._leave_leaderless(topic, partition)
                    if change is not None:
                        changes.append(change)
        if directory is not None and self.image.features.metadata_version >= DIRECTORIES_REGISTER_SINCE:
            changes.append(
                BrokerRegistrationChangeRecord(
                    broker_id=self._settings.node_id, broker_epoch=self.broker_epoch, log_dirs=list(self._directories)
                )
            )
        if changes:
            self._append(changes)

    def _is_online(self, partition: PartitionImage) -> bool:
        node_id = self._settings.node_id
        return node_id not in partition.replicas or is_online(partition.directory_of(node_id), self._directories)

    def _lead(
        self, topic: TopicImage, partition: PartitionImage, *, is_new_epoch: bool, where: bytes | None
    ) -> Record | None:
        """The record that makes this node the only leader of ``partition``; None if it is, or has no replica.

        ``where`` is the log directory in which the partition was found, if that is known.
        """
        node_id = self._settings.node_id
        if node_id not in partition.replicas:
            return None
        has_moved = not self._is_online(partition)
        if partition.leader == node_id and partition.isr == (node_id,) and not is_new_epoch and not has_moved:
            return None
        return PartitionChangeRecord(
            partition_id=partition.index,
            topic_id=topic.topic_id,
            leader=node_id,
            isr=None if partition.isr == (node_id,) else [node_id],
            directories=[
                where if replica == node_id else partition.directory_of(replica) for replica in partition.replicas
            ]
            if has_moved and where is not None
            else None,
            leader_recovery_state=-1 if partition.leader_recovery_state == 0 else 0,
            eligible_leader_replicas=[] if partition.eligible_leader_replicas else None,
            last_known_elr=[] if partition.last_known_elr else None,
        )

    def _leave_leaderless(self, topic: TopicImage, partition: PartitionImage) -> Record | None:
        """The record that makes ``partition`` leaderless, as in Kafka's controller; None if it has no leader.

        Without eligible leader replicas (KIP-966) the last replica in sync stays in sync.
        """
        if partition.leader == NO_LEADER:
            return None
        node_id = self._settings.node_id
        has_elr = self.image.features.has_eligible_leader_replicas
        return PartitionChangeRecord(
            partition_id=partition.index,
            topic_id=topic.topic_id,
            leader=NO_LEADER,
            isr=[] if has_elr else None,
            eligible_leader_replicas=[node_id] if has_elr else None,
            last_known_elr=[node_id] if has_elr else None,
        )

    # Topics

    def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        timeout_ms: int,
        validate_only: bool,
        then: Callable[[list[TopicResult]], None],
    ) -> None:
        from broker.controller.topic_creation import CreationDefaults, TopicPlanner, TopicResult

        if timeout_ms <= 0:
            text = f"The request's timeout of {timeout_ms} ms was over before the topic could be created."
            then([TopicResult(name=topic.name, error=ErrorCode.REQUEST_TIMED_OUT, message=text) for topic in topics])
            return
        planner = TopicPlanner(
            self.image,
            ids=self._ids,
            placement=self._placement(),
            defaults=CreationDefaults(
                partitions=self._settings.num_partitions,
                replication_factor=self._settings.default_replication_factor,
                log_config=self._configs.log_defaults(),
            ),
        )
        results = planner.plan(topics)
        if planner.records and not validate_only:
            self._append(planner.records, lambda: then(results))
            for result in results:
                if result.error is ErrorCode.NONE:
                    log.info("creating topic %s with %d partitions", result.name, result.partitions)
        else:
            self._raft.when_durable(lambda: then(results))

    def create_partitions(
        self,
        wishes: Sequence[MorePartitions],
        *,
        timeout_ms: int,
        validate_only: bool,
        then: Callable[[list[GrowthResult]], None],
    ) -> None:
        from broker.controller.partition_creation import GrowthPlanner, GrowthResult

        if timeout_ms <= 0:
            text = f"The request's timeout of {timeout_ms} ms was over before partitions could be added."
            then([GrowthResult(topic=wish.topic, error=ErrorCode.REQUEST_TIMED_OUT, message=text) for wish in wishes])
            return
        planner = GrowthPlanner(self.image, self._placement())
        results = planner.plan(wishes)
        if planner.records and not validate_only:
            self._append(planner.records, lambda: then(results))
            grown = {result.topic for result in results if result.error is ErrorCode.NONE}
            for wish in wishes:
                if wish.topic in grown:
                    log.info("topic %s gets %d partitions in all", wish.topic, wish.count)
        else:
            self._raft.when_durable(lambda: then(results))

    def reassign_partitions(
        self,
        wishes: Sequence[tuple[str, int, Sequence[int] | None]],
        *,
        then: Callable[[list[Fault | None]], None],
    ) -> None:
        from broker.controller.reassignment import ReassignmentPlanner

        planner = ReassignmentPlanner(self.image, self._placement())
        results: list[Fault | None] = []
        for topic, index, replicas in wishes:
            try:
                planner.plan(topic, index, replicas)
            except Fault as fault:
                results.append(fault.with_traceback(None))  # which leads back to the planner and this list
            else:
                results.append(None)
        if planner.records:
            self._append(planner.records, lambda: then(results))
        else:
            self._raft.when_durable(lambda: then(results))

    def _placement(self) -> Placement:
        return Placement(self.image, broker_id=self._settings.node_id, directories=self._directories)

    def auto_create(self, names: Iterable[str]) -> None:
        wanted = [self._auto_created(name) for name in dict.fromkeys(names) if name not in self.image.topics.by_name]
        if wanted:
            # A metadata log without disk space has logged that itself.
            with suppress(DiskFull, TooManyOpenFiles):
                self.create_topics(wanted, timeout_ms=1, validate_only=False, then=_log_refusals)

    def _auto_created(self, name: str) -> NewTopic:
        from broker.controller.topic_creation import NewTopic

        settings = self._settings
        if name == CONSUMER_OFFSETS:
            return NewTopic(
                name=name,
                partitions=settings.offsets_topic_num_partitions,
                replication_factor=settings.offsets_topic_replication_factor,
                configs=(
                    ("compression.type", "producer"),
                    ("cleanup.policy", "compact"),
                    ("segment.bytes", str(settings.offsets_topic_segment_bytes)),
                ),
            )
        if name == TRANSACTION_STATE:
            return NewTopic(
                name=name,
                partitions=settings.transaction_state_log_num_partitions,
                replication_factor=settings.transaction_state_log_replication_factor,
                configs=(
                    ("compression.type", "uncompressed"),
                    ("cleanup.policy", "compact"),
                    ("min.insync.replicas", str(settings.transaction_state_log_min_isr)),
                    ("segment.bytes", str(settings.transaction_state_log_segment_bytes)),
                    ("unclean.leader.election.enable", "false"),
                ),
            )
        return NewTopic(name=name)

    def delete_topics(
        self,
        unwanted: Sequence[UnwantedTopic],
        *,
        timeout_ms: int,
        then: Callable[[list[DeletionResult]], None],
    ) -> None:
        """Delete topics by name or id, each with its own success or error (KIP-4, KIP-516).

        With ``delete.topic.enable=false`` all topics get TOPIC_DELETION_DISABLED, or INVALID_REQUEST in versions of
        the API without that error.
        """
        from broker.controller.topic_deletion import DeletionResult, plan_deletion

        error, text = ErrorCode.NONE, ""
        if not self._settings.delete_topic_enable:
            error, text = ErrorCode.TOPIC_DELETION_DISABLED, "Topics can't be deleted: delete.topic.enable is false."
        elif timeout_ms <= 0:
            text = f"The request's timeout of {timeout_ms} ms was over before the topic could be deleted."
            error = ErrorCode.REQUEST_TIMED_OUT
        if error is not ErrorCode.NONE:
            then([DeletionResult(name=one.name, topic_id=one.topic_id, error=error, message=text) for one in unwanted])
            return
        doomed, results = plan_deletion(self.image, unwanted)
        if doomed:
            self._append([RemoveTopicRecord(topic_id=topic.topic_id) for topic in doomed], lambda: then(results))
            log.info("deleting topics %s", ", ".join(topic.name for topic in doomed))
        else:
            self._raft.when_durable(lambda: then(results))

    # Configs

    def alter_configs(
        self,
        wanted: Sequence[Alteration | Replacement],
        *,
        validate_only: bool,
        then: Callable[[list[AlterationResult]], None],
    ) -> None:
        from broker.controller.config_alteration import ConfigPlanner

        planner = ConfigPlanner(self.image, self._configs)
        results = [planner.plan(one) for one in wanted]
        if planner.records and not validate_only:
            self._append(planner.records, lambda: then(results))
            for one, result in zip(wanted, results, strict=True):
                if result.changed:
                    # Values are not logged: unknown configs may hold secrets.
                    log.info("altering configs of %s: %s", one.resource, ", ".join(result.changed))
        else:
            self._raft.when_durable(lambda: then(results))

    # What is registered

    def alter_scram_credentials(
        self, wanted: Sequence[Deletion | Upsertion], *, then: Callable[[list[CredentialResult]], None]
    ) -> None:
        from broker.controller.scram_credentials import CredentialPlanner

        planner = CredentialPlanner(self.image)
        results = planner.plan(wanted)
        if planner.records:
            self._append(planner.records, lambda: then(results))
        else:
            self._raft.when_durable(lambda: then(results))

    def update_features(self, levels: Mapping[str, int], then: Callable[[], None]) -> None:
        self._append([FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()], then)
        log.info("features are finalised: %s", ", ".join(f"{name}={level}" for name, level in levels.items()))

    def unregister_broker(self, broker_id: int, then: Callable[[], None]) -> None:
        """Only a broker that an adopted directory brought can be forgotten: this one is all there is."""
        broker = self.image.cluster.brokers.get(broker_id)
        if broker is None:
            raise BrokerIdNotRegistered(f"Broker ID {broker_id} is not currently registered")
        if broker_id == self._settings.node_id:
            raise InvalidRequest(f"Broker {broker_id} is the one that is asked, and it runs")
        self._append([UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.broker_epoch)], then)
        log.info("broker %d is no longer registered", broker_id)

    def unregister_controller(self, controller_id: int, then: Callable[[], None]) -> None:
        """Only a controller that an adopted directory brought can be forgotten: this one is all there is."""
        if controller_id == self._settings.node_id:
            raise InvalidRequest("Controller cannot unregister itself while it is active.")
        if self.image.features.metadata_version < CONTROLLERS_UNREGISTER_SINCE:
            raise UnsupportedVersion("The current MetadataVersion is too old to support controller unregistration.")
        if controller_id not in self.image.cluster.controllers:
            raise ControllerIdNotRegistered(f"Controller ID {controller_id} is not currently registered.")
        self._append([UnregisterControllerRecord(controller_id=controller_id)], then)
        log.info("controller %d is no longer registered", controller_id)

    # Producer ids

    def allocate_producer_ids(self, then: Callable[[range], None]) -> None:
        first = self.image.producer_ids.next_producer_id
        record = ProducerIdsRecord(
            broker_id=self._settings.node_id, broker_epoch=self.broker_epoch, next_producer_id=first + BLOCK_SIZE
        )
        self._append([record], lambda: then(range(first, first + BLOCK_SIZE)))

    def _append(self, records: Sequence[Record], then: Callable[[], None] | None = None) -> None:
        """Append ``records`` as one change. Raises StorageError; the image is as it was then."""
        metadata_version = self.image.features.metadata_version
        self._raft.append([(record, version_of(record, metadata_version)) for record in records], then or _nothing)
        delta = MetadataDelta(self.image)
        for record in records:
            for counts in self._transaction.pass_on(record):
                delta.replay(counts)
        self.image = delta.apply(self._raft.end_offset)


def _log_refusals(results: list[TopicResult]) -> None:
    for result in results:
        if result.error is not ErrorCode.NONE:
            log.info("topic %s was not created automatically: %s", result.name, result.message)


def _nothing() -> None:
    pass
