"""ShareShard: the share partitions of one partition of ``__share_group_state`` (Kafka's ShareCoordinatorShard).

The requests for one share partition take effect one after the other: each decides by the state after all before it.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Final

from broker.coordinators.result import once
from broker.coordinators.share.batches import combine
from broker.coordinators.share.image import ShareImage
from broker.coordinators.share.persister import NO_START_OFFSET, NOT_COUNTED, SharePartitionKey, ShareState
from broker.coordinators.share.records import ShareResult, snapshot, tombstone, update
from broker.coordinators.share.requests import (
    Delete,
    Forget,
    Initialize,
    Read,
    Resnapshot,
    ShardRequest,
    StateAnswer,
    StateReply,
    Summarize,
    Write,
)
from broker.coordinators.share.settings import ShareSettings
from broker.coordinators.share.state import SharePartitionState
from broker.coordinators.share.stats import ShareStats
from broker.coordinators.write_errors import client_error_of
from broker.runtime.clock import Clock
from protocol.errors import ErrorCode
from protocol.records.coordinator_records import UnknownRecord
from protocol.records.share_state import ShareStateRecord
from storage.sentinels import NO_EPOCH

DONE: Final = StateAnswer()

INITIAL_LEADER_EPOCH: Final = 0
"""Of a state that no leader has read yet."""

_HIGHEST_EPOCH: Final = 0x7FFF_FFFF

Planned = tuple[ShareStateRecord | None, StateAnswer]
"""The record to be written, and the answer once it is."""


class _Line:
    """The requests for one share partition that wait, and whether the record of one before them is being written."""

    __slots__ = ("is_advancing", "is_writing", "waiting")

    def __init__(self) -> None:
        self.is_advancing = False
        self.is_writing = False
        self.waiting: deque[tuple[ShardRequest, StateReply]] = deque()


class ShareShard:
    """Decides requests by the replayed state, and says which records to write."""

    def __init__(
        self,
        *,
        settings: ShareSettings,
        clock: Clock,
        stats: ShareStats,
        submit: Callable[[ShareResult], None],
        has_partition: Callable[[bytes, int], bool],
    ) -> None:
        """``has_partition`` says whether there is such a partition, by topic id and index."""
        self._settings = settings
        self._clock = clock
        self._stats = stats
        self._submit = submit
        self._has_partition = has_partition
        self._lines: dict[SharePartitionKey, _Line] = {}
        self.image = ShareImage(settings.updates_per_snapshot)

    # What the runtime asks

    def replay(self, record: ShareStateRecord | UnknownRecord, *, producer_id: int = -1, offset: int = -1) -> None:
        """Apply a record of the log."""
        self.image.replay(record, offset)

    def replay_marker(self, producer_id: int, *, commits: bool) -> None:
        """Nothing is written in transactions here."""

    def loaded(self) -> None:
        """There are no timers."""

    def unload(self, code: ErrorCode) -> None:
        """Answer the requests that wait."""
        lines, self._lines = self._lines, {}
        for line in lines.values():
            waiting, line.waiting = line.waiting, deque()
            for _, reply in waiting:
                reply(_failed(code))

    # What clients ask

    def ask(self, request: ShardRequest, reply: StateReply) -> None:
        """Decide a request behind all earlier ones for the same share partition."""
        line = self._lines.setdefault(request.key, _Line())
        line.waiting.append((request, reply))
        self._advance(request.key, line)

    def _advance(self, key: SharePartitionKey, line: _Line) -> None:
        if line.is_advancing:
            return
        line.is_advancing = True
        while line.waiting and not line.is_writing:
            request, reply = line.waiting.popleft()
            record, answer = self._plan(request)
            if record is None:
                reply(answer)
            else:
                self._write(key, line, record, answer, reply)
        line.is_advancing = False
        if not line.is_writing and self._lines.get(key) is line:
            del self._lines[key]

    def _write(
        self, key: SharePartitionKey, line: _Line, record: ShareStateRecord, answer: StateAnswer, reply: StateReply
    ) -> None:
        line.is_writing = True
        answer_once = once(reply)

        def written(code: ErrorCode) -> None:
            line.is_writing = False
            answer_once(answer if code is ErrorCode.NONE else _failed(code))
            self._advance(key, line)

        def late() -> None:
            answer_once(_failed(ErrorCode.REQUEST_TIMED_OUT))

        self._submit(ShareResult([record], written, late=late))

    def _plan(self, request: ShardRequest) -> Planned:
        if request.key.partition < 0:
            return _refused(ErrorCode.INVALID_REQUEST, f"the partition {request.key.partition} is negative")
        match request:
            case Initialize():
                return self._initialize(request)
            case Read():
                return self._read(request)
            case Write():
                return self._merge(request)
            case Delete():
                return self._delete(request)
            case Summarize():
                return self._summarize(request)
            case Forget():
                return self._forget(request.key)
            case Resnapshot():
                return self._resnapshot(request.key)

    def _initialize(self, request: Initialize) -> Planned:
        known = self.image.by_key.get(request.key)
        if request.state_epoch < 0:
            return _refused(ErrorCode.INVALID_REQUEST, f"the state epoch {request.state_epoch} is negative")
        if known is not None and request.state_epoch < known.fenced_state_epoch:
            return _fenced_state_epoch(request.state_epoch, known)
        if not self._exists(request.key):
            return _unknown(request.key)
        now_ms = self._clock.now_ms()
        state = SharePartitionState(
            snapshot_epoch=0 if known is None else _next_epoch(known),
            state_epoch=request.state_epoch,
            leader_epoch=INITIAL_LEADER_EPOCH,
            start_offset=request.start_offset,
            delivery_complete_count=NOT_COUNTED if request.start_offset == NO_START_OFFSET else 0,
            batches=(),
            created_ms=now_ms,
            written_ms=now_ms,
            snapshot_offset=-1,
            fenced_leader_epoch=NO_EPOCH,
            fenced_state_epoch=NO_EPOCH,
            updates=0,
        )
        return snapshot(request.key, state), DONE

    def _read(self, request: Read) -> Planned:
        if request.leader_epoch < 0:
            return _refused(ErrorCode.INVALID_REQUEST, f"the leader epoch {request.leader_epoch} is negative")
        known = self.image.by_key.get(request.key)
        if known is None:
            return _uninitialized(request.key)
        if request.leader_epoch < known.fenced_leader_epoch:
            return _fenced_leader_epoch(request.leader_epoch, known)
        if not self._exists(request.key):
            return _unknown(request.key)
        found = ShareState(known.state_epoch, request.leader_epoch, known.start_offset, NOT_COUNTED, known.batches)
        if request.leader_epoch == known.fenced_leader_epoch:
            return None, StateAnswer(state=found)
        self._stats.writes += 1
        unchanged = found._replace(delivery_complete_count=known.delivery_complete_count, batches=())
        return self._changed(request.key, known, unchanged, request.leader_epoch), StateAnswer(state=found)

    def _merge(self, request: Write) -> Planned:
        self._stats.writes += 1
        written = request.state
        if written.leader_epoch < 0:
            return _refused(ErrorCode.INVALID_REQUEST, f"the leader epoch {written.leader_epoch} is negative")
        if written.state_epoch < 0:
            return _refused(ErrorCode.INVALID_REQUEST, f"the state epoch {written.state_epoch} is negative")
        known = self.image.by_key.get(request.key)
        if known is None:
            return _uninitialized(request.key)
        if written.leader_epoch < known.fenced_leader_epoch:
            return _fenced_leader_epoch(written.leader_epoch, known)
        if written.state_epoch < known.fenced_state_epoch:
            return _fenced_state_epoch(written.state_epoch, known)
        if not self._exists(request.key):
            return _unknown(request.key)
        for batch in written.batches:
            if not 0 <= batch.first_offset <= batch.last_offset:
                return _refused(ErrorCode.INVALID_REQUEST, f"a batch from {batch.first_offset} to {batch.last_offset}")
        return self._changed(request.key, known, written, known.leader_epoch), DONE

    def _delete(self, request: Delete) -> Planned:
        if not self._exists(request.key):
            return _unknown(request.key)
        return self._forget(request.key)

    def _summarize(self, request: Summarize) -> Planned:
        if not self._exists(request.key):
            return _unknown(request.key)
        known = self.image.by_key.get(request.key)
        if known is None:
            # As Kafka answers: no error, and a state in which nothing is known.
            return None, StateAnswer(state=ShareState(0, 0, NO_START_OFFSET, NOT_COUNTED, ()))
        return None, StateAnswer(
            state=ShareState(
                known.state_epoch, known.leader_epoch, known.start_offset, known.delivery_complete_count, ()
            )
        )

    def _forget(self, key: SharePartitionKey) -> Planned:
        return tombstone(key) if key in self.image.by_key else None, DONE

    def _resnapshot(self, key: SharePartitionKey) -> Planned:
        known = self.image.by_key.get(key)
        now_ms = self._clock.now_ms()
        if known is None or now_ms - known.written_ms < self._settings.cold_snapshot_interval_ms:
            return None, DONE
        return snapshot(key, known._replace(snapshot_epoch=_next_epoch(known), written_ms=now_ms)), DONE

    def _changed(
        self, key: SharePartitionKey, known: SharePartitionState, written: ShareState, leader_epoch: int
    ) -> ShareStateRecord:
        """The record of a change: an update, or the snapshot that is due."""
        start_offset = max(written.start_offset, known.start_offset)
        count = written.delivery_complete_count
        if written.start_offset == known.start_offset:
            count = max(count, known.delivery_complete_count)
        elif written.start_offset < known.start_offset:
            count = known.delivery_complete_count
        if known.updates < self._settings.updates_per_snapshot:
            return update(
                key,
                snapshot_epoch=known.snapshot_epoch,
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=count,
                batches=combine((), written.batches, start_offset),
            )
        now_ms = self._clock.now_ms()
        return snapshot(
            key,
            known._replace(
                snapshot_epoch=_next_epoch(known),
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=count,
                batches=combine(known.batches, written.batches, start_offset),
                created_ms=now_ms,
                written_ms=now_ms,
            ),
        )

    # Background work

    def forget_topics(self, topic_ids: Collection[bytes]) -> Iterator[ShareResult | None]:
        """Delete the states of deleted topics, one after the other."""
        for key in [one for one in self.image.by_key if one.topic_id in topic_ids]:
            self.ask(Forget(key), _nobody_asks)
            yield None

    def snapshot_cold(self) -> Iterator[ShareResult | None]:
        """Write a snapshot of each share partition whose last snapshot is old: else it would hold the log's start.

        As in Kafka nothing is written while all last snapshots were written for that reason.
        """
        if all(state.is_cold_snapshot for state in self.image.by_key.values()):
            return
        for key in tuple(self.image.by_key):
            self.ask(Resnapshot(key), _nobody_asks)
            yield None

    # Parts

    def _exists(self, key: SharePartitionKey) -> bool:
        return self._has_partition(key.topic_id, key.partition)


def _next_epoch(known: SharePartitionState) -> int:
    return min(known.snapshot_epoch + 1, _HIGHEST_EPOCH)


def _nobody_asks(_: StateAnswer) -> None:
    """Background work has no caller."""


def _failed(code: ErrorCode) -> StateAnswer:
    code = client_error_of(code)
    return StateAnswer(code, f"the record of the state could not be written: {code.name}")


def _refused(code: ErrorCode, why: str) -> Planned:
    return None, StateAnswer(code, why)


def _unknown(key: SharePartitionKey) -> Planned:
    return _refused(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {key.topic_id.hex()} has partition {key.partition}"
    )


def _uninitialized(key: SharePartitionKey) -> Planned:
    return _refused(ErrorCode.INVALID_REQUEST, f"partition {key.partition} has no state for the group {key.group_id!r}")


def _fenced_leader_epoch(epoch: int, known: SharePartitionState) -> Planned:
    why = f"the leader epoch {epoch} is older than {known.fenced_leader_epoch}"
    return _refused(ErrorCode.FENCED_LEADER_EPOCH, why)


def _fenced_state_epoch(epoch: int, known: SharePartitionState) -> Planned:
    why = f"the state epoch {epoch} is older than {known.fenced_state_epoch}"
    return _refused(ErrorCode.FENCED_STATE_EPOCH, why)
