"""Kafka's release versions, by which its tools name the feature levels of a cluster (KIP-778, KIP-1022).

4.0-IV3
│   └ which of the release's levels of metadata.version; without it, the last of them
└ release of Kafka; 4.0.1 is the same as 4.0
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from config.errors import InvalidConfig

KEY: Final = "ottla.release.version"

_METADATA_VERSIONS: Final = {
    "3.3": range(7, 8),
    "3.4": range(8, 9),
    "3.5": range(9, 12),
    "3.6": range(12, 15),
    "3.7": range(15, 20),
    "3.8": range(20, 21),
    "3.9": range(21, 22),
    "4.0": range(22, 26),
    "4.1": range(26, 28),
    "4.2": range(28, 30),
    "4.3": range(30, 31),
    "4.4": range(31, 34),
}
"""The levels of metadata.version by the release that brought them. Kafka 4 has dropped those before 3.3-IV3."""

_FIRST_NUMBERS: Final = {"3.3": 3}
"""The number behind IV of a release's first level, where it is not 0."""

_OTHER_FEATURES: Final = (
    # In the order in which Kafka's format tool writes them.
    ("eligible.leader.replicas.version", {26: 1}),
    ("group.version", {22: 1}),
    ("share.version", {28: 1, 31: 2}),
    ("streams.version", {29: 1}),
    ("transaction.version", {24: 2}),
)
"""The level of each other feature from a level of metadata.version on."""

METADATA_CHANGES_AT: Final = frozenset({8, 11, 13, 14, 15, 17, 23, 30, 32, 33})
"""The levels of metadata.version that brought new fields or records: what a lower level cannot hold."""

_VOTERS_SINCE: Final = 21
"""The level of the first release that reads a voters record, which every new directory has (KIP-853)."""


class ReleaseVersion(NamedTuple):
    """A release version, and the levels that it gives to the features."""

    name: str
    """Its full name, such as 4.0-IV3."""
    metadata_version: int

    @property
    def release(self) -> str:
        """The release of Kafka that brought these levels."""
        return self.name.partition("-")[0]

    @property
    def oldest_kafka(self) -> str:
        """The first version of Kafka that opens a new directory with these levels."""
        return f"{RELEASE_VERSIONS[max(self.metadata_version, _VOTERS_SINCE)].release}.0"

    @property
    def levels(self) -> Mapping[str, int]:
        """The level of each feature that is on, metadata.version first; kraft.version is not among them."""
        levels = {"metadata.version": self.metadata_version}
        for feature, since in _OTHER_FEATURES:
            reached = [level for metadata_version, level in since.items() if metadata_version <= self.metadata_version]
            if reached:
                levels[feature] = max(reached)
        return levels


RELEASE_VERSIONS: Final = {
    level: ReleaseVersion(f"{release}-IV{number}", level)
    for release, levels in _METADATA_VERSIONS.items()
    for number, level in enumerate(levels, start=_FIRST_NUMBERS.get(release, 0))
}
"""Every release version by its level of metadata.version, oldest first."""

NEWEST: Final = RELEASE_VERSIONS[max(RELEASE_VERSIONS)]
"""Of a new directory, unless another one is wanted."""


def read_release_version(text: str) -> ReleaseVersion | None:
    """The release version that a text names, as Kafka's tools read it; None for an empty text. Raises InvalidConfig."""
    if not text:
        return None
    name = ".".join(text.split(".")[:2])  # as in Kafka, anything may stand behind a second dot
    for version in reversed(RELEASE_VERSIONS.values()):
        if name in (version.name, version.release):
            return version
    releases = list(_METADATA_VERSIONS)
    raise InvalidConfig(
        KEY, text, f"a release of Kafka from {releases[0]} to {releases[-1]}, or a level of one such as {NEWEST.name}"
    )
