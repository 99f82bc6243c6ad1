"""AclFilter: which ACLs DescribeAcls and DeleteAcls are about."""

from typing import NamedTuple

from broker.security.acls.codes import ANY, WILDCARD, PatternType
from broker.security.acls.index import Acl


class AclFilter(NamedTuple):
    """What ACLs have in common. None, and `ANY` as a code, stand for whatever an ACL has."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def matches(self, acl: Acl) -> bool:
        """Whether an ACL is one of them."""
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self.pattern_type in (PatternType.ANY, PatternType.MATCH, acl.pattern_type)
            and (self.name is None or self._names(self.name, acl))
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission_type in (ANY, acl.permission_type)
        )

    def _names(self, name: str, acl: Acl) -> bool:
        if self.pattern_type != PatternType.MATCH:
            return name == acl.resource_name
        if acl.pattern_type == PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name in (name, WILDCARD)
