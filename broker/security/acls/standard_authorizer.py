"""StandardAuthorizer: Kafka's rules of what a principal may do, over the ACLs in the metadata log.

In this order: a super user may do everything; an ACL that denies wins over all that allow; an ACL that allows; where
no ACL is about the resource, `allow.everyone.if.no.acl.found` decides; else the operation is denied. ACLs that allow
imply: READ, WRITE, DELETE and ALTER the operation DESCRIBE, and ALTER_CONFIGS the operation DESCRIBE_CONFIGS.
"""

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from broker.metadata.image.metadata_image import MetadataDelta, MetadataImage
from broker.request.permissions import Operation, ResourceType
from broker.runtime.loggers import DECISIONS
from broker.security.acls.codes import ALL, WILDCARD, PatternType, PermissionType
from broker.security.acls.hosts import Host
from broker.security.acls.index import Acl, AclIndex

log = logging.getLogger(__name__)
decisions = logging.getLogger(DECISIONS)

MOST_REMEMBERED: Final = 1 << 18
"""Decisions that are remembered, of all principals together."""
LONGEST_REMEMBERED: Final = 249
"""Decisions on resources with longer names are made each time."""

_IMPLIES: Final[dict[int, frozenset[int]]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, ALL}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, ALL}),
}
"""By which operations of an ACL that allows another operation than its own is allowed."""

_SOME_NAME: Final = "hardcode"
"""The name by which Kafka finds out whether a principal may do something to resources of which nothing is said."""


class Decision(NamedTuple):
    """Whether something is allowed, and by which rule."""

    is_allowed: bool
    rule: str


_SUPER_USER: Final = Decision(True, "SuperUser")
_DEFAULT_ALLOW: Final = Decision(True, "DefaultAllow")
_DEFAULT_DENY: Final = Decision(False, "DefaultDeny")


class AuthorizerStats:
    """What the authorizer has counted."""

    __slots__ = ("allowed", "denied")

    def __init__(self) -> None:
        self.allowed = 0
        self.denied = 0


class StandardAuthorizer:
    """The ACLs in force, and the permissions of the principals that are connected. A metadata subscriber."""

    def __init__(self, super_users: frozenset[str], *, allow_everyone_if_no_acl_found: bool = False) -> None:
        self.stats = AuthorizerStats()
        self.generation = 0
        """Rises with each change of an ACL."""
        self._super_users = super_users
        self._allows_unmentioned = allow_everyone_if_no_acl_found
        self._index = self._empty_index()
        self._permissions: WeakValueDictionary[tuple[str, str], PrincipalPermissions] = WeakValueDictionary()
        self._remembered = 0

    @property
    def size(self) -> int:
        """How many ACLs there are."""
        return self._index.size

    def load(self, image: MetadataImage) -> None:
        """Take over all ACLs of an image, instead of those that are in force."""
        self._index = self._empty_index()
        for acl in acls_of(image):
            self._index.add(acl)
        self._changed()
        log.info(
            "%d ACLs, super users: %s; what no ACL is about is %s",
            self.size,
            ", ".join(sorted(self._super_users)) or "none",
            "allowed" if self._allows_unmentioned else "denied",
        )

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take over what has changed: it holds for the next request."""
        has_changed = False
        for before, after in delta.acls.changes():
            has_changed = True
            if isinstance(before, Acl):
                self._index.remove(before)
            if isinstance(after, Acl):
                self._index.add(after)
        if has_changed:
            self._changed()

    def permissions_of(self, principal: str, host: str) -> "PrincipalPermissions":
        """What a principal may do from a host. Connections of the same principal and host share the object."""
        found = self._permissions.get((principal, host))
        if found is None:
            found = self._permissions[principal, host] = PrincipalPermissions(self, principal, host)
        return found

    def remembers_one_more(self) -> None:
        """A principal remembers a further decision; where these are too many, all are forgotten."""
        self._remembered += 1
        if self._remembered > MOST_REMEMBERED:
            self._forget()

    def decide(self, principal: str, host: Host, operation: int, resource_type: int, name: str) -> Decision:
        """Decide anew."""
        if principal in self._super_users:
            return _SUPER_USER
        allowing = None
        by = _IMPLIES.get(operation, (operation, ALL))
        for acl in self._index.concerning(principal, resource_type, name):
            if acl.permission_type == PermissionType.DENY:
                if acl.operation in (operation, ALL) and host.is_meant_by(acl.host):
                    return Decision(False, f"MatchingAcl(acl={described(acl)})")
            elif allowing is None and acl.operation in by and host.is_meant_by(acl.host):
                allowing = acl
        if allowing is not None:
            return Decision(True, f"MatchingAcl(acl={described(allowing)})")
        if self._allows_unmentioned and not self._index.has_any(resource_type, name):
            return _DEFAULT_ALLOW
        return _DEFAULT_DENY

    def decide_any(self, principal: str, host: Host, operation: int, resource_type: int) -> bool:
        """Decide whether there may be a resource of the type that the principal may do this to."""
        if self.decide(principal, host, operation, resource_type, _SOME_NAME).is_allowed:
            return True
        allowed: dict[int, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
        denied: dict[int, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
        for pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
            for acl in self._index.of(principal, resource_type, pattern_type):
                if acl.operation in (operation, ALL) and host.is_meant_by(acl.host):
                    names = denied if acl.permission_type == PermissionType.DENY else allowed
                    names[pattern_type].add(acl.resource_name)
        if WILDCARD in denied[PatternType.LITERAL]:
            return False
        if WILDCARD in allowed[PatternType.LITERAL]:
            return True
        denied_beginnings = denied[PatternType.PREFIXED]
        lengths = {len(beginning) for beginning in denied_beginnings}

        def is_denied(name: str) -> bool:
            return any(name[:length] in denied_beginnings for length in lengths if length <= len(name))

        return any(
            not is_denied(name)
            for name in (allowed[PatternType.LITERAL] - denied[PatternType.LITERAL]) | allowed[PatternType.PREFIXED]
        )

    def _empty_index(self) -> AclIndex:
        return AclIndex(counts_resources=self._allows_unmentioned)

    def _changed(self) -> None:
        self.generation += 1
        self._forget()

    def _forget(self) -> None:
        self._remembered = 0
        for permissions in self._permissions.values():
            permissions.forget()


class _Line(NamedTuple):
    """A line of the log, put together where it is written."""

    principal: str
    said: str
    operation: str
    host: str
    resource_type: ResourceType
    name: str
    request: str
    rule: str

    def __str__(self) -> str:
        return (
            f"Principal = {self.principal} is {self.said} operation = {self.operation} from host = {self.host} "
            f"on resource = {_title(self.resource_type)}:LITERAL:{self.name:.249} for request = {self.request} "
            f"with resourceRefCount = 1 based on rule {self.rule}"
        )


class PrincipalPermissions:
    """What one principal may do from one host; a `broker.request.permissions.Permissions`. Decisions are remembered
    until an ACL changes."""

    __slots__ = ("__weakref__", "_any", "_authorizer", "_host", "_known", "_principal", "_stats")

    def __init__(self, authorizer: StandardAuthorizer, principal: str, host: str) -> None:
        self._authorizer = authorizer
        self._principal = principal
        self._host = Host(host)
        self._stats = authorizer.stats
        self._known: dict[tuple[int, int, str], bool] = {}
        self._any: dict[tuple[int, int], bool] = {}

    @property
    def generation(self) -> int:
        """Rises whenever the permissions may have changed."""
        return self._authorizer.generation

    def forget(self) -> None:
        """Remember no decision any longer."""
        self._known.clear()
        self._any.clear()

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether the principal may do this to the resource."""
        is_allowed = self._known.get((operation, resource_type, name))
        if is_allowed is None:
            is_allowed = self._decide(operation, resource_type, name)
        if is_allowed:
            self._stats.allowed += 1
        else:
            self._stats.denied += 1
        return is_allowed

    def may_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the principal may do this to some resource of the type."""
        is_allowed = self._any.get((operation, resource_type))
        if is_allowed is None:
            is_allowed = self._authorizer.decide_any(self._principal, self._host, operation, resource_type)
            self._any[operation, resource_type] = is_allowed
        return is_allowed

    @property
    def logs_allowed(self) -> bool:
        """Whether the level of the log is DEBUG, or below."""
        return decisions.isEnabledFor(logging.DEBUG)

    def log(self, operation: Operation, resource_type: ResourceType, name: str, *, request: str) -> None:
        """Write down what the principal was allowed, or not, as Kafka writes it."""
        decision = self._authorizer.decide(self._principal, self._host, operation, resource_type, name)
        said = "Allowed" if decision.is_allowed else "Denied"
        line = _Line(
            self._principal, said, operation.name, self._host.text, resource_type, name, request, decision.rule
        )
        if decision.is_allowed:
            decisions.debug("%s", line)
        else:
            decisions.info("%s", line)  # in a place of its own, for the limit on lines

    def _decide(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        decision = self._authorizer.decide(self._principal, self._host, operation, resource_type, name)
        if len(name) <= LONGEST_REMEMBERED:
            self._authorizer.remembers_one_more()
            self._known[operation, resource_type, name] = decision.is_allowed
        return decision.is_allowed


def acls_of(image: MetadataImage) -> Iterator[Acl]:
    """All ACLs."""
    for record in image.acls.by_key.values():
        assert isinstance(record, Acl)
        yield record


def described(acl: Acl) -> str:
    """An ACL as Kafka writes it into its log."""
    return (
        f"StandardAcl(resourceType={_name(ResourceType, acl.resource_type)}, resourceName={acl.resource_name}, "
        f"patternType={_name(PatternType, acl.pattern_type)}, principal={acl.principal}, host={acl.host}, "
        f"operation={'ALL' if acl.operation == ALL else _name(Operation, acl.operation)}, "
        f"permissionType={_name(PermissionType, acl.permission_type)})"
    )


def _name(codes: type[ResourceType | PatternType | Operation | PermissionType], code: int) -> str:
    return codes(code).name if code in set(codes) else "UNKNOWN"


def _title(resource_type: ResourceType) -> str:
    """What Kafka calls the type in its log: `Topic`, `TransactionalId`."""
    return "".join(word.capitalize() for word in resource_type.name.split("_"))
