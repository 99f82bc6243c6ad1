"""Transactions of producers that there are not, and what partitions know of their producers."""

from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.producers import DescribeProducersRequest
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from tests.parity.exchange import Exchange
from tests.support.batches import T, produced, record
from tests.support.requests import produce_request

Marker = WriteTxnMarkersRequest.Marker

UNKNOWN_ID = bytes(15) + b"\1"


def added(version: int, transactional_id: str, *partitions: tuple[str, list[int]], **more: Any) -> Any:
    topics = [AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in partitions]
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id, v3_and_below_producer_id=5, v3_and_below_topics=topics
        )
    transaction = AddPartitionsToTxnRequest.Transaction(
        transactional_id=transactional_id, producer_id=5, producer_epoch=0, topics=topics, **more
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def of_group(transactional_id: str, group_id: str = "readers") -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(transactional_id=transactional_id, producer_id=5, producer_epoch=0, group_id=group_id)


def ended(transactional_id: str) -> EndTxnRequest:
    return EndTxnRequest(transactional_id=transactional_id, producer_id=5, producer_epoch=0, committed=True)


def committed(
    version: int, transactional_id: str, group_id: str, topic_id: bytes, *partitions: tuple[str, list[int]]
) -> TxnOffsetCommitRequest:
    topic = TxnOffsetCommitRequest.Topic
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group_id,
        producer_id=5,
        producer_epoch=0,
        topics=[
            topic(
                name=name if version < 6 else "",
                topic_id=(topic_id if name == "orders" else UNKNOWN_ID) if version >= 6 else bytes(16),
                partitions=[
                    topic.Partition(partition_index=index, committed_offset=3, committed_metadata="")
                    for index in indexes
                ],
            )
            for name, indexes in partitions
        ],
    )


def markers(*topics: tuple[str, list[int]]) -> WriteTxnMarkersRequest:
    of = [Marker.Topic(name=name, partition_indexes=indexes) for name, indexes in topics]
    marker = Marker(producer_id=5, producer_epoch=0, transaction_result=True, topics=of, coordinator_epoch=0)
    return WriteTxnMarkersRequest(markers=[marker])


def listed(**fields: Any) -> ListTransactionsRequest:
    return ListTransactionsRequest(**{"state_filters": [], "producer_id_filters": [], **fields})


def producers(topic: str, *partitions: int) -> DescribeProducersRequest:
    asked = DescribeProducersRequest.Topic(name=topic, partition_indexes=list(partitions))
    return DescribeProducersRequest(topics=[asked])


def run(exchange: Exchange) -> None:
    topic_id = exchange.create_topic("orders", partitions=2)
    transactions(exchange, topic_id, "without coordinators")
    for key_type, key in ((1, "shop"), (0, "readers")):
        asked = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        exchange.wait_until(asked, 4, lambda answer: not answer.coordinators[0].error_code)
    _wait_for_coordinators(exchange, topic_id)
    transactions(exchange, topic_id, "with coordinators")
    describe_producers(exchange)


def _wait_for_coordinators(exchange: Exchange, topic_id: bytes) -> None:
    """Both have loaded what they keep."""
    no_producer = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    exchange.wait_until(ended("shop"), 4, lambda answer: answer.error_code == no_producer)
    exchange.wait_until(
        committed(3, "shop", "readers", topic_id, ("orders", [0])),
        3,
        lambda answer: answer.topics[0].partitions[0].error_code == no_producer,
    )


def transactions(exchange: Exchange, topic_id: bytes, when: str) -> None:
    for transactional_id in ("shop", ""):
        of = f"{when}, the id {transactional_id!r}"
        exchange.ask_each(
            f"{of}: a partition", lambda version, id_=transactional_id: added(version, id_, ("orders", [0]))
        )
        exchange.ask_each(f"{of}: offsets of a group", of_group(transactional_id))
        exchange.ask_each(f"{of}: offsets of a group without a name", of_group(transactional_id, ""))
        exchange.ask_each(f"{of}: the end", ended(transactional_id))
        exchange.ask_each(
            f"{of}: offsets",
            lambda version, id_=transactional_id: committed(version, id_, "readers", topic_id, ("orders", [0])),
        )
    unknown: list[tuple[str, list[int]]] = [("orders", [0, 9]), ("nope", [0])]
    exchange.ask_each(f"{when}: partitions that there are not", lambda version: added(version, "shop", *unknown))
    exchange.ask_each(f"{when}: no partitions", lambda version: added(version, "shop"))
    exchange.ask_each(
        f"{when}: to be verified", lambda version: added(version, "shop", ("orders", [0]), verify_only=True), since=4
    )
    exchange.ask_each(
        f"{when}: offsets of partitions that there are not",
        lambda version: committed(version, "shop", "readers", topic_id, *unknown),
    )
    exchange.ask_each(
        f"{when}: offsets of a group without a name",
        lambda version: committed(version, "shop", "", topic_id, ("orders", [0])),
    )
    exchange.ask_each(f"{when}: no offsets", lambda version: committed(version, "shop", "readers", topic_id))
    exchange.ask_each(f"{when}: markers in partitions that there are not", markers(("nope", [0]), ("orders", [9])))
    exchange.ask_each(f"{when}: markers nowhere", markers())
    exchange.ask_each(f"{when}: no markers", WriteTxnMarkersRequest(markers=[]))
    exchange.ask_each(f"{when}: three", DescribeTransactionsRequest(transactional_ids=["shop", "", "shop"]))
    exchange.ask_each(f"{when}: none", DescribeTransactionsRequest(transactional_ids=[]))
    exchange.ask_each(f"{when}: all", listed())
    exchange.ask_each(f"{when}: by states", listed(state_filters=["Ongoing", "ongoing", "Bogus", "Empty", "Dead"]))
    exchange.ask_each(f"{when}: of a producer", listed(producer_id_filters=[5]))
    exchange.ask_each(f"{when}: that last", listed(duration_filter=1000), since=1)
    for pattern in ("", "shop-.*", "(shop", "*"):
        exchange.ask_each(f"{when}: like {pattern!r}", listed(transactional_id_pattern=pattern), since=2)


def describe_producers(exchange: Exchange) -> None:
    exchange.ask_each("of an empty partition", producers("orders", 0))
    for sequence in (0, 2):
        records = [record(b"a", timestamp=T + sequence), record(b"b", timestamp=T + sequence)]
        batch = produced(records, producer_id=7, producer_epoch=3, base_sequence=sequence)
        exchange.ask(f"sequence {sequence}", produce_request("orders", batch), 9)
    exchange.ask_each("of a partition with one", producers("orders", 0, 1))
    exchange.ask_each("of partitions that there are not", producers("orders", 9, -1))
    exchange.ask_each("of no partitions", producers("orders"))
    exchange.ask_each("a partition twice", producers("orders", 0, 0))
    exchange.ask_each("of no topics", DescribeProducersRequest(topics=[]))
    for topic in ("nope", "no spaces", "", ".", "__cluster_metadata"):
        exchange.ask_each(f"the topic {topic!r}", producers(topic, 0))
