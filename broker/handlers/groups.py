"""DescribeGroups, ListGroups and DeleteGroups: groups as an administrator sees them (API keys 15, 16 and 42; KIP-518,
KIP-848 for the types, KIP-1043 for what there is no group of)."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from broker.coordinators.group.requests import DescribedGroup, ListedGroup
from broker.coordinators.group_coordinator import Groups
from broker.handlers.java_order import as_in_hash_map, as_in_timeline_map, concurrent_map_order, hash_of_partition
from broker.request.context import GROUP_OPERATIONS, Operation, RequestContext, ResourceType
from broker.request.faults import Fault
from protocol.errors import ErrorCode
from protocol.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

Described = DescribeGroupsResponse.Group
Deleted = DeleteGroupsResponse.Result

NOT_FOUND_SINCE_VERSION: Final = 6
"""Of DescribeGroups; before, a group that is not there is dead, and nothing is wrong."""

DEAD: Final = "Dead"

_OTHER_SPELLINGS: Final = {"not_ready": "notready"}
"""Kafka takes this one, and not the name of the state."""


class GroupsHandler:
    """Asks the coordinators of all groups."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def describe_groups(self, request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
        """Describe classic groups, each with its own success or error."""
        answers = [self._describe(group_id, context) for group_id in request.groups]
        if request.include_authorized_operations:
            for answer in answers:
                if answer.error_code == ErrorCode.NONE:
                    answer.authorized_operations = context.authorized(
                        GROUP_OPERATIONS, ResourceType.GROUP, answer.group_id
                    )
        return DescribeGroupsResponse(groups=answers)

    def list_groups(self, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
        """List groups of these states and types, or all, in upper or lower case; around a state there may be spaces."""
        states = {state.strip().lower() for state in request.states_filter}
        states = {_OTHER_SPELLINGS.get(state, state) for state in states}
        types = {type_.lower() for type_ in request.types_filter}
        sees_all = context.sees(Operation.DESCRIBE, ResourceType.CLUSTER)
        return ListGroupsResponse(
            groups=[
                ListGroupsResponse.Group(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=group.type,
                )
                for group in self._all()
                if (not states or group.state.lower() in states)
                and (not types or group.type.lower() in types)
                and (sees_all or context.sees(Operation.DESCRIBE, ResourceType.GROUP, group.group_id))
            ]
        )

    def _all(self) -> Iterator[ListedGroup]:
        """All groups in the order in which Kafka lists them, which tools compare."""
        coordinators = {one.partition.topic_partition: one for one in self._groups.all()}
        for place in concurrent_map_order(coordinators, lambda place: hash_of_partition(*place)):
            yield from as_in_timeline_map(coordinators[place].shard.list(), lambda group: group.group_id)

    def delete_groups(self, request: DeleteGroupsRequest, context: RequestContext) -> None:
        """Delete groups without members, with their offsets; a group that is named twice is deleted once."""
        group_ids = dict.fromkeys(request.groups_names)
        errors: dict[str, ErrorCode] = {}

        def decided(group_id: str, error: ErrorCode) -> None:
            errors[group_id] = error
            if len(errors) == len(group_ids):
                context.respond(_deleted((group_id, errors[group_id]) for group_id in group_ids))

        if not group_ids:
            context.respond(_deleted(()))
        for group_id in group_ids:
            self._delete(group_id, context, partial(decided, group_id))

    def _describe(self, group_id: str, context: RequestContext) -> Described:
        if not context.may(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            return Described(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        try:
            shard = self._groups.of(group_id).shard
        except Fault as fault:
            return Described(group_id=group_id, error_code=fault.code)
        group = shard.describe(group_id)
        if group is not None:
            return _described(group)
        if context.api_version < NOT_FOUND_SINCE_VERSION:
            return Described(group_id=group_id, group_state=DEAD)
        kind = shard.kind_of(group_id)
        message = f"Group {group_id} not found." if kind is None else f"Group {group_id} is not a classic group."
        return Described(
            group_id=group_id, group_state=DEAD, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message
        )

    def _delete(self, group_id: str, context: RequestContext, decided: Callable[[ErrorCode], None]) -> None:
        if not context.may(Operation.DELETE, ResourceType.GROUP, group_id):
            decided(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            return
        try:
            coordinator = self._groups.of(group_id)
        except Fault as fault:
            decided(fault.code)
        else:
            coordinator.write(coordinator.shard.delete(group_id, decided))


def _described(group: DescribedGroup) -> Described:
    return Described(
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[
            Described.Member(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in as_in_hash_map(group.members, lambda member: member.member_id)
        ],
    )


def _deleted(results: Iterable[tuple[str, ErrorCode]]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[Deleted(group_id=group_id, error_code=error) for group_id, error in results])
