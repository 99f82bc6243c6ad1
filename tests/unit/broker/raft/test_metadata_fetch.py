"""The leader's answers to nodes that follow its metadata log: what Apache Kafka 4.4.0 answers to the same requests."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from broker.raft.metadata_fetch import MOST_WAIT_MS
from broker.raft.snapshots import list_snapshots
from protocol.errors import ErrorCode as E
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from tests.unit.broker.raft.observed import CLUSTER, DIRECTORY, Follower, Leader

OTHER_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"
TOPIC_IDS = range(13, 19)


def only(answer: FetchResponse) -> FetchResponse.Response.Partition:
    """The metadata log in an answer."""
    (topic,) = answer.responses
    (partition,) = topic.partitions
    return partition


def leader_of(partition: Any) -> tuple[int, int]:
    return partition.current_leader.leader_id, partition.current_leader.leader_epoch


# Records


@pytest.mark.parametrize("version", TOPIC_IDS)
def test_an_observer_reads_the_log_from_its_start(tmp_path: Path, version: int) -> None:
    leader, follower = Leader(tmp_path), Follower(version=version)
    leader.commit(3)

    follower.catch_up(leader)

    assert follower.topics == {"t1-1", "t1-2", "t1-3"}
    assert list(follower.image.records()) == list(leader.node.image.records())
    assert follower.observer.quorum.voters == leader.node.log.quorum.voters
    assert follower.asked == ["Fetch"]


def test_an_answer_names_the_leader_and_since_version_17_its_address(tmp_path: Path) -> None:
    leader = Leader(tmp_path)

    for version in TOPIC_IDS:
        answer = leader.fetch(version)
        assert leader_of(only(answer)) == (1, 1)
        endpoints = [(node.node_id, node.host, node.port) for node in answer.node_endpoints]
        assert endpoints == ([(1, "10.0.0.1", 9093)] if version >= 17 else [])


def test_records_are_answered_up_to_so_many_bytes_and_at_least_a_batch(tmp_path: Path) -> None:
    leader, follower = Leader(tmp_path), Follower(most_bytes=1)
    leader.commit(20)

    first = only(leader.fetch(max_bytes=1)).records
    some = only(leader.fetch(max_bytes=500)).records

    assert first is not None
    assert some is not None
    assert 61 < len(first) < 500 == len(some)
    follower.catch_up(leader)
    assert len(follower.topics) == 20


def test_what_is_not_committed_is_not_answered(tmp_path: Path) -> None:
    leader, follower = Leader(tmp_path), Follower()
    follower.catch_up(leader)
    leader.append()

    answer = only(leader.fetch(offset=follower.observer.end_offset, last_epoch=1))

    assert (answer.error_code, answer.high_watermark, answer.records) == (E.NONE, leader.end_offset - 1, b"")


def test_a_consumer_may_read_the_log_and_is_no_observer(tmp_path: Path) -> None:
    leader = Leader(tmp_path)

    assert only(leader.fetch(replica_id=-1)).records
    assert leader.fetches.observers.positions(leader.node.clock.now_ms()) == []


def test_records_that_are_on_the_disk_only_are_read_by_a_thread(tmp_path: Path, monkeypatch: Any) -> None:
    leader, follower = Leader(tmp_path), Follower()
    leader.commit(3)
    monkeypatch.setattr("storage.files.File.pread_in_memory", lambda file, size, position: None)
    jobs = []
    submit = leader.read_ahead.submit

    def counted(job: Any, done: Any, failed: Any) -> None:
        jobs.append(job)
        submit(job, done, failed)

    monkeypatch.setattr(leader.read_ahead, "submit", counted)

    follower.catch_up(leader)

    assert follower.topics == {"t1-1", "t1-2", "t1-3"}
    assert jobs


# Waiting


def test_a_fetch_waits_for_the_next_change_and_gets_it_with_its_commit(tmp_path: Path) -> None:
    leader, follower = Leader(tmp_path), Follower()
    follower.catch_up(leader)
    waiting = leader.ask(
        leader.request(offset=leader.end_offset, last_epoch=1, high_watermark=leader.end_offset, max_wait_ms=500),
        18,
    )
    leader.append()
    assert waiting == []

    leader.work()

    answer = only(waiting[0])
    assert answer.records
    assert answer.high_watermark == leader.end_offset
    assert leader.purgatory.stats.pending == 0


def test_a_fetch_that_waits_in_vain_is_answered_without_records(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    end = leader.end_offset
    waiting = leader.ask(leader.request(offset=end, last_epoch=1, high_watermark=end, max_wait_ms=500), 18)

    leader.node.clock.advance(499)
    assert waiting == []
    leader.node.clock.advance(1)

    answer = only(waiting[0])
    assert (answer.error_code, answer.high_watermark, answer.records) == (E.NONE, end, b"")


def test_no_fetch_waits_for_ever(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    end = leader.end_offset
    waiting = leader.ask(leader.request(offset=end, last_epoch=1, high_watermark=end, max_wait_ms=2**31 - 1), 18)

    leader.node.clock.advance(MOST_WAIT_MS)

    assert only(waiting[0]).error_code == E.NONE
    assert leader.purgatory.stats.pending == 0


def test_a_high_watermark_that_the_observer_does_not_know_is_answered_at_once(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    end = leader.end_offset

    (answer,) = leader.ask(leader.request(offset=end, last_epoch=1, high_watermark=end - 1, max_wait_ms=500), 18)

    assert only(answer).high_watermark == end


def test_ten_thousand_observers_wait_and_are_all_answered(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    end = leader.end_offset
    waiting = [
        leader.ask(
            leader.request(offset=end, last_epoch=1, high_watermark=end, replica_id=10 + number, max_wait_ms=500), 18
        )
        for number in range(10_000)
    ]
    assert leader.purgatory.stats.pending == 10_000

    leader.commit()

    assert all(only(answer).records for (answer,) in waiting)
    assert (leader.purgatory.stats.pending, leader.purgatory.stats.watched) == (0, 0)
    assert len(leader.fetches.observers.positions(leader.node.clock.now_ms())) == 1_000


def test_a_leader_that_stops_answers_who_waits_and_refuses_who_comes(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    end = leader.end_offset
    waiting = leader.ask(leader.request(offset=end, last_epoch=1, high_watermark=end, max_wait_ms=500), 18)

    leader.fetches.stop()

    assert only(waiting[0]).error_code == E.NONE
    assert only(leader.fetch()).error_code == E.BROKER_NOT_AVAILABLE


# Refusals


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"epoch": 0}, E.FENCED_LEADER_EPOCH),
        ({"epoch": 5}, E.UNKNOWN_LEADER_EPOCH),
        ({"epoch": -1}, E.INVALID_REQUEST),
        ({"offset": -1}, E.INVALID_REQUEST),
        ({"offset": 5, "last_epoch": -1}, E.INVALID_REQUEST),
        ({"offset": 5, "last_epoch": 2}, E.INVALID_REQUEST),
        ({"max_wait_ms": -1}, E.INVALID_REQUEST),
        ({"replica_id": 1}, E.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_refusal_names_the_leader(tmp_path: Path, fields: dict[str, Any], code: E) -> None:
    answer = Leader(tmp_path).fetch(**fields)

    partition = only(answer)
    assert (answer.error_code, partition.error_code) == (E.NONE, code)
    assert (partition.high_watermark, partition.log_start_offset, partition.records) == (-1, 0, b"")
    assert leader_of(partition) == (1, 1)
    assert [node.port for node in answer.node_endpoints] == [9093]


def test_a_node_of_another_cluster_is_refused(tmp_path: Path) -> None:
    leader = Leader(tmp_path)

    answer = leader.fetch(cluster_id=OTHER_CLUSTER)

    assert (answer.error_code, answer.responses) == (E.INCONSISTENT_CLUSTER_ID, [])
    assert leader.fetch(cluster_id=None).error_code == E.NONE


@pytest.mark.parametrize("version", range(4, 13))
def test_a_version_without_topic_ids_is_refused(tmp_path: Path, version: int) -> None:
    answer = Leader(tmp_path).fetch(version)

    # Before version 7 the answer has no place for the error.
    assert answer.error_code == (E.INVALID_REQUEST if version >= 7 else E.NONE)
    assert answer.responses == []


def test_all_but_the_metadata_log_alone_is_refused(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    request = leader.request()
    (topic,) = request.topics
    other_topic = FetchRequest.Topic(topic_id=bytes(15) + b"\2", partitions=topic.partitions)
    (partition,) = topic.partitions
    other = FetchRequest.Topic.Partition(partition=1, fetch_offset=0, partition_max_bytes=0)
    for topics in (
        [],
        [other_topic],
        [topic, other_topic],
        [FetchRequest.Topic(topic_id=topic.topic_id, partitions=[])],
        [FetchRequest.Topic(topic_id=topic.topic_id, partitions=[other])],
        [FetchRequest.Topic(topic_id=topic.topic_id, partitions=[partition, partition])],
    ):
        request.topics = topics
        (answer,) = leader.ask(request, 18)
        assert (answer.error_code, answer.responses) == (E.INVALID_REQUEST, [])


# Logs that differ


@pytest.mark.parametrize(
    ("offset", "last_epoch", "diverging"),
    [
        (100_000, 1, "the end of epoch 1"),
        (5, 0, (0, 0)),
    ],
)
def test_an_observer_with_other_records_is_told_up_to_where_they_may_agree(
    tmp_path: Path, offset: int, last_epoch: int, diverging: object
) -> None:
    leader = Leader(tmp_path)
    if diverging == "the end of epoch 1":
        diverging = (1, leader.end_offset)

    answer = only(leader.fetch(offset=offset, last_epoch=last_epoch))

    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == diverging
    assert answer.records == b""
    assert leader.fetches.observers.positions(leader.node.clock.now_ms()) == []


def test_an_observer_drops_what_the_leader_has_lost(tmp_path: Path) -> None:
    """Its log is longer than that of a leader whose disk has lost an fsynced end, or was taken back in time."""
    first, follower = Leader(tmp_path / "first"), Follower()
    twin = Leader(tmp_path / "twin")
    for leader in (first, twin):
        leader.commit(2)
    follower.catch_up(first)
    shared = follower.observer.high_watermark
    first.append(2)
    # These two are in the observer's log and not committed anywhere.
    first.node.log.log.advance_high_watermark(first.end_offset)
    answer = first.fetch(offset=shared, last_epoch=1)
    only(answer).high_watermark = shared
    follower.observer.answered(answer)
    assert follower.observer.end_offset == shared + 2

    # Killed: in its last epoch it has nothing behind what both have.
    twin.node.log.close()
    later = Leader(tmp_path / "twin")
    later.commit()
    follower.catch_up(later)

    assert follower.topics == {"t1-1", "t1-2", "t2-1"}


# Snapshots


def test_an_observer_without_records_begins_with_the_newest_snapshot(tmp_path: Path) -> None:
    leader, follower = Leader(tmp_path), Follower()
    leader.commit(3)
    leader.snapshot()
    leader.commit()

    follower.catch_up(leader)

    assert follower.asked == ["Fetch", "FetchSnapshot", "Fetch"]
    assert follower.topics == {"t1-1", "t1-2", "t1-3", "t1-4"}
    assert follower.observer.quorum.voters == leader.node.log.quorum.voters


def test_a_snapshot_is_read_in_pieces_cut_anywhere(tmp_path: Path) -> None:
    leader, follower = Leader(tmp_path), Follower(most_bytes=100)
    leader.commit(30)
    leader.snapshot()

    follower.catch_up(leader)

    assert len(follower.topics) == 30


def test_the_snapshot_that_formatting_made_is_not_answered(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    assert [snapshot.end_offset for snapshot in list_snapshots(leader.node.files, leader.node.log.directory)] == [0]

    assert only(leader.fetch()).records


def retained(tmp_path: Path) -> tuple[Leader, Follower]:
    """A leader that has dropped the beginning of its log, and an observer that was away meanwhile."""
    settings = {
        "metadata_log_segment_bytes": 2_000,
        "metadata_max_retention_bytes": 2_000,
        "metadata_log_max_record_bytes_between_snapshots": 3_000,
    }
    leader, follower = Leader(tmp_path, **settings), Follower()
    follower.catch_up(leader)
    while leader.node.log.log.log_start_offset <= follower.observer.end_offset:
        leader.commit(5)
    return leader, follower


def test_an_observer_that_was_away_for_too_long_goes_on_with_a_snapshot(tmp_path: Path) -> None:
    leader, follower = retained(tmp_path)

    follower.catch_up(leader)

    assert follower.asked[:2] == ["Fetch", "FetchSnapshot"]
    assert list(follower.image.records()) == list(leader.node.image.records())


def test_at_the_start_of_the_log_the_last_epoch_must_be_that_of_the_snapshot(tmp_path: Path) -> None:
    leader, _ = retained(tmp_path)
    leader = leader.restarted(metadata_max_retention_bytes=2_000)
    leader.commit()
    start = leader.node.log.log.log_start_offset
    oldest, *_, newest = list_snapshots(leader.node.files, leader.node.log.directory)
    assert oldest.end_offset >= start > 0

    below = only(leader.fetch(offset=start - 1, last_epoch=1))
    of_no_epoch = only(leader.fetch(offset=start, last_epoch=0))
    there = only(leader.fetch(offset=start, last_epoch=1))

    assert (below.snapshot_id.end_offset, below.snapshot_id.epoch) == newest
    assert (of_no_epoch.snapshot_id.end_offset, of_no_epoch.snapshot_id.epoch) == newest
    assert there.records


def snapshot_request(leader: Leader, *, version: int = 1, **fields: Any) -> FetchSnapshotResponse:
    """Ask for the newest snapshot, or what ``fields`` say instead, and return the answer."""
    newest = list_snapshots(leader.node.files, leader.node.log.directory)[-1]
    asked = {
        "end_offset": newest.end_offset, "epoch": newest.epoch, "position": 0, "max_bytes": 1_000,
        "leader_epoch": leader.epoch, "topic": "__cluster_metadata", "partition": 0, "cluster_id": CLUSTER,
        "replica_id": 7, "times": 1,
    } | fields  # fmt: skip
    of_topic = FetchSnapshotRequest.Topic
    partition = of_topic.Partition(
        partition=asked["partition"],
        current_leader_epoch=asked["leader_epoch"],
        snapshot_id=of_topic.Partition.SnapshotId(end_offset=asked["end_offset"], epoch=asked["epoch"]),
        position=asked["position"],
        replica_directory_id=DIRECTORY,
    )
    request = FetchSnapshotRequest(
        cluster_id=asked["cluster_id"],
        replica_id=asked["replica_id"],
        max_bytes=asked["max_bytes"],
        topics=[of_topic(name=asked["topic"], partitions=[partition] * asked["times"])],
    )
    (answer,) = leader.ask(request, version)
    assert isinstance(answer, FetchSnapshotResponse)
    return answer


@pytest.mark.parametrize("version", [0, 1])
def test_a_piece_of_a_snapshot_is_bytes_of_its_file(tmp_path: Path, version: int) -> None:
    leader = Leader(tmp_path)
    leader.commit(20)
    leader.snapshot()
    snapshot = list_snapshots(leader.node.files, leader.node.log.directory)[-1]
    content = Path(leader.node.log.directory, snapshot.file_name).read_bytes()

    answer = snapshot_request(leader, version=version, position=100, max_bytes=50)

    ((piece,),) = (topic.partitions for topic in answer.topics)
    assert bytes(piece.unaligned_records) == content[100:150]  # type: ignore[arg-type]
    assert (piece.error_code, piece.size, piece.position) == (E.NONE, len(content), 100)
    assert (piece.snapshot_id.end_offset, piece.snapshot_id.epoch) == snapshot
    assert leader_of(piece) == (1, 1)
    assert [node.port for node in answer.node_endpoints] == ([9093] if version else [])


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"leader_epoch": 0}, E.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 2}, E.UNKNOWN_LEADER_EPOCH),
        ({"leader_epoch": -5}, E.INVALID_REQUEST),
        ({"replica_id": 1}, E.UNKNOWN_SERVER_ERROR),
        ({"end_offset": 3}, E.SNAPSHOT_NOT_FOUND),
        ({"end_offset": -3, "epoch": -(2**31)}, E.SNAPSHOT_NOT_FOUND),
        ({"position": 1_000_000}, E.POSITION_OUT_OF_RANGE),
        ({"position": -1}, E.POSITION_OUT_OF_RANGE),
        ({"topic": "orders"}, E.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 1}, E.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_piece_that_cannot_be_had_is_refused_with_the_leader(tmp_path: Path, fields: dict[str, Any], code: E) -> None:
    answer = snapshot_request(Leader(tmp_path), **fields)

    ((piece,),) = (topic.partitions for topic in answer.topics)
    assert (answer.error_code, piece.error_code, piece.unaligned_records) == (E.NONE, code, b"")
    assert leader_of(piece) == (1, 1)
    assert [node.port for node in answer.node_endpoints] == [9093]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"cluster_id": OTHER_CLUSTER}, E.INCONSISTENT_CLUSTER_ID),
        ({"times": 2}, E.INVALID_REQUEST),
        ({"times": 0}, E.INVALID_REQUEST),
    ],
)
def test_a_request_for_pieces_that_is_wrong_as_a_whole_is_refused_as_a_whole(
    tmp_path: Path, fields: dict[str, Any], code: E
) -> None:
    answer = snapshot_request(Leader(tmp_path), **fields)

    assert (answer.error_code, answer.topics) == (code, [])


def test_a_snapshot_that_is_replaced_while_it_is_read_is_begun_anew(tmp_path: Path) -> None:
    leader, follower = Leader(tmp_path), Follower(most_bytes=200)
    leader.commit(10)
    leader.snapshot()
    while follower.asked[-1:] != ["FetchSnapshot"]:
        follower.step(leader)
    for _ in range(3):
        leader.commit()
        leader.snapshot()

    follower.catch_up(leader)

    assert len(follower.topics) == 13


# All of it


@pytest.mark.parametrize("seed", range(20))
def test_observers_have_the_leaders_image_whatever_happens(tmp_path: Path, seed: int) -> None:
    """Walks with appends, snapshots, dropped segments and restarts, while observers come, go and are behind."""
    chance = random.Random(seed)
    settings = {
        "metadata_log_segment_bytes": 3_000,
        "metadata_max_retention_bytes": 4_000,
        "metadata_log_max_record_bytes_between_snapshots": 5_000,
    }
    leader, followers = Leader(tmp_path, **settings), [Follower(7)]
    for _ in range(200):
        match chance.randrange(20):
            case 0:
                followers.append(
                    Follower(
                        7 + len(followers), version=chance.randint(13, 18), most_bytes=chance.choice([80, 1 << 20])
                    )
                )
            case 1:
                leader = leader.restarted(**settings)
            case 2:
                leader.work()
                leader.snapshot()
            case 3 | 4 | 5:
                leader.append(chance.randint(1, 5))
            case 6 | 7:
                leader.work()
            case _:
                chance.choice(followers).step(leader)
    leader.commit()
    for follower in followers:
        follower.catch_up(leader)
        assert list(follower.image.records()) == list(leader.node.image.records()), f"seed {seed}"
