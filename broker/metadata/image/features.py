"""FeaturesImage and FeaturesDelta: finalised feature levels (KIP-584)."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from broker.metadata.image.records import EMPTY, Record
from protocol.records.cluster_metadata import FeatureLevelRecord

METADATA_VERSION: Final = "metadata.version"
TRANSACTION_VERSION: Final = "transaction.version"
SHARE_VERSION: Final = "share.version"
"""From level 1 on members can join share groups (KIP-932)."""
STREAMS_VERSION: Final = "streams.version"
"""From level 1 on members can join streams groups (KIP-1071)."""
GROUP_VERSION: Final = "group.version"
ELIGIBLE_LEADERS_FEATURE: Final = "eligible.leader.replicas.version"


class FeaturesImage(NamedTuple):
    """Levels by feature. Readers change nothing in its map."""

    levels: Mapping[str, int] = EMPTY
    """A feature at level 0 is not in it."""

    @property
    def metadata_version(self) -> int:
        """The finalised level of metadata.version, 0 before the first record."""
        return self.levels.get(METADATA_VERSION, 0)

    @property
    def has_eligible_leader_replicas(self) -> bool:
        """Whether the cluster keeps eligible leader replicas (KIP-966)."""
        return ELIGIBLE_LEADERS_FEATURE in self.levels

    def records(self) -> Iterator[Record]:
        """The records that add up to this image: metadata.version first, which a reader needs for the others."""
        for name in sorted(self.levels, key=lambda name: (name != METADATA_VERSION, name)):
            yield FeatureLevelRecord(name=name, feature_level=self.levels[name])


class FeaturesDelta:
    """The changes of feature levels."""

    __slots__ = ("_image", "_levels", "is_empty")

    def __init__(self, image: FeaturesImage) -> None:
        self._image = image
        self._levels = dict(image.levels)
        self.is_empty = True
        """Whether no level has been set."""

    def set_level(self, record: FeatureLevelRecord) -> None:
        """Set the level of a feature; 0 removes the feature."""
        self.is_empty = False
        if record.feature_level:
            self._levels[record.name] = record.feature_level
        else:
            self._levels.pop(record.name, None)

    def replace(self, image: FeaturesImage) -> None:
        """All levels as ``image`` has them."""
        self._levels = dict(image.levels)
        self.is_empty = self._levels == self._image.levels

    def apply(self) -> FeaturesImage:
        """The next image."""
        return self._image if self.is_empty else FeaturesImage(self._levels)
