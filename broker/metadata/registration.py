"""Registration records of this node, as broker and as controller, as Kafka writes and reads them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.record_versions import DIRECTORIES_SINCE
from config.listeners import Listener
from protocol.records.cluster_metadata import RegisterControllerRecord

METADATA_VERSIONS: Final = (7, 33)
"""Levels of metadata.version whose records are read and written here; 33 is Kafka 4.4."""

FORMATTED_KRAFT_VERSION: Final = 1

TRANSACTION_VERSIONS: Final = (0, 2)
"""Levels of transaction.version: 1 has flexible records, 2 is KIP-890, part 2."""

SHARE_VERSIONS: Final = (0, 2)
"""Levels of share.version: 1 has share groups (KIP-932), 2 dead letter queues (KIP-1191)."""

CONTROLLERS_REGISTER_SINCE: Final = 15
"""The metadata.version (3.7-IV0) from which on controllers register too (KIP-919)."""

STREAMS_VERSIONS: Final = (0, 1)
"""Levels of streams.version: 1 has streams groups (KIP-1071)."""

GROUP_VERSIONS: Final = (0, 1)
"""Levels of group.version: 1 has consumer groups of the newer protocol (KIP-848)."""

SUPPORTED_FEATURES: Final = {
    "eligible.leader.replicas.version": (0, 1),
    "group.version": GROUP_VERSIONS,
    "kraft.version": (0, 1),
    "metadata.version": METADATA_VERSIONS,
    "share.version": SHARE_VERSIONS,
    "streams.version": STREAMS_VERSIONS,
    "transaction.version": TRANSACTION_VERSIONS,
}
"""The lowest and highest supported level of each feature; features that are not here are at 0."""

_SECURITY_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


T = TypeVar("T")


class RegistrationRefused(Exception):
    """The controllers do not have this broker as a member, whatever it waits. The message is a sentence with the
    reason."""


def registered_listeners(make: Callable[..., T], listeners: Iterable[Listener]) -> list[T]:
    """The listeners as the structs of a record or a message, which have the same fields in all of them."""
    return [
        make(
            name=listener.name,
            host=listener.host,
            port=listener.port,
            security_protocol=_SECURITY_PROTOCOLS[listener.security_protocol],
        )
        for listener in listeners
    ]


def registered_features(make: Callable[..., T]) -> list[T]:
    """`SUPPORTED_FEATURES` as the structs of a record or a message."""
    return [
        make(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in SUPPORTED_FEATURES.items()
    ]


def known_directories(image: MetadataImage, broker_id: int) -> Sequence[bytes] | None:
    """The log directories in the broker's registration: none where it registered below the level that has them. None
    where the cluster's level does not have them, or the broker is not registered."""
    broker = image.cluster.brokers.get(broker_id)
    return None if broker is None or image.features.metadata_version < DIRECTORIES_SINCE else broker.log_dirs


class Registration(NamedTuple):
    """The contents of this node's registration in this run of its process."""

    node_id: int
    incarnation_id: bytes
    """Drawn anew at each start (16 bytes)."""
    endpoints: Sequence[Listener]
    """The endpoints that clients are given."""
    controller_endpoint: Listener
    """The address of the controller listener; without such a listener, where a Kafka that takes over would open it."""
    rack: str | None
    metadata_directory_id: bytes
    """The id of the directory of the metadata log: at kraft.version 1 the voter is known by it."""
    directories: Sequence[bytes]
    """The ids of the log directories, 16 bytes each."""
    cordoned: Sequence[bytes] = ()
    """The ids of those that take no new replicas."""

    def controller_record(self) -> RegisterControllerRecord:
        """The record that registers the controller."""
        return RegisterControllerRecord(
            controller_id=self.node_id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=False,
            end_points=registered_listeners(RegisterControllerRecord.EndPoint, [self.controller_endpoint]),
            features=registered_features(RegisterControllerRecord.Feature),
        )
