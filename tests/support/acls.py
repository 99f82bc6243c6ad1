"""ACLs for tests: records of the metadata log, and requests that create and delete them."""

from __future__ import annotations

from itertools import count
from typing import Any, Final

from broker.request.permissions import Operation, ResourceType
from broker.security.acls.codes import ALL, ANY, PatternType, PermissionType
from broker.security.acls.index import Acl
from protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

AUTHORIZER: Final = {"authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
"""The setting that asks for it."""

_IDS: Final = count(1)


def acl(
    name: str = "orders",
    *,
    principal: str = "User:alice",
    operation: int = ALL,
    resource_type: int = ResourceType.TOPIC,
    pattern_type: int = PatternType.LITERAL,
    host: str = "*",
    permission_type: int = PermissionType.ALLOW,
) -> Acl:
    """An ACL with an id of its own."""
    return Acl(
        id=next(_IDS).to_bytes(16),
        resource_type=resource_type,
        resource_name=name,
        pattern_type=pattern_type,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission_type,
    )


def denial(name: str = "orders", **fields: Any) -> Acl:
    """An ACL that denies."""
    return acl(name, permission_type=PermissionType.DENY, **fields)


def creation(*acls: Acl) -> CreateAclsRequest:
    """Have ACLs created, which get other ids."""
    return CreateAclsRequest(
        creations=[
            CreateAclsRequest.Creation(
                resource_type=one.resource_type,
                resource_name=one.resource_name,
                resource_pattern_type=one.pattern_type,
                principal=one.principal,
                host=one.host,
                operation=one.operation,
                permission_type=one.permission_type,
            )
            for one in acls
        ]
    )


def deletion(**fields: Any) -> DeleteAclsRequest:
    """Have the ACLs deleted that have these fields, or all."""
    return DeleteAclsRequest(filters=[DeleteAclsRequest.Filter(**_filter(fields))])


def description(**fields: Any) -> DescribeAclsRequest:
    """Ask for the ACLs that have these fields, or for all."""
    return DescribeAclsRequest(**_filter(fields))


def _filter(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        **{"resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": PatternType.ANY},
        **{"principal_filter": None, "host_filter": None, "operation": ANY, "permission_type": ANY},
        **fields,
    }


EVERY_OPERATION: Final = tuple(Operation)
