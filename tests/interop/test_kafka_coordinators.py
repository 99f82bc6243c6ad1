"""Transactions and Apache Kafka: its coordinator is asked about partitions of ours, its partitions get our markers."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from typing import Final

import pytest

from broker.coordinators.remote_markers import RemoteMarkers
from broker.coordinators.remote_verification import RemoteVerification
from broker.coordinators.result import ProducerIdAndEpoch
from broker.coordinators.transaction.requests import AddPartitions
from broker.peers.connector import TcpConnector
from broker.peers.endpoint import PeerEndpoint
from broker.peers.nodes import Nodes
from broker.peers.peer import Peer
from broker.peers.stats import PeerStats
from broker.replication.transaction_marker import TransactionMarker
from broker.runtime.backoff import Backoff
from broker.runtime.clock import LoopClock
from dev.apache_kafka import ApacheKafka
from dev.broker_process import port_below_client_ports
from dev.kafka_jars import BEFORE, KAFKA_VERSION
from dev.waiting import until
from protocol.errors import ErrorCode as E
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from storage.topic_partition import TopicPartition
from tests.interop import programs
from tests.interop.conftest import FEW_INTERNAL_PARTITIONS, installed
from tests.support.batches import produced, record
from tests.support.clients import connect
from tests.support.raw_client import RawClient
from tests.support.requests import fetch_request, produce_request

NODE: Final = 1
TRANSACTION_KEY: Final = 1
ORDERS, OTHERS, MISSING = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("orders", 9)


@pytest.fixture(scope="module", params=[KAFKA_VERSION, BEFORE])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    jars = str(installed(lambda: programs.kafka_libraries(request.param)))
    directory = tmp_path_factory.mktemp("kafka")
    process = ApacheKafka(directory, settings=FEW_INTERNAL_PARTITIONS, port=port_below_client_ports(), libraries=jars)
    process.heap, process.quick_start = "512M", True
    with process:
        connect("confluent-kafka", process.bootstrap).create_topic("orders", partitions=2)
        yield process


class Asking:
    """This broker's side, on the loop of the test."""

    def __init__(self, kafka: ApacheKafka) -> None:
        self._clock = LoopClock(asyncio.get_running_loop(), time.time)
        self._address = PeerEndpoint(NODE, "127.0.0.1", kafka.port)
        self._failures: list[BaseException] = []
        self._markers = RemoteMarkers(self._nodes("broker-7-txn-marker-sender"), on_failure=self._failures.append)
        self._verification = RemoteVerification(
            self._nodes("AddPartitionsManager-client-7"), on_failure=self._failures.append
        )

    def _nodes(self, client_id: str) -> Nodes:
        def make_peer(endpoint: PeerEndpoint) -> Peer:
            return Peer(
                endpoint,
                client_id=client_id,
                connector=TcpConnector(self._clock),
                clock=self._clock,
                backoff=Backoff(random.random),
                request_timeout_ms=30_000,
                stats=PeerStats(),
            )

        return Nodes({NODE: self._address}.get, make_peer)

    async def ask(self, *questions: tuple[str, ProducerIdAndEpoch, list[TopicPartition], bool]) -> list[Sequence[E]]:
        """Ask about several transactions in one request; the codes in the order of the questions."""
        answers = [asyncio.get_running_loop().create_future() for _ in questions]
        for (transactional_id, producer, partitions, is_verified_only), answer in zip(questions, answers, strict=True):
            self._verification.ask(
                NODE,
                AddPartitions(transactional_id, producer, partitions),
                answer.set_result,
                is_verified_only=is_verified_only,
            )
        return list(await asyncio.gather(*answers))

    async def end(self, marker: TransactionMarker, *partitions: TopicPartition) -> list[E]:
        """Write a marker into partitions by one request."""
        answers = [asyncio.get_running_loop().create_future() for _ in partitions]
        for partition, answer in zip(partitions, answers, strict=True):
            self._markers.append(NODE, partition, marker, answer.set_result)
        return list(await asyncio.gather(*answers))

    async def close(self) -> None:
        await self._markers.close()
        await self._verification.close()
        assert self._failures == []


def asking(kafka: ApacheKafka, test: Callable[[Asking], Awaitable[None]]) -> None:
    async def run() -> None:
        one = Asking(kafka)
        try:
            await test(one)
        finally:
            await one.close()

    asyncio.run(run())


def begun(client: RawClient, transactional_id: str) -> ProducerIdAndEpoch:
    """A producer that Kafka's coordinator knows."""
    client.ask(FindCoordinatorRequest(key=transactional_id, key_type=TRANSACTION_KEY), 3)
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    found: list[ProducerIdAndEpoch] = []

    def has_begun() -> bool:
        answer = client.ask(request, 4)
        if answer.error_code == E.NONE:
            found.append(ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch))
        return bool(found)

    until(has_begun, f"{transactional_id} has its producer")
    return found[0]


def produce(client: RawClient, transactional_id: str, producer: ProducerIdAndEpoch, sequence: int = 0) -> int:
    """Produce a record of a transaction into ``orders-0``; the code."""
    batch = produced(
        [record(b"paid")],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    answer = client.ask(produce_request("orders", batch, transactional_id=transactional_id), 11)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def last_stable_offset(client: RawClient) -> int:
    [partition] = client.ask(fetch_request("orders", isolation_level=1), 11).responses[0].partitions
    offset: int = partition.last_stable_offset
    return offset


@pytest.mark.timeout(240)
def test_kafkas_coordinator_answers_for_the_partitions_that_this_broker_leads(kafka: ApacheKafka) -> None:
    with closing(RawClient(kafka.bootstrap)) as client:
        shop, store = begun(client, "shop"), begun(client, "store")
    older = ProducerIdAndEpoch(shop.producer_id, shop.producer_epoch - 1)

    async def ask(one: Asking) -> None:
        # Nothing is added yet.
        assert await one.ask(("shop", shop, [ORDERS], True)) == [[E.TRANSACTION_ABORTABLE]]
        assert await one.ask(("shop", shop, [ORDERS], False), ("store", store, [OTHERS], False)) == [[E.NONE], [E.NONE]]
        assert await one.ask(
            ("shop", shop, [OTHERS, ORDERS], True), ("store", shop, [ORDERS], True), ("nobody", shop, [ORDERS], True)
        ) == [
            [E.TRANSACTION_ABORTABLE, E.NONE],
            [E.INVALID_PRODUCER_ID_MAPPING],
            [E.INVALID_PRODUCER_ID_MAPPING],
        ]
        assert await one.ask(("shop", older, [ORDERS], True), ("store", store, [OTHERS, MISSING], False)) == [
            [E.INVALID_PRODUCER_EPOCH],
            [E.OPERATION_NOT_ATTEMPTED, E.UNKNOWN_TOPIC_OR_PARTITION],
        ]

    asking(kafka, ask)


@pytest.mark.timeout(240)
def test_kafkas_partitions_take_the_markers_of_this_brokers_coordinator(kafka: ApacheKafka) -> None:
    with closing(RawClient(kafka.bootstrap)) as client:
        shop = begun(client, "shop-2")
        marker = TransactionMarker(*shop, is_commit=True, coordinator_epoch=5)

        async def end(one: Asking) -> None:
            assert await one.ask(("shop-2", shop, [ORDERS, OTHERS], False)) == [[E.NONE, E.NONE]]
            assert produce(client, "shop-2", shop) == E.NONE
            assert last_stable_offset(client) == 0
            assert await one.end(marker, ORDERS, OTHERS, MISSING) == [E.NONE, E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]
            assert last_stable_offset(client) == 2
            assert await one.end(marker, ORDERS) == [E.NONE], "a second marker does no harm"
            assert await one.end(marker._replace(coordinator_epoch=4), ORDERS) == [E.TRANSACTION_COORDINATOR_FENCED]

            assert produce(client, "shop-2", shop, sequence=1) == E.NONE
            same_epoch = marker._replace(is_commit=False, transaction_version=2)
            assert await one.end(same_epoch, ORDERS) == [E.INVALID_PRODUCER_EPOCH]
            assert last_stable_offset(client) == 3
            ended = same_epoch._replace(producer_epoch=shop.producer_epoch + 1)
            assert await one.end(ended, ORDERS) == [E.NONE]
            assert last_stable_offset(client) == 5

        asking(kafka, end)
