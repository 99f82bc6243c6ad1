"""MetadataFetches: the leader's answers to nodes that follow its metadata log (KIP-595, KIP-630, KIP-853).

    Fetch          records below the high watermark | a wait until it rises | DivergingEpoch | SnapshotId | an error
    FetchSnapshot  bytes of a snapshot from a position on | an error

This node is the only voter, so what is behind the high watermark becomes committed with the next fsync, or is lost with
this node. An observer can do nothing with it before that: it is sent when it is committed, with the high watermark that
says so. So a change costs each observer one fetch, and no observer has records that a leader after a crash has not.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from broker.raft.observers import Observers, ReplicaKey
from broker.raft.single_voter_log import METADATA_PARTITION, METADATA_TOPIC_ID, SingleVoterLog
from broker.raft.snapshots import SnapshotId, list_snapshots
from broker.request.faults import error_code_of
from broker.request.node import NO_NODE, Node
from broker.runtime.clock import Clock
from broker.runtime.purgatory import DelayedOperation, Purgatory
from broker.runtime.worker_thread import WorkerThread
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from storage.files import FileRegion, FileSystem
from storage.leader_epochs import EpochEndOffset
from storage.read_ahead import NotInMemory, look_ahead
from storage.sentinels import NO_EPOCH

TOPIC_IDS_SINCE_VERSION: Final = 13
"""The metadata log is asked for by its topic id only, which earlier requests cannot name."""

ENDPOINTS_SINCE_VERSION: Final = 17
SNAPSHOT_ENDPOINTS_SINCE_VERSION: Final = 1

MOST_BYTES: Final = 8 << 20
"""The most bytes of records, or of a snapshot, in one answer, whatever the observer allows."""

MOST_WAIT_MS: Final = 10_000
"""How long a fetch waits at most, whatever the observer allows: its connection may be gone for long. Kafka's observers
ask for 500 ms."""

_NO_SNAPSHOT: Final = SnapshotId(0, 0)
"""The snapshot that formatting makes has this id. It has no records of the log."""

Asked: TypeAlias = FetchRequest.Topic.Partition
Answer: TypeAlias = FetchResponse.Response.Partition
Piece: TypeAlias = FetchSnapshotResponse.Topic.Partition


class MetadataFetches:
    """Serves the metadata log of this node, its leader, to observers."""

    def __init__(
        self,
        raft: SingleVoterLog,
        *,
        files: FileSystem,
        node: Node,
        clock: Clock,
        purgatory: Purgatory,
        read_ahead: WorkerThread,
    ) -> None:
        """``node`` has the addresses of the controller listeners; ``purgatory`` is for fetches of this log alone.

        ``read_ahead`` is the thread that waits for the disk.
        """
        self._raft = raft
        self._files = files
        self._node = node
        self._clock = clock
        self._purgatory = purgatory
        self._read_ahead = read_ahead
        self._is_stopping = False
        self.observers = Observers()
        raft.on_committed = self._committed

    def stop(self) -> None:
        """Answer the fetches that wait, and refuse later requests: this leader is being stopped."""
        self._is_stopping = True
        self._purgatory.close()

    def _committed(self) -> None:
        self._purgatory.check(METADATA_PARTITION)

    # Fetch

    def fetch(self, request: FetchRequest, version: int, listener: str, then: Callable[[FetchResponse], None]) -> None:
        """Answer a fetch of the metadata log, at once or within the time that it may wait.

        Args:
            request: of any version.
            version: that of the request.
            listener: the controller listener that the request came in on.
            then: gets the answer, perhaps before this returns.

        Raises StorageError where the log cannot be read.
        """
        if request.cluster_id not in (None, self._node.cluster_id):
            then(FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, responses=[]))
            return
        asked = _only_partition(request) if version >= TOPIC_IDS_SINCE_VERSION else None
        if asked is None:
            then(FetchResponse(error_code=ErrorCode.INVALID_REQUEST, responses=[]))
            return
        replica_id = max(request.replica_id, request.replica_state.replica_id)
        fetch = _Fetch(self, asked, min(request.max_bytes, MOST_BYTES), version, listener, then)
        code = self._fault(asked.current_leader_epoch, replica_id)
        if code is ErrorCode.NONE and not _is_valid(request.max_wait_ms, asked):
            code = ErrorCode.INVALID_REQUEST
        if code is not ErrorCode.NONE:
            fetch.fail(code)
            return
        max_wait_ms = min(request.max_wait_ms, MOST_WAIT_MS)
        try:
            answer = fetch.answer = self.read(asked, fetch.max_bytes, in_memory_only=True)
        except NotInMemory as missing:
            self._note(asked, replica_id)
            self._when_in_memory(missing, lambda: self._purgatory.watch(fetch, (METADATA_PARTITION,), max_wait_ms))
            return
        if answer.snapshot_id.end_offset < 0 and answer.diverging_epoch.epoch < 0:
            self._note(asked, replica_id)
        if fetch.is_worth_sending or max_wait_ms == 0:
            fetch.on_complete()
        else:
            self._purgatory.wait(fetch, (METADATA_PARTITION,), max_wait_ms)

    def read(self, asked: Asked, max_bytes: int, *, in_memory_only: bool = False) -> Answer:
        """What there is for an observer now. Raises StorageError, and with ``in_memory_only`` NotInMemory."""
        answer = Answer(
            partition_index=METADATA_PARTITION.partition,
            high_watermark=self._raft.high_watermark,
            log_start_offset=self.log_start_offset,
            aborted_transactions=[],
            records=b"",
        )
        snapshot = self._snapshot_for(asked)
        if snapshot is not None:
            answer.snapshot_id = Answer.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch)
            return answer
        end = self._end_of(asked.last_fetched_epoch)
        if asked.fetch_offset and (end.epoch != asked.last_fetched_epoch or end.end_offset < asked.fetch_offset):
            answer.diverging_epoch = Answer.DivergingEpoch(epoch=end.epoch, end_offset=end.end_offset)
            return answer
        found = self._raft.log.read(
            asked.fetch_offset,
            max_bytes=max_bytes,
            upper_bound_offset=self._raft.high_watermark,
            at_least_one_batch=True,
            in_memory_only=in_memory_only,
        )
        if found.region is not None:
            answer.records = found.region
        return answer

    def _snapshot_for(self, asked: Asked) -> SnapshotId | None:
        """The newest snapshot, if the observer must begin with a snapshot, or is better off to."""
        start = self.log_start_offset
        oldest_epoch = self._raft.log.leader_epochs.epoch_at(start)
        if asked.fetch_offset > start and asked.last_fetched_epoch >= oldest_epoch:
            return None
        snapshots = [one for one in self._snapshots() if one != _NO_SNAPSHOT]
        if not snapshots:
            return None
        oldest, newest = snapshots[0], snapshots[-1]
        if asked.fetch_offset == 0 or asked.fetch_offset < start or asked.last_fetched_epoch < oldest.epoch:
            return newest
        if asked.fetch_offset == start == oldest.end_offset and asked.last_fetched_epoch != oldest.epoch:
            return newest
        return None

    def _end_of(self, epoch: int) -> EpochEndOffset:
        """Where the last of the epochs up to ``epoch`` ends in the log."""
        end = self._raft.log.end_offset_for_epoch(epoch)
        return end if end.epoch != NO_EPOCH else EpochEndOffset(self._raft.leader_epoch, self._raft.end_offset)

    def _note(self, asked: Asked, replica_id: int) -> None:
        if replica_id == NO_NODE:
            return
        self.observers.fetched(
            ReplicaKey(replica_id, asked.replica_directory_id),
            asked.fetch_offset,
            leaders_end_offset=self._raft.high_watermark,
            now_ms=self._clock.now_ms(),
        )

    @property
    def log_start_offset(self) -> int:
        """The offset of the first record in the log."""
        return self._raft.log.log_start_offset

    def is_news(self, answer: Answer, asked: Asked) -> bool:
        """Whether ``answer`` tells the observer something that it does not know."""
        return (
            len(answer.records or b"") > 0
            or answer.snapshot_id.end_offset >= 0
            or answer.diverging_epoch.epoch >= 0
            or answer.high_watermark > asked.high_watermark
        )

    def response(self, answer: Answer, version: int, listener: str) -> FetchResponse:
        """The whole answer: with the leader, and with its address where the version has it."""
        answer.current_leader = Answer.CurrentLeader(
            leader_id=self._raft.leader_id, leader_epoch=self._raft.leader_epoch
        )
        response = FetchResponse(responses=[FetchResponse.Response(topic_id=METADATA_TOPIC_ID, partitions=[answer])])
        endpoint = self._node.endpoints.get(listener)
        if endpoint is not None and version >= ENDPOINTS_SINCE_VERSION:
            response.node_endpoints = [
                FetchResponse.NodeEndpoint(node_id=self._raft.leader_id, host=endpoint.host, port=endpoint.port)
            ]
        return response

    # FetchSnapshot

    def fetch_snapshot(
        self, request: FetchSnapshotRequest, version: int, listener: str, then: Callable[[FetchSnapshotResponse], None]
    ) -> None:
        """Answer a request for a piece of a snapshot, with the arguments of `fetch`.

        Raises StorageError where the snapshot cannot be read.
        """
        if request.cluster_id not in (None, self._node.cluster_id):
            then(FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, topics=[]))
            return
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            then(FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST, topics=[]))
            return
        (topic,) = request.topics
        (asked,) = topic.partitions
        piece = Piece(index=asked.partition, unaligned_records=b"")

        def answer() -> None:
            piece.current_leader = Piece.CurrentLeader(
                leader_id=self._raft.leader_id, leader_epoch=self._raft.leader_epoch
            )
            response = FetchSnapshotResponse(topics=[FetchSnapshotResponse.Topic(name=topic.name, partitions=[piece])])
            endpoint = self._node.endpoints.get(listener)
            if endpoint is not None and version >= SNAPSHOT_ENDPOINTS_SINCE_VERSION:
                response.node_endpoints = [
                    FetchSnapshotResponse.NodeEndpoint(
                        node_id=self._raft.leader_id, host=endpoint.host, port=endpoint.port
                    )
                ]
            then(response)

        if (topic.name, asked.partition) != METADATA_PARTITION:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            code = self._fault(asked.current_leader_epoch, request.replica_id)
        if code is not ErrorCode.NONE:
            piece.error_code = code
            answer()
            return
        snapshot = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        missing = self._read_snapshot(piece, snapshot, asked.position, min(max(request.max_bytes, 0), MOST_BYTES))
        if missing is None:
            answer()
        else:
            self._when_in_memory(missing, answer)

    def _read_snapshot(self, piece: Piece, snapshot: SnapshotId, position: int, max_bytes: int) -> NotInMemory | None:
        """Fill ``piece`` with bytes of ``snapshot`` or an error; returns what must be read from the disk first."""
        piece.snapshot_id = Piece.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch)
        # Of a request come any two numbers: only ids of files that are there become names.
        if snapshot not in self._snapshots():
            piece.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
            return None
        try:
            file = self._files.open_read(f"{self._raft.directory}/{snapshot.file_name}")
        except FileNotFoundError:
            piece.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
            return None
        size = file.size
        if not 0 <= position < size:
            piece.error_code = ErrorCode.POSITION_OUT_OF_RANGE
            return None
        piece.size, piece.position = size, position
        region = FileRegion(file, position, min(max_bytes, size - position))
        if region.size:
            piece.unaligned_records = region
            try:
                look_ahead(region, size)
            except NotInMemory as missing:
                return missing
        return None

    # Both

    def _fault(self, epoch: int, replica_id: int) -> ErrorCode:
        """The error for an observer that knows another leader epoch than this one, or has this node's id."""
        if self._is_stopping:
            return ErrorCode.BROKER_NOT_AVAILABLE
        if epoch < 0:
            return ErrorCode.INVALID_REQUEST
        if epoch < self._raft.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self._raft.leader_epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if replica_id == self._raft.leader_id:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE

    def _snapshots(self) -> list[SnapshotId]:
        return list_snapshots(self._files, self._raft.directory)

    def _when_in_memory(self, missing: NotInMemory, then: Callable[[], object]) -> None:
        """Call ``then`` when the bytes have been read into memory, or could not be: the next read finds the error."""

        def done(_: None) -> None:
            missing.ahead.done()
            then()

        def failed(_: Exception) -> None:
            then()

        self._read_ahead.submit(missing.ahead.perform, done, failed)


class _Fetch(DelayedOperation):
    """A fetch of an observer, which waits while there is nothing new."""

    __slots__ = ("_asked", "_fetches", "_listener", "_then", "_version", "answer", "max_bytes")

    def __init__(
        self,
        fetches: MetadataFetches,
        asked: Asked,
        max_bytes: int,
        version: int,
        listener: str,
        then: Callable[[FetchResponse], None],
    ) -> None:
        super().__init__()
        self._fetches = fetches
        self._asked = asked
        self._version = version
        self._listener = listener
        self._then = then
        self.max_bytes = max_bytes
        self.answer: Answer | None = None

    @property
    def is_worth_sending(self) -> bool:
        """Whether the answer tells the observer something."""
        return self.answer is not None and self._fetches.is_news(self.answer, self._asked)

    def try_complete(self) -> bool:
        """Read again; complete if there is news."""
        self.answer = self._fetches.read(self._asked, self.max_bytes)
        return self.is_worth_sending and self.complete()

    def on_complete(self) -> None:
        """Answer with what was read the last time."""
        assert self.answer is not None, "a fetch is read before it waits"
        self._then(self._fetches.response(self.answer, self._version, self._listener))
        self.answer = None

    def on_failure(self, error: Exception) -> None:
        """Answer with the error: raised again, it would reach the change that has woken the fetch."""
        self.fail(error_code_of(error))

    def fail(self, code: ErrorCode) -> None:
        """Answer with an error."""
        answer = Answer(
            partition_index=METADATA_PARTITION.partition,
            error_code=code,
            high_watermark=-1,
            log_start_offset=self._fetches.log_start_offset,
            aborted_transactions=[],
            records=b"",
        )
        self._then(self._fetches.response(answer, self._version, self._listener))


def _only_partition(request: FetchRequest) -> Asked | None:
    """The request's partition, if the request is for the metadata log alone."""
    if len(request.topics) != 1 or request.topics[0].topic_id != METADATA_TOPIC_ID:
        return None
    partitions = request.topics[0].partitions
    if len(partitions) != 1 or partitions[0].partition != METADATA_PARTITION.partition:
        return None
    return partitions[0]


def _is_valid(max_wait_ms: int, asked: Asked) -> bool:
    return max_wait_ms >= 0 and asked.fetch_offset >= 0 and 0 <= asked.last_fetched_epoch <= asked.current_leader_epoch
