"""Every part of this broker that acts on metadata, in the order in which each hears of a change."""

from typing import Protocol

from broker.coordinators.group_coordinator import GroupCoordinator
from broker.metadata.dynamic_broker_config import DynamicBrokerConfig
from broker.metadata.image.metadata_image import MetadataDelta, MetadataImage
from broker.server.replica_assignment import ReplicaAssignment


class MetadataSubscriber(Protocol):
    """Acts on its own state, and asks nothing of the controller meanwhile."""

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take in what has changed; ``image`` is the image after it."""


class BrokerMetadataPublisher:
    """Tells the subscribers of each new image, and after all of them the controller's clients are answered."""

    def __init__(
        self,
        *,
        dynamic_config: DynamicBrokerConfig,
        replica_assignment: ReplicaAssignment,
        group_coordinator: GroupCoordinator,
    ) -> None:
        self.subscribers: tuple[MetadataSubscriber, ...] = (
            # New logs are made with the settings of now.
            dynamic_config,
            # Coordinators of partitions that come or go hear of it from the replica manager, in this step.
            replica_assignment,
            # Offsets of deleted topics go last: a commit for the topic finds it gone by then.
            group_coordinator,
        )

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Tell every subscriber, in order."""
        for subscriber in self.subscribers:
            subscriber.apply(delta, image)
