"""Producers: idempotent ones that send until they get an answer, and transactional ones."""

from typing import Final

from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
)
from storage.batch.records import Record, encode_batch
from tests.simulation.client import TRANSACTION, SimulatedClient
from tests.simulation.cluster import require
from tests.simulation.history import History, Outcome, Partition, Transaction

TRANSACTION_TIMEOUT_MS: Final = 20_000

RETRIABLE: Final = frozenset(
    {
        *(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        *(ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        *(ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NETWORK_EXCEPTION, ErrorCode.FENCED_LEADER_EPOCH),
        *(ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.CONCURRENT_TRANSACTIONS),
    }
)
NEW_IDENTITY: Final = frozenset(
    {
        *(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH),
        *(ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE),
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
OF_FORMER_LEADERS: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
MOST_REFUSALS: Final = 100


class Producer:
    """Sends batches with an identity. ``identity`` is asked for with the first batch, and anew when it is refused."""

    def __init__(
        self, client: SimulatedClient, history: History, *, may_lose: bool, transactional_id: str | None = None
    ) -> None:
        """``may_lose``: whether acknowledged records may be lost in this run, so that the broker may have forgotten
        what it knew of this producer."""
        self.client = client
        self.history = history
        self.may_lose = may_lose
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.producer_epoch = -1
        self._sequences: dict[Partition, int] = {}
        self.identities = 0

    def record(self, value: bytes) -> Record:
        """A record of now."""
        return Record(timestamp=self.client.clock.now_ms(), key=None, value=value)

    async def identify(self) -> None:
        """Get a producer id and epoch; of a transactional producer, this ends the transaction that was open."""
        self._sequences.clear()
        self.identities += 1
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        while True:
            if self.transactional_id is None:
                answer = await self.client.ask(self.client.any_broker, request, InitProducerIdResponse, version=4)
            else:
                answer = await self.client.ask_coordinator(
                    TRANSACTION, self.transactional_id, request, InitProducerIdResponse, _error, version=4
                )
            if answer is not None and answer.error_code == ErrorCode.NONE:
                self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
                return
            await self.client.pause()

    async def send(self, partition: Partition, records: list[Record]) -> int | None:
        """Send a batch until it is acknowledged; return its base offset, or None where the identity is refused."""
        topic, index = partition
        sequence = self._sequences.get(partition, 0)
        batch = encode_batch(
            records,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            is_transactional=self.transactional_id is not None,
        )
        for record in records:
            if record.value is not None:
                self.history.of(partition).sent[bytes(record.value)] = None
        refusals = 0
        while True:
            request = ProduceRequest(
                transactional_id=self.transactional_id,
                acks=-1,
                timeout_ms=2_000,
                topic_data=[
                    ProduceRequest.TopicData(
                        name=topic,
                        partition_data=[
                            ProduceRequest.TopicData.PartitionData(index=index, records=memoryview(bytearray(batch)))
                        ],
                    )
                ],
            )
            answer = await self.client.ask_leader(topic, index, request, ProduceResponse, version=11)
            if answer is not None:
                found = answer.responses[0].partition_responses[0]
                if found.error_code == ErrorCode.NONE:
                    self._sequences[partition] = sequence + len(records)
                    return found.base_offset
                # A leader that does not know yet that it leads no more lacks what was sent to its successor.
                may_be_former = found.error_code in OF_FORMER_LEADERS and refusals < MOST_REFUSALS
                if found.error_code in NEW_IDENTITY and (self.may_lose or not may_be_former):
                    return None
                refusals += 1
                require(
                    may_be_former or found.error_code in RETRIABLE,
                    f"a produce to {partition} was answered with error {found.error_code}: {found.error_message}",
                )
                self.client.forget(topic)
            await self.client.pause()


class IdempotentProducer:
    """Sends numbered values to one partition, one batch after the other, until it is told to stop."""

    def __init__(self, client: SimulatedClient, history: History, partition: Partition, *, may_lose: bool) -> None:
        self._producer = Producer(client, history, may_lose=may_lose)
        self._client = client
        self._history = history
        self._partition = partition
        self.is_over = False

    async def run(self) -> None:
        """Send until `is_over`."""
        client, producer, random = self._client, self._producer, self._client.random
        history = self._history.of(self._partition)
        await producer.identify()
        number = 0
        while not self.is_over:
            count = random.choice((1, 1, 2, 5))
            values = [b"%s:%d" % (client.name.encode(), number + index) for index in range(count)]
            number += count
            offset = await producer.send(self._partition, [producer.record(value) for value in values])
            if offset is None:
                require(producer.may_lose, f"{client.name} lost its identity though no record may be lost")
                await producer.identify()
                continue
            for index, value in enumerate(values):
                history.acknowledged[offset + index] = value
            if random.random() < 0.5:
                await client.pause()


class TransactionalProducer:
    """Writes transactions over several partitions, and commits or aborts each, until it is told to stop."""

    def __init__(
        self, client: SimulatedClient, history: History, partitions: list[Partition], *, may_lose: bool
    ) -> None:
        self._id = client.name
        self._producer = Producer(client, history, may_lose=may_lose, transactional_id=self._id)
        self._client = client
        self._history = history
        self._partitions = partitions
        self._number = 0
        self.is_over = False

    async def run(self) -> None:
        """Write transactions until `is_over`; the last one is ended."""
        await self._producer.identify()
        while not self.is_over:
            transaction = Transaction()
            self._history.transactions.append(transaction)
            if not await self._write(transaction) or not await self._end(transaction):
                await self._producer.identify()
            await self._client.pause()
        await self._producer.identify()

    async def _write(self, transaction: Transaction) -> bool:
        """Whether every record is written."""
        random = self._client.random
        for partition in random.sample(self._partitions, random.randint(1, len(self._partitions))):
            if not await self._add(partition):
                return False
            for _ in range(random.choice((1, 1, 2))):
                value = b"%s:%d" % (self._client.name.encode(), self._number)
                self._number += 1
                transaction.values.append((partition, value))
                if await self._producer.send(partition, [self._producer.record(value)]) is None:
                    return False
        return True

    async def _add(self, partition: Partition) -> bool:
        topic, index = partition
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer.producer_id,
            v3_and_below_producer_epoch=self._producer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[index])],
        )
        while True:
            answer = await self._client.ask_coordinator(
                TRANSACTION, self._id, request, AddPartitionsToTxnResponse, _error_of_partition, version=3
            )
            if answer is not None:
                error = _error_of_partition(answer)
                if error == ErrorCode.NONE:
                    return True
                if error not in RETRIABLE:
                    require(error in NEW_IDENTITY, f"adding {partition} to a transaction was answered with {error}")
                    return False
            await self._client.pause()

    async def _end(self, transaction: Transaction) -> bool:
        """Commit or abort; whether the identity is still good."""
        commits = self._client.random.random() < 0.7
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.producer_epoch,
            committed=commits,
        )
        while True:
            answer = await self._client.ask_coordinator(
                TRANSACTION, self._id, request, EndTxnResponse, _error, version=3
            )
            if answer is not None:
                if answer.error_code == ErrorCode.NONE:
                    transaction.outcome = Outcome.COMMITTED if commits else Outcome.ABORTED
                    return True
                if answer.error_code not in RETRIABLE:
                    require(
                        answer.error_code in NEW_IDENTITY, f"ending a transaction was answered with {answer.error_code}"
                    )
                    return False
            await self._client.pause()


def _error(answer: InitProducerIdResponse | EndTxnResponse) -> int:
    return answer.error_code


def _error_of_partition(answer: AddPartitionsToTxnResponse) -> int:
    return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
