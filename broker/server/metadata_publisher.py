"""BrokerMetadataPublisher: the fixed list of metadata subscribers, which get each new image in this order."""

from typing import Protocol

from broker.coordinators.group_coordinator import GroupCoordinator
from broker.metadata.dynamic_broker_config import DynamicBrokerConfig
from broker.metadata.image.metadata_image import MetadataDelta, MetadataImage
from broker.server.replica_assignment import ReplicaAssignment


class MetadataSubscriber(Protocol):
    """A part of the broker that acts on metadata. It changes its own state only, and calls no controller meanwhile."""

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply a change; ``image`` is the image after it."""


class BrokerMetadataPublisher:
    """Gives each new image to the subscribers; after all of them the controller's clients are answered."""

    def __init__(
        self,
        *,
        dynamic_config: DynamicBrokerConfig,
        replica_assignment: ReplicaAssignment,
        group_coordinator: GroupCoordinator,
        transactions: MetadataSubscriber,
        share_states: MetadataSubscriber,
        membership: MetadataSubscriber,
        replication: MetadataSubscriber,
    ) -> None:
        self.subscribers: tuple[MetadataSubscriber, ...] = (
            # New leaders are asked at their new addresses.
            replication,
            # New logs are made with the settings of now.
            dynamic_config,
            # Coordinators of added and removed partitions are notified by the replica manager, in this step.
            replica_assignment,
            # Markers go to new leaders, this broker among them.
            transactions,
            # Offsets of deleted topics go last: a commit for the topic finds it gone by then.
            group_coordinator,
            # The same holds for the states of share groups; what waits for a coordinator of theirs finds the new one.
            share_states,
            # What a new level has room for is told to the controller, after all that concerns this broker's replicas.
            membership,
        )

    def subscribe(self, subscriber: MetadataSubscriber) -> None:
        """Give each new image to one more subscriber, after all others."""
        self.subscribers += (subscriber,)

    def tell_first(self, subscriber: MetadataSubscriber) -> None:
        """Give each new image to ``subscriber`` before all others."""
        self.subscribers = (subscriber, *self.subscribers)

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Give the change to every subscriber, in order."""
        for subscriber in self.subscribers:
            subscriber.apply(delta, image)
