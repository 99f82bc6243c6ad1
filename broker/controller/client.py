"""ControllerClient: what the broker asks of the cluster's controller where it is in this process (`LocalController`).

A change is answered once it is durable, and published to this broker if it concerns this broker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from broker.metadata.automatic_topics import AutomaticTopic
from broker.metadata.image.records import Record
from broker.metadata.registration import Registration
from storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from broker.controller.acl_changes import DeletedAcls, NewAcl
    from broker.controller.client_quotas import QuotaAlteration, QuotaResult
    from broker.controller.config_alteration import Alteration, AlterationResult, Replacement
    from broker.controller.feature_updates import FeatureUpdate
    from broker.controller.partition_creation import GrowthResult, MorePartitions
    from broker.controller.scram_credentials import CredentialResult, Deletion, Upsertion
    from broker.controller.topic_creation import NewTopic, TopicResult
    from broker.controller.topic_deletion import DeletionResult, UnwantedTopic
    from broker.metadata.image.metadata_image import MetadataImage
    from broker.request.context import RequestContext
    from broker.request.faults import Fault
    from broker.request.quota import MutationQuota
    from broker.security.acls.filters import AclFilter

TokenChange = TypeVar("TokenChange", bound=Record)
"""The record of a change of a delegation token."""


class Heartbeat(NamedTuple):
    """A broker's periodic report to the controller (KIP-631)."""

    metadata_offset: int
    """Up to where this broker has replayed the metadata log."""
    wants_shutdown: bool = False
    """The broker asks to give up its leaderships and then to stop."""


class HeartbeatAnswer(NamedTuple):
    """The controller's answer to a heartbeat: the state of the broker as the controller sees it."""

    is_caught_up: bool
    """The broker has replayed its own registration."""
    is_fenced: bool
    """The broker may lead no partition, and clients do not see it."""
    should_shut_down: bool
    """The broker may stop: no partition depends on it any more."""


class AutoCreation(Protocol):
    """Creates topics that clients ask about, wherever the controller is."""

    def auto_create(self, names: Iterable[str], asked_by: RequestContext | None = None) -> None:
        """Create topics that a client asked about, as this broker's settings have them (`automatic_topic`).

        There is no answer: the client asks again. Names that no topic may have are passed over, and so are topics that
        the quota of the client does not admit. ``asked_by``: the request that is charged; None charges nobody.
        """

    def create_in_the_name_of(
        self, asked_by: RequestContext, topics: Mapping[str, AutomaticTopic], then: Callable[[Mapping[str, str]], None]
    ) -> None:
        """Create topics, by name, for a client that may create them, and is charged for them. ``then`` gets the
        reasons why topics were not created, by name."""


class ControllerClient(AutoCreation, Protocol):
    """One method for each thing that only a controller decides, where it is in this process.

    ``then`` is called on the loop, perhaps before the method returns. Each method raises StorageError where the
    metadata log is here and cannot be written.
    """

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
        """Create topics, each with its own success or error (KIP-4).

        Args:
            topics: the topics to create.
            timeout_ms: how long the client waits; with 0 or less its time is over before anything is done.
            validate_only: check everything, create nothing.
            then: gets the results in the order of the request; names that came twice are at the end.
            mutations: charged for the partitions of each topic; None where nothing limits the client.
        """

    def create_partitions(
        self,
        wishes: Sequence[MorePartitions],
        *,
        timeout_ms: int,
        validate_only: bool,
        then: Callable[[list[GrowthResult]], None],
        mutations: MutationQuota | None = None,
    ) -> None:
        """Give topics more partitions (KIP-195), with the arguments of `create_topics`.

        A topic that is named more than once comes first in the results.
        """

    def delete_topics(
        self,
        unwanted: Sequence[UnwantedTopic],
        *,
        timeout_ms: int,
        then: Callable[[list[DeletionResult]], None],
        mutations: MutationQuota | None = None,
    ) -> None:
        """Delete topics by name or id (KIP-4, KIP-516), each with its own success or error."""

    def reassign_partitions(
        self,
        wishes: Sequence[tuple[str, int, Sequence[int] | None]],
        *,
        then: Callable[[list[Fault | None]], None],
        may_change_replication_factor: bool = True,
    ) -> None:
        """Give partitions (topic, index) other replicas, or with None cancel their reassignment (KIP-455).

        Where ``may_change_replication_factor`` is false, partitions get as many replicas as they had (KIP-860).
        ``then`` gets None for each accepted partition, and the reason for each refused partition.
        """

    # Configs

    def alter_configs(
        self,
        wanted: Sequence[Alteration | Replacement],
        *,
        validate_only: bool,
        then: Callable[[list[AlterationResult]], None],
    ) -> None:
        """Change the configs of resources (KIP-133, KIP-339), each with its own success or error.

        Args:
            wanted: the changes of each resource; a resource may be named once.
            validate_only: check everything, change nothing.
            then: gets the results in the order of ``wanted``.
        """

    # What is registered

    def alter_client_quotas(
        self,
        wanted: Sequence[QuotaAlteration],
        *,
        unknown_hosts: Collection[str],
        validate_only: bool,
        then: Callable[[list[QuotaResult]], None],
    ) -> None:
        """Change the quotas of clients (KIP-546), each entity with a success or error.

        ``unknown_hosts``: host names in ``wanted`` that have no address.
        """

    def create_acls(self, wanted: Sequence[NewAcl], *, then: Callable[[list[Fault | None]], None]) -> None:
        """Create ACLs (KIP-140), each with a success (None) or error. Raises `InvalidRequest` for too many."""

    def delete_acls(self, unwanted: Sequence[AclFilter], *, then: Callable[[list[DeletedAcls]], None]) -> None:
        """Delete the ACLs of each filter (KIP-140). Raises `InvalidRequest` for too many."""

    def alter_scram_credentials(
        self, wanted: Sequence[Deletion | Upsertion], *, then: Callable[[list[CredentialResult]], None]
    ) -> None:
        """Change the SCRAM credentials of users (KIP-554), each user with a success or error."""

    def change_delegation_token(
        self, plan: Callable[[MetadataImage], TokenChange], *, then: Callable[[TokenChange], None]
    ) -> None:
        """Write the record that ``plan`` makes of the newest image. Raises what ``plan`` raises."""

    def remove_expired_delegation_tokens(self, now_ms: int) -> None:
        """Remove the delegation tokens that have expired."""

    def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool, then: Callable[[], None]
    ) -> None:
        """Finalise other levels of features, all or none (KIP-584).

        Raises:
            InvalidUpdateVersion: a level is refused.
        """

    def unregister_broker(self, broker_id: int, then: Callable[[], None]) -> None:
        """Forget a broker that is gone for good (KIP-631).

        Raises:
            BrokerIdNotRegistered: there is no such broker.
            InvalidRequest: it is this broker, which runs.
        """

    def unregister_controller(self, controller_id: int, then: Callable[[], None]) -> None:
        """Forget a controller that is gone for good.

        Raises:
            ControllerIdNotRegistered: there is no such controller.
            InvalidRequest: it is the one that leads.
            UnsupportedVersion: the finalised metadata.version knows no record for it.
        """

    # Producer ids

    def allocate_producer_ids(self, then: Callable[[range], None]) -> None:
        """Take the next block of producer ids (KIP-730), for `broker.metadata.producer_ids.ProducerIds`."""

    # The broker's own life

    @property
    def has_other_brokers(self) -> bool:
        """Whether other brokers are registered, who may take over the leaderships of this broker."""

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration, -1 before `register`."""

    def register(
        self,
        registration: Registration,
        *,
        bootstrap: Callable[[], Sequence[Record]],
        was_clean: bool,
        found: Mapping[TopicPartition, bytes],
        then: Callable[[], None],
    ) -> None:
        """Register this broker for this run of its process (KIP-631).

        Args:
            registration: the broker's ids, endpoints, features and log directories.
            bootstrap: returns the features and configs of a new cluster, if the metadata log has none yet. May raise
                InconsistentMetadata.
            was_clean: the broker had stopped cleanly, in all its log directories.
            found: the log directory in which each log was found, which overrides the directory in the metadata.
            then: called once the registration is durable and published.
        """

    def heartbeat(self, heartbeat: Heartbeat, then: Callable[[HeartbeatAnswer], None]) -> None:
        """Report this broker's state; ``then`` gets the controller's answer."""

    def assign_directory(self, topic_id: bytes, partition: int, directory_id: bytes, then: Callable[[], None]) -> None:
        """A replica of this broker stands in this log directory, or will at once (KIP-858)."""

    def cordon(self, directories: Sequence[bytes]) -> None:
        """Place new replicas in none of these log directories of this broker, given by their ids (KIP-1066)."""

    def directory_failed(self, directory: bytes | None, partitions: Collection[TopicPartition]) -> None:
        """A log directory has failed: this broker stops leading the partitions in it, and no new partition gets there.

        Args:
            directory: the id of the directory; None if it has none.
            partitions: the partitions whose logs are in the directory.
        """
