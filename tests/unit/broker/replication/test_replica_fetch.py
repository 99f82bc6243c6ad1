"""A follower's fetches: what it asks, what it does with the answers, and that its log becomes the leader's."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from broker.replication.replica_fetch import (
    EARLIEST_LOCAL,
    LARGEST_OFFSET,
    LATEST,
    Append,
    AskOffset,
    AwaitMetadata,
    BackOff,
    BeginAnew,
    ReplicaFetch,
    Step,
    Truncate,
    append,
)
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponse
from storage.batch.record_batch import read_header
from storage.errors import OffsetOutOfRange, StorageError
from storage.log import Log
from tests.support.batches import changed, record, stored
from tests.support.logs import SMALL, LogHome, T, batch_of, marker

OfPartition = FetchResponse.Response.Partition
MAX_BYTES = 1 << 20


class Replica:
    """A broker's replica: its log, which it may lead."""

    def __init__(self, path: Path, node_id: int) -> None:
        self.home = LogHome(path / str(node_id))
        self.home.config = self.home.config.replace(**SMALL, segment_bytes=600)
        self.node_id = node_id
        self.log: Log = self.home.open()
        self.epoch = 0

    def lead(self, epoch: int) -> None:
        self.epoch = epoch
        self.log.assign_epoch_start(epoch)

    def write(self, *values: bytes, **given: object) -> None:
        self.log.stage(batch_of(*values, **given), leader_epoch=self.epoch)  # type: ignore[arg-type]
        self.log.append_all(T)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        self.log.stage_trusted(marker(producer_id, commit=commit), leader_epoch=self.epoch)
        self.log.append_all(T)

    def restart(self, *, clean: bool) -> None:
        watermark, log_start = self.log.high_watermark, self.log.log_start_offset  # as their checkpoints say
        if clean:
            self.log.close(T)
        else:
            self.log.abandon()
        self.log = self.home.open(clean=clean, high_watermark=watermark, log_start_offset=log_start)

    # As a leader

    def answer(self, asked, *, max_bytes: int = MAX_BYTES) -> OfPartition:  # type: ignore[no-untyped-def]
        """The answer to a follower's fetch, as Apache Kafka gives it."""
        log = self.log
        if asked.current_leader_epoch != self.epoch:
            known = asked.current_leader_epoch < self.epoch
            return refusal(ErrorCode.FENCED_LEADER_EPOCH if known else ErrorCode.UNKNOWN_LEADER_EPOCH)
        if asked.last_fetched_epoch >= 0:
            end = log.end_offset_for_epoch(asked.last_fetched_epoch)
            if end.epoch < 0:
                return refusal(ErrorCode.OFFSET_OUT_OF_RANGE)
            if end.epoch < asked.last_fetched_epoch or end.end_offset < asked.fetch_offset:
                diverging = OfPartition.DivergingEpoch(epoch=end.epoch, end_offset=end.end_offset)
                return replace(self._found(b""), diverging_epoch=diverging)
        try:
            read = log.read(
                asked.fetch_offset, max_bytes=max_bytes, upper_bound_offset=log.log_end_offset, at_least_one_batch=True
            )
        except OffsetOutOfRange:
            return refusal(ErrorCode.OFFSET_OUT_OF_RANGE)
        return self._found(b"" if read.region is None else read.region.read())

    def _found(self, records: bytes) -> OfPartition:
        return OfPartition(
            partition_index=0, high_watermark=self.log.high_watermark, log_start_offset=self.log.log_start_offset,
            records=memoryview(records),
        )  # fmt: skip

    # As a follower

    def follow(self, leader: Replica, *, max_bytes: int = MAX_BYTES) -> Step:
        """One fetch, and what follows from its answer."""
        fetch = ReplicaFetch(self.log, leader_id=leader.node_id, leader_epoch=leader.epoch)
        step = fetch.answered(leader.answer(fetch.request(0, max_bytes), max_bytes=max_bytes))
        while isinstance(step, AskOffset):
            at = leader.log.log_end_offset if step.timestamp == LATEST else leader.log.log_start_offset
            step = fetch.offset_answered(step, at)
        match step:
            case Append():
                append(self.log, step, T)
            case Truncate(offset):
                self.log.expect_truncation_to(offset)
                self.log.truncate_to(offset, T)
            case BeginAnew(offset):
                self.log.truncate_fully_to(offset, T)
        return step

    @property
    def content(self) -> list[bytes]:
        """The batches from the log start on."""
        return [bytes(data) for _, data in self.log.batches(self.log.log_start_offset)]


def starts(replica: Replica, epoch: int) -> list[int]:
    """Where the first batch of an epoch begins; empty without such a batch."""
    return [header.base_offset for header, _ in replica.log.batches() if header.partition_leader_epoch == epoch][:1]


def refusal(code: ErrorCode) -> OfPartition:
    return OfPartition(partition_index=0, error_code=code, high_watermark=-1, records=None)


@pytest.fixture
def leader(tmp_path: Path) -> Replica:
    found = Replica(tmp_path, 1)
    found.lead(3)
    return found


@pytest.fixture
def follower(tmp_path: Path) -> Replica:
    return Replica(tmp_path, 2)


def fetch_of(follower: Replica, leader: Replica) -> ReplicaFetch:
    return ReplicaFetch(
        follower.log, leader_id=leader.node_id, leader_epoch=leader.epoch, directory_id=bytes(range(16))
    )


def test_a_fetch_says_where_the_log_ends_and_in_which_epoch(leader: Replica, follower: Replica) -> None:
    leader.write(b"a", b"b")
    follower.follow(leader)
    asked = fetch_of(follower, leader).request(4, 1_000)
    assert (asked.partition, asked.partition_max_bytes, asked.replica_directory_id) == (4, 1_000, bytes(range(16)))
    assert (asked.current_leader_epoch, asked.last_fetched_epoch) == (3, 3)
    assert (asked.fetch_offset, asked.log_start_offset) == (2, 0)


def test_an_empty_log_knows_no_epoch(leader: Replica, follower: Replica) -> None:
    assert fetch_of(follower, leader).request(0, 1).last_fetched_epoch == -1


def test_the_log_becomes_the_leaders_byte_for_byte_with_transactions_and_epochs(
    leader: Replica, follower: Replica
) -> None:
    leader.write(b"a", b"b")
    leader.write(b"t", producer_id=9, is_transactional=True)
    leader.end_transaction(9, commit=False)
    leader.lead(5)
    leader.write(b"c")
    for _ in range(2):
        follower.follow(leader)
    assert follower.content == leader.content
    assert follower.log.leader_epochs.entries == leader.log.leader_epochs.entries
    assert follower.log.producers.entries == leader.log.producers.entries


def test_a_batch_that_was_cut_off_comes_with_the_next_fetch(leader: Replica, follower: Replica) -> None:
    leader.write(b"a" * 100)
    leader.write(b"b" * 100)
    size = read_header(leader.content[0]).size
    follower.follow(leader, max_bytes=size + 50)
    assert follower.log.log_end_offset == 1
    follower.follow(leader)
    assert follower.content == leader.content


def test_the_watermark_is_the_leaders_but_not_beyond_the_own_end_and_never_falls(
    leader: Replica, follower: Replica
) -> None:
    leader.write(b"a")
    leader.write(b"b" * 300)
    leader.log.advance_high_watermark(2)
    follower.follow(leader, max_bytes=100)
    assert (follower.log.log_end_offset, follower.log.high_watermark) == (1, 1)
    follower.follow(leader)
    follower.follow(leader)
    assert follower.log.high_watermark == 2
    append(follower.log, Append([], 1, 0), T)
    assert follower.log.high_watermark == 2


def test_the_log_start_follows_the_leaders(leader: Replica, follower: Replica) -> None:
    for value in (b"a", b"b", b"c"):
        leader.write(value)
    leader.log.advance_high_watermark(3)
    leader.log.start_offset_to(2)
    for _ in range(3):
        follower.follow(leader)
    assert follower.log.log_start_offset == 2


def test_what_an_old_leader_wrote_alone_is_removed_epoch_by_epoch(leader: Replica, follower: Replica) -> None:
    leader.write(b"both")
    follower.follow(leader)
    for epoch in (4, 5, 6):
        leader.lead(epoch)
        leader.write(b"alone in %d" % epoch)
    follower.lead(7)
    follower.write(b"new")

    steps = [leader.follow(follower) for _ in range(2)]

    assert steps[0] == Truncate(1)
    assert isinstance(steps[1], Append)
    assert leader.content == follower.content


def test_an_epoch_in_which_the_follower_led_and_wrote_nothing_is_forgotten(leader: Replica, follower: Replica) -> None:
    leader.write(b"both")
    follower.follow(leader)
    follower.lead(4)
    leader.lead(5)
    leader.write(b"new")

    assert follower.follow(leader) == Truncate(1)
    follower.follow(leader)
    assert follower.content == leader.content
    assert follower.log.leader_epochs.entries == [(3, 0), (5, 1)]


def test_a_log_that_ends_before_the_leaders_start_begins_there(leader: Replica, follower: Replica) -> None:
    leader.write(b"a")
    follower.follow(leader)
    leader.write(b"b" * 400)
    leader.write(b"c" * 400)
    leader.log.advance_high_watermark(3)
    leader.log.start_offset_to(2)

    step = follower.follow(leader)

    assert step == BeginAnew(2)
    follower.follow(leader)
    assert (follower.log.log_start_offset, follower.content) == (2, leader.content)


def test_a_log_may_begin_within_a_batch_whose_first_records_were_deleted(leader: Replica, follower: Replica) -> None:
    leader.write(b"a", b"b", b"c")
    leader.write(b"d")
    leader.log.advance_high_watermark(4)
    leader.log.start_offset_to(2)

    assert follower.follow(leader) == BeginAnew(2)
    follower.follow(leader)

    assert (follower.log.log_start_offset, follower.log.log_end_offset) == (2, 4)
    assert follower.content == leader.content
    follower.restart(clean=False)
    leader.write(b"e")
    follower.follow(leader)
    assert follower.content == leader.content


def test_a_log_that_was_cut_to_the_leaders_start_within_a_batch_begins_there(
    leader: Replica, follower: Replica
) -> None:
    """The leader's epoch begins at its log start then, and not where it wrote first. The follower fetched a batch that
    began below its own end for ever, as it does in Apache Kafka (replicated seed 200000924)."""
    leader.write(b"both")
    follower.follow(leader)
    for value in (b"alone", b"alone, too"):
        follower.write(value)
    leader.lead(4)
    leader.write(b"b", b"c", b"d")
    leader.log.advance_high_watermark(4)
    leader.log.start_offset_to(2)

    assert follower.follow(leader) == Truncate(2)
    assert follower.follow(leader) == BeginAnew(2)
    follower.follow(leader)

    assert (follower.log.log_start_offset, follower.content) == (2, leader.content)
    follower.restart(clean=False)
    assert follower.content == leader.content


def test_a_log_with_records_takes_no_batch_that_begins_before_its_end(leader: Replica, follower: Replica) -> None:
    leader.write(b"a", b"b", b"c")
    follower.write(b"a", b"b")
    fetch = fetch_of(follower, leader)

    step = fetch.answered(leader._found(leader.content[0]))

    assert isinstance(step, BackOff)
    assert step.problem == (
        f"node 1 has sent offsets 0 to 2, expected offsets from 2 to {LARGEST_OFFSET}; nothing of it was written"
    )


LOSSES: dict[str, Callable[[bytes, list[int]], bytes]] = {
    "the last batch": lambda data, ends: data[: ends[-2]],
    "the records of a batch": lambda data, ends: data[: ends[2] - 1] + b"?" + data[ends[2] :],
    "a batch": lambda data, ends: data[: ends[1]] + bytes(ends[2] - ends[1]) + data[ends[2] :],
    "all": lambda data, ends: b"",
}
"""What is left of a segment's bytes, given where each batch ends."""


@pytest.mark.parametrize("start", [0, 2, 6], ids=["from the beginning", "from a batch before", "from a batch behind"])
@pytest.mark.parametrize("loss", LOSSES)
def test_what_the_disk_has_lost_is_fetched_again(leader: Replica, follower: Replica, loss: str, start: int) -> None:
    """Else the follower would be in sync without these records, and they would be gone once it led."""
    for number in range(5):
        leader.write(b"%d" % number * 40)
    follower.follow(leader)
    leader.log.advance_high_watermark(5)
    if start:
        leader.write(b"behind")
        leader.log.start_offset_to(min(start, leader.log.high_watermark))
    assert len(follower.content) == 5
    (segment,) = follower.log.segments
    ends = [header.size * (number + 1) for number, (header, _) in enumerate(follower.log.batches())]
    follower.log.abandon()
    path = Path(segment.log_path)
    path.write_bytes(LOSSES[loss](path.read_bytes(), ends))

    follower.log = follower.home.open(recovery_point=5)
    assert follower.log.log_end_offset == 5
    assert isinstance(follower.follow(leader), Truncate)
    while follower.content != leader.content:
        assert not isinstance(follower.follow(leader), BackOff)

    assert follower.log.lost_from is None
    follower.restart(clean=False)
    assert follower.content == leader.content


def test_a_log_that_ends_behind_the_leaders_is_cut_to_its_end(leader: Replica, follower: Replica) -> None:
    fetch = fetch_of(follower, leader)
    follower.lead(3)
    for value in (b"a", b"b", b"c"):
        follower.write(value)
    asked = fetch.answered(refusal(ErrorCode.OFFSET_OUT_OF_RANGE))
    assert asked == AskOffset(LATEST)
    assert fetch.offset_answered(asked, 2) == Truncate(2)
    then = fetch.offset_answered(asked, 3)
    assert then == AskOffset(EARLIEST_LOCAL)
    assert fetch.offset_answered(then, 3) == BackOff()


@pytest.mark.parametrize(
    ("code", "step"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, AwaitMetadata()),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, BackOff()),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, BackOff()),
        (ErrorCode.UNKNOWN_TOPIC_ID, BackOff()),
        (ErrorCode.KAFKA_STORAGE_ERROR, BackOff()),
    ],
)
def test_an_error_ends_the_epoch_or_passes(leader: Replica, follower: Replica, code: ErrorCode, step: Step) -> None:
    assert fetch_of(follower, leader).answered(refusal(code)) == step


def test_tiered_storage_is_named(leader: Replica, follower: Replica) -> None:
    step = fetch_of(follower, leader).answered(refusal(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE))
    assert isinstance(step, BackOff)
    assert "tiered storage" in str(step.problem)


def damaged(records: bytes, at: int, value: int) -> bytes:
    content = bytearray(records)
    content[at] = value
    return bytes(content)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda data: damaged(data, len(data) - 1, 0xEE), "CRC"),
        (lambda data: damaged(data, 7, 0), r"offsets 0 to 0, expected offsets from 1 to 9223372036854775806"),
        (lambda data: changed(data, last_offset_delta=-1), r"offsets 1 to 0, expected offsets from 1 to"),
        (lambda data: changed(data, base_offset=2**63 - 1), r"offsets 9223372036854775807 to 9223372036854775807, exp"),
        (lambda data: damaged(data, 15, 2), r"epoch 2 at offset 1, expected 3 to 3"),
        (lambda data: damaged(data, 15, 4), r"epoch 4 at offset 1, expected 3 to 3"),
        (lambda data: damaged(data, 16, 1), "magic 1"),
        (lambda data: data[:-1], r"the first \d+ bytes of a batch, expected a whole batch at least"),
        (lambda data: data[:11], "the first 11 bytes of a batch, expected a whole batch at least"),
        (lambda data: b"HTTP/1.1 400 Bad Request\r\n\r\n" * 4, "magic 32"),
        (lambda data: bytes(100), "zeros where a batch is expected"),
    ],
)
def test_nothing_is_written_of_what_no_leader_sends(leader, follower, change, problem: str) -> None:  # type: ignore[no-untyped-def]
    leader.write(b"a")
    follower.follow(leader)
    leader.write(b"b")
    fetch = fetch_of(follower, leader)
    answer = leader.answer(fetch.request(0, MAX_BYTES))
    step = fetch.answered(replace(answer, records=memoryview(change(bytes(answer.records)))))
    assert isinstance(step, BackOff)
    assert step.problem is not None
    assert step.problem.startswith("node 1 has sent ")
    assert re.search(problem, step.problem), step.problem
    assert follower.log.log_end_offset == 1


def test_no_log_is_cut_to_an_offset_that_there_is_not(leader: Replica, follower: Replica) -> None:
    leader.write(b"a")
    follower.follow(leader)
    fetch = fetch_of(follower, leader)
    diverging = OfPartition.DivergingEpoch(epoch=2, end_offset=-1)

    for step in (
        fetch.answered(OfPartition(partition_index=0, high_watermark=1, records=None, diverging_epoch=diverging)),
        fetch.offset_answered(AskOffset(LATEST), -1),
        fetch.offset_answered(AskOffset(EARLIEST_LOCAL), -2),
    ):
        assert isinstance(step, BackOff)
        assert re.match("node 1 has sent .*-[12].*, expected an offset; nothing of it was written", str(step.problem))


@pytest.mark.parametrize("offsets", [range(0, 60, 3), (0, 1, 2**31 + 5, 2**31 + 6, 2**40), (2**31,)])
def test_the_gaps_of_a_log_that_was_compacted_are_no_losses_after_a_kill(
    follower: Replica, offsets: Sequence[int]
) -> None:
    for offset in offsets:
        fetch = ReplicaFetch(follower.log, leader_id=1, leader_epoch=3)
        batch = stored(offset=offset, leader_epoch=3)
        answer = OfPartition(
            partition_index=0, high_watermark=offset + 1, records=memoryview(batch), log_start_offset=0
        )
        step = fetch.answered(answer)
        assert isinstance(step, Append)
        append(follower.log, step, T)
    assert len(follower.log.segments) > 1

    follower.restart(clean=False)

    assert [header.base_offset for header, _ in follower.log.batches()] == list(offsets)
    assert follower.log.high_watermark == offsets[-1] + 1


@pytest.mark.parametrize("seed", range(40))
def test_whatever_a_leader_sends_the_log_goes_on_or_says_why_not(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    follower = Replica(tmp_path, 2)
    log = follower.log
    edges = (-(2**63), -1, 0, 1, 2**31, 2**62, 2**63 - 1)
    edges_of = {
        "base_offset": edges,
        "base_timestamp": edges,
        "max_timestamp": edges,
        "producer_id": edges,
        "last_offset_delta": (-1, 0, 7, 2**31 - 1),
        "record_count": (-1, 0, 7, 2**31 - 1),
        "base_sequence": (-1, 0, 7, 2**31 - 1),
        "partition_leader_epoch": (-1, 2, 3, 4),
        "producer_epoch": (-1, 0, 2**15 - 1),
        "attributes": (-1, 1, 3, 7, 16, 32, 48),
    }
    for _ in range(20):
        batch = stored([record(chance.randbytes(chance.randrange(40)), key=b"\0\0\0\1")], offset=log.log_end_offset)
        names = chance.sample(list(edges_of), chance.randrange(4))
        records = changed(
            batch, **{"partition_leader_epoch": 3, **{name: chance.choice(edges_of[name]) for name in names}}
        )
        answer = OfPartition(
            partition_index=0,
            error_code=chance.choice((ErrorCode.NONE,) * 6 + (ErrorCode.OFFSET_OUT_OF_RANGE,)),
            high_watermark=chance.choice(edges),
            log_start_offset=chance.choice(edges),
            records=memoryview(records[: len(records) - chance.choice((0, 0, 0, 30))]),
            diverging_epoch=OfPartition.DivergingEpoch(
                epoch=chance.choice((-1,) * 6 + (3,)), end_offset=chance.choice(edges)
            ),
        )
        fetch = ReplicaFetch(log, leader_id=1, leader_epoch=3)
        step = fetch.answered(answer)
        while isinstance(step, AskOffset):
            step = fetch.offset_answered(step, chance.choice(edges))
        try:
            match step:
                case Append():
                    append(log, step, T)
                case Truncate(offset):
                    log.expect_truncation_to(offset)
                    log.truncate_to(offset, T)
                case BeginAnew(offset):
                    log.truncate_fully_to(offset, T)
        except StorageError:  # such as a marker that cannot be read
            pass
        assert 0 <= log.log_start_offset <= log.high_watermark <= log.log_end_offset < 2**63
    before = log.log_end_offset
    follower.restart(clean=False)
    assert follower.log.log_end_offset == before


@pytest.mark.parametrize("seed", range(60))
def test_whoever_leads_committed_records_stay_and_all_logs_become_the_leaders(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    replicas = [Replica(tmp_path, node_id) for node_id in (1, 2, 3)]
    leader, epoch, number = replicas[0], 1, 0
    leader.lead(1)
    committed: list[bytes] = []

    def commit() -> None:
        """All replicas are in sync: what each has is committed."""
        agreed = min(one.log.log_end_offset for one in replicas)
        for one in replicas:
            if [data for header, data in one.log.batches() if header.next_offset <= agreed] != [
                data for header, data in leader.log.batches() if header.next_offset <= agreed
            ]:
                return  # a log that still diverges has not caught up in this epoch
        leader.log.advance_high_watermark(agreed)
        batches = [bytes(data) for header, data in leader.log.batches() if header.next_offset <= agreed]
        if len(batches) > len(committed):
            committed[:] = batches

    for _ in range(chance.randrange(20, 80)):
        match chance.randrange(6):
            case 0 | 1:
                number += 1
                leader.write(*(b"%d" % number,) * chance.randrange(1, 3))
            case 2 if chance.random() < 0.5:
                leader = chance.choice(replicas)
                epoch += chance.randrange(1, 3)
                leader.lead(epoch)
            case 3 if chance.random() < 0.5:
                chance.choice(replicas).restart(clean=chance.random() < 0.5)
            case _:
                one = chance.choice([one for one in replicas if one is not leader])
                one.follow(leader, max_bytes=chance.choice((1, 150, MAX_BYTES)))
                commit()
        assert [bytes(data) for _, data in leader.log.batches()][: len(committed)] == committed
    leader.write(b"last")
    for one in replicas:
        if one is not leader:
            while one.log.log_end_offset != leader.log.log_end_offset or one.content != leader.content:
                step = one.follow(leader)
                assert isinstance(step, (Append, Truncate)), step
            assert one.log.leader_epochs.entries == [
                (epoch, start) for epoch, start in leader.log.leader_epochs.entries if start in starts(leader, epoch)
            ]
