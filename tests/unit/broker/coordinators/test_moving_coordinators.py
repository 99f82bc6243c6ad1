"""The coordinator of transactions moves between two brokers, while producers commit and abort over partitions of both.

a transaction has one outcome, the same in all of its partitions, and that of the log of ``__transaction_state``
a commit that a producer was told of is a commit for ever
nothing stays open when all is over

The name of a failed test has the seed; ``OTTLA_TEST_MOVING_SEEDS=200`` tries so many, from a new first seed each time.
"""

import os
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import pytest

from broker.coordinators.transaction.records import decode
from protocol.errors import ErrorCode as E
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, EndTxnRequest
from protocol.records.transaction_state import TransactionRecord, TransactionStatus
from storage.batch.markers import read_marker
from storage.batch.records import Record, iterate_records
from storage.topic_partition import TopicPartition
from tests.support.batches import T, produced
from tests.support.broker import Client
from tests.support.requests import produce_request
from tests.unit.broker.coordinators.two_brokers import BROKERS, DATA_LEADERS, ORDERS, TwoBrokers

STEPS = 800
TIMEOUT_MS = 60_000

MANY = int(os.environ.get("OTTLA_TEST_MOVING_SEEDS", "0"))
FIRST = SystemRandom().randrange(1 << 30)
SEEDS = range(FIRST, FIRST + MANY) if MANY else range(6)

TRY_AGAIN = {
    E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS, E.CONCURRENT_TRANSACTIONS,
    E.NOT_ENOUGH_REPLICAS,
}  # fmt: skip


@dataclass
class Producer:
    """A producer that sends one request after the other, and begins anew behind an error that it cannot get over."""

    transactional_id: str
    is_new_client: bool
    """Of transaction version 2: no AddPartitionsToTxn, and a new epoch with each end."""
    producer_id: int = -1
    epoch: int = -1
    number: int = 0
    """Of its transaction, which is what it writes."""
    plan: list[TopicPartition] = field(default_factory=list)
    """The partitions that it has yet to write to in this transaction."""
    is_commit: bool = True
    has_written: bool = False
    is_added: bool = False
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    connections: dict[int, Client] = field(default_factory=dict)
    asked: tuple[str, Client] | None = None
    told: dict[str, bool] = field(default_factory=dict)
    """The transactions of which it was told how they have ended, by what they have written."""

    @property
    def value(self) -> str:
        return f"{self.transactional_id}:{self.number}"

    def step(self, brokers: TwoBrokers, chance: Random) -> None:
        """Take the answer if there is one, or send what comes next."""
        if self.asked is not None:
            what, client = self.asked
            if not client.has_no_answer():
                self.asked = None
                self._answered(what, client.receive())
        elif self.producer_id < 0:
            request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=TIMEOUT_MS)
            self._ask("init", self._some_coordinator(brokers, chance), brokers, request, 4)
        elif not self.plan and not self.has_written:
            self.number += 1
            self.plan = chance.choice([[p] for p in DATA_LEADERS] + [list(DATA_LEADERS)] * 3)
            self.is_commit = chance.random() < 0.6
            self.is_added = False
        elif self.plan and not self.is_new_client and not self.is_added:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=ORDERS, partitions=[place.partition for place in self.plan])
                ],
            )
            self._ask("add", self._some_coordinator(brokers, chance), brokers, request, 3)
        elif self.plan:
            place = self.plan[0]
            batch = produced(
                [Record(timestamp=T, value=self.value.encode())],
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=self.sequences.get(place, 0),
                is_transactional=True,
            )
            request = produce_request(ORDERS, batch, partition=place.partition, transactional_id=self.transactional_id)
            self._ask("produce", DATA_LEADERS[place], brokers, request, 12 if self.is_new_client else 11)
        else:
            request = EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=self.is_commit,
            )
            self._ask("end", self._some_coordinator(brokers, chance), brokers, request, 5 if self.is_new_client else 4)

    def _some_coordinator(self, brokers: TwoBrokers, chance: Random) -> int:
        """Mostly the coordinator; a producer may not know yet that it has moved."""
        return brokers.leadership.leader if chance.random() < 0.8 else chance.choice(BROKERS)

    def _ask(self, what: str, node_id: int, brokers: TwoBrokers, request: Any, version: int) -> None:
        if node_id not in self.connections:
            self.connections[node_id] = brokers.members[node_id].broker.connect()
        client = self.connections[node_id]
        client.send(request, version)
        self.asked = what, client

    def _answered(self, what: str, answer: Any) -> None:
        if what == "add":
            code = E(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
        elif what == "produce":
            code = E(answer.responses[0].partition_responses[0].error_code)
        else:
            code = E(answer.error_code)
        if code in TRY_AGAIN:
            return
        if code is not E.NONE:
            self._begin_anew()
        elif what == "init":
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        elif what == "add":
            self.is_added = True
        elif what == "produce":
            place = self.plan.pop(0)
            self.sequences[place] = self.sequences.get(place, 0) + 1
            self.has_written = True
        else:
            self.told[self.value] = self.is_commit
            self.has_written = False
            if self.is_new_client:
                if (self.producer_id, self.epoch) != (answer.producer_id, answer.producer_epoch):
                    self.sequences.clear()
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def _begin_anew(self) -> None:
        self.producer_id = -1
        self.plan = []
        self.has_written = False


@dataclass
class Told:
    """What a partition says of the transactions in it."""

    outcomes: dict[str, list[bool]]
    """How each transaction has ended, once for each of its records."""
    open: list[str]
    markers: dict[tuple[int, int], list[bool]]
    """The outcomes of the markers of a producer of an epoch, in their order."""


def read(brokers: TwoBrokers, place: TopicPartition) -> Told:
    told = Told(defaultdict(list), [], defaultdict(list))
    under_way: dict[int, list[str]] = defaultdict(list)
    for header, data in brokers.log(place).batches():
        if header.is_control:
            marker = read_marker(header, data)
            assert marker is not None
            told.markers[marker.producer_id, marker.producer_epoch].append(marker.is_commit)
            for value in under_way.pop(marker.producer_id, []):
                told.outcomes[value].append(marker.is_commit)
        else:
            for record in iterate_records(data):
                under_way[header.producer_id].append(bytes(record.value or b"").decode())
    told.open = [value for values in under_way.values() for value in values]
    return told


def prepared(brokers: TwoBrokers, place: TopicPartition) -> dict[tuple[int, int], list[bool]]:
    """The outcomes that the coordinators' log has decided for a partition, by producer id and epoch of the markers."""
    found: dict[tuple[int, int], list[bool]] = defaultdict(list)
    for _, data in brokers.coordinator.state.log.batches():
        for stored in iterate_records(data):
            record = decode(bytes(stored.key or b""), None if stored.value is None else bytes(stored.value))
            assert isinstance(record, TransactionRecord)
            value = record.value
            if value is not None and value.transaction_status in (
                TransactionStatus.PREPARE_COMMIT,
                TransactionStatus.PREPARE_ABORT,
            ):
                is_in_it = any(
                    place == TopicPartition(one.topic, index)
                    for one in value.transaction_partitions or ()
                    for index in one.partition_ids
                )
                if is_in_it:
                    key = value.producer_id, value.producer_epoch
                    found[key].append(value.transaction_status == TransactionStatus.PREPARE_COMMIT)
    return found


def runs(outcomes: list[bool]) -> list[bool]:
    """The outcomes without repetitions in a row: a marker may be written again."""
    return [outcome for outcome, _ in groupby(outcomes)]


def is_over(brokers: TwoBrokers) -> bool:
    """Whether no transaction is open or being ended."""
    if not brokers.is_published or brokers.links:
        return False
    coordinators = brokers.coordinator.components.transaction_coordinator.transactions.active
    if not coordinators:
        return False
    states = coordinators[0].shard.image.states
    busy = (TransactionStatus.ONGOING, TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)
    return not any(states[status] for status in busy) and all(
        brokers.log(place).last_stable_offset == brokers.log(place).log_end_offset for place in DATA_LEADERS
    )


def finish(brokers: TwoBrokers) -> None:
    """Let everything arrive and every time be over, until nothing is open."""
    chance = Random(0)
    for _ in range(400):
        brokers.publish_to_all()
        brokers.replicate(1_000)
        for _ in range(4):
            brokers.deliver_one(chance)
        brokers.advance(1_000)
        if is_over(brokers):
            return
    raise AssertionError("a transaction stays open for ever")


def check(brokers: TwoBrokers, producers: list[Producer]) -> int:
    """Compare all that was written, and return how many transactions there were."""
    outcomes: dict[str, set[bool]] = defaultdict(set)
    for place in DATA_LEADERS:
        told = read(brokers, place)
        assert told.open == []
        decided = prepared(brokers, place)
        for key, markers in told.markers.items():
            assert runs(markers) == runs(decided[key]), f"producer {key} in {place}: {markers}, not {decided[key]}"
        for value, ends in told.outcomes.items():
            assert len(ends) == 1, f"{value} was written {len(ends)} times into {place}"
            outcomes[value].update(ends)
    for value, ends in outcomes.items():
        assert len(ends) == 1, f"{value} was both committed and aborted"
    for producer in producers:
        for value, is_commit in producer.told.items():
            assert outcomes[value] == {is_commit}, f"{value}: its producer was told {is_commit}"
    return len(outcomes)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_transaction_has_one_outcome_wherever_its_coordinator_is(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)
    brokers = TwoBrokers(tmp_path)
    producers = [Producer(f"id-{number}", is_new_client=number % 2 == 0) for number in range(4)]
    try:
        for _ in range(STEPS):
            what = chance.choices(
                ("producer", "replicate", "deliver", "publish", "elect", "time", "lose"), (40, 22, 20, 6, 2, 4, 1)
            )[0]
            if what == "producer":
                chance.choice(producers).step(brokers, chance)
            elif what == "replicate":
                brokers.replicate(chance.choice((0, 1, 1, 5)))
            elif what == "deliver":
                brokers.deliver_one(chance)
            elif what == "publish":
                brokers.publish(chance.choice(BROKERS))
            elif what == "elect":
                brokers.elect(chance.choice(BROKERS))
            elif what == "time":
                brokers.advance(chance.choice((20, 100, 500, 1_000, 6_000)))
            else:
                brokers.lose_one(chance)
        finish(brokers)
        for producer in producers:
            if producer.asked is not None and not producer.asked[1].has_no_answer():
                producer.step(brokers, chance)
        assert check(brokers, producers) > 0
    finally:
        brokers.close()
