"""From Ottla to Apache Kafka and back, three times, with writes at each stop: every record is accounted for."""

from __future__ import annotations

import pytest

from dev.broker_process import BrokerProcess
from protocol.errors import ErrorCode
from storage.batch.record_batch import Codec
from storage.batch.records import Record
from tests.interop import programs
from tests.interop.directories import (
    BROKER,
    LAST_HOUR_MS,
    TOPIC,
    IdempotentProducer,
    SharedDirectory,
    Visitor,
    complaints_of_dump_log,
)
from tests.interop.directory_groups import GroupVisitor, Member, OffsetSeen, assign
from tests.interop.test_kafka_directory import SEGMENTED, look_again
from tests.support.batches import produced

pytestmark = pytest.mark.timeout(400)  # several starts of a Java broker, on whatever machine

ROUND_TRIPS = 3


class Ledger:
    """What has been acknowledged, and what has been deleted since."""

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[str, int], dict[int, bytes]] = {}
        self.producers: list[IdempotentProducer] = []
        self.producer_ids: list[int] = []
        self.topics_deleted: list[str] = []
        self.committed: dict[str, dict[tuple[str, int], OffsetSeen]] = {}
        """By group."""
        self.member = Member("always there", instance_id="the one")
        self.stops = 0

    def write(self, visitor: Visitor) -> None:
        """One stop: old topics grow, new ones come, one goes; configs change."""
        stop = self.stops
        self.stops += 1
        new = f"stop-{stop}"
        visitor.create(new, partitions=2, **SEGMENTED)
        self.acknowledged |= {(new, 0): {}, (new, 1): {}}
        visitor.create(f"passing-{stop}", retention_ms=str(1_000_000 + stop))
        visitor.produce(f"passing-{stop}", produced(3))
        if stop:
            visitor.delete(f"passing-{stop - 1}")
            self.topics_deleted.append(f"passing-{stop - 1}")

        identity = visitor.new_producer_id()
        assert identity not in self.producer_ids, f"producer id {identity} is handed out twice"
        self.producer_ids.append(identity)
        self.producers.append(IdempotentProducer(producer_id=identity, topic=new, partition=1))
        for producer in self.producers:
            producer.repeat(visitor)
            for _ in range(2):
                producer.send(visitor)
                self._note(producer.topic, producer.partition, producer.sent[-1][0], producer.values(-1))

        for topic, partition in self.acknowledged:
            for number, codec in enumerate(Codec):
                values = [b"%s-%d, stop %d, %s %d" % (topic.encode(), partition, stop, codec.name.encode(), n)
                          for n in range(4)]  # fmt: skip
                # Every stop, a segment of its own.
                timestamp = LAST_HOUR_MS + stop * 100_000 + number
                batch = produced([Record(timestamp=timestamp, key=b"k", value=value) for value in values], codec=codec)
                self._note(topic, partition, visitor.produce(topic, batch, partition=partition), values)

        visitor.configure(TOPIC, "stop-0", {"retention.bytes": str(10_000_000_000 + stop)})
        visitor.configure(TOPIC, new, {"retention.ms": "-1"})
        visitor.configure(BROKER, "", {"log.retention.bytes": str(20_000_000_000 + stop)})
        visitor.configure(BROKER, "1", {"message.max.bytes": str(2_000_000 + stop) if stop % 2 else None})

    def commit(self, broker: BrokerProcess) -> None:
        """Every group goes on, a new one comes, one goes; one has a member that stays from broker to broker."""
        generation = self.member.generation
        self.member.meet(broker)
        if generation >= 0:
            assert self.member.heartbeat() == ErrorCode.NONE
        self.member.join()
        assert self.member.generation > generation
        assign([self.member])
        place, metadata = ("stop-0", 0), f"at stop {self.stops}"
        assert self.member.commit({place: self.stops}, metadata) == ErrorCode.NONE
        self.committed["always there"] = {place: OffsetSeen(self.stops, -1, metadata)}
        with GroupVisitor(broker.bootstrap) as visitor:
            self.committed[f"group of stop {self.stops}"] = {}
            for group, offsets in self.committed.items():
                if group != "always there":
                    visitor.commit(group, {place: self.stops * 10}, metadata)
                    offsets[place] = OffsetSeen(self.stops * 10, -1, metadata)
            if f"group of stop {self.stops - 2}" in self.committed:
                visitor.delete_group(f"group of stop {self.stops - 2}")
                del self.committed[f"group of stop {self.stops - 2}"]

    def account_for_groups(self, broker: BrokerProcess) -> None:
        """Every offset is there as it was committed, and no group that was deleted."""
        with GroupVisitor(broker.bootstrap) as visitor:
            found = visitor.groups()
        assert {name: group.offsets for name, group in found.items()} == self.committed
        if self.stops:
            assert found["always there"].state == "Stable"
            assert set(found["always there"].members) == {self.member.id}

    def delete_some(self, visitor: Visitor) -> None:
        """The oldest records of one topic go."""
        shrinking = self.acknowledged["stop-0", 0]
        before = min(shrinking) + 7
        visitor.delete_records("stop-0", before)
        self.acknowledged["stop-0", 0] = {at: value for at, value in shrinking.items() if at >= before}

    def account(self, visitor: Visitor) -> None:
        """Everything that was acknowledged is there with its offset and value, and nothing else."""
        for (topic, partition), values in self.acknowledged.items():
            found = {offset: record.value for offset, record in visitor.records(topic, partition=partition).items()}
            assert found == values, f"{topic}-{partition} after {self.stops} stops"

    def _note(self, topic: str, partition: int, offset: int, values: list[bytes]) -> None:
        self.acknowledged[topic, partition] |= {offset + n: value for n, value in enumerate(values)}


def test_three_round_trips_lose_nothing(shared: SharedDirectory) -> None:
    ledger = Ledger()
    before = None
    for _ in range(ROUND_TRIPS):
        for broker in (shared.ottla, shared.kafka):
            broker.start()
            if before is not None:
                look_again(broker, before)
            ledger.account_for_groups(broker)
            with Visitor(broker.bootstrap) as visitor:
                ledger.account(visitor)
                ledger.write(visitor)
                ledger.commit(broker)
                ledger.delete_some(visitor)
                ledger.account(visitor)
                before = visitor.picture()
            assert not before.topics.keys() & set(ledger.topics_deleted)
            broker.stop()
        assert complaints_of_dump_log(programs.java(), shared.data) == []
    assert before is not None
    shared.ottla.start()
    look_again(shared.ottla, before)
    with Visitor(shared.ottla.bootstrap) as visitor:
        ledger.account(visitor)
    ledger.account_for_groups(shared.ottla)
    ledger.member.part()
    shared.ottla.stop()
    assert complaints_of_dump_log(programs.java(), shared.data) == []


def test_round_trips_of_brokers_that_are_killed_lose_nothing(shared: SharedDirectory) -> None:
    ledger = Ledger()
    for _ in range(2):
        for broker in (shared.ottla, shared.kafka):
            broker.start()
            ledger.account_for_groups(broker)
            with Visitor(broker.bootstrap) as visitor:
                ledger.account(visitor)
                ledger.write(visitor)
                ledger.commit(broker)
                if broker is shared.ottla:
                    # Kafka notes once a minute where logs start: what it has deleted may come back when it is killed.
                    ledger.delete_some(visitor)
                before = visitor.picture()
            broker.kill()
    shared.ottla.start()
    look_again(shared.ottla, before)
    with Visitor(shared.ottla.bootstrap) as visitor:
        ledger.account(visitor)
    ledger.account_for_groups(shared.ottla)
    ledger.member.part()
    shared.ottla.stop()
    assert complaints_of_dump_log(programs.java(), shared.data) == []
