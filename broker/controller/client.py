"""What the broker asks of the cluster's controller, wherever that is: here (`LocalController`), or on another node.

Nothing that is asked here is answered before it is durable, and published to this broker where it concerns it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from broker.metadata.image.records import Record
from broker.metadata.registration import Registration
from storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from broker.controller.config_alteration import Alteration, AlterationResult, Replacement
    from broker.controller.partition_creation import GrowthResult, MorePartitions
    from broker.controller.scram_credentials import CredentialResult, Deletion, Upsertion
    from broker.controller.topic_creation import NewTopic, TopicResult
    from broker.controller.topic_deletion import DeletionResult, UnwantedTopic
    from broker.request.faults import Fault


class Heartbeat(NamedTuple):
    """What a broker says of itself, again and again (KIP-631)."""

    metadata_offset: int
    """Up to where this broker has replayed the metadata log."""
    wants_shutdown: bool = False
    """The broker would like to lead nothing any more, and then to stop."""


class HeartbeatAnswer(NamedTuple):
    """What the controller thinks of the broker."""

    is_caught_up: bool
    """The broker has replayed its own registration."""
    is_fenced: bool
    """The broker may lead nothing and is not told to clients."""
    should_shut_down: bool
    """The broker may stop: nothing waits for it any more."""


class ControllerClient(Protocol):
    """One method for each thing that only a controller decides.

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
    ) -> None:
        """Create topics, each with its own success or error (KIP-4).

        Args:
            topics: what is wanted.
            timeout_ms: how long the client waits; with 0 or less its time is over before anything is done.
            validate_only: check everything, create nothing.
            then: gets the results: in the order of the request, but names that came twice at the end.
        """

    def create_partitions(
        self,
        wishes: Sequence[MorePartitions],
        *,
        timeout_ms: int,
        validate_only: bool,
        then: Callable[[list[GrowthResult]], None],
    ) -> None:
        """Give topics more partitions (KIP-195), with the arguments of `create_topics`.

        A topic that is named more than once comes first in the results.
        """

    def delete_topics(
        self, unwanted: Sequence[UnwantedTopic], *, timeout_ms: int, then: Callable[[list[DeletionResult]], None]
    ) -> None:
        """Delete topics by name or id (KIP-4, KIP-516), each with its own success or error."""

    def auto_create(self, names: Iterable[str]) -> None:
        """Create topics that a client asked about, with the broker's defaults; internal ones as their owners need them.

        There is no answer: the client asks again. Names that no topic may have are passed over.
        """

    def reassign_partitions(
        self,
        wishes: Sequence[tuple[str, int, Sequence[int] | None]],
        *,
        then: Callable[[list[Fault | None]], None],
    ) -> None:
        """Give partitions (topic, index) other replicas, or with None call off what moves them (KIP-455).

        ``then`` gets for each wish None, or why it was refused.
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
            wanted: what is wanted of each resource; none may be there twice.
            validate_only: check everything, change nothing.
            then: gets the results in the order of ``wanted``.
        """

    # What is registered

    def alter_scram_credentials(
        self, wanted: Sequence[Deletion | Upsertion], *, then: Callable[[list[CredentialResult]], None]
    ) -> None:
        """Change the SCRAM credentials of users (KIP-554), each user with a success or error."""

    def unregister_broker(self, broker_id: int, then: Callable[[], None]) -> None:
        """Forget a broker that is gone for good (KIP-631).

        Raises:
            BrokerIdNotRegistered: there is no such broker.
            InvalidRequest: it is this broker, which runs.
        """

    # Producer ids

    def allocate_producer_ids(self, then: Callable[[range], None]) -> None:
        """Take the next block of producer ids (KIP-730), for `broker.metadata.producer_ids.ProducerIds`."""

    # The broker's own life

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration, -1 before `register`."""

    def register(
        self,
        registration: Registration,
        *,
        bootstrap: Sequence[Record],
        was_clean: bool,
        found: Mapping[TopicPartition, bytes],
        then: Callable[[], None],
    ) -> None:
        """Say who this broker is in this run of its process (KIP-631).

        Args:
            registration: who it is.
            bootstrap: the features and configs of a new cluster, used if the metadata log has none yet.
            was_clean: the broker had stopped cleanly, in all its log directories.
            found: the log directory in which each log was found, which counts where the metadata names another one.
            then: called once the registration is durable and published.
        """

    def heartbeat(self, heartbeat: Heartbeat, then: Callable[[HeartbeatAnswer], None]) -> None:
        """Say how this broker is; ``then`` gets what the controller thinks of it."""

    def directory_failed(self, directory: bytes | None, partitions: Collection[TopicPartition]) -> None:
        """A log directory has failed: this broker leads the partitions in it no longer, and no new one gets there.

        Args:
            directory: its id; None if it has none.
            partitions: those whose logs stood in it.
        """
