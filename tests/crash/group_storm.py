"""Consumers of three kinds come and go in one group, while a producer writes and the broker is killed and restarted.

Every record is read at least once and no committed offset goes back: each consumer commits synchronously what it has
read. What the broker has written about the group is replayed record by record, and compared with what it answers.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from confluent_kafka import Producer

from dev.apache_kafka import ApacheKafka
from dev.brokers import broker_for_tests
from protocol.errors import ErrorCode
from tests.crash.group_history import GroupHistory, differences_from_broker
from tests.crash.group_trace import check_that_no_rebalance_waits
from tests.crash.load import Load
from tests.crash.promises import Promise, require
from tests.support.clients import CLIENTS, Committed, connect
from tests.support.clients.member_process import MemberProcess
from tests.support.clients.members import (
    NO_OFFSET,
    CommitAnswered,
    CommitRefused,
    Ended,
    Membership,
    is_settled,
    places,
    wait_for,
)

TOPIC: Final = "storm"
GROUP: Final = "storm"
PARTITIONS: Final = 24
EVERYTHING: Final = places(TOPIC, PARTITIONS)

SETTINGS: Final = {"group.min.session.timeout.ms": "1000"}
SESSION_TIMEOUT_MS: Final = 3_000
"""For as long a consumer that was killed holds up a rebalance."""

_RECORDS_AT_ONCE: Final = 5
_SHARE_OF_KILLED: Final = 0.25
_EVERY_STATIC: Final = 4
"""Every fourth consumer has an instance id, and comes back to its partitions."""
_NEVER_STATIC: Final = "aiokafka"
"""It knows nothing of FENCED_INSTANCE_ID: one that joins again after a kill fences itself, and gives up for good."""

_NO_BROKER: Final = re.compile(r"Connect|NoBrokers|NodeNotReady|Timeout", re.IGNORECASE)
"""Why a consumer may give up while there is no broker; whoever runs it starts it again."""


@dataclass(slots=True, kw_only=True)
class StormSummary:
    """What a storm has come through."""

    records: int = 0
    """Acknowledged."""
    read_again: int = 0
    """How often one was read beyond the first time."""
    consumers: Counter[str] = field(default_factory=Counter)
    """That were started, by kind."""
    consumers_killed: int = 0
    gave_up: Counter[str] = field(default_factory=Counter)
    """Consumers that ended by themselves, by kind."""
    commits: int = 0
    """Answered."""
    refused_commits: int = 0
    broker_kills: int = 0
    generations: int = 0
    traced: int = 0
    """Generations that the broker's log tells of; it does not tell of all."""
    group_records: int = 0
    """Of all partitions of `__consumer_offsets`."""


def _is_fenced(ended: Ended) -> bool:
    return ended.code == ErrorCode.FENCED_INSTANCE_ID or "fenced" in ended.reason.lower()


class Numbers(Load):
    """A producer with acks=all, through every death of the broker: each record is the next number."""

    promise = Promise.ANSWERED

    def __init__(self, bootstrap: str) -> None:
        super().__init__("producer of numbers")
        self._bootstrap = bootstrap
        self.acknowledged: set[bytes] = set()

    def run(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "acks": "all", "reconnect.backoff.max.ms": 1_000})
        number = 0
        while not self._stopping.wait(0.01):
            for _ in range(_RECORDS_AT_ONCE):
                producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered)
                number += 1
            producer.poll(0)
        left = producer.flush(60)
        require(left == 0, Promise.ANSWERED, f"{left} records without an answer after 60 s")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed(str(error))
        else:
            self.acknowledged.add(message.value())


class Seat:
    """For one consumer after the other, all of one kind."""

    def __init__(self, number: int, bootstrap: str) -> None:
        self.kind = CLIENTS[number % len(CLIENTS)]
        self.sitters: list[MemberProcess] = []
        self._bootstrap = bootstrap
        self.is_static = number % _EVERY_STATIC == 0 and self.kind != _NEVER_STATIC
        self._membership = Membership(
            group=GROUP,
            topics=(TOPIC,),
            instance_id=f"instance-{number}" if self.is_static else None,
            assignor="roundrobin",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            commits="after each poll",
            without_offset="fail",
        )

    @property
    def is_taken(self) -> bool:
        return bool(self.sitters) and self.sitters[-1].is_alive

    def take(self) -> None:
        self.sitters.append(MemberProcess(self.kind, self._bootstrap, self._membership))


class GroupStorm:
    """One storm, to be used in a `with`."""

    def __init__(self, directory: Path, *, seed: int, consumers: int, report: Callable[[str], None]) -> None:
        self.broker = broker_for_tests(directory, settings=SETTINGS)
        self.summary = StormSummary()
        self._chance = random.Random(seed)
        self._pause = threading.Event()  # never set
        self._report = report
        self._client = connect("confluent-kafka", self.broker.bootstrap)
        self._seats = [Seat(number, self.broker.bootstrap) for number in range(consumers)]
        self._producer = Numbers(self.broker.bootstrap)
        self._history = GroupHistory(GROUP, EVERYTHING, self.broker.data_directory)

    def __enter__(self) -> GroupStorm:
        self.broker.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._producer.stop()
        for sitter in self._sitters():
            sitter.kill()
        self.broker.close()

    def go(self, seconds: float, broker_kills: int) -> StormSummary:
        """Blow for so long. Raises `PromiseBroken`."""
        self._client.create_topic(TOPIC, partitions=PARTITIONS)
        # Whoever finds no offset has a broker that has lost it.
        self._client.commit(GROUP, {place: Committed(0) for place in EVERYTHING})
        self._producer.start()
        began = time.monotonic()
        for kill in range(1, broker_kills + 1):
            self._come_and_go(until_s=began + kill * seconds / (broker_kills + 1))
            self.broker.kill()
            self.broker.start()
            self.summary.broker_kills += 1
            self._report(f"the broker was killed after {time.monotonic() - began:.1f} s, and serves again")
        self._come_and_go(until_s=began + seconds)
        self._settle()
        self._compare("Stable")
        self._leave()
        self._compare("Empty")
        self._account()
        if isinstance(self.broker, ApacheKafka):
            self._report("Apache Kafka says nothing of when a rebalance was over")
        else:
            self.summary.traced = check_that_no_rebalance_waits(self.broker.log_path)
            require(self.summary.traced > broker_kills, Promise.GROUP_REBALANCES, "the broker's log tells of too few")
        return self.summary

    def _come_and_go(self, until_s: float) -> None:
        while time.monotonic() < until_s:
            seat = self._chance.choice(self._seats)
            if not seat.is_taken:
                seat.take()
                self.summary.consumers[seat.kind] += 1
            elif self._chance.random() < _SHARE_OF_KILLED:
                seat.sitters[-1].kill()
                self.summary.consumers_killed += 1
            else:
                seat.sitters[-1].begin_closing()
            self._pause.wait(self._chance.uniform(0, 0.4))

    def _settle(self) -> None:
        """Everybody sits, and has read and committed everything."""
        for seat in self._seats:
            if not seat.is_taken or not seat.sitters[-1].is_staying:
                if seat.sitters:
                    seat.sitters[-1].close()
                seat.take()
                self.summary.consumers[seat.kind] += 1
        sitting = [seat.sitters[-1] for seat in self._seats]
        # Not fairly: of members with and without an instance id, kafka-python's leader leaves some out (3.0.12).
        wait_for("settling", lambda: is_settled(self._client, GROUP, EVERYTHING, sitting), sitting)
        self._producer.stop()
        require(self._producer.has_ended(90), Promise.ANSWERED, "the producer has not ended")
        require(not self._producer.failures, Promise.ANSWERED, str(self._producer.failures))
        ends = {place: self._client.offsets(TOPIC)[place.partition][1] for place in EVERYTHING}

        def is_committed() -> bool:
            found = self._client.committed(GROUP, EVERYTHING)
            return {place: one.offset for place, one in found.items()} == ends

        wait_for("committing everything", is_committed, sitting)

    def _leave(self) -> None:
        for seat in self._seats:
            seat.sitters[-1].begin_closing()
        for seat in self._seats:
            seat.sitters[-1].close()
        wait_for("the end of the group", lambda: self._client.describe_group(GROUP).state == "Empty", [])

    def _compare(self, state: str) -> None:
        """Everything that the broker has written adds up to what it answers."""
        self._history.read_on()
        self._report(f"{self._history.records} records of groups, {len(self._history.committed)} offsets")
        differing = differences_from_broker(GROUP, self._history.image, self.broker.bootstrap)
        require(not differing, Promise.GROUP_RECORDS, f"of the {state} group\n" + "\n".join(differing))

    def _account(self) -> None:
        read: Counter[bytes | None] = Counter()
        for sitter in self._sitters():
            read.update(sitter.seen.values)
            for event in sitter.seen.events:
                if isinstance(event, CommitAnswered):
                    self.summary.commits += 1
                    missing = set(event.offsets.items()) - self._history.committed
                    require(not missing, Promise.GROUP_OFFSETS, f"answered commits that are not written: {missing}")
                self.summary.refused_commits += isinstance(event, CommitRefused)
        missing = self._producer.acknowledged - read.keys()
        require(not missing, Promise.GROUP_READS, f"{len(missing)} records, among them {sorted(missing)[:10]}")
        for seat in self._seats:
            self._account_for_ends(seat)
        self.summary.records = len(self._producer.acknowledged)
        self.summary.read_again = read.total() - len(read)
        self.summary.generations = self._history.generations
        self.summary.group_records = self._history.records

    def _account_for_ends(self, seat: Seat) -> None:
        for sitter in seat.sitters:
            ended = sitter.seen.ended
            if ended is None or ended.code == 0:
                continue
            self.summary.gave_up[seat.kind] += 1
            # aiokafka takes an error that holds for the whole group, such as that it is being loaded, for no offsets.
            is_excused = ended.code == NO_OFFSET and seat.kind == "aiokafka"
            # A static member may have its id from a generation that the broker died with: then nobody knows it.
            is_excused |= seat.is_static and self.summary.broker_kills > 0 and _is_fenced(ended)
            require(
                is_excused or (ended.code < 0 and _NO_BROKER.search(ended.reason) is not None),
                Promise.GROUP_READS,
                f"a {seat.kind} consumer gave up: {ended}",
            )

    def _sitters(self) -> Iterator[MemberProcess]:
        return (sitter for seat in self._seats for sitter in seat.sitters)
