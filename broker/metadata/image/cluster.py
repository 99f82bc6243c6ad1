"""ClusterImage and ClusterDelta: the registered brokers and controllers."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from broker.metadata.image.records import EMPTY, InconsistentMetadata, Record
from protocol.records.cluster_metadata import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)


def is_active(broker: RegisterBrokerRecord) -> bool:
    """Whether a registered broker is unfenced and does not shut down: it may be in sync and lead."""
    return not (broker.fenced or broker.in_controlled_shutdown)


class ClusterImage(NamedTuple):
    """Registrations. Readers change nothing in its maps."""

    brokers: Mapping[int, RegisterBrokerRecord] = EMPTY
    """Registrations by broker id, with what `BrokerRegistrationChangeRecord`s made of them."""
    controllers: Mapping[int, RegisterControllerRecord] = EMPTY

    def records(self) -> Iterator[Record]:
        """The records that add up to this image."""
        yield from self.brokers.values()
        yield from self.controllers.values()


class ClusterDelta:
    """The changes of registrations."""

    __slots__ = ("_brokers", "_controllers", "_image", "is_empty")

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._brokers = dict(image.brokers)
        self._controllers = dict(image.controllers)
        self.is_empty = True
        """Whether no registration has changed."""

    def register_broker(self, record: RegisterBrokerRecord) -> None:
        """Apply the registration of a broker, which is new or has restarted."""
        self._put(record)

    def unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        """Apply the removal of a broker from the cluster."""
        self._broker(record.broker_id, record)
        del self._brokers[record.broker_id]
        self.is_empty = False

    def change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        """Apply changes of a broker's registration: fencing, controlled shutdown, log directories."""
        broker = self._broker(record.broker_id, record)
        changes: dict[str, Any] = {}
        # -1 is "no longer", 1 is "from now on", 0 leaves it as it is.
        if record.fenced:
            changes["fenced"] = record.fenced > 0
        if record.in_controlled_shutdown:
            changes["in_controlled_shutdown"] = record.in_controlled_shutdown > 0
        if record.log_dirs:
            changes["log_dirs"] = record.log_dirs
        if record.cordoned_log_dirs is not None:
            changes["cordoned_log_dirs"] = record.cordoned_log_dirs
        self._put(dataclasses.replace(broker, **changes))

    def fence_broker(self, record: FenceBrokerRecord) -> None:
        """Fence a broker: it may lead no partition."""
        self._put(dataclasses.replace(self._broker(record.id, record), fenced=True))

    def unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        """Unfence a broker: it may lead partitions again."""
        self._put(dataclasses.replace(self._broker(record.id, record), fenced=False))

    def register_controller(self, record: RegisterControllerRecord) -> None:
        """Apply the registration of a controller, which is new or has restarted."""
        self._controllers[record.controller_id] = record
        self.is_empty = False

    def unregister_controller(self, record: UnregisterControllerRecord) -> None:
        """Apply the removal of a controller from the cluster."""
        if self._controllers.pop(record.controller_id, None) is None:
            raise InconsistentMetadata(
                f"UnregisterControllerRecord speaks of controller {record.controller_id}, which is not registered"
            )
        self.is_empty = False

    def replace(self, image: ClusterImage) -> None:
        """All registrations as ``image`` has them."""
        before = (self._brokers, self._controllers)
        self._brokers, self._controllers = dict(image.brokers), dict(image.controllers)
        self.is_empty = before == (self._brokers, self._controllers)

    def apply(self) -> ClusterImage:
        """The next image."""
        return self._image if self.is_empty else ClusterImage(self._brokers, self._controllers)

    def _put(self, broker: RegisterBrokerRecord) -> None:
        self._brokers[broker.broker_id] = broker
        self.is_empty = False

    def _broker(self, broker_id: int, record: Record) -> RegisterBrokerRecord:
        broker = self._brokers.get(broker_id)
        if broker is None:
            raise InconsistentMetadata(f"{type(record).__name__} speaks of broker {broker_id}, which is not registered")
        return broker
