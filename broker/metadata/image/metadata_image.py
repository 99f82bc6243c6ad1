"""MetadataImage and MetadataDelta: the image of all subjects, and the changes that make the next image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from broker.metadata.image.carried import (
    ZK_MIGRATION,
    KeyedDelta,
    KeyedImage,
    UnknownDelta,
    UnknownImage,
    acl_key,
    quota_key,
    scram_key,
    token_key,
)
from broker.metadata.image.cluster import ClusterDelta, ClusterImage
from broker.metadata.image.configs import ConfigsDelta, ConfigsImage
from broker.metadata.image.features import FeaturesDelta, FeaturesImage
from broker.metadata.image.producer_ids import ProducerIdsDelta, ProducerIdsImage
from broker.metadata.image.records import Record
from broker.metadata.image.topics import TopicsDelta, TopicsImage
from protocol.records.cluster_metadata import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)


class MetadataImage(NamedTuple):
    """The state after all metadata records below ``end_offset``. Immutable: `MetadataCache` has the current image."""

    end_offset: int = 0
    """The offset behind the last record that is in the image."""
    features: FeaturesImage = FeaturesImage()
    cluster: ClusterImage = ClusterImage()
    topics: TopicsImage = TopicsImage()
    configs: ConfigsImage = ConfigsImage()
    producer_ids: ProducerIdsImage = ProducerIdsImage()
    acls: KeyedImage = KeyedImage()
    scram_credentials: KeyedImage = KeyedImage()
    delegation_tokens: KeyedImage = KeyedImage()
    client_quotas: KeyedImage = KeyedImage()
    zk_migration: KeyedImage = KeyedImage()
    unknown: UnknownImage = UnknownImage()

    def records(self) -> Iterator[Record]:
        """The shortest list of records that adds up to this image: the content of a snapshot.

        Features come first, since a reader needs metadata.version to read the rest; records that mean nothing here
        come last.
        """
        for subject in _SUBJECTS:
            yield from getattr(self, subject).records()


EMPTY: Final = MetadataImage()
"""The image before the first record."""

_SUBJECTS: Final = tuple(name for name in MetadataImage._fields if name != "end_offset")


class MetadataDelta:
    """The changes of an image, subject by subject."""

    __slots__ = ("_image", *_SUBJECTS)

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self.features = FeaturesDelta(image.features)
        self.cluster = ClusterDelta(image.cluster)
        self.topics = TopicsDelta(image.topics)
        self.configs = ConfigsDelta(image.configs)
        self.producer_ids = ProducerIdsDelta(image.producer_ids)
        self.acls = KeyedDelta(image.acls)
        self.scram_credentials = KeyedDelta(image.scram_credentials)
        self.delegation_tokens = KeyedDelta(image.delegation_tokens)
        self.client_quotas = KeyedDelta(image.client_quotas)
        self.zk_migration = KeyedDelta(image.zk_migration)
        self.unknown = UnknownDelta(image.unknown)

    @classmethod
    def of_snapshot(cls, image: MetadataImage, records: Iterable[Record]) -> MetadataDelta:
        """The delta from ``image`` to the image that ``records`` of a snapshot add up to by themselves."""
        content = cls(EMPTY)
        for record in records:
            content.replay(record)
        after = content.apply(0)
        delta = cls(image)
        for subject in _SUBJECTS:
            getattr(delta, subject).replace(getattr(after, subject))
        return delta

    @property
    def is_empty(self) -> bool:
        """Whether nothing has changed that a subscriber acts on."""
        return (
            self.topics.is_empty
            and not self.configs.changed
            and self.features.is_empty
            and self.cluster.is_empty
            and self.client_quotas.is_empty
            and self.acls.is_empty
        )

    def replay(self, record: Record) -> None:
        """Apply one record. Records of a transaction (KIP-868) come here once it is committed.

        Raises:
            InconsistentMetadata: the record names a topic, partition or broker that does not exist.
        """
        replay = _REPLAY.get(type(record))
        if replay is None:
            self.unknown.add(record)
        else:
            replay(self, record)

    def apply(self, end_offset: int) -> MetadataImage:
        """The next image, up to ``end_offset``. Called once."""
        return MetadataImage(
            end_offset=end_offset, **{subject: getattr(self, subject).apply() for subject in _SUBJECTS}
        )

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        self.configs.remove_topic(self.topics.remove(record))

    def _set_quota(self, record: ClientQuotaRecord) -> None:
        if record.remove:
            self.client_quotas.remove(quota_key(record))
        else:
            self.client_quotas.put(quota_key(record), record)


_REPLAY: Final[dict[type[Any], Callable[[MetadataDelta, Any], None]]] = {
    FeatureLevelRecord: lambda delta, record: delta.features.set_level(record),
    RegisterBrokerRecord: lambda delta, record: delta.cluster.register_broker(record),
    UnregisterBrokerRecord: lambda delta, record: delta.cluster.unregister_broker(record),
    BrokerRegistrationChangeRecord: lambda delta, record: delta.cluster.change_broker(record),
    FenceBrokerRecord: lambda delta, record: delta.cluster.fence_broker(record),
    UnfenceBrokerRecord: lambda delta, record: delta.cluster.unfence_broker(record),
    RegisterControllerRecord: lambda delta, record: delta.cluster.register_controller(record),
    UnregisterControllerRecord: lambda delta, record: delta.cluster.unregister_controller(record),
    TopicRecord: lambda delta, record: delta.topics.create(record),
    RemoveTopicRecord: MetadataDelta._remove_topic,
    PartitionRecord: lambda delta, record: delta.topics.set_partition(record),
    PartitionChangeRecord: lambda delta, record: delta.topics.change_partition(record),
    ClearElrRecord: lambda delta, record: delta.topics.clear_elr(record),
    ConfigRecord: lambda delta, record: delta.configs.set(record),
    ProducerIdsRecord: lambda delta, record: delta.producer_ids.hand_out(record),
    AccessControlEntryRecord: lambda delta, record: delta.acls.put(acl_key(record), record),
    RemoveAccessControlEntryRecord: lambda delta, record: delta.acls.remove(acl_key(record)),
    UserScramCredentialRecord: lambda delta, record: delta.scram_credentials.put(scram_key(record), record),
    RemoveUserScramCredentialRecord: lambda delta, record: delta.scram_credentials.remove(scram_key(record)),
    DelegationTokenRecord: lambda delta, record: delta.delegation_tokens.put(token_key(record), record),
    RemoveDelegationTokenRecord: lambda delta, record: delta.delegation_tokens.remove(token_key(record)),
    ClientQuotaRecord: MetadataDelta._set_quota,
    ZkMigrationStateRecord: lambda delta, record: delta.zk_migration.put(ZK_MIGRATION, record),
    NoOpRecord: lambda delta, record: None,
}
