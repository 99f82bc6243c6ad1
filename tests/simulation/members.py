"""Members of a consumer group: they join, commit, stay, leave and die while the run lasts."""

from typing import Final

from protocol.errors import ErrorCode
from protocol.messages.committed_offsets import OffsetCommitRequest, OffsetCommitResponse
from protocol.messages.group_membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.simulation.client import GROUP, Answer, SimulatedClient
from tests.simulation.cluster import require
from tests.simulation.consumers import committed_offset
from tests.simulation.history import History, Partition

TEAM: Final = "team"
"""The group of all members."""

SESSION_TIMEOUT_MS: Final = 1_500
REBALANCE_TIMEOUT_MS: Final = 1_500


class Member:
    """Shares the partitions with the other members of `TEAM`: its work is to commit offsets that only grow."""

    def __init__(
        self, client: SimulatedClient, history: History, partitions: list[Partition], *, is_kept: bool
    ) -> None:
        """``is_kept``: whether no committed offset may be lost in this run."""
        self._client = client
        self._history = history
        self._partitions = partitions
        self._is_kept = is_kept
        self._member_id = ""
        self._generation = -1
        self.is_over = False

    async def run(self) -> None:
        """Be a member until `is_over`."""
        client = self._client
        while not self.is_over:
            mine = await self._join()
            if mine is None or not await self._work(mine):
                # As a process does that has died and starts again: the old member's session runs out.
                self._member_id = ""
            elif client.random.random() < 0.3:
                await self._leave()
            await client.pause()

    async def _join(self) -> list[Partition] | None:
        """Join the group; the partitions that are this member's now, None if it is to begin anew."""
        request = JoinGroupRequest(
            group_id=TEAM,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name="share", metadata=b"")],
        )
        joined = await self._ask(request, JoinGroupResponse, version=7)
        if joined is not None and joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            request.member_id = joined.member_id
            joined = await self._ask(request, JoinGroupResponse, version=7)
        if joined is None or joined.error_code != ErrorCode.NONE:
            return None
        self._member_id, self._generation = joined.member_id, joined.generation_id
        # The leader has the list of all members, and deals the partitions out to them in turn.
        members = [one.member_id for one in joined.members]
        hands = {one: b",".join(b"%d" % index for index in self._dealt(members, one)) for one in members}
        synced = await self._ask(
            SyncGroupRequest(
                group_id=TEAM,
                generation_id=self._generation,
                member_id=self._member_id,
                assignments=[
                    SyncGroupRequest.Assignment(member_id=one, assignment=hand) for one, hand in hands.items()
                ],
            ),
            SyncGroupResponse,
            version=3,
        )
        if synced is None or synced.error_code != ErrorCode.NONE:
            return None
        return [self._partitions[int(index)] for index in bytes(synced.assignment).split(b",") if index]

    def _dealt(self, members: list[str], to: str) -> list[int]:
        return [index for index in range(len(self._partitions)) if members[index % len(members)] == to]

    async def _work(self, mine: list[Partition]) -> bool:
        """Commit for some time; False if this member is to begin anew."""
        client, random = self._client, self._client.random
        positions = {one: await committed_offset(client, TEAM, one) for one in mine}
        for _ in range(random.randint(1, 10)):
            if self.is_over:
                return True
            if mine and random.random() < 0.5:
                partition = random.choice(mine)
                positions[partition] = max(positions[partition], 0) + random.randint(1, 5)
                if not await self._commit(partition, positions[partition]):
                    return False
            else:
                request = HeartbeatRequest(group_id=TEAM, generation_id=self._generation, member_id=self._member_id)
                beat = await self._ask(request, HeartbeatResponse, version=3)
                if beat is None or beat.error_code not in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                    return False
                if beat.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                    return True
            await client.pause()
        return True

    async def _commit(self, partition: Partition, offset: int) -> bool:
        """Commit an offset. One that is not answered may still be carried out, so nothing is committed behind it."""
        topic, index = partition
        request = OffsetCommitRequest(
            group_id=TEAM,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            topics=[
                OffsetCommitRequest.Topic(
                    name=topic,
                    partitions=[OffsetCommitRequest.Topic.Partition(partition_index=index, committed_offset=offset)],
                )
            ],
        )
        team = self._history.team
        before = team.acknowledged.get(partition, -1)
        team.sent.setdefault(partition, set()).add(offset)
        answer = await self._client.ask_coordinator(
            GROUP, TEAM, request, OffsetCommitResponse, lambda one: one.topics[0].partitions[0].error_code, version=8
        )
        if answer is None or answer.topics[0].partitions[0].error_code != ErrorCode.NONE:
            return False
        require(
            offset >= before or not self._is_kept,
            f"{self._client.name} has committed {offset} for {partition}, though {before} had been committed by a "
            f"later generation than its {self._generation}",
        )
        team.acknowledged[partition] = max(offset, team.acknowledged.get(partition, -1))
        return True

    async def _leave(self) -> None:
        leaving = LeaveGroupRequest.Member(member_id=self._member_id)
        await self._ask(LeaveGroupRequest(group_id=TEAM, members=[leaving]), LeaveGroupResponse, version=3)
        self._member_id = ""

    async def _ask(self, request: object, answer: type[Answer], *, version: int) -> Answer | None:
        return await self._client.ask_coordinator(
            GROUP, TEAM, request, answer, lambda one: one.error_code, version=version
        )
