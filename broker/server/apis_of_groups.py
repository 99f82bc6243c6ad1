"""The APIs of consumer groups: loaded with the first request of one."""

from broker.controller.client import ControllerClient
from broker.coordinators.group_coordinator import Groups
from broker.dispatch.registry import Handlers
from broker.handlers.committed_offsets import CommittedOffsetsHandler
from broker.handlers.find_coordinator import FindCoordinatorHandler
from broker.handlers.group_membership import GroupMembershipHandler
from broker.handlers.groups import GroupsHandler
from broker.metadata.cache import MetadataCache
from broker.replication.replica_manager import ReplicaManager
from broker.request.node import Node
from broker.runtime.clock import Clock
from protocol.messages.committed_offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.group_membership import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest


def group_handlers(
    groups: Groups,
    *,
    metadata: MetadataCache,
    controller: ControllerClient,
    replicas: ReplicaManager,
    node: Node,
    clock: Clock,
) -> Handlers:
    """Who answers them."""
    finding = FindCoordinatorHandler(metadata, controller, replicas, node)
    members = GroupMembershipHandler(groups)
    offsets = CommittedOffsetsHandler(groups, metadata, clock)
    administered = GroupsHandler(groups)
    return {
        FindCoordinatorRequest: (finding.find_coordinator, finding.refuse),
        JoinGroupRequest: (members.join_group, members.refuse_join),
        SyncGroupRequest: (members.sync_group, members.refuse_sync),
        HeartbeatRequest: (members.heartbeat, members.refuse_heartbeat),
        LeaveGroupRequest: (members.leave_group, members.refuse_leave),
        OffsetCommitRequest: (offsets.offset_commit, offsets.refuse_commit),
        OffsetFetchRequest: (offsets.offset_fetch, offsets.refuse_fetch),
        OffsetDeleteRequest: (offsets.offset_delete, offsets.refuse_delete),
        DescribeGroupsRequest: (administered.describe_groups, administered.refuse_description),
        ListGroupsRequest: (administered.list_groups, administered.refuse_list),
        DeleteGroupsRequest: (administered.delete_groups, administered.refuse_deletion),
    }
