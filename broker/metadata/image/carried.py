"""Records that are kept as they are, and carried from snapshot to snapshot.

ACLs, SCRAM credentials, client quotas and delegation tokens are kept by what a later record of their kind replaces.
Records of a type that is not known here are kept in the order in which they came.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from broker.metadata.image.records import EMPTY, Record
from protocol.records.cluster_metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)


class KeyedImage(NamedTuple):
    """Records of one subject, by key. Readers change nothing in its map."""

    by_key: Mapping[Hashable, Record] = EMPTY

    def records(self) -> Iterator[Record]:
        """The records that add up to this image."""
        yield from self.by_key.values()


class KeyedDelta:
    """The changes of one subject."""

    __slots__ = ("_changed", "_image", "_touched")

    def __init__(self, image: KeyedImage) -> None:
        self._image = image
        self._changed: dict[Hashable, Record] | None = None
        """All records by key; None as long as none has changed."""
        self._touched: Collection[Hashable] = ()
        """The keys whose records may have changed."""

    @property
    def is_empty(self) -> bool:
        """Whether no record has changed."""
        return next(self.changes(), None) is None

    def put(self, key: Hashable, record: Record) -> None:
        """Set the record of ``key``."""
        changed = self._edit(key)
        changed[key] = record

    def remove(self, key: Hashable) -> None:
        """Remove the record of ``key``."""
        self._edit(key).pop(key, None)

    def replace(self, image: KeyedImage) -> None:
        """All records as ``image`` has them."""
        self._changed = dict(image.by_key)
        self._touched = self._image.by_key.keys() | self._changed.keys()

    def changes(self) -> Iterator[tuple[Record | None, Record | None]]:
        """Each record that has changed, as it was and as it is now; None stands for no record."""
        before, after = self._image.by_key, self._changed or {}
        for key in self._touched:
            if before.get(key) != after.get(key):
                yield before.get(key), after.get(key)

    def apply(self) -> KeyedImage:
        """The next image."""
        return self._image if self._changed is None else KeyedImage(self._changed)

    def _edit(self, key: Hashable) -> dict[Hashable, Record]:
        if self._changed is None:
            self._changed = dict(self._image.by_key)
        if not isinstance(self._touched, dict):
            self._touched = dict.fromkeys(self._touched)
        self._touched[key] = None
        return self._changed


class UnknownImage(NamedTuple):
    """Records of types that are not known here, in the order in which they came."""

    kept: tuple[Record, ...] = ()

    def records(self) -> Iterator[Record]:
        """The records themselves."""
        yield from self.kept


class UnknownDelta:
    """Records of unknown types that are new."""

    __slots__ = ("_image", "_new", "_replacement")

    def __init__(self, image: UnknownImage) -> None:
        self._image = image
        self._new: list[Record] = []
        self._replacement: UnknownImage | None = None

    def add(self, record: Record) -> None:
        """Keep one more record."""
        self._new.append(record)

    def replace(self, image: UnknownImage) -> None:
        """All records as ``image`` has them."""
        self._replacement = image

    def apply(self) -> UnknownImage:
        """The next image."""
        if self._replacement is not None:
            return self._replacement
        return UnknownImage((*self._image.kept, *self._new)) if self._new else self._image


AclRecord: TypeAlias = AccessControlEntryRecord | RemoveAccessControlEntryRecord
ScramRecord: TypeAlias = UserScramCredentialRecord | RemoveUserScramCredentialRecord
TokenRecord: TypeAlias = DelegationTokenRecord | RemoveDelegationTokenRecord


def acl_key(record: AclRecord) -> Hashable:
    """The key of an ACL is its id."""
    return bytes(record.id)


def scram_key(record: ScramRecord) -> Hashable:
    """The key of a credential is user and mechanism."""
    return (record.name, record.mechanism)


def token_key(record: TokenRecord) -> Hashable:
    """The key of a delegation token is its id."""
    return record.token_id


def quota_key(record: ClientQuotaRecord) -> Hashable:
    """The key of a quota is its entity, whose parts come in any order, and its name."""
    return (tuple(sorted((part.entity_type, part.entity_name or "") for part in record.entity)), record.key)


ZK_MIGRATION: Final = "zk migration"
"""The key of the one `ZkMigrationStateRecord` that counts."""
