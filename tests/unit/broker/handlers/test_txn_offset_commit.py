"""TxnOffsetCommit through the codec: offsets that count once their transaction is committed."""

from pathlib import Path
from typing import Any

import pytest

from broker.coordinators.loading import PartitionLoading
from broker.coordinators.transaction.verification import Verified
from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.committed_offsets import OffsetFetchRequest
from protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from protocol.messages.topics import DeleteTopicsRequest
from protocol.messages.transactions import TxnOffsetCommitRequest, WriteTxnMarkersRequest
from tests.support.broker import InProcessBroker, running_broker
from tests.support.files import FaultyFileSystem
from tests.support.groups import Consumer
from tests.support.groups import commit_request as plain_commit_request
from tests.support.leadership import OTHER, OURS, hand_over
from tests.unit.broker.handlers.transactional_client import OFFSETS, STATE, TransactionalClient, with_coordinators

ADDS_SINCE = 5


@pytest.fixture
def orders(broker: InProcessBroker) -> bytes:
    return broker.create_topic("orders")


@pytest.fixture
def client(broker: InProcessBroker, orders: bytes) -> TransactionalClient:
    with_coordinators(broker)
    return TransactionalClient(broker).begun()


def commit_request(
    client: TransactionalClient, orders: bytes, *partitions: int, **fields: Any
) -> TxnOffsetCommitRequest:
    """A request to commit offset 7 for partitions of ``orders``."""
    topic = TxnOffsetCommitRequest.Topic
    of_topic = [
        topic.Partition(partition_index=index, committed_offset=7, committed_metadata="") for index in partitions
    ]
    return TxnOffsetCommitRequest(
        **{
            "transactional_id": client.transactional_id,
            "group_id": "readers",
            "producer_id": client.producer_id,
            "producer_epoch": client.producer_epoch,
            "topics": [topic(name="orders", topic_id=orders, partitions=of_topic)],
            **fields,
        }
    )


def commit(client: TransactionalClient, orders: bytes, version: int, **fields: Any) -> dict[int, int]:
    """Commit offsets for ``orders-0`` and for a partition that there is not; the codes by partition."""
    [answer] = client.broker.ask(commit_request(client, orders, 0, 9, **fields), version).topics
    return {one.partition_index: one.error_code for one in answer.partitions}


def committed(broker: InProcessBroker, *, require_stable: bool = False) -> tuple[int, int]:
    """Offset and error code of the group for ``orders-0``."""
    topic = OffsetFetchRequest.Topic(name="orders", partition_indexes=[0])
    answer = broker.ask(OffsetFetchRequest(group_id="readers", topics=[topic], require_stable=require_stable), 7)
    [partition] = answer.topics[0].partitions
    return partition.committed_offset, partition.error_code


def prepared(client: TransactionalClient, version: int) -> None:
    """Add the group to the transaction, as clients of older versions do first."""
    if version < ADDS_SINCE:
        assert client.add_offsets(3, "readers") is E.NONE


@serves(TxnOffsetCommitRequest, E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION)
@every_version(TxnOffsetCommitRequest)
@pytest.mark.parametrize("ends_with_commit", [True, False])
def test_offsets_count_once_their_transaction_is_committed(
    broker: InProcessBroker, client: TransactionalClient, orders: bytes, version: int, ends_with_commit: bool
) -> None:
    prepared(client, version)
    assert commit(client, orders, version) == {0: E.NONE, 9: E.UNKNOWN_TOPIC_OR_PARTITION}
    assert committed(broker) == (-1, E.NONE)
    assert committed(broker, require_stable=True) == (-1, E.UNSTABLE_OFFSET_COMMIT)
    assert client.end(3, commit=ends_with_commit) is E.NONE
    expected = (7 if ends_with_commit else -1, E.NONE)
    broker.wait_until(lambda: committed(broker, require_stable=True) == expected)


@serves(TxnOffsetCommitRequest, E.INVALID_GROUP_ID)
@every_version(TxnOffsetCommitRequest)
def test_a_group_has_a_name(client: TransactionalClient, orders: bytes, version: int) -> None:
    assert commit(client, orders, version, group_id="")[0] == E.INVALID_GROUP_ID


@serves(TxnOffsetCommitRequest, E.INVALID_TXN_STATE)
@every_version(TxnOffsetCommitRequest, until=3)
def test_a_group_that_is_not_in_the_transaction_is_refused_to_old_clients(
    client: TransactionalClient, orders: bytes, version: int
) -> None:
    assert commit(client, orders, version)[0] == E.INVALID_TXN_STATE


@serves(TxnOffsetCommitRequest, E.TRANSACTION_ABORTABLE, versions=[4])
def test_a_group_that_is_not_in_the_transaction_makes_the_producer_abort(
    client: TransactionalClient, orders: bytes
) -> None:
    assert commit(client, orders, 4)[0] == E.TRANSACTION_ABORTABLE


@serves(TxnOffsetCommitRequest, E.INVALID_PRODUCER_EPOCH)
@every_version(TxnOffsetCommitRequest)
def test_a_fenced_producer_commits_nothing(
    broker: InProcessBroker, client: TransactionalClient, orders: bytes, version: int
) -> None:
    TransactionalClient(broker).begun()
    assert commit(client, orders, version)[0] == E.INVALID_PRODUCER_EPOCH


@serves(TxnOffsetCommitRequest, E.INVALID_PRODUCER_ID_MAPPING)
@every_version(TxnOffsetCommitRequest)
def test_an_unknown_transactional_id_commits_nothing(
    broker: InProcessBroker, client: TransactionalClient, orders: bytes, version: int
) -> None:
    unknown = TransactionalClient(broker, "unknown")
    unknown.producer_id, unknown.producer_epoch = client.producer_id, client.producer_epoch
    assert commit(unknown, orders, version)[0] == E.INVALID_PRODUCER_ID_MAPPING


@serves(TxnOffsetCommitRequest, E.COORDINATOR_NOT_AVAILABLE)
@every_version(TxnOffsetCommitRequest)
def test_without_a_coordinator_nothing_is_committed(broker: InProcessBroker, orders: bytes, version: int) -> None:
    client = TransactionalClient(broker)
    client.producer_id, client.producer_epoch = 7, 0
    assert commit(client, orders, version)[0] == E.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("ends_with_commit", [True, False])
def test_the_transaction_may_end_after_a_restart(
    broker: InProcessBroker, client: TransactionalClient, orders: bytes, ends_with_commit: bool
) -> None:
    prepared(client, 3)
    commit(client, orders, 3)
    broker.restart()
    components = broker.server.components
    broker.wait_until(
        lambda: (
            components.group_coordinator.groups.loading == 0
            and components.transaction_coordinator.transactions.loading == 0
        )
    )
    assert committed(broker, require_stable=True) == (-1, E.UNSTABLE_OFFSET_COMMIT)
    assert client.end(3, commit=ends_with_commit) is E.NONE
    broker.wait_until(lambda: committed(broker) == (7 if ends_with_commit else -1, E.NONE))


# Which offsets are taken


@serves(TxnOffsetCommitRequest, E.OFFSET_METADATA_TOO_LARGE, E.UNKNOWN_TOPIC_OR_PARTITION)
@every_version(TxnOffsetCommitRequest, until=5)
def test_what_is_refused_is_refused_alone_and_comes_first(
    broker: InProcessBroker, client: TransactionalClient, orders: bytes, version: int
) -> None:
    prepared(client, version)
    request = commit_request(client, orders, 0, 9, 0)
    request.topics[0].partitions[2].committed_metadata = "x" * 4097
    unknown = TxnOffsetCommitRequest.Topic(name="nowhere", partitions=request.topics[0].partitions[:1])
    request.topics = [request.topics[0], unknown]
    answer = broker.ask(request, version)
    assert [
        (topic.name, [(one.partition_index, one.error_code) for one in topic.partitions]) for topic in answer.topics
    ] == [
        ("orders", [(9, E.UNKNOWN_TOPIC_OR_PARTITION), (0, E.NONE), (0, E.OFFSET_METADATA_TOO_LARGE)]),
        ("nowhere", [(0, E.UNKNOWN_TOPIC_OR_PARTITION)]),
    ]


@serves(TxnOffsetCommitRequest, E.UNKNOWN_TOPIC_ID, versions=[6])
def test_a_topic_goes_by_its_id_since_version_6(
    broker: InProcessBroker, client: TransactionalClient, orders: bytes
) -> None:
    request = commit_request(client, orders, 0)
    unknown = TxnOffsetCommitRequest.Topic(topic_id=bytes(15) + b"\1", partitions=request.topics[0].partitions)
    request.topics = [request.topics[0], unknown]
    refused, taken = broker.ask(request, 6).topics
    assert (refused.topic_id, refused.partitions[0].error_code) == (unknown.topic_id, E.UNKNOWN_TOPIC_ID)
    assert (taken.topic_id, taken.partitions[0].error_code) == (orders, E.NONE)


@every_version(TxnOffsetCommitRequest)
def test_a_request_that_has_nothing_to_commit_is_neither_verified_nor_added(
    broker: InProcessBroker, client: TransactionalClient, orders: bytes, version: int
) -> None:
    unknown = TransactionalClient(broker, "unknown")
    assert broker.ask(commit_request(unknown, orders, topics=[]), version).topics == []
    [answer] = broker.ask(commit_request(unknown, orders, 9), version).topics
    assert [one.error_code for one in answer.partitions] == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert client.add(4, (OFFSETS, [0]), verify_only=True) == [E.TRANSACTION_ABORTABLE]


def test_a_deleted_topic_takes_its_pending_offsets_along(
    broker: InProcessBroker, client: TransactionalClient, orders: bytes
) -> None:
    assert commit(client, orders, 5)[0] == E.NONE
    topic = DeleteTopicsRequest.Topic(name="orders", topic_id=bytes(16))
    assert broker.ask(DeleteTopicsRequest(topics=[topic], timeout_ms=1000), 6).responses[0].error_code == E.NONE
    again = broker.create_topic("orders")
    broker.settle()
    assert committed(broker, require_stable=True) == (-1, E.NONE)
    assert commit(client, again, 5)[0] == E.NONE
    assert client.end(3, commit=True) is E.NONE
    broker.wait_until(lambda: committed(broker, require_stable=True) == (7, E.NONE))


# Who may commit


def code_of_member(client: TransactionalClient, orders: bytes, version: int, generation: int, member_id: str) -> int:
    fields = {"generation_id_or_member_epoch": generation, "member_id": member_id}
    return commit(client, orders, version, **fields)[0]


@serves(TxnOffsetCommitRequest, E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID)
@every_version(TxnOffsetCommitRequest, since=3)
def test_the_group_checks_the_member_that_a_producer_names(
    broker: InProcessBroker, client: TransactionalClient, orders: bytes, version: int
) -> None:
    consumer = Consumer(broker)
    joined = consumer.join()
    prepared(client, version)
    # The member waits for its assignment, which holds up commits outside of transactions only.
    assert code_of_member(client, orders, version, joined.generation_id, joined.member_id) == E.NONE
    assert code_of_member(client, orders, version, -1, "") == E.NONE
    wrong = joined.generation_id + 1
    assert code_of_member(client, orders, version, wrong, joined.member_id) == E.ILLEGAL_GENERATION
    assert code_of_member(client, orders, version, joined.generation_id, "") == E.UNKNOWN_MEMBER_ID


@every_version(TxnOffsetCommitRequest, since=3)
def test_a_generation_of_no_group_is_refused_as_the_version_knows_it(
    client: TransactionalClient, orders: bytes, version: int
) -> None:
    prepared(client, version)
    expected = E.ILLEGAL_GENERATION if version < 6 else E.GROUP_ID_NOT_FOUND
    assert code_of_member(client, orders, version, 3, "") == expected


@every_version(TxnOffsetCommitRequest, since=3)
def test_a_stale_epoch_is_refused_as_the_version_knows_it(
    broker: InProcessBroker, client: TransactionalClient, orders: bytes, version: int
) -> None:
    prepared(client, version)
    joins = ConsumerGroupHeartbeatRequest(
        group_id="readers",
        member_id="me",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    epoch = broker.ask(joins, 1).member_epoch
    assert code_of_member(client, orders, version, epoch, "me") == E.NONE
    for stale in (epoch - 2, epoch + 98):
        expected = E.ILLEGAL_GENERATION if version < 6 else E.STALE_MEMBER_EPOCH
        assert code_of_member(client, orders, version, stale, "me") == expected


def test_the_partition_is_added_before_the_group_checks_the_member(client: TransactionalClient, orders: bytes) -> None:
    assert code_of_member(client, orders, 5, 3, "") == E.ILLEGAL_GENERATION
    assert client.add(4, (OFFSETS, [0]), verify_only=True) == [E.NONE]


def test_a_producer_with_a_transaction_in_the_partition_is_not_verified_again(
    broker: InProcessBroker, client: TransactionalClient, orders: bytes
) -> None:
    assert commit(client, orders, 5)[0] == E.NONE
    for transactional_id in ("", "unknown"):
        assert commit(client, orders, 3, transactional_id=transactional_id)[0] == E.NONE
    assert commit(client, orders, 3, transactional_id="unknown", producer_epoch=1)[0] == E.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.settings(transaction_partition_verification_enable="false")
def test_without_verification_older_clients_need_no_transaction_but_a_producer(
    broker: InProcessBroker, client: TransactionalClient, orders: bytes
) -> None:
    def code(version: int, producer_id: int, producer_epoch: int) -> int:
        fields = {"producer_id": producer_id, "producer_epoch": producer_epoch, "transactional_id": "unknown"}
        return commit(client, orders, version, **fields)[0]

    assert code(4, 77, 0) == E.NONE
    assert code(4, -1, 0) == E.INVALID_PRODUCER_ID_MAPPING
    assert code(4, 77, -1) == E.INVALID_PRODUCER_EPOCH
    assert code(5, 78, 0) == E.INVALID_PRODUCER_ID_MAPPING


# Where the coordinators are not here


@serves(TxnOffsetCommitRequest, E.NOT_COORDINATOR)
@every_version(TxnOffsetCommitRequest)
def test_a_group_that_another_node_coordinates_is_not_committed_to(
    broker: InProcessBroker, client: TransactionalClient, orders: bytes, version: int
) -> None:
    prepared(client, version)
    hand_over(broker, OFFSETS, OTHER)
    assert commit(client, orders, version) == {0: E.NOT_COORDINATOR, 9: E.UNKNOWN_TOPIC_OR_PARTITION}
    hand_over(broker, OFFSETS, OURS)
    broker.wait_until(lambda: not broker.server.components.group_coordinator.groups.loading)
    assert commit(client, orders, version)[0] == E.NONE


@every_version(TxnOffsetCommitRequest)
def test_the_clients_are_told_to_come_again_while_groups_are_loading(
    broker: InProcessBroker,
    client: TransactionalClient,
    orders: bytes,
    version: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker.ask(plain_commit_request({("orders", 0): 1}), 8)
    monkeypatch.setattr(PartitionLoading, "begin", lambda loading, slices: None)
    hand_over(broker, OFFSETS, OTHER)
    hand_over(broker, OFFSETS, OURS)
    expected = E.COORDINATOR_NOT_AVAILABLE if version < 2 else E.COORDINATOR_LOAD_IN_PROGRESS
    assert commit(client, orders, version)[0] == expected


@every_version(TxnOffsetCommitRequest)
def test_a_transaction_that_another_node_coordinates_leaves_the_group_where_it_is(
    broker: InProcessBroker, client: TransactionalClient, orders: bytes, version: int
) -> None:
    prepared(client, version)
    hand_over(broker, STATE, OTHER)
    assert commit(client, orders, version)[0] == E.COORDINATOR_NOT_AVAILABLE


def test_the_group_may_go_to_another_node_while_its_partition_is_being_added(
    broker: InProcessBroker, orders: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic(STATE, flush_messages=1)
    broker.create_topic(OFFSETS)
    client = TransactionalClient(broker).begun()
    replicas = broker.server.components.replicas
    monkeypatch.setattr(replicas, "flush", lambda partition: None)
    connection = broker.connect()
    connection.send(commit_request(client, orders, 0), 5)
    assert connection.has_no_answer()

    hand_over(broker, OFFSETS, OTHER)

    async def flush() -> None:
        broker.log(STATE).flush(0)
        replicas.produce_purgatory.check(replicas.partition(STATE, 0))

    broker.run(flush())
    assert connection.receive().topics[0].partitions[0].error_code == E.NOT_COORDINATOR
    assert broker.log(OFFSETS).log_end_offset == 0


def test_on_a_full_disk_offsets_are_neither_pending_nor_committed(tmp_path: Path) -> None:
    disk = FaultyFileSystem()
    with running_broker(tmp_path / "data", files=disk) as broker:
        orders = broker.create_topic("orders")
        with_coordinators(broker)
        client = TransactionalClient(broker).begun()
        assert client.add_offsets(3, "readers") is E.NONE
        disk.fill_up()
        assert commit(client, orders, 3)[0] == E.NOT_COORDINATOR
        disk.make_room()
        assert committed(broker, require_stable=True) == (-1, E.NONE)
        assert client.end(3, commit=True) is E.NONE
        assert committed(broker, require_stable=True) == (-1, E.NONE)


class ElsewhereCoordinated:
    """The transaction's coordinator is on another broker, and answers when the test says so."""

    def __init__(self, broker: InProcessBroker) -> None:
        self._broker = broker
        self._then: list[Verified] = []
        coordinator = broker.server.components.transaction_coordinator
        vars(coordinator).update(verify=self._ask, add=self._ask)

    def _ask(self, *question: Any) -> None:
        self._then.append(question[-1])

    def answer(self, code: E) -> None:
        async def answer() -> None:
            self._then.pop(0)([code])

        self._broker.run(answer())
        self._broker.settle()


@every_version(TxnOffsetCommitRequest)
def test_a_transactions_coordinator_that_cannot_be_reached_is_one_that_loads(
    broker: InProcessBroker, client: TransactionalClient, orders: bytes, version: int
) -> None:
    elsewhere = ElsewhereCoordinated(broker)
    connection = broker.connect()
    connection.send(commit_request(client, orders, 0), version)
    assert connection.has_no_answer()
    elsewhere.answer(E.NETWORK_EXCEPTION)
    told = E.COORDINATOR_LOAD_IN_PROGRESS if version >= 2 else E.COORDINATOR_NOT_AVAILABLE
    assert connection.receive().topics[0].partitions[0].error_code == told


@serves(TxnOffsetCommitRequest, E.INVALID_TXN_STATE)
@pytest.mark.parametrize("version", [3, 4])
def test_an_answer_that_the_transactions_marker_has_overtaken_commits_nothing(
    broker: InProcessBroker, client: TransactionalClient, orders: bytes, version: int
) -> None:
    elsewhere = ElsewhereCoordinated(broker)
    connection = broker.connect()
    connection.send(commit_request(client, orders, 0), version)
    assert connection.has_no_answer()
    marker = client.marker(commit=False)
    marker.topics[0].name = OFFSETS
    broker.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
    elsewhere.answer(E.NONE)
    assert connection.receive().topics[0].partitions[0].error_code == E.INVALID_TXN_STATE
    assert committed(broker) == (-1, E.NONE)


@serves(TxnOffsetCommitRequest, E.NOT_COORDINATOR, versions=[3])
def test_an_answer_does_not_outlive_the_leadership_of_the_groups_partition(
    broker: InProcessBroker, client: TransactionalClient, orders: bytes
) -> None:
    elsewhere = ElsewhereCoordinated(broker)
    connection = broker.connect()
    connection.send(commit_request(client, orders, 0), 3)
    assert connection.has_no_answer()
    hand_over(broker, OFFSETS, OTHER)
    hand_over(broker, OFFSETS, OURS)
    elsewhere.answer(E.NONE)
    assert connection.receive().topics[0].partitions[0].error_code == E.NOT_COORDINATOR


def test_several_commits_of_one_transaction_may_be_verified_at_once(
    broker: InProcessBroker, client: TransactionalClient, orders: bytes
) -> None:
    elsewhere = ElsewhereCoordinated(broker)
    connections = [broker.connect(), broker.connect()]
    for connection in connections:
        connection.send(commit_request(client, orders, 0), 3)
        assert connection.has_no_answer()
    for connection in connections:
        elsewhere.answer(E.NONE)
        assert connection.receive().topics[0].partitions[0].error_code == E.NONE
