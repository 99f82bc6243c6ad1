"""DescribeAcls, CreateAcls and DeleteAcls on a broker without an authorizer (API keys 29 to 31; KIP-140, KIP-290)."""

from typing import Final

from broker.request.context import RequestContext
from broker.request.faults import SecurityDisabled
from protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

NO_AUTHORIZER: Final = "No Authorizer is configured"
"""Kafka's words, by which MirrorMaker 2 and others know that there are no ACLs to be had."""

UNKNOWN: Final = 0
"""A resource type, pattern type, operation or permission type that the client itself does not know."""


class AclsHandler:
    """Says that there are no ACLs. Those that an adopted directory has are kept, and mean nothing here either."""

    def describe_acls(self, request: DescribeAclsRequest, context: RequestContext) -> None:
        """Raises `SecurityDisabled`."""
        asked = (request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
        if _may_be_answered([asked], context):
            raise SecurityDisabled(f"{NO_AUTHORIZER} on the broker")

    def create_acls(self, request: CreateAclsRequest, context: RequestContext) -> None:
        """Raises `SecurityDisabled`."""
        wanted = [
            (acl.resource_type, acl.resource_pattern_type, acl.operation, acl.permission_type)
            for acl in request.creations
        ]
        if _may_be_answered(wanted, context):
            raise SecurityDisabled(f"{NO_AUTHORIZER}.")

    def delete_acls(self, request: DeleteAclsRequest, context: RequestContext) -> None:
        """Raises `SecurityDisabled`."""
        unwanted = [
            (acl.resource_type_filter, acl.pattern_type_filter, acl.operation, acl.permission_type)
            for acl in request.filters
        ]
        if _may_be_answered(unwanted, context):
            raise SecurityDisabled(f"{NO_AUTHORIZER}.")


def _may_be_answered(acls: list[tuple[int, int, int, int]], context: RequestContext) -> bool:
    """Close the connection for an ACL with a code that is UNKNOWN: Kafka takes such a request for garbage."""
    if any(UNKNOWN in codes for codes in acls):
        context.close_connection("an ACL has a resource, pattern, operation or permission type of 0 (UNKNOWN)")
        return False
    return True
