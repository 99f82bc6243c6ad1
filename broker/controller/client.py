"""ControllerClient: what the broker asks of the cluster's controller where it is in this process (`LocalController`).

A change is answered once it is durable, and published to this broker if it concerns this broker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from broker.metadata.automatic_topics import AutomaticTopic
from broker.metadata.image.records import Record

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

    def create_topic(self, name: str, configs: Sequence[tuple[str, str]], then: Callable[[], None]) -> None:
        """Create a topic in this broker's own name, with the controller's defaults and these configs.

        ``then`` is called once the controller has answered, or has not, also where the topic could not be created.
        """


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
