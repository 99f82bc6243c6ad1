"""The handlers of the APIs, each made at its first use.

Its module and that of its messages are imported then: a start imports only what every client asks for
(docs/decisions/starting.md).
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from broker.controller.client import AutoCreation, ControllerClient
from broker.coordinators.group_coordinator import Groups
from broker.fetch.executor import FetchExecutor
from broker.fetch.fast_path import FetchFastPath
from broker.fetch.sessions import FetchSessions
from broker.handlers.api_versions import ApiVersionsHandler
from broker.handlers.fetch import FetchHandler
from broker.handlers.init_producer_id import InitProducerIdHandler
from broker.handlers.list_offsets import ListOffsetsHandler
from broker.handlers.metadata import MetadataHandler
from broker.handlers.partition_lookup import PartitionLookup
from broker.handlers.produce import ProduceHandler
from broker.handlers.produce_verification import Verification
from broker.logs.replica_moves import ReplicaMoves
from broker.metadata.brokers import Brokers
from broker.metadata.cache import MetadataCache
from broker.metadata.configs import ConfigView
from broker.metadata.dynamic_broker_config import DynamicBrokerConfig
from broker.metadata.producer_ids import ProducerIds
from broker.raft.client import RaftClient
from broker.raft.observers import Observers
from broker.replication.replica_manager import ReplicaManager
from broker.request.node import Node
from broker.runtime.clock import Clock, Ids
from broker.runtime.worker_thread import WorkerThread
from broker.server.late_parts import LateParts, ShareStateParts, TransactionParts
from config.broker_settings import BrokerSettings
from storage.log_manager import LogManager

if TYPE_CHECKING:
    from broker.coordinators.remote_end_offsets import RemoteEndOffsets
    from broker.fetch.replica_choice import RackAwareSelector
    from broker.handlers.acls import AclsHandler
    from broker.handlers.alter_configs import AlterConfigsHandler
    from broker.handlers.client_quotas import ClientQuotasHandler
    from broker.handlers.cluster import ClusterHandler
    from broker.handlers.committed_offsets import CommittedOffsetsHandler
    from broker.handlers.config_resources import ConfigResourcesHandler
    from broker.handlers.configs import ConfigsHandler
    from broker.handlers.consumer_groups import ConsumerGroupsHandler
    from broker.handlers.delegation_tokens import DelegationTokensHandler
    from broker.handlers.delete_records import DeleteRecordsHandler
    from broker.handlers.elections import Elect, ElectionsHandler
    from broker.handlers.features import FeaturesHandler
    from broker.handlers.find_coordinator import FindCoordinatorHandler
    from broker.handlers.forwarding import ForwardingHandler
    from broker.handlers.group_membership import GroupMembershipHandler
    from broker.handlers.groups import GroupsHandler
    from broker.handlers.log_dirs import LogDirsHandler
    from broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
    from broker.handlers.producers import ProducersHandler
    from broker.handlers.quorum import QuorumHandler
    from broker.handlers.reassignments import ReassignmentsHandler
    from broker.handlers.registrations import RegistrationsHandler
    from broker.handlers.sasl import SaslHandler
    from broker.handlers.scram_credentials import ScramCredentialsHandler
    from broker.handlers.share_fetch import ShareFetchHandler
    from broker.handlers.share_group_offsets import ShareGroupOffsetsHandler
    from broker.handlers.share_group_state import ShareGroupStateHandler
    from broker.handlers.share_groups import ShareGroupsHandler
    from broker.handlers.streams_groups import StreamsGroupsHandler
    from broker.handlers.topic_partitions import TopicPartitionsHandler
    from broker.handlers.topics import TopicsHandler
    from broker.handlers.transaction_listings import TransactionListingsHandler
    from broker.handlers.transactions import TransactionsHandler
    from broker.handlers.txn_offset_commit import TxnOffsetCommitHandler
    from broker.membership.cluster_membership import ClusterMembership
    from broker.server.share_delivery import ShareDelivery


@dataclass(kw_only=True, eq=False, repr=False)
class Handlers:
    """The handlers of one broker, each made at its first use from what is given here."""

    settings: BrokerSettings
    node: Node
    replicas: ReplicaManager
    fetch_executor: FetchExecutor
    fetch_sessions: FetchSessions
    metadata_cache: MetadataCache
    config_view: ConfigView
    dynamic_config: DynamicBrokerConfig
    raft: RaftClient
    logs: LogManager
    replica_moves: ReplicaMoves
    clock: Clock
    ids: Ids
    own_controller: ControllerClient | None
    """None where the controllers are other nodes."""
    auto_creation: AutoCreation
    controllers: "ClusterMembership | None"
    """The controllers where they are other nodes."""
    producer_ids: ProducerIds
    group_coordinators: Groups
    late_transactions: LateParts[TransactionParts]
    share_states: LateParts[ShareStateParts]
    worker: WorkerThread
    """Runs what takes long and needs nothing of the loop."""
    share_delivery: "ShareDelivery"
    """The share partitions and share sessions, made at the first request."""
    remote_end_offsets: "RemoteEndOffsets | None" = None
    """Asks the leaders of partitions on other brokers; None where there are none."""
    has_authorizer: bool = False
    """Whether ACLs have an effect."""
    elect: "Elect | None" = None
    """Elects leaders where other brokers can join the cluster of this node."""
    observers: Observers = field(default_factory=Observers)
    """The nodes that follow the metadata log of this node."""

    @property
    def controller(self) -> ControllerClient:
        """The controller in this process, which the handlers of `protocol.api_keys.FORWARDED` ask."""
        assert self.own_controller is not None, "a member of a cluster forwards what only controllers decide"
        return self.own_controller

    # What handlers ask for

    @cached_property
    def forwarding(self) -> "ForwardingHandler | None":
        """Forwards to controllers elsewhere."""
        if self.controllers is None:
            return None
        from broker.handlers.forwarding import ForwardingHandler

        return ForwardingHandler(self.controllers.forwarder)

    @cached_property
    def brokers(self) -> Brokers:
        return Brokers(self.metadata_cache, _any_of)

    @cached_property
    def partitions(self) -> PartitionLookup:
        return PartitionLookup(self.replicas, self.metadata_cache, self.brokers)

    @cached_property
    def replica_selector(self) -> "RackAwareSelector | None":
        if not self.settings.chooses_replicas_by_rack:
            return None
        from broker.fetch.replica_choice import RackAwareSelector

        return RackAwareSelector(self.brokers)

    # What every client asks for

    @cached_property
    def produce(self) -> ProduceHandler:
        dynamic_config = self.dynamic_config
        verification = Verification(
            lambda: self.late_transactions.get().verifier,
            is_enabled=lambda: dynamic_config.settings.transaction_partition_verification_enable,
        )
        return ProduceHandler(self.replicas, self.partitions, self.metadata_cache, verification)

    @cached_property
    def fetch(self) -> FetchHandler:
        return FetchHandler(
            self.fetch_executor,
            self.fetch_sessions,
            self.metadata_cache,
            self.partitions,
            fetch_max_bytes=self.settings.fetch_max_bytes,
            selector=self.replica_selector,
        )

    @cached_property
    def fetch_fast_path(self) -> FetchFastPath:
        return FetchFastPath(
            self.replicas,
            self.metadata_cache,
            self.fetch,
            fetch_max_bytes=self.settings.fetch_max_bytes,
            selector=self.replica_selector,
        )

    @cached_property
    def list_offsets(self) -> ListOffsetsHandler:
        return ListOffsetsHandler(self.partitions)

    @cached_property
    def metadata(self) -> MetadataHandler:
        create = self.settings.auto_create_topics_enable
        return MetadataHandler(
            self.metadata_cache, self.brokers, self.auto_creation, self.node, auto_create_topics_enable=create
        )

    @cached_property
    def api_versions(self) -> ApiVersionsHandler:
        controllers = self.controllers
        if controllers is None:
            return ApiVersionsHandler(self.metadata_cache, self.raft, self.node)
        return ApiVersionsHandler(
            self.metadata_cache,
            self.raft,
            self.node,
            controllers_versions=lambda: controllers.controllers_versions,
        )

    @cached_property
    def init_producer_id(self) -> InitProducerIdHandler:
        return InitProducerIdHandler(self.producer_ids, lambda: self.late_transactions.get().coordinator)

    # What members of groups ask for

    @cached_property
    def find_coordinator(self) -> "FindCoordinatorHandler":
        from broker.handlers.find_coordinator import FindCoordinatorHandler

        return FindCoordinatorHandler(self.metadata_cache, self.brokers, self.auto_creation)

    @cached_property
    def group_membership(self) -> "GroupMembershipHandler":
        from broker.handlers.group_membership import GroupMembershipHandler

        return GroupMembershipHandler(self.group_coordinators)

    @cached_property
    def committed_offsets(self) -> "CommittedOffsetsHandler":
        from broker.handlers.committed_offsets import CommittedOffsetsHandler

        return CommittedOffsetsHandler(self.group_coordinators, self.metadata_cache, self.clock)

    @cached_property
    def groups(self) -> "GroupsHandler":
        from broker.handlers.groups import GroupsHandler

        return GroupsHandler(self.group_coordinators)

    # What administrators ask for

    @cached_property
    def alter_configs(self) -> "AlterConfigsHandler":
        from broker.handlers.alter_configs import AlterConfigsHandler, in_this_process

        if self.forwarding is not None:
            return AlterConfigsHandler(self.forwarding.alter_configs, self.config_view)
        return AlterConfigsHandler(in_this_process(self.controller), self.config_view)

    @cached_property
    def cluster(self) -> "ClusterHandler":
        from broker.handlers.cluster import ClusterHandler

        return ClusterHandler(self.brokers, self.node)

    @cached_property
    def config_resources(self) -> "ConfigResourcesHandler":
        from broker.handlers.config_resources import ConfigResourcesHandler

        return ConfigResourcesHandler(self.metadata_cache, self.brokers)

    @cached_property
    def configs(self) -> "ConfigsHandler":
        from broker.handlers.configs import ConfigsHandler

        return ConfigsHandler(self.config_view, self.metadata_cache)

    @cached_property
    def delete_records(self) -> "DeleteRecordsHandler":
        from broker.handlers.delete_records import DeleteRecordsHandler

        return DeleteRecordsHandler(self.partitions, self.replicas)

    @cached_property
    def elections(self) -> "ElectionsHandler":
        from broker.handlers.elections import ElectionsHandler

        return ElectionsHandler(self.metadata_cache, self.node, self.elect)

    @cached_property
    def log_dirs(self) -> "LogDirsHandler":
        from broker.handlers.log_dirs import LogDirsHandler

        return LogDirsHandler(self.logs, self.replicas, self.replica_moves, self.metadata_cache)

    @cached_property
    def offset_for_leader_epoch(self) -> "OffsetForLeaderEpochHandler":
        from broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler

        return OffsetForLeaderEpochHandler(self.partitions)

    @cached_property
    def quorum(self) -> "QuorumHandler":
        from broker.handlers.quorum import QuorumHandler

        return QuorumHandler(self.raft, self.metadata_cache, self.node, self.clock, self.observers)

    @cached_property
    def reassignments(self) -> "ReassignmentsHandler":
        from broker.handlers.reassignments import ReassignmentsHandler

        return ReassignmentsHandler(self.controller, self.metadata_cache)

    @cached_property
    def topic_partitions(self) -> "TopicPartitionsHandler":
        from broker.handlers.topic_partitions import TopicPartitionsHandler

        most = self.settings.max_request_partition_size_limit
        return TopicPartitionsHandler(self.metadata_cache, self.brokers, most_partitions=most)

    @cached_property
    def topics(self) -> "TopicsHandler":
        from broker.handlers.topics import TopicsHandler

        return TopicsHandler(self.controller, self.metadata_cache, self.config_view)

    # What belongs to features that are off

    @cached_property
    def acls(self) -> "AclsHandler":
        from broker.handlers.acls import AclsHandler

        return AclsHandler(
            lambda: self.controller, self.metadata_cache, self.worker, has_authorizer=self.has_authorizer
        )

    @cached_property
    def client_quotas(self) -> "ClientQuotasHandler":
        from broker.handlers.client_quotas import ClientQuotasHandler

        return ClientQuotasHandler(lambda: self.controller, self.metadata_cache, self.worker)

    @cached_property
    def delegation_tokens(self) -> "DelegationTokensHandler":
        from broker.handlers.delegation_tokens import DelegationTokensHandler
        from broker.security.delegation_tokens import make_planner

        return DelegationTokensHandler(
            make_planner(self.settings), lambda: self.controller, self.metadata_cache, clock=self.clock, ids=self.ids
        )

    @cached_property
    def features(self) -> "FeaturesHandler":
        from broker.handlers.features import FeaturesHandler

        return FeaturesHandler(self.controller)

    @cached_property
    def consumer_groups(self) -> "ConsumerGroupsHandler":
        from broker.handlers.consumer_groups import ConsumerGroupsHandler

        return ConsumerGroupsHandler(self.settings, self.group_coordinators, self.metadata_cache, self.ids, self.worker)

    @cached_property
    def producers(self) -> "ProducersHandler":
        from broker.handlers.producers import ProducersHandler

        return ProducersHandler(self.partitions, self.metadata_cache)

    @cached_property
    def registrations(self) -> "RegistrationsHandler":
        from broker.handlers.registrations import RegistrationsHandler

        return RegistrationsHandler(self.controller)

    @cached_property
    def share_groups(self) -> "ShareGroupsHandler":
        from broker.handlers.share_groups import ShareGroupsHandler

        return ShareGroupsHandler(self.group_coordinators, self.metadata_cache)

    @cached_property
    def streams_groups(self) -> "StreamsGroupsHandler":
        from broker.handlers.streams_groups import StreamsGroupsHandler

        return StreamsGroupsHandler(
            self.settings, self.group_coordinators, self.metadata_cache, self.auto_creation, self.clock
        )

    @cached_property
    def share_group_offsets(self) -> "ShareGroupOffsetsHandler":
        from broker.coordinators.end_offsets import EndOffsets
        from broker.handlers.share_group_offsets import ShareGroupOffsetsHandler

        end_offsets = EndOffsets(
            self.replicas, self.metadata_cache, node_id=self.settings.node_id, remote=self.remote_end_offsets
        )
        persister = self.share_states.get().persister
        return ShareGroupOffsetsHandler(self.group_coordinators, persister, end_offsets, self.metadata_cache)

    @cached_property
    def share_group_state(self) -> "ShareGroupStateHandler":
        from broker.handlers.share_group_state import ShareGroupStateHandler

        return ShareGroupStateHandler(self.share_states.get().coordinator)

    @cached_property
    def sasl(self) -> "SaslHandler":
        from broker.handlers.sasl import SaslHandler

        return SaslHandler()

    @cached_property
    def scram_credentials(self) -> "ScramCredentialsHandler":
        from broker.handlers.scram_credentials import ScramCredentialsHandler

        return ScramCredentialsHandler(self.controller, self.metadata_cache)

    @cached_property
    def share_fetch(self) -> "ShareFetchHandler":
        from broker.handlers.share_fetch import ShareFetchHandler

        groups = self.share_delivery
        return ShareFetchHandler(
            groups.partitions,
            groups.sessions,
            groups.configs,
            self.metadata_cache,
            self.partitions,
            groups.wheel,
            fetch_max_bytes=self.settings.fetch_max_bytes,
        )

    @cached_property
    def transactions(self) -> "TransactionsHandler":
        from broker.handlers.transactions import TransactionsHandler

        parts = self.late_transactions.get()
        return TransactionsHandler(
            parts.coordinator, self.group_coordinators, parts.marker_appender, self.metadata_cache
        )

    @cached_property
    def txn_offset_commit(self) -> "TxnOffsetCommitHandler":
        from broker.handlers.txn_offset_commit import TxnOffsetCommitHandler

        dynamic_config = self.dynamic_config
        return TxnOffsetCommitHandler(
            self.group_coordinators,
            self.late_transactions.get().verifier,
            self.metadata_cache,
            is_verification_enabled=lambda: dynamic_config.settings.transaction_partition_verification_enable,
        )

    @cached_property
    def transaction_listings(self) -> "TransactionListingsHandler":
        from broker.handlers.transaction_listings import TransactionListingsHandler

        transactions = self.late_transactions.get().coordinator.transactions
        return TransactionListingsHandler(transactions, self.clock, self.worker)


def _any_of(broker_ids: Sequence[int]) -> int:
    """One of several brokers by chance."""
    return broker_ids[int.from_bytes(os.urandom(4), "big") % len(broker_ids)]
