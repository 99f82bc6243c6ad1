"""The records that images are made of, the map of an empty image, and the error of a record that does not fit."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from protocol.records.cluster_metadata import MetadataRecord, UnknownRecord

Record: TypeAlias = MetadataRecord | UnknownRecord

EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})
"""The map of an image before the first record."""


class InconsistentMetadata(Exception):
    """A record that does not fit the records before it: the metadata log can't be trusted."""
