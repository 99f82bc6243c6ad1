"""TxnOffsetCommit through the codec: offsets that count once their transaction is committed."""

import pytest

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.committed_offsets import OffsetFetchRequest
from protocol.messages.transactions import TxnOffsetCommitRequest
from tests.support.broker import InProcessBroker
from tests.unit.broker.handlers.transactional_client import TransactionalClient, with_coordinators

ADDS_SINCE = 5


@pytest.fixture
def orders(broker: InProcessBroker) -> bytes:
    return broker.create_topic("orders")


@pytest.fixture
def client(broker: InProcessBroker, orders: bytes) -> TransactionalClient:
    with_coordinators(broker)
    return TransactionalClient(broker).begun()


def commit(
    client: TransactionalClient, orders: bytes, version: int, *, group_id: str = "readers", offset: int = 7
) -> dict[int, int]:
    """Commit offsets for ``orders-0`` and for a partition that there is not; the codes by partition."""
    topic = TxnOffsetCommitRequest.Topic
    request = TxnOffsetCommitRequest(
        transactional_id=client.transactional_id,
        group_id=group_id,
        producer_id=client.producer_id,
        producer_epoch=client.producer_epoch,
        topics=[
            topic(
                name="orders",
                topic_id=orders,
                partitions=[
                    topic.Partition(partition_index=index, committed_offset=offset, committed_metadata="")
                    for index in (0, 9)
                ],
            )
        ],
    )
    [answer] = client.broker.ask(request, version).topics
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
