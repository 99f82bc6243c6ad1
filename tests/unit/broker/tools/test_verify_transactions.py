"""`ottla verify` on transactions: open, ended and hanging, and what their markers and transaction indexes say."""

import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.tools import verify
from broker.tools.transaction_check import TransactionCheck
from protocol.errors import ErrorCode as E
from protocol.records.cluster_metadata import PartitionRecord, TopicRecord
from protocol.records.transaction_state import TransactionStatus
from storage.batch.records import Record
from storage.check.findings import Findings
from storage.check.producer_check import OpenTransaction
from storage.index.transaction_index import ENTRY
from storage.topic_partition import TopicPartition
from tests.support.batches import T, end_marker, produced
from tests.support.broker import InProcessBroker, running_broker
from tests.support.metadata import image_of
from tests.support.written_directories import append, transaction_state
from tests.unit.broker.handlers.transactional_client import STATE, TransactionalClient, with_coordinators
from tests.unit.broker.tools.conftest import Tool

PRODUCER = {"producer_id": 7, "producer_epoch": 3}
ONGOING, PREPARE_COMMIT = TransactionStatus.ONGOING, TransactionStatus.PREPARE_COMMIT
HANGS = "a hanging transaction of producer 7 with epoch 3 from offset 1"


def damages(answer: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in answer if line["type"] == "damage"]


def write(directory: Path, states: Sequence[Record] | None, *, partitions: int = 1, **settings: Any) -> None:
    """A directory in which producer 7 has a transaction open in `orders-0`, and these records of its coordinator's."""
    with running_broker(directory, **settings) as broker:
        broker.create_topic("orders", partitions=2)
        broker.produce("orders", b"outside of transactions")
        append(broker, "orders", produced(2, **PRODUCER, base_sequence=0, is_transactional=True))
        if states is not None:
            broker.create_topic(STATE, partitions=partitions)
            append(broker, STATE, produced(states or [transaction_state("other", 8, TransactionStatus.EMPTY)]))


# Transactions that will be ended ----------------------------------------------------------------------------------


@pytest.mark.parametrize("versions", [(3, 9, 4), (5, 12, 5)], ids=["transaction version 1", "transaction version 2"])
def test_a_transaction_that_is_open_when_the_broker_stops_does_not_hang(
    tmp_path: Path, run_verify: Tool, versions: tuple[int, int, int]
) -> None:
    adding, producing, ending = versions
    with running_broker(tmp_path) as broker:
        with_coordinators(broker)
        broker.create_topic("orders", partitions=2)
        for transactional_id in ("ended", "open"):
            client = TransactionalClient(broker, transactional_id).begun()
            if adding < 5:
                assert client.add(adding, ("orders", [0, 1])) == [E.NONE, E.NONE]
            for partition in (0, 1):
                assert client.produce(producing, partition=partition).error_code == E.NONE
            if transactional_id == "ended":
                assert client.end(ending, commit=False) is E.NONE

    code, answer = run_verify(tmp_path)

    assert (code, answer[:-1]) == (0, [])


@pytest.mark.parametrize(
    "state",
    [
        transaction_state("shop", 7, ONGOING, epoch=3, orders=[0]),
        transaction_state("shop", 7, PREPARE_COMMIT, epoch=4, orders=[1, 0]),
        transaction_state("shop", 7, ONGOING, epoch=5, orders=[0]),
    ],
    ids=["ongoing", "being ended, with the next epoch", "a later transaction, which will end it too"],
)
def test_what_the_coordinator_has_in_hand_does_not_hang(tmp_path: Path, run_verify: Tool, state: Record) -> None:
    write(tmp_path, [state])

    code, answer = run_verify(tmp_path)

    assert (code, answer[:-1]) == (0, [])


# Transactions that hang -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "has"),
    [
        (None, "no such producer"),
        ([], "no such producer"),
        (
            [transaction_state("shop", 7, ONGOING, epoch=3, orders=[1], payments=[0])],
            "transactional id 'shop' in state Ongoing with epoch 3",
        ),
        (
            [transaction_state("shop", 7, ONGOING, epoch=2, orders=[0])],
            "transactional id 'shop' in state Ongoing with epoch 2",
        ),
        (
            [
                transaction_state("shop", 7, ONGOING, epoch=3, orders=[0]),
                transaction_state("shop", 7, TransactionStatus.COMPLETE_ABORT, epoch=4, orders=[0]),
            ],
            "transactional id 'shop' in state CompleteAbort with epoch 4",
        ),
        (
            [transaction_state("shop", 7, TransactionStatus.EMPTY, epoch=3)],
            "transactional id 'shop' in state Empty with epoch 3",
        ),
        (
            [
                transaction_state("shop", 7, ONGOING, epoch=3, orders=[0]),
                Record(timestamp=T, key=transaction_state("shop", 7, ONGOING).key, value=None),
            ],
            "no such producer",
        ),
    ],
    ids=["no coordinator", "unknown", "other partitions", "an epoch before", "complete", "empty", "expired"],
)
def test_a_transaction_that_no_coordinator_will_end_is_damage(
    tmp_path: Path, run_verify: Tool, states: Sequence[Record] | None, has: str
) -> None:
    write(tmp_path, states)

    code, answer = run_verify(tmp_path)

    assert code == 1
    assert damages(answer) == [
        {
            "type": "damage",
            "path": f"{tmp_path}/orders-0",
            "position": None,
            "found": HANGS,
            "expected": f"a marker, or an ongoing transaction with orders-0 in {STATE}, which has {has}",
            "offset": 1,
        }
    ]


def test_people_read_which_transaction_hangs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, [])

    assert verify.main([str(tmp_path)]) == 1

    damage, summary = capsys.readouterr().out.splitlines()
    assert damage.startswith(f"damage  {tmp_path}/orders-0: found {HANGS}, expected a marker, or an ongoing ")
    assert summary.startswith("1 damaged: ")


def test_so_does_one_that_was_written_while_the_coordinator_was_not_asked(tmp_path: Path, run_verify: Tool) -> None:
    """A batch that came late, after the end of its transaction, from a client that does not let it be verified."""
    with running_broker(tmp_path, transaction_partition_verification_enable="false") as broker:
        with_coordinators(broker)
        broker.create_topic("orders", partitions=1)
        client = TransactionalClient(broker).begun()
        assert client.add(3, ("orders", [0])) == [E.NONE]
        assert client.produce(9).error_code == E.NONE
        assert client.end(4, commit=True) is E.NONE
        assert client.produce(9).error_code == E.NONE

    code, answer = run_verify(tmp_path)

    assert code == 1
    assert [(damage["offset"], damage["expected"][-60:]) for damage in damages(answer)] == [
        (2, "transactional id 'shop' in state CompleteCommit with epoch 0")
    ]


def test_it_hangs_after_a_kill_too(tmp_path: Path, run_verify: Tool) -> None:
    with running_broker(tmp_path / "running") as broker:
        broker.create_topic("orders")
        append(broker, "orders", produced(2, **PRODUCER, base_sequence=0, is_transactional=True))
        shutil.copytree(tmp_path / "running", tmp_path / "killed", ignore=shutil.ignore_patterns("*.tmp"))

    code, answer = run_verify(tmp_path / "killed")

    assert (code, [damage["offset"] for damage in damages(answer)]) == (1, [0])


# Transactions that cannot be judged -----------------------------------------------------------------------------------


def test_without_all_partitions_of_the_coordinators_nothing_is_said_to_hang(tmp_path: Path, run_verify: Tool) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    write(one, [], partitions=3, log_dirs=f"{one},{other}")
    home = one if (one / "orders-0").exists() else other

    code, answer = run_verify(one, other)
    assert (code, [damage["path"] for damage in damages(answer)]) == (1, [f"{home}/orders-0"])
    for directory in (one, other):
        code, answer = run_verify(directory)
        assert (code, answer[:-1]) == (0, [])


@pytest.mark.parametrize(
    ("of_orders", "of_state", "hang"), [([1], [1], 1), ([1, 2], [1], 0), ([1], [1, 2], 0), ([1], [2], 0)]
)
def test_where_other_nodes_have_replicas_nothing_is_said_to_hang(
    of_orders: list[int], of_state: list[int], hang: int
) -> None:
    """A follower may lack a marker, or the newest state, that the leader has."""
    findings = Findings(lambda finding: None, lambda size: None)
    check = TransactionCheck(findings)
    check.log_read(TopicPartition("orders", 0), "data/orders-0", (OpenTransaction(7, 3, 1),))
    check.log_read(TopicPartition(STATE, 0), f"data/{STATE}-0", ())

    check.finish(image_of(*topic("orders", 1, of_orders), *topic(STATE, 2, of_state)), node_id=1)

    assert findings.damages == hang


def topic(name: str, number: int, replicas: list[int]) -> tuple[TopicRecord, PartitionRecord]:
    """The records of a topic with one partition."""
    topic_id = number.to_bytes(16, "big")
    return (
        TopicRecord(name=name, topic_id=topic_id),
        PartitionRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=replicas,
            isr=replicas,
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
        ),
    )


def test_without_the_metadata_log_nothing_is_said_to_hang(tmp_path: Path, run_verify: Tool) -> None:
    write(tmp_path, [])
    shutil.rmtree(tmp_path / "__cluster_metadata-0")

    assert run_verify(tmp_path)[0] == 0


@pytest.mark.parametrize("log", [f"{STATE}-0", "orders-0"])
def test_where_a_log_is_damaged_the_damage_is_all_that_is_said(tmp_path: Path, run_verify: Tool, log: str) -> None:
    write(tmp_path, [])
    path = tmp_path / log / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    path.write_bytes(content)

    code, answer = run_verify(tmp_path)

    assert (code, [damage["path"] for damage in damages(answer)]) == (1, [str(path)])


# Markers and the transaction index ------------------------------------------------------------------------------------


def with_markers(directory: Path, *producer_ids: int, commit: bool = False) -> Path:
    """A directory with a marker of each producer, of which none had a transaction; the place of its index."""
    with running_broker(directory) as broker:
        broker.create_topic("orders")
        broker.produce("orders", b"outside of transactions")
        for producer_id in producer_ids:
            append(broker, "orders", end_marker(commit=commit, producer_id=producer_id, producer_epoch=0))
    return directory / "orders-0/00000000000000000000.txnindex"


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_without_a_transaction_is_no_fault_and_has_no_entry(
    tmp_path: Path, run_verify: Tool, commit: bool
) -> None:
    index = with_markers(tmp_path, 7, 8, commit=commit)

    code, answer = run_verify(tmp_path)

    assert (code, answer[:-1], index.exists()) == (0, [], False)


def test_an_entry_for_a_marker_that_ended_nothing_is_damage(tmp_path: Path, run_verify: Tool) -> None:
    index = with_markers(tmp_path, 7, 8)
    index.write_bytes(ENTRY.pack(0, 8, 0, 2, 3))

    _, answer = run_verify(tmp_path)

    assert [
        (damage["path"], damage["position"], damage["found"], damage["expected"]) for damage in damages(answer)
    ] == [
        (
            str(index),
            0,
            "producer 8 aborted from 0 to 2, last stable offset 3",
            "no entry: producer 8 had no transaction for the marker at offset 2",
        )
    ]


def test_the_first_entry_that_no_log_can_have_ends_the_check_of_the_index(tmp_path: Path, run_verify: Tool) -> None:
    index = with_markers(tmp_path, 7)
    with running_broker(tmp_path) as broker:
        _abort(broker, 9)
        _abort(broker, 10)
    content = bytearray(index.read_bytes())
    struct.pack_into(">q", content, 10, 99)
    index.write_bytes(content)

    _, answer = run_verify(tmp_path)

    assert [(damage["position"], damage["found"]) for damage in damages(answer)] == [(0, "first offset 99")]


def _abort(broker: InProcessBroker, producer_id: int) -> None:
    fields = {"producer_id": producer_id, "producer_epoch": 0}
    append(broker, "orders", produced(2, **fields, base_sequence=0, is_transactional=True))
    append(broker, "orders", end_marker(commit=False, **fields))
