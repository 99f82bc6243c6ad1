"""LocalController: the controller in this process checks changes, writes records, and answers once they are durable.

The planners are imported with the first change: a start, and a broker whose topics exist, need none of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from broker.controller.broker_sessions import BrokerSessions
from broker.controller.client import TokenChange
from broker.controller.election_counts import ElectionCounts
from broker.metadata.automatic_topics import AutomaticTopic
from broker.metadata.configs import ConfigView
from broker.metadata.image.metadata_image import MetadataDelta, MetadataImage
from broker.metadata.image.records import Record
from broker.metadata.loader import MetadataLoader, MetadataTransaction
from broker.metadata.producer_ids import BLOCK_SIZE
from broker.metadata.record_versions import version_of
from broker.metadata.registration import CONTROLLERS_REGISTER_SINCE, Registration
from broker.raft.single_voter_log import SingleVoterLog
from broker.request.faults import (
    BrokerIdNotRegistered,
    ControllerIdNotRegistered,
    Fault,
    InvalidRequest,
    UnsupportedVersion,
)
from broker.runtime.clock import Ids
from broker.runtime.counted import counted
from config.broker_settings import BrokerSettings
from protocol.errors import ErrorCode, described
from protocol.records.cluster_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    UnregisterControllerRecord,
)
from storage.errors import DiskFull, TooManyOpenFiles

if TYPE_CHECKING:
    from broker.controller.acl_changes import DeletedAcls, NewAcl
    from broker.controller.client_quotas import QuotaAlteration, QuotaResult
    from broker.controller.cluster_view import ClusterView
    from broker.controller.config_alteration import Alteration, AlterationResult, Replacement
    from broker.controller.feature_updates import FeatureUpdate
    from broker.controller.partition_creation import GrowthResult, MorePartitions
    from broker.controller.placement import Placement
    from broker.controller.scram_credentials import CredentialResult, Deletion, Upsertion
    from broker.controller.topic_creation import NewTopic, TopicResult
    from broker.controller.topic_deletion import DeletionResult, UnwantedTopic
    from broker.request.context import RequestContext
    from broker.request.quota import MutationQuota
    from broker.security.acls.filters import AclFilter

log = logging.getLogger(__name__)

T = TypeVar("T")

CREATION_TIMEOUT_MS: Final = 30_000
"""Of topics that the broker asks for."""

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
        self._registration: Registration | None = None
        """This run of the node, once `begin` was called."""
        self.image: MetadataImage = metadata.image
        """The image of everything that has been appended."""
        self._was_in_transaction = metadata.is_in_transaction
        self._configs = ConfigView(self, settings)
        self.elections = ElectionCounts()
        self.others_can_join = True
        """False where no other broker can reach this controller: brokers that an adopted directory names are gone for
        good then (`broker.controller.cluster_requests`)."""
        self.own_cordoned: Sequence[bytes] = ()
        """The log directories of this node that take no new replicas, at levels too that have no field for them."""
        self.sessions = BrokerSessions(settings.broker_session_timeout_ms)
        """The sessions of the other brokers."""

    @property
    def node_id(self) -> int:
        """The id of this node's own broker."""
        return self._settings.node_id

    @property
    def broker_epoch(self) -> int:
        """The offset of the last registration of this node's own broker; -1 without one."""
        broker = self.image.cluster.brokers.get(self.node_id)
        return -1 if broker is None else broker.broker_epoch

    def begin(self, registration: Registration, bootstrap: Callable[[], Sequence[Record]]) -> None:
        """Begin a run of the controller: what has to be in the metadata log before a broker registers.

        Args:
            registration: that of this run of the node.
            bootstrap: returns the features and configs of a new cluster, if the metadata log has none yet. May raise
                InconsistentMetadata.

        Raises StorageError.
        """
        self._registration = registration
        if self._was_in_transaction:
            # The planner's records are in no image yet, so there is nothing to undo in `image`.
            self._raft.append([(AbortTransactionRecord(reason="the node that began it is gone"), 0)], _nothing)
        if self.image.features.metadata_version == 0:
            self.append([BeginTransactionRecord(name="Bootstrap records"), *bootstrap(), EndTransactionRecord()])
        if self.image.features.metadata_version >= CONTROLLERS_REGISTER_SINCE:
            self.append([registration.controller_record()])

    # Topics

    def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        timeout_ms: int,
        validate_only: bool,
        then: Callable[[list[TopicResult]], None],
        mutations: MutationQuota | None = None,
    ) -> None:
        from broker.controller.topic_creation import CreationDefaults, TopicPlanner, TopicResult

        if timeout_ms <= 0:
            then([TopicResult(name=topic.name, error=ErrorCode.REQUEST_TIMED_OUT) for topic in topics])
            return
        planner = TopicPlanner(
            self.image,
            ids=self._ids,
            placement=self._placement(),
            defaults=CreationDefaults(
                partitions=self._settings.num_partitions,
                replication_factor=self._settings.default_replication_factor,
                log_config=self._configs.log_defaults(),
                clamps_replication_factor=self._settings.ottla_replication_factor_clamp,
            ),
            mutations=mutations,
        )
        results = planner.plan(topics)
        changes = () if validate_only else planner.records
        self.append_or_wait(results, changes, then)
        for result in results if changes else ():
            if result.error is ErrorCode.NONE:
                log.info("creating topic %s with %s", result.name, counted(result.partitions, "partition"))

    def create_partitions(
        self,
        wishes: Sequence[MorePartitions],
        *,
        timeout_ms: int,
        validate_only: bool,
        then: Callable[[list[GrowthResult]], None],
        mutations: MutationQuota | None = None,
    ) -> None:
        from broker.controller.partition_creation import GrowthPlanner, GrowthResult

        if timeout_ms <= 0:
            then([GrowthResult(topic=wish.topic, error=ErrorCode.REQUEST_TIMED_OUT) for wish in wishes])
            return
        planner = GrowthPlanner(self.image, self._placement(), mutations)
        results = planner.plan(wishes)
        changes = () if validate_only else planner.records
        self.append_or_wait(results, changes, then)
        grown = {result.topic for result in results if changes and result.error is ErrorCode.NONE}
        for wish in wishes:
            if wish.topic in grown:
                log.info("topic %s gets %s in all", wish.topic, counted(wish.count, "partition"))

    def reassign_partitions(
        self,
        wishes: Sequence[tuple[str, int, Sequence[int] | None]],
        *,
        then: Callable[[list[Fault | None]], None],
        may_change_replication_factor: bool = True,
    ) -> None:
        from broker.controller.reassignment import ReassignmentPlanner

        planner = ReassignmentPlanner(
            self.view(), self._placement(), may_change_replication_factor=may_change_replication_factor
        )
        results: list[Fault | None] = []
        for topic, index, replicas in wishes:
            try:
                planner.plan(topic, index, replicas)
            except Fault as fault:
                results.append(fault.with_traceback(None))  # which leads back to the planner and this list
            else:
                results.append(None)
        self.append_or_wait(results, planner.records, then)

    def _placement(self) -> Placement:
        from broker.controller.placement import Placement

        own = self.image.cluster.brokers.get(self.node_id)
        return Placement(
            self.image,
            broker_id=self.node_id,
            directories=() if own is None else own.log_dirs,
            cordoned=self.own_cordoned,
            others=self.others,
            chance=lambda below: int.from_bytes(self._ids.uuid()[8:], "big") % below,
        )

    def auto_create(self, names: Iterable[str], asked_by: RequestContext | None = None) -> None:
        from broker.controller.topic_creation import NewTopic
        from broker.metadata.automatic_topics import automatic_topic

        missing = [name for name in dict.fromkeys(names) if name not in self.image.topics.by_name]
        wanted = [NewTopic.automatic(name, automatic_topic(name, self._settings)) for name in missing]
        if wanted:
            mutations = None if asked_by is None else asked_by.mutations(is_strict=True, is_told=False)
            # A metadata log without disk space has logged that itself.
            with suppress(DiskFull, TooManyOpenFiles):
                self.create_topics(wanted, timeout_ms=1, validate_only=False, then=_log_refusals, mutations=mutations)

    def create_in_the_name_of(
        self, asked_by: RequestContext, topics: Mapping[str, AutomaticTopic], then: Callable[[Mapping[str, str]], None]
    ) -> None:
        from broker.controller.topic_creation import NewTopic

        def created(results: list[TopicResult]) -> None:
            refused = [one for one in results if one.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)]
            _log_refusals(refused)
            then({one.name: one.message or described(one.error) for one in refused})

        try:
            self.create_topics(
                [NewTopic.automatic(name, topic) for name, topic in topics.items()],
                timeout_ms=CREATION_TIMEOUT_MS,
                validate_only=False,
                then=created,
                mutations=asked_by.mutations(is_strict=True, is_told=False),
            )
        except (DiskFull, TooManyOpenFiles) as error:
            then(dict.fromkeys(topics, str(error)))

    def create_topic(self, name: str, configs: Sequence[tuple[str, str]], then: Callable[[], None]) -> None:
        from broker.controller.topic_creation import NewTopic

        def created(results: list[TopicResult]) -> None:
            _log_refusals(results)
            then()

        topic = NewTopic(name, configs=tuple(configs))
        try:
            self.create_topics([topic], timeout_ms=CREATION_TIMEOUT_MS, validate_only=False, then=created)
        except (DiskFull, TooManyOpenFiles):  # which the metadata log has logged
            then()

    def delete_topics(
        self,
        unwanted: Sequence[UnwantedTopic],
        *,
        timeout_ms: int,
        then: Callable[[list[DeletionResult]], None],
        mutations: MutationQuota | None = None,
    ) -> None:
        """Delete topics by name or id, each with its own success or error (KIP-4, KIP-516).

        With ``delete.topic.enable=false`` all topics get TOPIC_DELETION_DISABLED, or INVALID_REQUEST in versions of
        the API without that error.
        """
        from broker.controller.topic_deletion import DeletionResult, plan_deletion

        error = ErrorCode.NONE
        if not self._settings.delete_topic_enable:
            error = ErrorCode.TOPIC_DELETION_DISABLED
        elif timeout_ms <= 0:
            error = ErrorCode.REQUEST_TIMED_OUT
        if error is not ErrorCode.NONE:
            then([DeletionResult(name=one.name, topic_id=one.topic_id, error=error) for one in unwanted])
            return
        doomed, results = plan_deletion(self.image, unwanted, mutations)
        self.append_or_wait(results, [RemoveTopicRecord(topic_id=topic.topic_id) for topic in doomed], then)
        if doomed:
            log.info("deleting topics %s", ", ".join(topic.name for topic in doomed))

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
        changes = () if validate_only else planner.records
        self.append_or_wait(results, changes, then)
        for one, result in zip(wanted, results, strict=True):
            if changes and result.changed:
                # Values are not logged: unknown configs may hold secrets.
                log.info("altering configs of %s: %s", one.resource, ", ".join(result.changed))

    # What is registered

    def alter_client_quotas(
        self,
        wanted: Sequence[QuotaAlteration],
        *,
        unknown_hosts: Collection[str],
        validate_only: bool,
        then: Callable[[list[QuotaResult]], None],
    ) -> None:
        from broker.controller.client_quotas import QuotaPlanner

        planner = QuotaPlanner(self.image, unknown_hosts)
        results = planner.plan(wanted)
        changes = () if validate_only else planner.records
        self.append_or_wait(results, changes, then)
        if changes:
            log.info("%s of clients changed", counted(len(changes), "quota"))

    def create_acls(self, wanted: Sequence[NewAcl], *, then: Callable[[list[Fault | None]], None]) -> None:
        from broker.controller.acl_changes import AclPlanner

        planner = AclPlanner(self.image, self._ids.uuid)
        self.append_or_wait(planner.create(wanted), planner.records, then)

    def delete_acls(self, unwanted: Sequence[AclFilter], *, then: Callable[[list[DeletedAcls]], None]) -> None:
        from broker.controller.acl_changes import AclPlanner

        planner = AclPlanner(self.image, self._ids.uuid)
        self.append_or_wait(planner.delete(unwanted), planner.records, then)

    def alter_scram_credentials(
        self, wanted: Sequence[Deletion | Upsertion], *, then: Callable[[list[CredentialResult]], None]
    ) -> None:
        from broker.controller.scram_credentials import CredentialPlanner

        planner = CredentialPlanner(self.image)
        self.append_or_wait(planner.plan(wanted), planner.records, then)

    def change_delegation_token(
        self, plan: Callable[[MetadataImage], TokenChange], *, then: Callable[[TokenChange], None]
    ) -> None:
        record = plan(self.image)
        self.append([record], lambda: then(record))

    def remove_expired_delegation_tokens(self, now_ms: int) -> None:
        from broker.security.delegation_tokens import removals_of_expired

        if removals := removals_of_expired(self.image, now_ms):
            self.append(removals, lambda: None)
            log.info("removed %d delegation tokens that have expired", len(removals))

    def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool, then: Callable[[], None]
    ) -> None:
        from broker.controller.feature_updates import KRAFT_VERSION, plan_updates

        before = self.image.features.metadata_version
        records = plan_updates(
            self.image,
            updates,
            node_id=self.node_id,
            kraft_version=self.kraft_version,
            min_insync_replicas=self._settings.log_defaults().min_insync_replicas,
        )
        wants_voters = any(one.feature == KRAFT_VERSION and one.level > self.kraft_version for one in updates)
        if (records or wants_voters) and not validate_only:
            assert self._registration is not None, "requests are answered after the registration"
            if wants_voters:
                own = self._registration
                self._raft.upgrade_kraft_version(own.metadata_directory_id, own.controller_endpoint)
            if records:
                self.append(records)
            log.info("features are finalised: %s", ", ".join(f"{one.feature}={one.level}" for one in updates))
            if before < CONTROLLERS_REGISTER_SINCE <= self.image.features.metadata_version:
                self.append([self._registration.controller_record()])
        self.when_durable(then)

    def unregister_broker(self, broker_id: int, then: Callable[[], None]) -> None:
        """Forget a broker. A broker that still runs has to register again."""
        broker = self.image.cluster.brokers.get(broker_id)
        if broker is None:
            raise BrokerIdNotRegistered(f"Broker ID {broker_id} is not currently registered")
        if broker_id == self._settings.node_id:
            raise InvalidRequest(f"Broker {broker_id} is the one that is asked, and it runs")
        from broker.controller.broker_changes import unregister

        self.append(unregister(self.view(), broker), then)
        self.sessions.end(broker_id)
        log.info("broker %d is no longer registered", broker_id)

    def unregister_controller(self, controller_id: int, then: Callable[[], None]) -> None:
        """Only a controller that an adopted directory brought can be forgotten: this one is all there is."""
        if controller_id == self._settings.node_id:
            raise InvalidRequest("Controller cannot unregister itself while it is active.")
        if self.image.features.metadata_version < CONTROLLERS_UNREGISTER_SINCE:
            raise UnsupportedVersion("The current MetadataVersion is too old to support controller unregistration.")
        if controller_id not in self.image.cluster.controllers:
            raise ControllerIdNotRegistered(f"Controller ID {controller_id} is not currently registered.")
        self.append([UnregisterControllerRecord(controller_id=controller_id)], then)
        log.info("controller %d is no longer registered", controller_id)

    # Producer ids

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int, then: Callable[[range], None]) -> None:
        """Give the next block of producer ids to a broker of the cluster."""
        first = self.image.producer_ids.next_producer_id
        record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + BLOCK_SIZE)
        self.append([record], lambda: then(range(first, first + BLOCK_SIZE)))

    # For the requests of other brokers

    @property
    def others(self) -> Mapping[int, RegisterBrokerRecord]:
        """The registrations of the other brokers that can reach this controller, by id."""
        if not self.others_can_join:
            return {}
        return {
            broker_id: broker for broker_id, broker in self.image.cluster.brokers.items() if broker_id != self.node_id
        }

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._raft.end_offset

    @property
    def high_watermark(self) -> int:
        """Records below this offset are committed, and this node's broker has applied them."""
        return self._raft.high_watermark

    @property
    def kraft_version(self) -> int:
        """The finalised level of kraft.version."""
        return self._raft.quorum.kraft_version

    def view(self) -> ClusterView:
        """The cluster as the next plan has to see it."""
        from broker.controller.cluster_view import ClusterView

        return ClusterView(self.image, self._configs, own=self.node_id, others=self.others)

    def when_durable(self, then: Callable[[], None]) -> None:
        """Call ``then`` once all that has been appended is durable and published. Raises StorageError."""
        self._raft.when_durable(then)

    def append_or_wait(self, results: T, records: Sequence[Record], then: Callable[[T], None]) -> None:
        """Give ``results`` once ``records``, or all that was appended before, are durable. Raises StorageError."""
        if records:
            self.append(records, lambda: then(results))
        else:
            self._raft.when_durable(lambda: then(results))

    def append(self, records: Sequence[Record], then: Callable[[], None] | None = None) -> None:
        """Append ``records`` as one change.

        The records are replayed before they are written: in the log, a record that does not fit would stop this start
        and every later start.

        Raises:
            StorageError: the records could not be written. The image is as it was.
            InconsistentMetadata: a record does not fit the image. Nothing is written, and the image is as it was.
        """
        metadata_version = self.image.features.metadata_version
        transaction, delta = MetadataTransaction(), MetadataDelta(self.image)
        effective = [counts for record in records for counts in transaction.pass_on(record)]
        for record in effective:
            delta.replay(record)
        self._raft.append([(record, version_of(record, metadata_version)) for record in records], then or _nothing)
        for record in effective:
            if isinstance(record, PartitionChangeRecord):
                self.elections.count(record, self.image)
        self.image = delta.apply(self._raft.end_offset)


def _log_refusals(results: list[TopicResult]) -> None:
    for result in results:
        if result.error is not ErrorCode.NONE:
            log.info("topic %s was not created automatically: %s", result.name, result.message)


def _nothing() -> None:
    pass
