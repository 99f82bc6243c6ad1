"""DescribeAcls, CreateAcls and DeleteAcls (API keys 29 to 31; KIP-140, KIP-290).

Without an authorizer there are no ACLs to be had; those that an adopted directory has are kept, and mean nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from broker.controller.client import ControllerClient
from broker.metadata.cache import MetadataCache
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import ClusterAuthorizationFailed, Fault, SecurityDisabled
from broker.runtime.worker_thread import WorkerThread
from protocol.errors import ErrorCode
from protocol.messages.acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from broker.controller.acl_changes import DeletedAcls
    from broker.security.acls.index import Acl

NO_AUTHORIZER: Final = "No Authorizer is configured"
"""Kafka's words, by which MirrorMaker 2 and others know that there are no ACLs to be had."""

UNKNOWN: Final = 0
"""A resource type, pattern type, operation or permission type that the client itself does not know."""

MOST_AT_ONCE: Final = 10_000
"""Of more ACLs those that a client asks for are looked for in a thread."""

Resource = DescribeAclsResponse.Resource
Result = DeleteAclsResponse.FilterResult


class AclsHandler:
    """Reads the image, and asks the controller."""

    def __init__(
        self,
        controller: Callable[[], ControllerClient],
        metadata: MetadataCache,
        worker: WorkerThread,
        *,
        has_authorizer: bool,
    ) -> None:
        self._controller = controller
        self._metadata = metadata
        self._worker = worker
        self._has_authorizer = has_authorizer

    def describe_acls(self, request: DescribeAclsRequest, context: RequestContext) -> None:
        """Answer with the ACLs that the request's filter is about, those of a resource pattern together.

        Raises `SecurityDisabled`, `ClusterAuthorizationFailed`.
        """
        asked = (request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
        if not _may_be_answered([asked], context):
            return
        if not context.may(Operation.DESCRIBE, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not describe ACLs")
        if not self._has_authorizer:
            raise SecurityDisabled(f"{NO_AUTHORIZER} on the broker")
        from broker.security.acls.filters import AclFilter
        from broker.security.acls.standard_authorizer import acls_of

        wanted = AclFilter(
            request.resource_type_filter,
            request.resource_name_filter,
            request.pattern_type_filter,
            request.principal_filter,
            request.host_filter,
            request.operation,
            request.permission_type,
        )
        image = self._metadata.image

        def found() -> DescribeAclsResponse:
            return _described(acl for acl in acls_of(image) if wanted.matches(acl))

        if len(image.acls.by_key) <= MOST_AT_ONCE:
            context.respond(found())
            return

        def failed(error: Exception) -> None:
            context.refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR, None)

        self._worker.submit(found, context.respond, failed)

    def create_acls(self, request: CreateAclsRequest, context: RequestContext) -> None:
        """Answer once every ACL that may exist is durable, and in force.

        Raises `SecurityDisabled`, `ClusterAuthorizationFailed`, `InvalidRequest`.
        """
        codes = [
            (acl.resource_type, acl.resource_pattern_type, acl.operation, acl.permission_type)
            for acl in request.creations
        ]
        if not _may_be_answered(codes, context):
            return
        self._check_may_alter(context)
        from broker.controller.acl_changes import NewAcl

        wanted = [
            NewAcl(
                acl.resource_type,
                acl.resource_name,
                acl.resource_pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for acl in request.creations
        ]

        def created(faults: Sequence[Fault | None]) -> None:
            context.respond(
                CreateAclsResponse(
                    results=[
                        CreateAclsResponse.Result(error_message="")
                        if fault is None
                        else CreateAclsResponse.Result(error_code=fault.code, error_message=str(fault))
                        for fault in faults
                    ]
                )
            )

        self._controller().create_acls(wanted, then=created)

    def delete_acls(self, request: DeleteAclsRequest, context: RequestContext) -> None:
        """Answer once the ACLs that the filters are about are gone.

        Raises `SecurityDisabled`, `ClusterAuthorizationFailed`.
        """
        codes = [
            (acl.resource_type_filter, acl.pattern_type_filter, acl.operation, acl.permission_type)
            for acl in request.filters
        ]
        if not _may_be_answered(codes, context):
            return
        self._check_may_alter(context)
        from broker.security.acls.filters import AclFilter

        unwanted = [
            AclFilter(
                acl.resource_type_filter,
                acl.resource_name_filter,
                acl.pattern_type_filter,
                acl.principal_filter,
                acl.host_filter,
                acl.operation,
                acl.permission_type,
            )
            for acl in request.filters
        ]
        self._controller().delete_acls(
            unwanted,
            then=lambda results: context.respond(DeleteAclsResponse(filter_results=[_deleted(one) for one in results])),
        )

    def _check_may_alter(self, context: RequestContext) -> None:
        """Raises `ClusterAuthorizationFailed`, `SecurityDisabled`."""
        if not context.may(Operation.ALTER, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not alter ACLs")
        if not self._has_authorizer:
            raise SecurityDisabled(f"{NO_AUTHORIZER}.")


def _may_be_answered(acls: list[tuple[int, int, int, int]], context: RequestContext) -> bool:
    """Close the connection for an ACL with a code that is UNKNOWN: Kafka takes such a request for garbage."""
    if any(UNKNOWN in codes for codes in acls):
        context.close_connection("an ACL has a resource, pattern, operation or permission type of 0 (UNKNOWN)")
        return False
    return True


def _described(acls: "Iterable[Acl]") -> DescribeAclsResponse:
    by_pattern: dict[tuple[int, int, str], Resource] = {}
    for acl in acls:
        pattern = acl.resource_type, acl.pattern_type, acl.resource_name
        resource = by_pattern.get(pattern)
        if resource is None:
            resource = by_pattern[pattern] = Resource(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                acls=[],
            )
        resource.acls.append(
            Resource.Acl(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission_type
            )
        )
    return DescribeAclsResponse(error_message="", resources=list(by_pattern.values()))


def _deleted(deleted: "DeletedAcls") -> Result:
    if deleted.fault is not None:
        return Result(error_code=deleted.fault.code, error_message=str(deleted.fault), matching_acls=[])
    return Result(
        matching_acls=[
            Result.MatchingAcl(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
            for acl in deleted.acls
        ],
    )
