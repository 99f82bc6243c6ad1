"""StreamsGroup: the replayed state of a streams group (KIP-1071)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar, Final

from broker.coordinators.group.modern.group import GroupWithTargets, by_epoch, replay_subtract
from broker.coordinators.group.streams.member import (
    NOTHING,
    NOTHING_HELD,
    Endpoint,
    EpochTasks,
    HeldTasks,
    MemberState,
    StreamsMember,
    Tasks,
    task_set,
)
from broker.coordinators.group.streams.topology import Topology, topology_of
from protocol.records.group_metadata import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from storage.sentinels import NO_EPOCH


class StreamsGroupState(Enum):
    """The states of a streams group, by Kafka's names. A state follows from the epochs and is stored nowhere."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    """Topics of the topology are missing, or have other numbers of partitions than they must have."""
    ASSIGNING = "Assigning"
    """A new target assignment is still to be computed."""
    RECONCILING = "Reconciling"
    """Members are on the way to their target assignment."""
    STABLE = "Stable"
    DEAD = "Dead"


class StreamsGroup(GroupWithTargets[StreamsMember, Tasks]):
    """A streams group with its members."""

    __slots__ = (
        "_standby_processes",
        "_warmup_processes",
        "active_owners",
        "assignment_configs",
        "failed_description_epoch",
        "stored_description_epoch",
        "topology",
        "validated_topology_epoch",
    )
    kind: ClassVar = "streams"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.topology: Topology | None = None
        """None before the first member has joined."""
        self.validated_topology_epoch = NO_EPOCH
        """The epoch of the topology for which all topics were there when the group epoch grew last; -1 if some were
        not."""
        self.assignment_configs: Mapping[str, str] = MappingProxyType({})
        """The group's configs with which the group epoch grew last."""
        self.stored_description_epoch = NO_EPOCH
        """Of a topology description that a plugin of a Kafka broker has stored; it is kept as it is, and so is
        ``failed_description_epoch``."""
        self.failed_description_epoch = NO_EPOCH
        self.active_owners: dict[tuple[str, int], str] = {}
        """The member that has an active task or has still to give it up, by subtopology id and partition."""
        self._standby_processes: Counter[tuple[str, int, str]] = Counter()
        """How many members of a process have a standby task: subtopology id, partition and process id."""
        self._warmup_processes: Counter[tuple[str, int, str]] = Counter()

    # What the group is ------------------------------------------------------------------------------------------------

    @property
    def state(self) -> StreamsGroupState:
        """The state of the group, as administrators see it."""
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        return StreamsGroupState.STABLE if self.is_assigned else StreamsGroupState.RECONCILING

    def target(self, member_id: str) -> Tasks:
        """A member's target assignment."""
        return self.targets.get(member_id, NOTHING)

    def subscribes_to(self, topic: str) -> bool:
        """Whether members read the topic."""
        if not self.members or self.topology is None:
            return False
        return any(topic in one.inputs for one in self.topology.subtopologies)

    def active_process(self, subtopology: str, partition: int) -> str | None:
        """The process that has the active task, or has still to give it up."""
        owner = self.active_owners.get((subtopology, partition))
        return None if owner is None else self.members[owner].process_id

    def has_standby(self, subtopology: str, partition: int, process: str) -> bool:
        """Whether a member of the process has the standby task, or has still to give it up."""
        return self._standby_processes[subtopology, partition, process] > 0

    def has_warmup(self, subtopology: str, partition: int, process: str) -> bool:
        """Whether a member of the process has the warm-up task, or has still to give it up."""
        return self._warmup_processes[subtopology, partition, process] > 0

    # Replay -----------------------------------------------------------------------------------------------------------

    def replay(self, key: Any, value: Any) -> None:
        """Apply a record of the group; None as the value: a tombstone."""
        _REPLAY[type(key)](self, key, value)

    def _replay_group(self, key: StreamsGroupMetadataKey, value: StreamsGroupMetadataValue | None) -> None:
        if value is None:
            self.replay_gone()
            return
        self.replay_epoch(value.epoch, value.metadata_hash)
        self.validated_topology_epoch = value.validated_topology_epoch
        self.assignment_configs = {config.key: config.value for config in value.last_assignment_configs or ()}
        self.stored_description_epoch = value.stored_description_topology_epoch
        self.failed_description_epoch = value.failed_description_topology_epoch

    def _replay_topology(self, key: StreamsGroupTopologyKey, value: StreamsGroupTopologyValue | None) -> None:
        self.topology = None if value is None else topology_of(value)

    def _replay_metadata(
        self, key: StreamsGroupMemberMetadataKey, value: StreamsGroupMemberMetadataValue | None
    ) -> None:
        if value is None:
            self.replay_member_removed(key.member_id)
            return
        known = self.members.get(key.member_id) or StreamsMember(member_id=key.member_id)
        endpoint = value.user_endpoint
        self.replay_member(
            dataclasses.replace(
                known,
                instance_id=value.instance_id,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                rebalance_timeout_ms=value.rebalance_timeout_ms,
                topology_epoch=value.topology_epoch,
                process_id=value.process_id,
                endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
                tags={tag.key: tag.value for tag in value.client_tags},
            )
        )

    def _replay_assignment_epoch(
        self, key: StreamsGroupTargetAssignmentMetadataKey, value: StreamsGroupTargetAssignmentMetadataValue | None
    ) -> None:
        if value is None:
            self.replay_assignment_epoch(NO_EPOCH, 0)
        else:
            self.replay_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)

    def _replay_target(
        self, key: StreamsGroupTargetAssignmentMemberKey, value: StreamsGroupTargetAssignmentMemberValue | None
    ) -> None:
        target = None
        if value is not None:
            target = Tasks(task_set(value.active_tasks), task_set(value.standby_tasks), task_set(value.warmup_tasks))
        self.replay_target(key.member_id, target)

    def _replay_current(
        self, key: StreamsGroupCurrentMemberAssignmentKey, value: StreamsGroupCurrentMemberAssignmentValue | None
    ) -> None:
        known = self.members.get(key.member_id)
        if value is None:
            if known is not None:
                self.replay_member(
                    dataclasses.replace(
                        known,
                        epoch=0,
                        previous_epoch=0,
                        state=MemberState.STABLE,
                        assigned=NOTHING_HELD,
                        pending_revocation=NOTHING_HELD,
                    )
                )
            return
        self.replay_member(
            dataclasses.replace(
                known or StreamsMember(member_id=key.member_id),
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                state=_state(value.state),
                assigned=HeldTasks(
                    _epoch_tasks(value.active_tasks, value.member_epoch),
                    task_set(value.standby_tasks),
                    task_set(value.warmup_tasks),
                ),
                pending_revocation=HeldTasks(
                    _epoch_tasks(value.active_tasks_pending_revocation, value.member_epoch),
                    task_set(value.standby_tasks_pending_revocation),
                    task_set(value.warmup_tasks_pending_revocation),
                ),
            )
        )

    def _replay_count(self, old: StreamsMember | None, new: StreamsMember | None) -> None:
        super()._replay_count(old, new)
        if old is not None:
            self._replay_forget(old)
        if new is not None:
            self._replay_note(new)

    def _replay_forget(self, member: StreamsMember) -> None:
        for held in (member.assigned, member.pending_revocation):
            for task in _each(held.active):
                if self.active_owners.get(task) == member.member_id:
                    del self.active_owners[task]
            replay_subtract(self._standby_processes, [(*task, member.process_id) for task in _each(held.standby)])
            replay_subtract(self._warmup_processes, [(*task, member.process_id) for task in _each(held.warmup)])

    def _replay_note(self, member: StreamsMember) -> None:
        for held in (member.assigned, member.pending_revocation):
            self.active_owners.update(dict.fromkeys(_each(held.active), member.member_id))
            self._standby_processes.update((*task, member.process_id) for task in _each(held.standby))
            self._warmup_processes.update((*task, member.process_id) for task in _each(held.warmup))


def _each(tasks: Mapping[str, Iterable[int]]) -> list[tuple[str, int]]:
    return [(subtopology, partition) for subtopology, partitions in tasks.items() for partition in partitions]


def _state(number: int) -> MemberState:
    try:
        return MemberState(number)
    except ValueError:
        return MemberState.UNKNOWN


def _epoch_tasks(structs: Iterable[StreamsGroupCurrentMemberAssignmentValue.TaskIds], epoch: int) -> EpochTasks:
    return {
        one.subtopology_id: by_epoch(one.partitions, one.assignment_epochs, epoch) for one in structs if one.partitions
    }


_REPLAY: Final[dict[type[Any], Callable[[StreamsGroup, Any, Any], None]]] = {
    StreamsGroupMetadataKey: StreamsGroup._replay_group,
    StreamsGroupMemberMetadataKey: StreamsGroup._replay_metadata,
    StreamsGroupTargetAssignmentMetadataKey: StreamsGroup._replay_assignment_epoch,
    StreamsGroupTargetAssignmentMemberKey: StreamsGroup._replay_target,
    StreamsGroupCurrentMemberAssignmentKey: StreamsGroup._replay_current,
    StreamsGroupTopologyKey: StreamsGroup._replay_topology,
}
