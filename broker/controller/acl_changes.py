"""What it takes to create and delete ACLs (KIP-140, KIP-290): every check, then the records."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.records import Record
from broker.request.context import CLUSTER_NAME
from broker.request.faults import Fault, InvalidRequest, UnsupportedVersion
from broker.request.permissions import Operation, ResourceType
from broker.security.acls.codes import ALL, ANY, WILDCARD, PatternType, PermissionType
from broker.security.acls.filters import AclFilter
from broker.security.acls.hosts import is_range, range_of
from broker.security.acls.index import Acl
from broker.security.acls.standard_authorizer import acls_of
from protocol.records.cluster_metadata import RemoveAccessControlEntryRecord

RANGES_SINCE: Final = 32
"""The metadata version 4.4-IV1, from which on ACLs may be for ranges of hosts."""

MOST_CHANGES: Final = 10_000
"""How many ACLs one request creates or deletes at most, as in Kafka."""

_RESOURCE_TYPES: Final = frozenset(ResourceType)
_PATTERN_TYPES: Final = frozenset({PatternType.LITERAL, PatternType.PREFIXED})
_OPERATIONS: Final = frozenset({*Operation, ALL})
_PERMISSION_TYPES: Final = frozenset(PermissionType)


class NewAcl(NamedTuple):
    """An ACL that shall exist."""

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class DeletedAcls(NamedTuple):
    """What became of one filter of ACLs to delete."""

    fault: Fault | None = None
    acls: Sequence[Acl] = ()


class AclPlanner:
    """Plans changes against one image: the records to append, and what to answer once they are durable."""

    def __init__(self, image: MetadataImage, new_id: Callable[[], bytes]) -> None:
        self._image = image
        self._new_id = new_id
        self.records: list[Record] = []

    def create(self, wanted: Sequence[NewAcl]) -> list[Fault | None]:
        """Create ACLs, each with its own success or error. One that exists already is a success.

        Raises `InvalidRequest`: there would be more than `MOST_CHANGES`.
        """
        names = {acl.name for acl in wanted}
        known = {_new(acl) for acl in acls_of(self._image) if acl.resource_name in names} if wanted else set()
        results: list[Fault | None] = []
        for acl in wanted:
            try:
                self._check(acl)
            except Fault as fault:
                results.append(fault.with_traceback(None))
                continue
            results.append(None)
            if acl in known:
                continue
            known.add(acl)
            if len(self.records) >= MOST_CHANGES:
                raise InvalidRequest(f"Cannot create more than {MOST_CHANGES} acls in a single request.")
            self.records.append(
                Acl(
                    id=self._new_id(),
                    resource_type=acl.resource_type,
                    resource_name=acl.name,
                    pattern_type=acl.pattern_type,
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission_type,
                )
            )
        return results

    def delete(self, unwanted: Sequence[AclFilter]) -> list[DeletedAcls]:
        """Delete the ACLs of each filter. An ACL that several filters are about is named for each of them.

        Raises `InvalidRequest`: there would be more than `MOST_CHANGES`.
        """
        doomed: set[bytes] = set()
        results = []
        for one in unwanted:
            try:
                _check_filter(one)
            except Fault as fault:
                results.append(DeletedAcls(fault.with_traceback(None)))
                continue
            found = [acl for acl in acls_of(self._image) if one.matches(acl)]
            doomed.update(bytes(acl.id) for acl in found)
            if len(doomed) > MOST_CHANGES:
                raise InvalidRequest(f"Cannot remove more than {MOST_CHANGES} acls in a single delete operation.")
            results.append(DeletedAcls(acls=found))
        self.records += [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in sorted(doomed)]
        return results

    def _check(self, acl: NewAcl) -> None:
        """Raises `InvalidRequest`, `UnsupportedVersion`."""
        if acl.resource_type == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
            raise InvalidRequest("The only valid name for the CLUSTER resource is kafka-cluster")
        if not acl.name:
            raise InvalidRequest("Invalid empty resource name")
        for what, code, known in (
            ("resourceType", acl.resource_type, _RESOURCE_TYPES),
            ("patternType", acl.pattern_type, _PATTERN_TYPES),
            ("operation", acl.operation, _OPERATIONS),
            ("permissionType", acl.permission_type, _PERMISSION_TYPES),
        ):
            if code not in known:
                raise InvalidRequest(f"Invalid {what} {_name(what, code)}")
        if ":" not in acl.principal:
            raise InvalidRequest(
                f"Could not parse principal from `{acl.principal}` "
                "(no colon is present separating the principal type from the principal name)"
            )
        self._check_host(acl.host)

    def _check_host(self, host: str) -> None:
        if not host:
            raise InvalidRequest("Host pattern cannot be null or empty")
        if host == WILDCARD or not is_range(host):
            return
        if self._image.features.metadata_version < RANGES_SINCE:
            raise UnsupportedVersion("CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher.")
        if range_of(host) is None:
            raise InvalidRequest(f"Invalid CIDR notation '{host}': Could not parse [{host}]")


def _check_filter(wanted: AclFilter) -> None:
    """Raises `InvalidRequest`."""
    if wanted.resource_type not in {ANY, *_RESOURCE_TYPES} or wanted.pattern_type not in set(PatternType):
        raise InvalidRequest("Unknown patternFilter.")
    if wanted.operation not in {ANY, *_OPERATIONS} or wanted.permission_type not in {ANY, *_PERMISSION_TYPES}:
        raise InvalidRequest("Unknown entryFilter.")


def _new(acl: Acl) -> NewAcl:
    """What an ACL was made from."""
    return NewAcl(
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


def _name(what: str, code: int) -> str:
    """What Kafka calls a code that no ACL may have."""
    if code == ANY:
        return "ANY"
    return "MATCH" if what == "patternType" and code == PatternType.MATCH else "UNKNOWN"
