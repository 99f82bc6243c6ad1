"""The records that images are made of, and the error of a record that does not fit."""

from typing import TypeAlias

from protocol.records.cluster_metadata import MetadataRecord, UnknownRecord

Record: TypeAlias = MetadataRecord | UnknownRecord


class InconsistentMetadata(Exception):
    """A record that does not fit the records before it: the metadata log can't be trusted."""
