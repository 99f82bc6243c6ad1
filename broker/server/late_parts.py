"""LateParts: a coordinator and what works with it, made when this node first needs them.

A broker without transactions or share groups imports nothing of theirs (docs/decisions/starting.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from broker.metadata.image.metadata_image import MetadataDelta, MetadataImage
from broker.replication.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from broker.coordinators.marker_appender import MarkerAppender
    from broker.coordinators.share_coordinator import ShareCoordinator
    from broker.coordinators.share_persister import CoordinatedPersister
    from broker.coordinators.transaction.verification import PartitionVerifier
    from broker.coordinators.transaction_coordinator import TransactionCoordinator
    from broker.coordinators.transaction_markers import TransactionMarkers


class Parts(Protocol):
    """A coordinator, and what works with it."""

    def start(self) -> None:
        """Load what this node coordinates."""

    def stop(self) -> None:
        """Answer what waits, and what comes, that this node coordinates nothing any more."""

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply a change of the metadata; ``image`` is the image after it."""


PartsT = TypeVar("PartsT", bound=Parts)


class LateParts(Generic[PartsT]):
    """The parts around the coordinator of a topic, made with the first partition of the topic on this node, or for the
    first caller that asks for them. It is a `MetadataSubscriber` in their place."""

    def __init__(self, topic: str, replicas: ReplicaManager, make: Callable[[], PartsT]) -> None:
        self._make = make
        self._made: PartsT | None = None
        self._is_started = False
        self._is_stopped = False

        def held(_: object) -> None:
            self.get()

        # The runtime of the coordinator takes the place of this watcher, and hears of all partitions itself.
        replicas.watch_leadership(topic, held)

    def get(self) -> PartsT:
        """The parts, in the state of the broker: started, or stopped."""
        if self._made is None:
            self._made = self._make()
            if self._is_started:
                self._made.start()
            if self._is_stopped:
                self._made.stop()
        return self._made

    def start(self) -> None:
        """Start the parts, or have them started when they are made."""
        self._is_started = True
        if self._made is not None:
            self._made.start()

    def stop(self) -> None:
        """Stop the parts, or have them stopped when they are made."""
        self._is_stopped = True
        if self._made is not None:
            self._made.stop()

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Part of `MetadataSubscriber`. Parts that are made later begin with the image of then."""
        if self._made is not None:
            self._made.apply(delta, image)


class TransactionParts(NamedTuple):
    """What ends transactions, and says which partitions they have."""

    coordinator: TransactionCoordinator
    markers: TransactionMarkers
    marker_appender: MarkerAppender
    verifier: PartitionVerifier

    def start(self) -> None:
        """Part of `Parts`."""
        self.coordinator.start()

    def stop(self) -> None:
        """Part of `Parts`."""
        self.coordinator.stop()

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Part of `Parts`: markers go to new leaders, this broker among them."""
        self.markers.apply(delta, image)


class ShareStateParts(NamedTuple):
    """What keeps the states of share groups, and what asks for them, here or on other nodes."""

    coordinator: ShareCoordinator
    persister: CoordinatedPersister

    def start(self) -> None:
        """Part of `Parts`."""
        self.coordinator.start()

    def stop(self) -> None:
        """Part of `Parts`."""
        self.persister.stop()
        self.coordinator.stop()

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Part of `Parts`: states of deleted topics go; what waits for a coordinator finds the new one."""
        self.coordinator.apply(delta, image)
        self.persister.apply(delta, image)
