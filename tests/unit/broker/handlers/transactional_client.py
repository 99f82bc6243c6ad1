"""A transactional producer that speaks single requests, for tests of transactions through the codec."""

from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    WriteTxnMarkersRequest,
)
from tests.support.batches import produced
from tests.support.broker import InProcessBroker
from tests.support.requests import fetch_request, produce_request

STATE = "__transaction_state"
OFFSETS = "__consumer_offsets"


def with_coordinators(broker: InProcessBroker) -> None:
    """The topics in which groups and transactions are kept are there, and loaded."""
    for topic in (STATE, OFFSETS):
        broker.create_topic(topic)
    components = broker.server.components
    broker.wait_until(
        lambda: (
            bool(components.group_coordinator.groups.active)
            and bool(components.transaction_coordinator.transactions.active)
        )
    )


class TransactionalClient:
    """One producer; ``producer_id`` and ``producer_epoch`` are those that it was given last."""

    def __init__(self, broker: InProcessBroker, transactional_id: str = "shop") -> None:
        self.broker = broker
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.producer_epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def begin(self, version: int = 4, *, timeout_ms: int = 60_000) -> ErrorCode:
        """InitProducerId."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms)
        answer = self.broker.ask(request, version)
        if answer.error_code == ErrorCode.NONE:
            self._take(answer)
        return ErrorCode(answer.error_code)

    def begun(self, version: int = 4) -> "TransactionalClient":
        """The client with its identity."""
        assert self.begin(version) is ErrorCode.NONE
        return self

    def add(self, version: int, *partitions: tuple[str, list[int]], verify_only: bool = False) -> list[ErrorCode]:
        """AddPartitionsToTxn: a code for each partition."""
        topics = [AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in partitions]
        if version < 4:
            answer = self.broker.ask(
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self.transactional_id,
                    v3_and_below_producer_id=self.producer_id,
                    v3_and_below_producer_epoch=self.producer_epoch,
                    v3_and_below_topics=topics,
                ),
                version,
            )
            results = answer.results_by_topic_v3_and_below
        else:
            transaction = AddPartitionsToTxnRequest.Transaction(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                verify_only=verify_only,
                topics=topics,
            )
            answer = self.broker.ask(AddPartitionsToTxnRequest(transactions=[transaction]), version)
            assert answer.error_code == ErrorCode.NONE
            [result] = answer.results_by_transaction
            results = result.topic_results
        return [ErrorCode(one.partition_error_code) for topic in results for one in topic.results_by_partition]

    def add_offsets(self, version: int, group_id: str) -> ErrorCode:
        """AddOffsetsToTxn."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=group_id,
        )
        return ErrorCode(self.broker.ask(request, version).error_code)

    def produce(self, version: int, *, topic: str = "orders", partition: int = 0, records: int = 1) -> Any:
        """Produce a batch of the transaction; the answer for its partition."""
        sequence = self.sequences.get((topic, partition), 0)
        request = produce_request(
            topic,
            produced(
                records,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=sequence,
                is_transactional=True,
            ),
            partition=partition,
            topic_id=self.broker.server.components.metadata.image.topics.by_name[topic].topic_id,
            transactional_id=self.transactional_id,
        )
        [answer] = self.broker.ask(request, version).responses[0].partition_responses
        if answer.error_code == ErrorCode.NONE:
            self.sequences[topic, partition] = sequence + records
        return answer

    def end(self, version: int, *, commit: bool) -> ErrorCode:
        """EndTxn; from version 5 on the client goes on with the identity in the answer."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commit,
        )
        answer = self.broker.ask(request, version)
        if answer.error_code == ErrorCode.NONE and version >= 5:
            self._take(answer)
        return ErrorCode(answer.error_code)

    def marker(self, *, commit: bool = True, **fields: int) -> WriteTxnMarkersRequest.Marker:
        """A marker for this producer's transaction in ``orders-0``."""
        marker = WriteTxnMarkersRequest.Marker
        return marker(
            **{
                "producer_id": self.producer_id,
                "producer_epoch": self.producer_epoch,
                "coordinator_epoch": 0,
                **fields,
            },
            transaction_result=commit,
            topics=[marker.Topic(name="orders", partition_indexes=[0])],
        )

    def _take(self, answer: Any) -> None:
        if (self.producer_id, self.producer_epoch) != (answer.producer_id, answer.producer_epoch):
            self.sequences.clear()
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch


def fetched(broker: InProcessBroker, *, isolation_level: int = 1, partition: int = 0) -> Any:
    """What a fetch from the beginning of ``orders`` answers for a partition."""
    request = fetch_request("orders", partition=partition, isolation_level=isolation_level)
    [answer] = broker.ask(request, 11).responses[0].partitions
    return answer
