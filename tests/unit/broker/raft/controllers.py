"""Controllers as an observer meets them: their logs and elections, their answers to Fetch and FetchSnapshot."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from broker.raft.batches import encode_control_records, encode_records
from broker.raft.observer import QuorumObserver
from broker.raft.quorum import Quorum, leader_change
from broker.raft.single_voter_log import METADATA_TOPIC_ID
from broker.raft.snapshots import SnapshotId, encode_snapshot
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from protocol.records.cluster_metadata import FeatureLevelRecord

NOW = 1_795_193_860_699
CLUSTER = "QT2GTK3kRjSc1VXmyAl4iw"
OfPartition = FetchResponse.Response.Partition


@dataclass(frozen=True)
class Entry:
    """A batch of a controller's log: the names of the features that it raises, nothing in a control batch."""

    base_offset: int
    epoch: int
    names: tuple[str, ...] = ()

    @property
    def next_offset(self) -> int:
        return self.base_offset + (len(self.names) or 1)

    def encoded(self) -> bytes:
        if not self.names:
            change = [leader_change(100 + self.epoch % 3)]
            return bytes(
                encode_control_records(change, base_offset=self.base_offset, leader_epoch=self.epoch, now_ms=NOW)
            )
        records = [(raised(name), 0) for name in self.names]
        return bytes(encode_records(records, base_offset=self.base_offset, leader_epoch=self.epoch, now_ms=NOW))


def raised(name: str) -> FeatureLevelRecord:
    """The record of a feature's level; tests tell records by the feature's name."""
    return FeatureLevelRecord(name=name, feature_level=1)


@dataclass
class Controller:
    """One controller, which leads if its epoch's leader is itself."""

    node_id: int
    epoch: int = 0
    leader_id: int = -1
    high_watermark: int = 0
    log: list[Entry] = field(default_factory=list)
    snapshots: dict[SnapshotId, bytes] = field(default_factory=dict)
    log_start: int = 0
    names_faults_of_snapshots: bool = False
    """Kafka 4.4.0 and 4.3.1 fail while they write such an answer, and answer -1 about no partition instead."""

    @property
    def end_offset(self) -> int:
        return self.log[-1].next_offset if self.log else self.log_start

    def append(self, *names: str) -> None:
        self.log.append(Entry(self.end_offset, self.epoch, names))

    def lead(self, epoch: int) -> None:
        """Begin an epoch."""
        self.epoch, self.leader_id = epoch, self.node_id
        self.append()

    def follow(self, leader: Controller) -> None:
        """Take over the leader's log, whatever was here."""
        self.epoch, self.leader_id = leader.epoch, leader.node_id
        self.log, self.log_start = list(leader.log), leader.log_start
        self.snapshots, self.high_watermark = dict(leader.snapshots), leader.high_watermark

    def commit(self, offset: int) -> None:
        """Raise the high watermark, to the end of a batch."""
        self.high_watermark = max(
            [self.high_watermark, *(entry.next_offset for entry in self.log if entry.next_offset <= offset)]
        )

    def snapshot(self, committed: list[Entry], *, forget: bool) -> None:
        """Write a snapshot of all committed records, and delete the log before it if told to."""
        if not committed:
            return
        last = committed[-1]
        snapshot = SnapshotId(last.next_offset, last.epoch)
        self.snapshots[snapshot] = encode_snapshot(
            [(raised(name), 0) for entry in committed for name in entry.names],
            quorum=Quorum(),
            epoch=last.epoch,
            last_contained_timestamp_ms=NOW,
            now_ms=NOW,
        )
        if forget:
            self.log_start = last.next_offset
            self.log = [entry for entry in self.log if entry.base_offset >= self.log_start]

    def answer(self, request: FetchRequest | FetchSnapshotRequest, *, most_bytes: int = 1 << 20):
        """The answer of Apache Kafka's controllers."""
        if isinstance(request, FetchSnapshotRequest):
            return self._snapshot_piece(request, most_bytes)
        (topic,) = request.topics
        (asked,) = topic.partitions
        if fault := self._fault(asked.current_leader_epoch):
            return self._fetched(error_code=fault, current_leader=OfPartition.CurrentLeader(
                leader_id=self.leader_id, leader_epoch=self.epoch))  # fmt: skip
        newest = max(self.snapshots, default=None)
        if asked.fetch_offset < self.log_start or (newest and asked.fetch_offset == 0):
            assert newest is not None
            return self._fetched(snapshot_id=OfPartition.SnapshotId(end_offset=newest.end_offset, epoch=newest.epoch))
        epoch, end = self._end_of(asked.last_fetched_epoch)
        if asked.fetch_offset and (epoch != asked.last_fetched_epoch or end < asked.fetch_offset):
            return self._fetched(diverging_epoch=OfPartition.DivergingEpoch(epoch=epoch, end_offset=end))
        records = b"".join(entry.encoded() for entry in self.log if entry.base_offset >= asked.fetch_offset)
        return self._fetched(records=memoryview(records[: max(most_bytes, 200)]))

    def _fault(self, asked_epoch: int) -> ErrorCode | None:
        if asked_epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if asked_epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return None if self.leader_id == self.node_id else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _end_of(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to ``epoch`` that is here, else ``epoch`` itself; and where that ends."""
        starts = {entry.epoch: entry.base_offset for entry in reversed(self.log)}
        for snapshot in self.snapshots:
            starts.setdefault(snapshot.epoch, snapshot.end_offset - 1)
        known = max((one for one in starts if one <= epoch), default=epoch)
        return known, min((start for one, start in starts.items() if one > known), default=self.end_offset)

    def _fetched(self, **partition) -> FetchResponse:
        one = OfPartition(partition_index=0, high_watermark=self.high_watermark, **{"records": None, **partition})
        endpoints = [
            FetchResponse.NodeEndpoint(node_id=node, host="127.0.0.1", port=9000 + node) for node in (100, 101, 102)
        ]
        return FetchResponse(
            responses=[FetchResponse.Response(topic_id=METADATA_TOPIC_ID, partitions=[one])],
            node_endpoints=endpoints if one.error_code else [],
        )

    def _snapshot_piece(self, request: FetchSnapshotRequest, most_bytes: int) -> FetchSnapshotResponse:
        (topic,) = request.topics
        (asked,) = topic.partitions
        of_partition = FetchSnapshotResponse.Topic.Partition
        leader = of_partition.CurrentLeader(leader_id=self.leader_id, leader_epoch=self.epoch)
        content = self.snapshots.get(SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch))
        fault = self._fault(asked.current_leader_epoch)
        if fault is None and content is None:
            fault = ErrorCode.SNAPSHOT_NOT_FOUND
        if content is None or fault is not None:
            if not self.names_faults_of_snapshots:
                return FetchSnapshotResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, topics=[])
            one = of_partition(index=0, error_code=fault, current_leader=leader, unaligned_records=b"")
        else:
            piece = content[asked.position : asked.position + most_bytes]
            one = of_partition(
                index=0, size=len(content), position=asked.position,
                unaligned_records=memoryview(piece),
            )  # fmt: skip
        return FetchSnapshotResponse(topics=[FetchSnapshotResponse.Topic(name=topic.name, partitions=[one])])


class Listener:
    """What was handed over: the names of features in the order of their records."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.end_offset = 0
        self.snapshots = 0

    def handle_commit(self, batches) -> None:
        for batch in batches:
            assert batch.base_offset == self.end_offset
            self.names += [record.name for record in batch.records]
            self.end_offset = batch.next_offset

    def handle_snapshot(self, records, end_offset: int) -> None:
        self.names = [record.name for record in records]
        self.end_offset = end_offset
        self.snapshots += 1


def observer(listener: Listener) -> QuorumObserver:
    """An observer that knows nothing yet."""
    return QuorumObserver(listener, node_id=2, directory_id=bytes(range(16)), cluster_id=CLUSTER)


def corrupted(answer: FetchResponse) -> FetchResponse:
    """The answer with a changed byte in its records."""
    ((one,),) = (topic.partitions for topic in answer.responses)
    damaged = bytearray(one.records)
    damaged[-1] ^= 0xFF
    return replace(
        answer, responses=[replace(answer.responses[0], partitions=[replace(one, records=memoryview(damaged))])]
    )
