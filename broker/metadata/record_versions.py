"""The version in which a metadata record is written, by the level of metadata.version (KIP-778).

A snapshot and the log are read by brokers of that level: a record in a newer version would stop them.
"""

from typing import Final

from broker.metadata.image.records import Record
from protocol.records.cluster_metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    UnknownRecord,
)

_ZK_MIGRATION_SINCE: Final = 8  # 3.4-IV0
SCRAM_SINCE: Final = 11  # 3.5-IV2
_ELIGIBLE_LEADERS_SINCE: Final = 23  # 4.0-IV1
CORDONED_SINCE: Final = 30  # 4.3-IV0
DIRECTORIES_SINCE: Final = 17
"""The level (3.7-IV2) from which on brokers register their log directories, and replicas have one (KIP-858)."""


def version_of(record: Record, metadata_version: int) -> int:
    """The version in which ``record`` is written at the level ``metadata_version``; an `UnknownRecord` has its own."""
    match record:
        case PartitionRecord() | PartitionChangeRecord():
            if metadata_version >= _ELIGIBLE_LEADERS_SINCE:
                return 2
            return 1 if metadata_version >= DIRECTORIES_SINCE else 0
        case RegisterBrokerRecord():
            if metadata_version >= CORDONED_SINCE:
                return 4
            if metadata_version >= DIRECTORIES_SINCE:
                return 3
            return 2 if metadata_version >= _ZK_MIGRATION_SINCE else 1
        case BrokerRegistrationChangeRecord():
            if record.cordoned_log_dirs is not None:
                return 3
            return 2 if record.log_dirs else 1 if record.in_controlled_shutdown else 0
        case UnknownRecord():
            return record.version
        case _:
            return 0
