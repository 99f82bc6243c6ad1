"""VerificationRouter, RemoteVerification: whom a partition's leader asks about a transaction, and what it hears."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from broker.coordinators.partitioning import partition_of
from broker.coordinators.remote_verification import RemoteVerification
from broker.coordinators.transaction.stats import VerificationStats
from broker.coordinators.transaction.verification import Verified
from broker.coordinators.verification_router import RETRY_BACKOFF_MS, VerificationRouter
from broker.metadata.cache import MetadataCache
from broker.metadata.topic_rules import TRANSACTION_STATE
from broker.runtime.manual_clock import ManualClock
from protocol.errors import ErrorCode as E
from protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from protocol.records.cluster_metadata import PartitionChangeRecord, PartitionRecord, TopicRecord
from storage.topic_partition import TopicPartition
from tests.support.metadata import pretend
from tests.unit.broker.coordinators.brokers import REQUEST_TIMEOUT_MS, Brokers, settle
from tests.unit.broker.peers.harness import by_hand

OURS, SECOND, NOBODY = 1, 2, -1
STATE_ID = bytes(15) + b"\x02"
RETRY_MAX_MS = 100
HERE, THERE, NOWHERE = "c", "a", "b"
"""Ids that belong to partitions 0, 1 and 2 of ``__transaction_state``."""
ALSO_THERE = ("d", "g")
ORDERS, LINES = TopicPartition("orders", 0), TopicPartition("lines", 3)


class Local:
    """The coordinator on this broker."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, int, int, Sequence[TopicPartition]]] = []

    def verify(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Sequence[TopicPartition], then: Verified
    ) -> None:
        self.asked.append(("verify", transactional_id, producer_id, epoch, partitions))
        then([E.NONE] * len(partitions))

    def add(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Sequence[TopicPartition], then: Verified
    ) -> None:
        self.asked.append(("add", transactional_id, producer_id, epoch, partitions))
        then([E.NONE] * len(partitions))


class Exchange:
    """Broker 1, this broker, coordinates the ids of partition 0, broker 2 those of partition 1, nobody the others."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.brokers = Brokers(self.clock)
        self.local = Local()
        self.metadata = MetadataCache()
        self.stats = VerificationStats()
        self.failures: list[BaseException] = []
        self.remote = RemoteVerification(
            self.brokers.nodes("AddPartitionsManager-client-1"), on_failure=self.failures.append
        )
        self.router = VerificationRouter(
            self.local,
            self.remote,
            node_id=OURS,
            metadata=self.metadata,
            clock=self.clock,
            later=lambda after_ms, call: self.clock.call_at(self.clock.monotonic_ms() + after_ms, call),
            stats=self.stats,
            retry_max_ms=RETRY_MAX_MS,
        )
        self.answers: list[tuple[str, list[E]]] = []

    def with_coordinators(self) -> None:
        pretend(
            self.metadata,
            TopicRecord(name=TRANSACTION_STATE, topic_id=STATE_ID),
            *(
                PartitionRecord(
                    partition_id=index, topic_id=STATE_ID, replicas=[1, 2], isr=[1, 2], leader=leader,
                    leader_epoch=1, partition_epoch=1,
                )
                for index, leader in enumerate((OURS, SECOND, NOBODY))
            ),
        )  # fmt: skip

    def lead(self, index: int, leader: int) -> None:
        pretend(self.metadata, PartitionChangeRecord(partition_id=index, topic_id=STATE_ID, leader=leader))

    def verify(self, transactional_id: str, *partitions: TopicPartition, epoch: int = 4) -> None:
        self.router.verify(
            transactional_id, 9, epoch, partitions, lambda codes: self.answers.append((transactional_id, list(codes)))
        )

    def add(self, transactional_id: str, *partitions: TopicPartition, epoch: int = 4) -> None:
        self.router.add(
            transactional_id, 9, epoch, partitions, lambda codes: self.answers.append((transactional_id, list(codes)))
        )

    async def advance(self, by_ms: int) -> None:
        await settle()
        self.clock.advance(by_ms)
        await settle()

    async def answer(self, *codes: E) -> None:
        """Answer the only request; ``codes`` are for all its partitions, in their order."""
        asked = self.brokers.take()
        asked.answer(answer_to(asked.message, *codes))
        await settle()


@asynccontextmanager
async def exchange(*, has_coordinators: bool = True) -> AsyncIterator[Exchange]:
    it = Exchange()
    if has_coordinators:
        it.with_coordinators()
    yield it
    await it.remote.close()
    assert it.failures == []
    assert it.remote.in_flight == 0


def answer_to(request: AddPartitionsToTxnRequest, *codes: E) -> AddPartitionsToTxnResponse:
    in_order = iter(codes)
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResponse.ResultsByTransaction(
                transactional_id=transaction.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(
                                partition_index=index, partition_error_code=next(in_order)
                            )
                            for index in topic.partitions
                        ],
                    )
                    for topic in transaction.topics
                ],
            )
            for transaction in request.transactions
        ]
    )


def asked_about(request: AddPartitionsToTxnRequest) -> list[tuple[str, bool, list[tuple[str, list[int]]]]]:
    return [
        (one.transactional_id, one.verify_only, [(topic.name, list(topic.partitions)) for topic in one.topics])
        for one in request.transactions
    ]


# Who is asked


def test_the_ids_of_these_tests_belong_where_the_tests_say() -> None:
    assert [partition_of(key, 3) for key in (HERE, THERE, NOWHERE, *ALSO_THERE)] == [0, 1, 2, 1, 1]


@by_hand
async def test_the_coordinator_on_this_broker_answers_in_the_same_turn() -> None:
    async with exchange() as it:
        it.verify(HERE, ORDERS)
        it.add(HERE, ORDERS)
        assert it.answers == [(HERE, [E.NONE])] * 2
        assert it.local.asked == [("verify", HERE, 9, 4, (ORDERS,)), ("add", HERE, 9, 4, (ORDERS,))]
        await settle()
        assert it.brokers.asked == []
        assert it.stats.answered == 0, "the coordinator counts itself"


@by_hand
async def test_the_coordinator_on_another_broker_is_asked_by_request() -> None:
    async with exchange() as it:
        it.verify(THERE, ORDERS, LINES)
        await settle()
        (asked,) = it.brokers.asked
        assert (asked.node_id, asked.version) == (SECOND, 5)
        assert asked_about(asked.message) == [(THERE, True, [("orders", [0]), ("lines", [3])])]
        assert (asked.message.transactions[0].producer_id, asked.message.transactions[0].producer_epoch) == (9, 4)
        it.clock.advance(30)
        await it.answer(E.NONE, E.TRANSACTION_ABORTABLE)
        assert it.answers == [(THERE, [E.NONE, E.TRANSACTION_ABORTABLE])]
        assert (it.stats.answered, it.stats.refused_partitions) == (1, 1)

        it.add(THERE, LINES)
        await settle()
        assert asked_about(it.brokers.asked[0].message) == [(THERE, False, [("lines", [3])])]
        await it.answer(E.NONE)
        assert it.answers[1:] == [(THERE, [E.NONE])]


@pytest.mark.parametrize("has_coordinators", [False, True])
@by_hand
async def test_without_a_coordinator_the_producer_hears_it_at_once(has_coordinators: bool) -> None:
    async with exchange(has_coordinators=has_coordinators) as it:
        it.verify(NOWHERE, ORDERS, LINES)
        it.add(NOWHERE, ORDERS)
        not_available = E.COORDINATOR_NOT_AVAILABLE
        assert it.answers == [(NOWHERE, [not_available, not_available]), (NOWHERE, [not_available])]
        assert it.stats.refused_partitions == 3


# How it is asked


@by_hand
async def test_all_that_waits_for_a_coordinator_goes_in_one_request() -> None:
    second, third = ALSO_THERE
    async with exchange() as it:
        it.verify(THERE, ORDERS)
        it.add(second, LINES)
        await settle()
        first = it.brokers.take()
        assert asked_about(first.message) == [
            (THERE, True, [("orders", [0])]),
            (second, False, [("lines", [3])]),
        ]
        it.verify(third, ORDERS)
        it.add(THERE, ORDERS)
        it.add(THERE, LINES)
        await settle()
        assert it.brokers.asked == [], "one request is in flight"
        assert len(it.remote) == 3
        first.answer(answer_to(first.message, E.NONE, E.CONCURRENT_TRANSACTIONS))
        await settle()
        assert it.answers == [(THERE, [E.NONE])]
        assert asked_about(it.brokers.asked[0].message) == [
            (third, True, [("orders", [0])]),
            (THERE, False, [("orders", [0])]),
        ], "of one id one question"
        await it.answer(E.NONE, E.NONE)
        assert asked_about(it.brokers.asked[0].message) == [(THERE, False, [("lines", [3])])]
        await it.answer(E.NONE)
        assert it.answers[1:] == [(third, [E.NONE]), (THERE, [E.NONE]), (THERE, [E.NONE])]
        await it.advance(RETRY_BACKOFF_MS)
        await it.answer(E.NONE)
        assert it.answers[4:] == [(second, [E.NONE])]


@by_hand
async def test_what_a_transaction_before_holds_up_is_tried_until_the_time_is_over() -> None:
    async with exchange() as it:
        it.add(THERE, ORDERS)
        for _ in range(RETRY_MAX_MS // RETRY_BACKOFF_MS):
            await settle()
            await it.answer(E.CONCURRENT_TRANSACTIONS)
            assert it.brokers.asked == []
            await it.advance(RETRY_BACKOFF_MS)
        assert it.answers == []
        await it.answer(E.CONCURRENT_TRANSACTIONS)
        assert it.answers == [(THERE, [E.CONCURRENT_TRANSACTIONS])]
        assert it.stats.answered == 1

        it.verify(THERE, ORDERS)
        await settle()
        await it.answer(E.CONCURRENT_TRANSACTIONS)
        assert it.answers[1:] == [(THERE, [E.CONCURRENT_TRANSACTIONS])], "a question is not asked again"


@by_hand
async def test_a_try_goes_to_the_coordinator_of_that_moment() -> None:
    async with exchange() as it:
        it.add(THERE, ORDERS)
        await settle()
        await it.answer(E.CONCURRENT_TRANSACTIONS)
        it.lead(1, OURS)
        await it.advance(RETRY_BACKOFF_MS)
        assert it.answers == [(THERE, [E.NONE])]
        assert it.local.asked == [("add", THERE, 9, 4, (ORDERS,))]


# What is answered


@pytest.mark.parametrize(
    ("code", "heard"),
    [
        (E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        (E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_ID_MAPPING),
        (E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.NOT_COORDINATOR, E.NOT_COORDINATOR),
    ],
)
@by_hand
async def test_a_fenced_producer_has_an_epoch_of_the_past_and_all_else_is_passed_on(code: E, heard: E) -> None:
    async with exchange() as it:
        it.add(THERE, ORDERS, LINES)
        await settle()
        await it.answer(code, E.OPERATION_NOT_ATTEMPTED)
        assert it.answers == [(THERE, [heard, E.OPERATION_NOT_ATTEMPTED])]


@pytest.mark.parametrize(
    ("code", "heard"),
    [
        (E.CLUSTER_AUTHORIZATION_FAILED, E.INVALID_TXN_STATE),
        (E.UNSUPPORTED_VERSION, E.UNSUPPORTED_VERSION),
    ],
)
@by_hand
async def test_an_error_of_the_whole_request_is_that_of_each_partition(code: E, heard: E) -> None:
    async with exchange() as it:
        it.add(THERE, ORDERS, LINES)
        await settle()
        it.brokers.take().answer(AddPartitionsToTxnResponse(error_code=code))
        await settle()
        assert it.answers == [(THERE, [heard, heard])]


@by_hand
async def test_what_the_answer_leaves_out_is_not_available() -> None:
    async with exchange() as it:
        it.verify(THERE, ORDERS)
        await settle()
        it.brokers.take().answer(AddPartitionsToTxnResponse())
        await settle()
        assert it.answers == [(THERE, [E.COORDINATOR_NOT_AVAILABLE])]


@by_hand
async def test_without_an_answer_it_is_an_error_of_the_network() -> None:
    async with exchange() as it:
        it.verify(THERE, ORDERS, LINES)
        await settle()
        it.brokers.take().lose()
        await settle()
        assert it.answers == [(THERE, [E.NETWORK_EXCEPTION] * 2)]

        it.add(THERE, ORDERS)
        await it.advance(1_000)
        it.brokers.take()
        await it.advance(REQUEST_TIMEOUT_MS)
        assert it.answers[1:] == [(THERE, [E.NETWORK_EXCEPTION])]

        del it.brokers.addresses[SECOND]
        it.verify(THERE, LINES)
        await settle()
        assert it.answers[2:] == [(THERE, [E.NETWORK_EXCEPTION])]


@by_hand
async def test_every_question_has_its_answer_when_the_broker_stops() -> None:
    async with exchange() as it:
        it.verify(THERE, ORDERS)
        await settle()
        it.add(THERE, LINES)
        await it.remote.close()
        it.add(THERE, ORDERS)
        assert it.answers == [(THERE, [E.NETWORK_EXCEPTION])] * 3
