"""Producers with a transactional id, in the language of the scripts.

A request that is given a step is noted, and so compared. A request without a step brings a transaction into the state
that a step needs. Where Kafka answers CONCURRENT_TRANSACTIONS, because markers are still to be written, the scripts
wait, as clients do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Final

from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from storage.batch.records import Record
from tests.parity.exchange import Exchange
from tests.parity.members import ONE_GROUP_OF_EACH_PARTITION
from tests.support.batches import produced
from tests.support.requests import produce_request

OLD_ADD, OLD_END, OLD_PRODUCE = 3, 4, 11
"""The newest versions that clients of transaction version 1 use: partitions are added, the epoch stays."""
NEW_END, NEW_PRODUCE = 5, 12
"""From these versions on a batch adds its partition, and the end raises the epoch (KIP-890)."""
ADD_OF_SEVERAL = 4
"""From this version on AddPartitionsToTxn names several transactions, and may only verify."""
OFFSETS_BY_ID = 6
"""From this version on TxnOffsetCommit names topics by their ids."""

UNKNOWN_TOPIC_ID = bytes(15) + b"\1"
BUSY: Final = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)

Partitions = tuple[str, Sequence[int]]


def await_transactions(exchange: Exchange) -> None:
    """Wait until every partition of the transaction coordinator is loaded, and producer ids are at hand."""
    coordinator = FindCoordinatorRequest(key_type=1, coordinator_keys=["any"])
    exchange.wait_until(coordinator, 4, lambda answer: not answer.coordinators[0].error_code, patience_s=60.0)
    exchange.wait_until(
        described(*ONE_GROUP_OF_EACH_PARTITION),
        0,
        lambda answer: all(
            state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND for state in answer.transaction_states
        ),
        patience_s=60.0,
    )
    identity = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    exchange.wait_until(identity, 5, lambda answer: not answer.error_code, patience_s=60.0)


def described(*transactional_ids: str) -> DescribeTransactionsRequest:
    return DescribeTransactionsRequest(transactional_ids=[*transactional_ids])


def topics_of(partitions: Iterable[Partitions]) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=name, partitions=[*indexes]) for name, indexes in partitions]


class Producer:
    """One producer: the producer id and epoch are those of its last good answer.

    Fields that a request is given take the place of the producer's own.
    """

    def __init__(self, exchange: Exchange, transactional_id: str, *, timeout_ms: int = 600_000) -> None:
        self.exchange = exchange
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.id = -1
        self.epoch = -1

    # Requests

    def initialising(self, **fields: Any) -> InitProducerIdRequest:
        """Without the producer id and epoch, unless they are given."""
        own = {"transactional_id": self.transactional_id, "transaction_timeout_ms": self.timeout_ms}
        return InitProducerIdRequest(**{**own, **fields})

    def initialising_again(self, **fields: Any) -> InitProducerIdRequest:
        """With the producer id and epoch (KIP-360)."""
        return self.initialising(**{"producer_id": self.id, "producer_epoch": self.epoch, **fields})

    def transaction(self, *partitions: Partitions, **fields: Any) -> AddPartitionsToTxnRequest.Transaction:
        """As AddPartitionsToTxn names several."""
        return AddPartitionsToTxnRequest.Transaction(topics=topics_of(partitions), **self._own(**fields))

    def adding(
        self, version: int, *partitions: Partitions, verify_only: bool = False, **fields: Any
    ) -> AddPartitionsToTxnRequest:
        if version >= ADD_OF_SEVERAL:
            transaction = self.transaction(*partitions, verify_only=verify_only, **fields)
            return AddPartitionsToTxnRequest(transactions=[transaction])
        own = {f"v3_and_below_{name}": value for name, value in self._own(**fields).items()}
        return AddPartitionsToTxnRequest(v3_and_below_topics=topics_of(partitions), **own)

    def adding_group(self, group_id: str, **fields: Any) -> AddOffsetsToTxnRequest:
        return AddOffsetsToTxnRequest(group_id=group_id, **self._own(**fields))

    def committing(
        self, version: int, group_id: str, offsets: Mapping[str, Mapping[int, Any]], **fields: Any
    ) -> TxnOffsetCommitRequest:
        """Offsets by topic and partition; a value may be a pair of offset and metadata."""
        topic = TxnOffsetCommitRequest.Topic

        def partition(index: int, offset: Any) -> Any:
            committed, metadata = offset if isinstance(offset, tuple) else (offset, "")
            return topic.Partition(partition_index=index, committed_offset=committed, committed_metadata=metadata)

        ids = self.exchange.topic_ids
        topics = [
            topic(
                name=name if version < OFFSETS_BY_ID else "",
                topic_id=ids.get(name, UNKNOWN_TOPIC_ID) if version >= OFFSETS_BY_ID else bytes(16),
                partitions=[partition(index, offset) for index, offset in partitions.items()],
            )
            for name, partitions in offsets.items()
        ]
        return TxnOffsetCommitRequest(group_id=group_id, topics=topics, **self._own(**fields))

    def ending(self, committed: bool = True, **fields: Any) -> EndTxnRequest:
        return EndTxnRequest(committed=committed, **self._own(**fields))

    def batch(self, sequence: int = 0, count: int | Sequence[Record] = 1, **fields: Any) -> memoryview:
        """A transactional batch of so many records, or of these."""
        own = {"producer_id": self.id, "producer_epoch": self.epoch, "base_sequence": sequence}
        return produced(count, **{**own, "is_transactional": True, **fields})

    def producing(
        self,
        sequence: int = 0,
        *,
        topic: str = "orders",
        partition: int = 0,
        acks: int = -1,
        transactional_id: str | None = "its own",
        **fields: Any,
    ) -> ProduceRequest:
        """One batch for one partition."""
        return produce_request(
            topic,
            self.batch(sequence, **fields),
            partition=partition,
            acks=acks,
            topic_id=self.exchange.topic_ids.get(topic, UNKNOWN_TOPIC_ID),
            transactional_id=self.transactional_id if transactional_id == "its own" else transactional_id,
        )

    def _own(self, **fields: Any) -> dict[str, Any]:
        own = {"transactional_id": self.transactional_id, "producer_id": self.id, "producer_epoch": self.epoch}
        return {**own, **fields}

    # What brings it into a state

    def initialise(self, **fields: Any) -> Producer:
        """Get an id and epoch, however long markers are still to be written."""
        self._good(self.initialising(**fields), 5)
        return self.settle()

    def initialise_again(self) -> Producer:
        """Give its epoch, and get the next epoch."""
        self._good(self.initialising_again(), 5)
        return self.settle()

    def add(self, *partitions: Partitions) -> Producer:
        """Begin or continue a transaction as an old client does; ``orders-0`` unless others are named."""
        answer = self._ask(self.adding(OLD_ADD, *(partitions or (("orders", [0]),))), OLD_ADD)
        codes = {part.partition_error_code for topic in answer for part in topic.results_by_partition}
        assert codes == {ErrorCode.NONE}, f"partitions were not added: {answer}"
        return self

    def produce(self, sequence: int = 0, *, version: int = NEW_PRODUCE, **where: Any) -> Producer:
        """Append a batch; since `NEW_PRODUCE` this begins or continues a transaction too."""
        answer = self.exchange.ask(None, self.producing(sequence, **where), version)
        code = answer.responses[0].partition_responses[0].error_code
        assert code == ErrorCode.NONE, f"the batch was not appended: {answer}"
        return self

    def commit_offsets(self, group_id: str, offsets: Mapping[str, Mapping[int, Any]]) -> Producer:
        """Commit offsets as a new client does, which adds their partition too."""
        answer = self.exchange.ask(None, self.committing(5, group_id, offsets), 5)
        codes = {partition.error_code for topic in answer.topics for partition in topic.partitions}
        assert codes == {ErrorCode.NONE}, f"offsets were not committed: {answer}"
        return self

    def end(self, committed: bool = True, *, version: int = NEW_END) -> Producer:
        """End the transaction, and wait for its markers."""
        self._good(self.ending(committed), version)
        return self.settle()

    def fence(self) -> Producer:
        """Let another producer of the same id end the open transaction, and wait for its markers."""
        answer = self.exchange.ask(None, self.initialising(), 5)
        assert answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS, f"no transaction was open: {answer}"
        return self.settle()

    def settle(self) -> Producer:
        """Wait until no markers are to be written, and learn the id and epoch of now."""
        self.exchange.wait_until(
            described(self.transactional_id),
            0,
            lambda answer: not answer.transaction_states[0].transaction_state.startswith("Prepare"),
            patience_s=60.0,
        )
        state = self.exchange.ask(None, described(self.transactional_id), 0).transaction_states[0]
        self.id, self.epoch = state.producer_id, state.producer_epoch
        self.exchange.name_producer(self.id, self.transactional_id)
        return self

    def describe(self, step: str) -> None:
        """Note how its transaction is described."""
        self.exchange.ask(step, described(self.transactional_id), 0)

    def _ask(self, request: AddPartitionsToTxnRequest, version: int) -> Any:
        return self.exchange.ask(None, request, version).results_by_topic_v3_and_below

    def _good(self, request: Any, version: int) -> None:
        self.exchange.wait_until(request, version, lambda answer: answer.error_code not in BUSY, patience_s=60.0)


def _open_as_old_client(producer: Producer) -> None:
    producer.add().produce(version=OLD_PRODUCE)


STATES: Final[Mapping[str, Callable[[Producer], Any]]] = {
    "Empty": lambda producer: producer.initialise(),
    "Empty, after an epoch was given": lambda producer: None,
    "Ongoing of an old client": _open_as_old_client,
    "Ongoing of a new client": lambda producer: producer.produce(),
    "CompleteCommit of an old client": lambda producer: producer.add().end(version=OLD_END),
    "CompleteAbort of an old client": lambda producer: producer.add().end(False, version=OLD_END),
    "CompleteCommit of a new client": lambda producer: producer.produce().end(),
    "CompleteAbort of a new client": lambda producer: producer.produce().end(False),
    "CompleteAbort of nothing": lambda producer: producer.end(False),
    "CompleteAbort after fencing": lambda producer: producer.add().fence(),
}
"""How a producer in epoch 2, whose epoch before is known, gets into each state in which a transaction can stay."""

OPEN: Final = ("Ongoing of an old client", "Ongoing of a new client")


class Producers:
    """Makes producers, each with a transactional id of its own."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._numbers = count(1)

    def new(self, what: str = "producer", **options: Any) -> Producer:
        """A producer with an id and epoch 0."""
        return Producer(self._exchange, f"{what}-{next(self._numbers)}", **options).initialise()

    def in_state(self, state: str) -> Producer:
        """A producer whose transaction is in a state of `STATES`, with the epoch that the coordinator has."""
        producer = self.new(state.split()[0].rstrip(",")).initialise_again().initialise_again()
        STATES[state](producer)
        return producer.settle()
