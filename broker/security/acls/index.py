"""AclIndex: finds the ACLs that concern a principal and a resource, however many others there are.

    resource type, pattern type -> principal -> name -> ACLs

Literal ACLs are found by the resource's name and by `*`, prefixed ones by each beginning of the name whose length some
prefix has. So a decision looks up a few keys, and reads no ACL of other principals or resources.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from broker.security.acls.codes import EVERYBODY, WILDCARD, PatternType
from protocol.records.cluster_metadata import AccessControlEntryRecord

Acl: TypeAlias = AccessControlEntryRecord

_ByName: TypeAlias = dict[str, list[Acl]]

_Key = TypeVar("_Key", int, tuple[int, int, str])

_NOTHING: Final[Mapping[str, Sequence[Acl]]] = {}


class AclIndex:
    """The ACLs that are in force."""

    def __init__(self, *, counts_resources: bool = False) -> None:
        """``counts_resources``: `has_any` will be asked."""
        self._by_kind: dict[tuple[int, int], dict[str, _ByName]] = {}
        self._prefix_lengths: dict[int, Counter[int]] = {}
        """How many prefixed ACLs have a name of each length, by resource type."""
        self._lengths: dict[int, tuple[int, ...]] = {}
        """The same without the numbers, in ascending order."""
        self._resources: Counter[tuple[int, int, str]] | None = Counter() if counts_resources else None
        self.size = 0

    def add(self, acl: Acl) -> None:
        """Put an ACL in force."""
        by_name = self._by_kind.setdefault((acl.resource_type, acl.pattern_type), {}).setdefault(acl.principal, {})
        by_name.setdefault(acl.resource_name, []).append(acl)
        self._count(acl, 1)

    def remove(self, acl: Acl) -> None:
        """Put an ACL out of force that is in force."""
        kind = acl.resource_type, acl.pattern_type
        by_principal = self._by_kind[kind]
        by_name = by_principal[acl.principal]
        others = [one for one in by_name[acl.resource_name] if one.id != acl.id]
        if others:
            by_name[acl.resource_name] = others
        else:
            del by_name[acl.resource_name]
            if not by_name:
                del by_principal[acl.principal]
        self._count(acl, -1)

    def concerning(self, principal: str, resource_type: int, name: str) -> Iterator[Acl]:
        """The ACLs of a principal, and of everybody, for a resource."""
        literal = self._by_kind.get((resource_type, PatternType.LITERAL), {})
        prefixed = self._by_kind.get((resource_type, PatternType.PREFIXED), {})
        beginnings = self._beginnings(resource_type, name) if prefixed else []
        for who in (principal, EVERYBODY):
            by_name = literal.get(who, _NOTHING)
            yield from by_name.get(name, ())
            if name != WILDCARD:
                yield from by_name.get(WILDCARD, ())
            by_prefix = prefixed.get(who)
            if by_prefix is not None:
                for beginning in beginnings:
                    yield from by_prefix.get(beginning, ())

    def has_any(self, resource_type: int, name: str) -> bool:
        """Whether there is an ACL for a resource, whoever it is for."""
        assert self._resources is not None, "resources are not counted"
        literal, prefixed = PatternType.LITERAL, PatternType.PREFIXED
        return (
            (resource_type, literal, name) in self._resources
            or (resource_type, literal, WILDCARD) in self._resources
            or any((resource_type, prefixed, one) in self._resources for one in self._beginnings(resource_type, name))
        )

    def of(self, principal: str, resource_type: int, pattern_type: int) -> Iterator[Acl]:
        """All ACLs of a principal, and of everybody, for resources of a type."""
        by_principal = self._by_kind.get((resource_type, pattern_type), {})
        for who in (principal, EVERYBODY):
            for acls in by_principal.get(who, _NOTHING).values():
                yield from acls

    def _beginnings(self, resource_type: int, name: str) -> Iterable[str]:
        """The beginnings of a name that may be prefixes of ACLs."""
        most = len(name)
        return [name[:length] for length in self._lengths.get(resource_type, ()) if length <= most]

    def _count(self, acl: Acl, change: int) -> None:
        self.size += change
        if self._resources is not None:
            _add(self._resources, (acl.resource_type, acl.pattern_type, acl.resource_name), change)
        if acl.pattern_type == PatternType.PREFIXED:
            lengths = self._prefix_lengths.setdefault(acl.resource_type, Counter())
            _add(lengths, len(acl.resource_name), change)
            self._lengths[acl.resource_type] = tuple(sorted(lengths))


def _add(counter: Counter[_Key], key: _Key, change: int) -> None:
    counter[key] += change
    if not counter[key]:
        del counter[key]
