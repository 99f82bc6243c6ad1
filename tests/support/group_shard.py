"""A shard of groups with a log of the test's: what it wants written stands at once, or when the test says so."""

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from broker.coordinators.group.image import NO_PRODUCER
from broker.coordinators.group.records import GroupChange
from broker.coordinators.group.requests import (
    Commit,
    FetchedOffset,
    Join,
    Joined,
    LeavingMember,
    Left,
    OffsetToCommit,
    Protocol,
    Sync,
    Synced,
    TopicPartitionName,
)
from broker.coordinators.group.settings import GroupSettings
from broker.coordinators.group.shard import GroupShard
from broker.timing_wheel import TimingWheel
from protocol.errors import ErrorCode
from protocol.records.group_metadata import GroupRecord, decode_group_record, encode_group_key, encode_group_value
from tests.support.clock import ManualClock


def subscription(*topics: str, version: int = 0) -> bytes:
    """What a consumer tells its leader that it wants to read."""
    names = b"".join(struct.pack(">h", len(topic.encode())) + topic.encode() for topic in topics)
    return struct.pack(">hi", version, len(topics)) + names + struct.pack(">i", -1)


class CountedIds:
    """Ids one after the other."""

    def __init__(self) -> None:
        self._last = 0

    def uuid(self) -> bytes:
        self._last += 1
        return self._last.to_bytes(16, "big")


class RecordedEvents:
    """Everything that the machine tells: the name of the event, and what it was told of it."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *told: self.seen.append((name, *told))

    def of(self, name: str) -> list[tuple[Any, ...]]:
        """What was told of the events of one name."""
        return [told for event, *told in self.seen if event == name]


class GroupHome:
    """The shard, its clock, and its log."""

    def __init__(self, **settings: int) -> None:
        self.settings = GroupSettings(**settings)
        self.clock = ManualClock()
        self.ids = CountedIds()
        self.events = RecordedEvents()
        self.log: list[tuple[GroupRecord, int]] = []
        """What stands, with its producer id."""
        self.under_way: list[GroupChange] = []
        self.holds_writes = False
        """Whether what is written has to be acknowledged by `acknowledge`."""
        self.shard = self._new_shard()

    def _new_shard(self) -> GroupShard:
        return GroupShard(
            settings=self.settings,
            clock=self.clock,
            wheel=TimingWheel(self.clock),
            ids=self.ids,
            events=self.events,
            submit=self.write,
        )

    # The log ----------------------------------------------------------------------------------------------------------

    def write(self, change: GroupChange | None) -> None:
        """Write what a step wants written."""
        if change is not None:
            self.under_way.append(change)
            if not self.holds_writes:
                self.acknowledge()

    def write_all(self, changes: Iterable[GroupChange | None]) -> int:
        """Write what comes in pieces; how many pieces there were."""
        pieces = 0
        for change in changes:
            pieces += 1
            self.write(change)
        return pieces

    def acknowledge(self) -> None:
        """Everything that is under way stands."""
        while self.under_way:
            change = self.under_way.pop(0)
            for record in change.records:
                self.stands(record)
            change.then(ErrorCode.NONE)

    def fail(self, error: ErrorCode) -> None:
        """Nothing that is under way can be written."""
        failed, self.under_way = self.under_way, []
        for change in failed:
            change.then(error)

    def stands(self, *records: GroupRecord, producer_id: int = NO_PRODUCER) -> None:
        """Records are in the log, whoever wrote them."""
        for record in records:
            self.log.append((record, producer_id))
            self.shard.replay(record, producer_id=producer_id)

    def restart(self) -> None:
        """Load another shard from the log, as a start does."""
        self.shard.unload(ErrorCode.NOT_COORDINATOR)
        self.shard = self._new_shard()
        for record, producer_id in self.log:
            value = None if record.value is None or record.version is None else record.value
            raw = None if value is None else encode_group_value(value, record.version or 0)
            self.shard.replay(decode_group_record(encode_group_key(record.key), raw), producer_id=producer_id)
        self.shard.loaded()

    def keys(self) -> Iterator[Any]:
        """The keys of everything in the log."""
        return (record.key for record, _ in self.log)

    # What clients ask -------------------------------------------------------------------------------------------------

    def commit(self, *offsets: OffsetToCommit, group_id: str = "g1", **given: Any) -> list[ErrorCode]:
        """Commit, and return the errors; nothing if they are not decided yet."""
        answers: list[ErrorCode] = []
        request = Commit(group_id=group_id, offsets=offsets, **given)
        self.write(self.shard.commit(request, answers.extend))
        return answers

    def fetch(
        self, *partitions: tuple[str, int], group_id: str = "g1", require_stable: bool = False
    ) -> list[FetchedOffset]:
        """Fetch these, or everything."""
        asked = [TopicPartitionName(*partition) for partition in partitions]
        return self.shard.fetch(group_id, asked or None, require_stable=require_stable)

    def offsets(self, group_id: str = "g1") -> dict[tuple[str, int], int]:
        """Everything that a group has committed."""
        return {
            (found.topic, found.partition): found.committed.offset
            for found in self.fetch(group_id=group_id)
            if found.committed is not None
        }

    def join(self, member_id: str = "", group_id: str = "g1", **given: Any) -> list[Joined]:
        """Join; the list has the answer as soon as there is one."""
        answers: list[Joined] = []
        request = Join(
            **{
                "group_id": group_id,
                "member_id": member_id,
                "client_id": "client",
                "client_host": "/127.0.0.1",
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": 60_000,
                "protocol_type": "consumer",
                "protocols": [Protocol("range", b"")],
                "needs_known_id": False,
                **given,
            }
        )
        self.write(self.shard.join(request, answers.append))
        return answers

    def sync(
        self, member_id: str, generation: int, assignments: dict[str, bytes], group_id: str = "g1"
    ) -> list[Synced]:
        """Sync; the list has the answer as soon as there is one."""
        answers: list[Synced] = []
        request = Sync(group_id=group_id, member_id=member_id, generation=generation, assignments=assignments)
        self.write(self.shard.sync(request, answers.append))
        return answers

    def settle(self, *topics: str, group_id: str = "g1", **given: Any) -> Joined:
        """Have one consumer of these topics join and sync: the group is Stable from then on."""
        protocols = [Protocol("range", subscription(*topics))]
        (joined,) = self.join(group_id=group_id, **{"protocols": protocols, **given})
        assert joined.error is ErrorCode.NONE, joined
        (synced,) = self.sync(joined.member_id, joined.generation, {joined.member_id: b"gets"}, group_id)
        assert synced.error is ErrorCode.NONE, synced
        return joined

    def leave(self, member_id: str, group_id: str = "g1") -> list[Left]:
        """A member goes; the list has the answer as soon as there is one."""
        answers: list[Left] = []
        self.write(self.shard.leave(group_id, [LeavingMember(member_id)], answers.append))
        return answers

    def state(self, group_id: str = "g1") -> str:
        """As administrators see it; Dead where there is no such group."""
        described = self.shard.describe(group_id)
        return "Dead" if described is None else described.state

    def delete_offsets(
        self, *partitions: tuple[str, int], group_id: str = "g1"
    ) -> list[tuple[ErrorCode, list[ErrorCode]]]:
        """Delete offsets; the list has the answer as soon as there is one."""
        answers: list[tuple[ErrorCode, list[ErrorCode]]] = []
        asked = [TopicPartitionName(*partition) for partition in partitions]
        change = self.shard.delete_offsets(group_id, asked, lambda error, each: answers.append((error, list(each))))
        self.write(change)
        return answers

    def delete(self, group_id: str = "g1") -> list[ErrorCode]:
        """Delete a group; the list has the answer as soon as there is one."""
        answers: list[ErrorCode] = []
        self.write(self.shard.delete(group_id, answers.append))
        return answers

    def expire(self) -> int:
        """Let go of what is over; how many pieces that took."""
        return self.write_all(self.shard.expire_offsets())
