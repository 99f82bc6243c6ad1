"""QuorumObserver: follows the metadata log of controllers elsewhere, without a vote (KIP-595, KIP-630).

It makes requests and takes answers, and knows no connections: `broker.raft.remote_quorum` carries them.

    Fetch ──┬── NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH ── ask the leader that is named there
            ├── records ─────────── append; hand over what is below the high watermark
            ├── DivergingEpoch ──── truncate, never below the high watermark
            └── SnapshotId ──────── FetchSnapshot, piece by piece; hand the snapshot over; Fetch behind it;
                                    after an error, Fetch anew

Nothing is written to disk: an observer that starts again begins at offset 0, or with the leader's snapshot.
"""

from collections import deque
from collections.abc import Iterable
from enum import Enum, auto
from typing import Final, NamedTuple, NoReturn

from broker.metadata.image.records import Record
from broker.metadata.registration import RegistrationRefused
from broker.raft.batches import MetadataBatch, decode_batch, decode_batches
from broker.raft.client import RaftListener
from broker.raft.quorum import Quorum
from broker.raft.single_voter_log import METADATA_PARTITION, METADATA_TOPIC_ID
from broker.raft.snapshots import SnapshotId, check_snapshot
from broker.request.node import NO_NODE, Endpoint
from protocol.errors import ErrorCode, described
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from protocol.primitives import Malformed, received
from storage.batch.walk import AtFault, BatchWalk, WalkPolicy, in_memory
from storage.errors import CorruptBatch, UndecodableRecords

MAX_WAIT_MS: Final = 500
"""How long a leader without new records holds a fetch, as in Kafka."""

MAX_BYTES: Final = 1 << 20
"""The most bytes of records, or of a snapshot, in one answer, as in Kafka."""

LARGEST_SNAPSHOT_BYTES: Final = 1 << 30
"""A snapshot is held in memory until it is whole. One with a million partitions has about 200 MB."""

MOST_UNCOMMITTED_BYTES: Final = 64 << 20
"""Of records that no high watermark has passed. Leaders commit within milliseconds, in batches of 8 MiB at most."""

UNKNOWN_OFFSET: Final = -1

_CHECKED: Final = WalkPolicy(checks_crc=True, at_fault=AtFault.RAISE)

_NAMES_THE_LEADER: Final = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
}

_EXPECTED: Final = {*_NAMES_THE_LEADER, ErrorCode.BROKER_NOT_AVAILABLE}
"""The last one is what a controller answers that is being stopped."""


class WrongCluster(RegistrationRefused):
    """The controllers belong to another cluster. It names both ids."""


class NodeIdTaken(RegistrationRefused):
    """A controller has the id of this broker, which is no controller."""


class AnswerRefused(Exception):
    """An answer that no leader gives: damaged records, records out of order, a snapshot of what is known, an error that
    says that the node is no controller."""


class Next(Enum):
    """What the observer does after an answer."""

    ASK_AGAIN = auto()
    """The same node, at once."""
    ASK_LEADER = auto()
    """The leader is another node than the last answer's."""
    ASK_LATER = auto()
    """The node has no leader to name, or cannot answer now."""


class EpochStart(NamedTuple):
    """A leader epoch, and the offset of its first record."""

    epoch: int
    start_offset: int


class ObserverStats:
    """What an observer counts."""

    __slots__ = ("answers_refused", "commits", "records_committed", "records_fetched", "snapshots_loaded")

    def __init__(self) -> None:
        self.records_fetched = 0
        """Offsets that were appended, those of control records among them."""
        self.records_committed = 0
        self.commits = 0
        """Times that records were handed over."""
        self.snapshots_loaded = 0
        self.answers_refused = 0
        """Answers that cannot be true: damaged records, records out of order."""


class QuorumObserver:
    """The state of one observer. It is a `broker.raft.client.RaftClient`."""

    def __init__(self, listener: RaftListener, *, node_id: int, directory_id: bytes, cluster_id: str) -> None:
        """``directory_id`` is that of the metadata's log directory (16 bytes)."""
        self._listener = listener
        self._node_id = node_id
        self._directory_id = directory_id
        self._cluster_id = cluster_id
        self._uncommitted: deque[MetadataBatch] = deque()
        self._epochs: list[EpochStart] = []
        """The epochs of the records from the high watermark on, and the epoch of the record before them."""
        self._download: _Download | None = None
        self.leader_id = NO_NODE
        self.leader_epoch = 0
        self.high_watermark = UNKNOWN_OFFSET
        """Up to where records are committed and handed over; `UNKNOWN_OFFSET` before the first answer."""
        self.end_offset = 0
        self.quorum = Quorum()
        self.last_append_ms = 0
        """When the last committed record was written (wall clock of its writer); 0 before the first."""
        self.stats = ObserverStats()
        self.leader_endpoint: Endpoint | None = None
        """The leader's address, if the answer that named the leader has it."""

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, 0 without records."""
        return self._epochs[-1].epoch if self._epochs else 0

    def forget_leader(self) -> None:
        """The leader cannot be reached: other nodes are asked for a leader."""
        self.leader_id = NO_NODE
        self.leader_endpoint = None

    # Requests

    def request(self) -> FetchRequest | FetchSnapshotRequest:
        """The next request, whichever node it is sent to."""
        return self._fetch() if self._download is None else self._fetch_snapshot(self._download)

    def _fetch(self) -> FetchRequest:
        partition = FetchRequest.Topic.Partition(
            partition=METADATA_PARTITION.partition,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=self.end_offset,
            last_fetched_epoch=self.last_epoch,
            partition_max_bytes=0,
            replica_directory_id=self._directory_id,
            high_watermark=self.high_watermark,
        )
        return FetchRequest(
            cluster_id=self._cluster_id,
            replica_state=FetchRequest.ReplicaState(replica_id=self._node_id),
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=0,
            max_bytes=MAX_BYTES,
            topics=[FetchRequest.Topic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
        )

    def _fetch_snapshot(self, download: "_Download") -> FetchSnapshotRequest:
        of_topic = FetchSnapshotRequest.Topic
        partition = of_topic.Partition(
            partition=METADATA_PARTITION.partition,
            current_leader_epoch=self.leader_epoch,
            snapshot_id=of_topic.Partition.SnapshotId(end_offset=download.id.end_offset, epoch=download.id.epoch),
            position=len(download.content),
            replica_directory_id=self._directory_id,
        )
        return FetchSnapshotRequest(
            cluster_id=self._cluster_id,
            replica_id=self._node_id,
            max_bytes=MAX_BYTES,
            topics=[of_topic(name=METADATA_PARTITION.topic, partitions=[partition])],
        )

    # Answers

    def answered(self, answer: FetchResponse | FetchSnapshotResponse) -> Next:
        """Take the answer to the last `request`, and hand over what it commits.

        Raises:
            WrongCluster: the node has refused the cluster's id.
            NodeIdTaken: the node names a leader with the id of this observer.
            AnswerRefused: the answer cannot be true; nothing of it was handed over.
            InconsistentMetadata: committed records cannot be replayed.
        """
        if answer.error_code:
            self._download = None
            if isinstance(answer, FetchSnapshotResponse) and answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
                # Kafka's answer where the snapshot is gone, or the leader another one. The next Fetch says which.
                return self._unanswered()
            self._refused(answer.error_code)
        if isinstance(answer, FetchResponse):
            return self._fetched(answer)
        return self._snapshot_fetched(answer)

    def _refused(self, error_code: int) -> NoReturn:
        if error_code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            raise WrongCluster(f"the controllers do not belong to the cluster {self._cluster_id} of this broker")
        raise _unexpected(error_code)

    def _unanswered(self) -> Next:
        self.forget_leader()
        return Next.ASK_LATER

    def _fetched(self, answer: FetchResponse) -> Next:
        try:
            (topic,) = answer.responses
            (partition,) = topic.partitions
        except ValueError:
            raise AnswerRefused("a Fetch of the metadata log is answered with other partitions than that") from None
        leader = partition.current_leader
        if partition.error_code:
            endpoints = {node.node_id: Endpoint(node.host, node.port) for node in answer.node_endpoints}
            return self._redirected(partition.error_code, leader.leader_id, leader.leader_epoch, endpoints)
        if partition.diverging_epoch.epoch >= 0:
            self._truncate(partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset)
            return Next.ASK_AGAIN
        if partition.snapshot_id.end_offset >= 0:
            self._begin_download(SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch))
            return Next.ASK_AGAIN
        records = received(partition.records)
        if self._uncommitted_bytes + len(records) > MOST_UNCOMMITTED_BYTES:
            self._commit(partition.high_watermark)
            if self._uncommitted_bytes + len(records) > MOST_UNCOMMITTED_BYTES:
                raise AnswerRefused(
                    f"node {self.leader_id} has committed nothing of {self._uncommitted_bytes} bytes of records from "
                    f"offset {self.high_watermark} on"
                )
        self._append(records)
        self._commit(partition.high_watermark)
        return Next.ASK_AGAIN

    def _redirected(self, error_code: int, leader_id: int, leader_epoch: int, endpoints: dict[int, Endpoint]) -> Next:
        """An error of the partition, which may name a leader. An older epoch than this observer's names none."""
        self._download = None
        if leader_id == self._node_id:
            raise NodeIdTaken(f"a controller of the cluster has the node.id {leader_id} too")
        if error_code not in _EXPECTED:
            raise _unexpected(error_code)
        if error_code not in _NAMES_THE_LEADER or leader_epoch < self.leader_epoch or leader_id == NO_NODE:
            if leader_epoch > self.leader_epoch:
                self.leader_epoch = leader_epoch
            return self._unanswered()
        self.leader_id, self.leader_epoch = leader_id, leader_epoch
        self.leader_endpoint = endpoints.get(leader_id)
        return Next.ASK_LEADER

    # Records

    @property
    def _uncommitted_bytes(self) -> int:
        return sum(batch.size for batch in self._uncommitted)

    def _append(self, records: memoryview) -> None:
        """Keep the batches until they are committed. Raises AnswerRefused; nothing is kept then."""
        appended: list[MetadataBatch] = []
        next_offset, epoch = self.end_offset, self.last_epoch
        try:
            for header, _position, data in BatchWalk(in_memory(records), 0, len(records), _CHECKED):
                if header.base_offset != next_offset or not epoch <= header.partition_leader_epoch <= self.leader_epoch:
                    raise AnswerRefused(
                        f"node {self.leader_id} has sent a batch at offset {header.base_offset} of epoch "
                        f"{header.partition_leader_epoch}, expected offset {next_offset} and an epoch from {epoch} "
                        f"to {self.leader_epoch}"
                    )
                appended.append(decode_batch(header, data))
                next_offset, epoch = header.next_offset, header.partition_leader_epoch
        except (CorruptBatch, UndecodableRecords, Malformed) as error:
            raise AnswerRefused(f"node {self.leader_id} has sent damaged records: {error}") from None
        if records and not appended:
            raise AnswerRefused(f"node {self.leader_id} has sent the first {len(records)} bytes of a batch alone")
        for batch in appended:
            if batch.leader_epoch > self.last_epoch or not self._epochs:
                self._epochs.append(EpochStart(batch.leader_epoch, batch.base_offset))
        self._uncommitted.extend(appended)
        self.stats.records_fetched += next_offset - self.end_offset
        self.end_offset = next_offset

    def _truncate(self, epoch: int, end_offset: int) -> None:
        """Remove what the leader does not have: its ``epoch`` ends at ``end_offset`` (KIP-595)."""
        own_end = self._end_of(epoch)
        kept = min(own_end, end_offset)
        if kept < max(self.high_watermark, 0):
            raise AnswerRefused(
                f"node {self.leader_id} has no records from offset {kept} on, of which those up to "
                f"{self.high_watermark} were committed"
            )
        if kept >= self.end_offset:
            raise AnswerRefused(
                f"node {self.leader_id} says that the records below offset {self.end_offset} diverge, and its epoch "
                f"{epoch} ends at {end_offset}"
            )
        while self._uncommitted and self._uncommitted[-1].next_offset > kept:
            self._uncommitted.pop()
        if self._uncommitted:
            self.end_offset = self._uncommitted[-1].next_offset
        else:
            self.end_offset = max(self.high_watermark, 0)
        self._epochs = [start for start in self._epochs if start.start_offset < self.end_offset]

    def _end_of(self, epoch: int) -> int:
        """Where the last of the epochs up to ``epoch`` ends in the records here."""
        for start in self._epochs:
            if start.epoch > epoch:
                return start.start_offset
        return self.end_offset

    def _commit(self, leaders_high_watermark: int) -> None:
        """Hand over all batches below the high watermark, which never falls."""
        high_watermark = min(leaders_high_watermark, self.end_offset)
        if high_watermark <= self.high_watermark:
            return
        committed: list[MetadataBatch] = []
        while self._uncommitted and self._uncommitted[0].next_offset <= high_watermark:
            committed.append(self._uncommitted.popleft())
        self.high_watermark = committed[-1].next_offset if committed else max(self.high_watermark, 0)
        passed = [start for start in self._epochs if start.start_offset < self.high_watermark]
        self._epochs = passed[-1:] + self._epochs[len(passed) :]
        for batch in committed:
            for control_record in batch.control_records:
                self.quorum.replay(control_record)
        if committed:
            self.last_append_ms = committed[-1].timestamp_ms
            self.stats.commits += 1
            self.stats.records_committed += sum(len(batch.records) for batch in committed)
            self._listener.handle_commit(committed)

    # Snapshots

    def _begin_download(self, snapshot: SnapshotId) -> None:
        if snapshot.end_offset <= max(self.high_watermark, 0):
            raise AnswerRefused(
                f"node {self.leader_id} wants its snapshot {snapshot.file_name} to be read, which has no record behind "
                f"offset {self.high_watermark}, up to which records were committed"
            )
        self._download = _Download(snapshot)

    def _snapshot_fetched(self, answer: FetchSnapshotResponse) -> Next:
        download = self._download
        assert download is not None, "no snapshot was asked for"
        try:
            (topic,) = answer.topics
            (partition,) = topic.partitions
        except ValueError:
            raise AnswerRefused("a FetchSnapshot of the metadata log is answered with other partitions") from None
        if partition.error_code:
            endpoints = {node.node_id: Endpoint(node.host, node.port) for node in answer.node_endpoints}
            leader = partition.current_leader
            if partition.error_code == ErrorCode.SNAPSHOT_NOT_FOUND:
                self._download = None  # the leader has a newer one
                return Next.ASK_AGAIN
            return self._redirected(partition.error_code, leader.leader_id, leader.leader_epoch, endpoints)
        if partition.position != len(download.content):
            raise AnswerRefused(
                f"node {self.leader_id} has sent position {partition.position} of its snapshot "
                f"{download.id.file_name}, asked was for {len(download.content)}"
            )
        if not 0 < partition.size <= LARGEST_SNAPSHOT_BYTES:
            self._download = None
            raise AnswerRefused(
                f"node {self.leader_id} says that its snapshot {download.id.file_name} has {partition.size} bytes, it "
                f"may have 1 to {LARGEST_SNAPSHOT_BYTES}"
            )
        piece = received(partition.unaligned_records)
        if not piece:
            raise AnswerRefused(f"node {self.leader_id} has sent nothing of its snapshot {download.id.file_name}")
        download.content += piece
        if len(download.content) >= partition.size:
            self._download = None
            self._take_snapshot(download)
        return Next.ASK_AGAIN

    def _take_snapshot(self, download: "_Download") -> None:
        content = memoryview(download.content).toreadonly()
        quorum = Quorum()
        try:
            check_snapshot(content, download.id.epoch)
            records = list(_records(decode_batches(content), quorum))
        except (CorruptBatch, UndecodableRecords, Malformed) as error:
            raise AnswerRefused(
                f"node {self.leader_id} has sent a damaged snapshot {download.id.file_name}: {error}"
            ) from None
        self._listener.handle_snapshot(records, download.id.end_offset)
        self.stats.snapshots_loaded += 1
        self.quorum = quorum
        self._uncommitted.clear()
        self._epochs = [EpochStart(download.id.epoch, download.id.end_offset - 1)]
        self.end_offset = self.high_watermark = download.id.end_offset


def _unexpected(error_code: int) -> AnswerRefused:
    return AnswerRefused(
        f"a request for the metadata log was answered with error {described(error_code)}: is that node a controller?"
    )


class _Download:
    """A snapshot of which some bytes may have come."""

    __slots__ = ("content", "id")

    def __init__(self, snapshot: SnapshotId) -> None:
        self.id = snapshot
        self.content = bytearray()


def _records(batches: Iterable[MetadataBatch], quorum: Quorum) -> Iterable[Record]:
    """The records of a snapshot. Its control records are replayed into ``quorum`` on the way."""
    for batch in batches:
        for control_record in batch.control_records:
            quorum.replay(control_record)
        yield from batch.records
