"""An observer of a quorum elsewhere: what it asks, what it keeps of the answers, and what it hands over."""

import random
from dataclasses import replace

import pytest

import broker.raft.observer as observer_module
from broker.raft.observer import AnswerRefused, Next, NodeIdTaken, WrongCluster
from broker.request.node import Endpoint
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from tests.unit.broker.raft.controllers import (
    CLUSTER,
    Controller,
    Entry,
    Listener,
    OfPartition,
    corrupted,
    observer,
)


def leading(*names: str, epoch: int = 3) -> Controller:
    """A controller that leads, whose log has a record of each name, committed."""
    controller = Controller(100)
    controller.lead(epoch)
    for name in names:
        controller.append(name)
    controller.commit(controller.end_offset)
    return controller


def follow(controller: Controller, follower, *, answers: int = 2) -> None:
    """Let the observer ask so often; the first answer names the leader."""
    for _ in range(answers):
        follower.answered(controller.answer(follower.request()))


def test_the_first_fetch_asks_for_everything_without_knowing_a_leader():
    request = observer(Listener()).request()

    assert isinstance(request, FetchRequest)
    ((asked,),) = (topic.partitions for topic in request.topics)
    assert request.cluster_id == CLUSTER
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (2, -1)
    assert (request.max_wait_ms, request.min_bytes, request.session_id, request.session_epoch) == (500, 0, 0, -1)
    assert (asked.current_leader_epoch, asked.fetch_offset, asked.last_fetched_epoch) == (0, 0, 0)
    assert asked.high_watermark == -1


def test_the_leader_is_the_node_that_another_one_names():
    controller, follower = Controller(101, epoch=3, leader_id=100), observer(Listener())

    assert follower.answered(controller.answer(follower.request())) is Next.ASK_LEADER
    assert (follower.leader_id, follower.leader_epoch) == (100, 3)
    assert follower.leader_endpoint == Endpoint("127.0.0.1", 9100)


def test_during_an_election_no_leader_is_named_and_others_are_asked():
    controller, follower = Controller(101, epoch=4), observer(Listener())

    assert follower.answered(controller.answer(follower.request())) is Next.ASK_LATER
    assert (follower.leader_id, follower.leader_epoch) == (-1, 4)


def test_a_node_that_is_behind_does_not_take_the_observer_back_to_its_epoch():
    follower = observer(Listener())
    follow(leading("a", epoch=5), follower)
    behind = Controller(101, epoch=4, leader_id=102)

    assert follower.answered(behind.answer(follower.request())) is Next.ASK_LATER
    assert (follower.leader_id, follower.leader_epoch) == (-1, 5)


def test_records_are_handed_over_below_the_high_watermark_only():
    controller, listener = leading("a"), Listener()
    follower = observer(listener)
    controller.append("b")
    follow(controller, follower)
    assert (listener.names, follower.high_watermark, follower.end_offset) == (["a"], 2, 3)

    controller.commit(3)
    follow(controller, follower, answers=1)

    assert (listener.names, follower.high_watermark) == (["a", "b"], 3)


def test_the_high_watermark_of_a_new_leader_that_knows_less_takes_nothing_back():
    controller, listener = leading("a", "b"), Listener()
    follower = observer(listener)
    follow(controller, follower)

    controller.high_watermark = 1
    follow(controller, follower, answers=1)

    assert (listener.names, follower.high_watermark) == (["a", "b"], 3)


def test_records_that_the_next_leader_does_not_have_are_never_handed_over():
    old, listener = leading("a"), Listener()
    new = Controller(101)
    new.follow(old)
    follower = observer(listener)
    old.append("lost")
    follow(old, follower)
    new.lead(4)
    new.append("b")
    new.commit(new.end_offset)

    follow(new, follower, answers=3)

    assert listener.names == ["a", "b"]
    assert follower.end_offset == new.end_offset


def test_a_leader_without_records_that_were_committed_is_not_believed():
    listener = Listener()
    follower = observer(listener)
    follow(leading("a", "b"), follower)
    other = leading(epoch=2)
    other.lead(4)
    follow(other, follower, answers=1)

    with pytest.raises(AnswerRefused, match=r"no records from offset 0 on, of which those up to 3 were committed"):
        follow(other, follower, answers=1)

    assert listener.names == ["a", "b"]


@pytest.mark.parametrize("piece_bytes", [7, 100, 1 << 20])
def test_a_snapshot_is_read_piece_by_piece_and_the_log_goes_on_behind_it(piece_bytes: int):
    controller, listener = leading("a", "b"), Listener()
    controller.snapshot(controller.log, forget=True)
    controller.append("c")
    controller.commit(4)
    follower = observer(listener)

    while listener.end_offset < 4:
        follower.answered(controller.answer(follower.request(), most_bytes=piece_bytes))

    assert (listener.names, listener.snapshots, follower.last_epoch) == (["a", "b", "c"], 1, 3)


@pytest.mark.parametrize("is_named", [False, True])
def test_a_snapshot_that_the_leader_has_replaced_is_asked_for_anew(is_named: bool):
    controller, listener = leading("a"), Listener()
    controller.names_faults_of_snapshots = is_named
    controller.snapshot(controller.log, forget=False)
    follower = observer(listener)
    follow(controller, follower)
    assert isinstance(follower.request(), FetchSnapshotRequest)
    controller.append("b")
    controller.commit(3)
    controller.snapshots.clear()
    controller.snapshot(controller.log, forget=True)

    follow(controller, follower, answers=3)

    assert listener.names == ["a", "b"]


@pytest.mark.parametrize("is_named", [False, True])
def test_the_next_leader_is_found_while_a_snapshot_is_read(is_named: bool):
    old, new, listener = leading("a"), Controller(101), Listener()
    old.snapshot(old.log, forget=True)
    follower = observer(listener)
    follow(old, follower)
    assert isinstance(follower.request(), FetchSnapshotRequest)
    new.follow(old)
    new.lead(4)
    new.commit(new.end_offset)
    old.follow(new)
    for one in (old, new):
        one.names_faults_of_snapshots = is_named

    follow(old, follower, answers=2)
    assert (follower.leader_id, follower.leader_epoch) == (101, 4)
    follow(new, follower, answers=3)

    assert (listener.names, listener.end_offset) == (["a"], 3)


def test_a_snapshot_whose_reader_is_refused_is_given_up():
    follower = observer(Listener())
    controller = leading("a")
    controller.snapshot(controller.log, forget=True)
    follow(controller, follower)
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    with pytest.raises(AnswerRefused, match=r"error 31 \(CLUSTER_AUTHORIZATION_FAILED\)"):
        follower.answered(FetchSnapshotResponse(error_code=code, topics=[]))

    assert isinstance(follower.request(), FetchRequest)


def test_a_damaged_snapshot_is_not_handed_over():
    controller, listener = leading("a"), Listener()
    controller.snapshot(controller.log, forget=True)
    for snapshot, content in controller.snapshots.items():
        controller.snapshots[snapshot] = content[:-1] + b"\xff"
    follower = observer(listener)
    follow(controller, follower)

    with pytest.raises(AnswerRefused, match=r"damaged snapshot 00000000000000000002-0000000003\.checkpoint"):
        follow(controller, follower, answers=1)

    assert (listener.names, listener.snapshots) == ([], 0)


def test_damaged_records_are_not_kept():
    controller, listener = leading("a"), Listener()
    follower = observer(listener)
    follow(controller, follower, answers=1)

    with pytest.raises(AnswerRefused, match=r"node 100 has sent damaged records: .*CRC"):
        follower.answered(corrupted(controller.answer(follower.request())))

    assert (listener.names, follower.end_offset) == ([], 0)
    follow(controller, follower, answers=1)
    assert listener.names == ["a"]


def test_the_beginning_of_a_batch_alone_is_refused_and_not_asked_for_without_end():
    controller = leading("a")
    follower = observer(Listener())
    follow(controller, follower, answers=1)
    answer = controller.answer(follower.request())
    ((one,),) = (topic.partitions for topic in answer.responses)
    begun = replace(one, records=one.records[:60])

    with pytest.raises(AnswerRefused, match="node 100 has sent the first 60 bytes of a batch alone"):
        follower.answered(replace(answer, responses=[replace(answer.responses[0], partitions=[begun])]))


def test_records_that_are_never_committed_are_not_held_without_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(observer_module, "MOST_UNCOMMITTED_BYTES", 1_000)
    controller, listener = leading("a"), Listener()
    follower = observer(listener)
    follow(controller, follower)
    controller.append(*("x" * 100 for _ in range(8)))
    follow(controller, follower, answers=1)
    controller.append("b" * 100)

    with pytest.raises(AnswerRefused, match=r"committed nothing of \d+ bytes of records from offset 2 on"):
        follow(controller, follower, answers=1)

    controller.commit(controller.end_offset)
    follow(controller, follower, answers=1)
    assert listener.names[-1] == "b" * 100


@pytest.mark.parametrize("size", [-1, 0, 2**30 + 1, 2**63 - 1])
def test_no_snapshot_of_an_absurd_size_is_begun(size: int):
    controller = leading("a")
    controller.snapshot(controller.log, forget=True)
    follower = observer(Listener())
    follow(controller, follower)
    answer = controller.answer(follower.request())
    ((one,),) = (topic.partitions for topic in answer.topics)
    absurd = replace(one, size=size)

    with pytest.raises(AnswerRefused, match=rf"\.checkpoint has {size} bytes, it may have 1 to 1073741824"):
        follower.answered(replace(answer, topics=[replace(answer.topics[0], partitions=[absurd])]))

    assert isinstance(follower.request(), FetchRequest)


def test_a_gap_between_records_is_not_kept():
    controller, listener = leading("a"), Listener()
    follower = observer(listener)
    follow(controller, follower)
    answer = controller.answer(follower.request())
    ((one,),) = (topic.partitions for topic in answer.responses)
    later = replace(one, records=memoryview(Entry(7, 3, ("later",)).encoded()))

    with pytest.raises(AnswerRefused, match="a batch at offset 7 of epoch 3, expected offset 2"):
        follower.answered(replace(answer, responses=[replace(answer.responses[0], partitions=[later])]))

    assert follower.end_offset == 2


def test_the_controllers_of_another_cluster_are_named_as_such():
    follower = observer(Listener())

    with pytest.raises(WrongCluster, match=f"the cluster {CLUSTER} of this broker"):
        follower.answered(FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, responses=[]))


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_a_controller_with_the_id_of_this_broker_is_named_as_such(code: ErrorCode):
    leader = OfPartition.CurrentLeader(leader_id=2, leader_epoch=5)
    refusal = OfPartition(partition_index=0, error_code=code, high_watermark=-1, current_leader=leader, records=None)

    with pytest.raises(NodeIdTaken, match=r"a controller of the cluster has the node\.id 2 too"):
        observer(Listener()).answered(FetchResponse(responses=[FetchResponse.Response(partitions=[refusal])]))


def test_an_answer_about_no_partition_is_refused():
    with pytest.raises(AnswerRefused, match="other partitions"):
        observer(Listener()).answered(FetchResponse(responses=[]))


@pytest.mark.parametrize("is_top_level", [True, False])
def test_an_error_that_no_controller_gives_is_named(is_top_level: bool):
    code = ErrorCode.UNKNOWN_TOPIC_ID
    refusal = OfPartition(partition_index=0, error_code=code, high_watermark=-1, records=None)
    answer = FetchResponse(responses=[FetchResponse.Response(partitions=[refusal])])
    if is_top_level:
        answer = FetchResponse(error_code=code, responses=[])

    with pytest.raises(AnswerRefused, match=r"error 100 \(UNKNOWN_TOPIC_ID\): is that node a controller\?"):
        observer(Listener()).answered(answer)


def test_a_leader_that_is_being_stopped_is_left_for_another_node():
    follower = observer(Listener())
    follow(leading("a"), follower)
    code = ErrorCode.BROKER_NOT_AVAILABLE
    refusal = OfPartition(partition_index=0, error_code=code, high_watermark=-1, records=None)

    step = follower.answered(FetchResponse(responses=[FetchResponse.Response(partitions=[refusal])]))

    assert (step, follower.leader_id, follower.leader_epoch) == (Next.ASK_LATER, -1, 3)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_the_controllers_go_through_what_is_handed_over_is_what_they_have_committed(seed: int):
    chance, listener = random.Random(seed), Listener()
    is_named = chance.random() < 0.5
    controllers = [Controller(node_id, names_faults_of_snapshots=is_named) for node_id in (100, 101, 102)]
    committed: list[Entry] = []
    leader, epoch, number = controllers[0], 0, 0
    leader.lead(1)
    epoch = 1
    follower = observer(listener)

    def committed_end() -> int:
        return committed[-1].next_offset if committed else 0

    def commit(offset: int) -> None:
        """What is committed is on all controllers, so that each of them may lead next."""
        leader.commit(offset)
        known = committed_end()
        committed.extend(e for e in leader.log if known < e.next_offset <= leader.high_watermark)
        for other in controllers:
            if other is not leader:
                other.follow(leader)
                other.log = [entry for entry in other.log if entry.next_offset <= committed_end()]

    for _ in range(chance.randrange(20, 200)):
        match chance.randrange(8):
            case 0 | 1:
                leader.append(*(f"{number + n}" for n in range(chance.randrange(1, 4))))
                number += 4
            case 2:
                commit(chance.randint(0, leader.end_offset))
            case 3 if chance.random() < 0.4:
                leader = chance.choice(controllers)
                epoch += 1
                leader.high_watermark = chance.randint(0, leader.high_watermark)
                leader.lead(epoch)
                for other in controllers:
                    if other is not leader and chance.random() < 0.7:
                        other.epoch, other.leader_id = epoch, leader.node_id
            case 4 if chance.random() < 0.3 and leader.high_watermark == committed_end():
                leader.snapshot(committed, forget=chance.random() < 0.5)
            case _:
                asked = next((one for one in controllers if one.node_id == follower.leader_id), None)
                asked = asked or chance.choice(controllers)
                answer = asked.answer(follower.request(), most_bytes=chance.choice((20, 300, 1 << 20)))
                if chance.random() < 0.1:
                    follower.forget_leader()  # the answer is lost
                else:
                    follower.answered(answer)
        names = [name for entry in committed for name in entry.names]
        assert listener.names == names[: len(listener.names)]

    epoch += 1
    leader.lead(epoch)
    commit(leader.end_offset)
    for other in controllers:
        other.epoch, other.leader_id = epoch, leader.node_id
    follower.forget_leader()
    for _ in range(200):
        asked = next((one for one in controllers if one.node_id == follower.leader_id), leader)
        follower.answered(asked.answer(follower.request()))
    assert listener.names == [name for entry in committed for name in entry.names]
    assert follower.end_offset == follower.high_watermark == leader.end_offset
