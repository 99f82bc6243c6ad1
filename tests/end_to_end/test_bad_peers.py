"""A node whose answers are changed on the way to its standby: nothing of them is written, and the rest goes on."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from broker.raft.batches import encode_records
from broker.raft.single_voter_log import METADATA_TOPIC_ID
from dev.waiting import until
from protocol.api_keys import ApiKey
from protocol.headers import decode_response, frame_response
from protocol.messages.fetch import FetchResponse
from protocol.records.cluster_metadata import PartitionChangeRecord
from storage.batch.record_batch import read_header
from tests.support.clusters import Admin, Cluster, Load, Member, Primary, numbers_in
from tests.support.proxy import Exchange, FrameProxy

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_BOOTSTRAP") or os.environ.get("OTTLA_TEST_KAFKA_LIBS")),
    reason="a standby of another broker is not ours to judge",
)

PRIMARY: Final = 1
STANDBY: Final = 2
BOTH: Final = {PRIMARY, STANDBY}
SETTINGS: Final = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
}
OfPartition = FetchResponse.Response.Partition


class Between:
    """Proxies between a standby and its node, which change what the standby fetches once they are told to."""

    def __init__(self, directory: Path) -> None:
        self.cluster = Cluster(directory)
        self.primary = Primary(directory / "primary", node_id=PRIMARY, settings=SETTINGS)
        self.change: Callable[[bytes, OfPartition], OfPartition] | None = None
        """Given the id of a topic and a partition with records on the way to the standby: what the standby gets."""
        self.changed = 0
        """So many answers were changed."""
        self._lock = threading.Lock()
        self._replicas = FrameProxy(("127.0.0.1", self.primary.port), on_answer=self._changed)
        self._controller = FrameProxy(("127.0.0.1", self.primary.controller_port), on_answer=self._changed)
        self.primary.settings["advertised.listeners"] = (
            f"PLAINTEXT://127.0.0.1:{self._replicas.port},CONTROLLER://127.0.0.1:{self._controller.port}"
        )
        self.cluster.nodes[PRIMARY] = self.primary
        self.cluster.controllers.append(self._controller.port)

    def start(self) -> Member:
        """Start both nodes. Returns the standby."""
        self.primary.start()
        return self.cluster.add_member(STANDBY, SETTINGS)

    def close(self) -> None:
        self.cluster.close()
        self._replicas.close()
        self._controller.close()

    def _changed(self, asked: Exchange) -> bool | bytes:
        change = self.change
        if asked.api_key != ApiKey.FETCH or change is None:
            return True
        _, answer = decode_response(FetchResponse, asked.api_version, asked.answer)
        changed = 0
        with self._lock:  # each connection has a thread
            for topic in answer.responses:
                for number, partition in enumerate(topic.partitions):
                    if partition.records:
                        topic.partitions[number] = change(bytes(topic.topic_id), partition)
                        changed += topic.partitions[number] is not partition
            self.changed += changed
        if not changed:
            return True
        return b"".join(bytes(chunk) for chunk in frame_response(asked.correlation_id, answer, asked.api_version))[4:]  # type: ignore[arg-type]


@pytest.fixture
def between(tmp_path: Path) -> Iterator[Between]:
    between = Between(tmp_path)
    try:
        yield between
    finally:
        between.close()


def lines_with(node: Member, text: str) -> list[str]:
    return [line for line in node.log_path.read_text().splitlines() if text in line]


def with_records(partition: OfPartition, records: bytes) -> OfPartition:
    return dataclasses.replace(partition, records=memoryview(records))


@pytest.mark.timeout(240)
def test_records_that_are_damaged_on_the_way_are_not_written_and_other_partitions_go_on(between: Between) -> None:
    standby = between.start()
    admin = Admin(between.cluster.bootstrap)
    admin.create("orders", [[PRIMARY, STANDBY], [PRIMARY, STANDBY]])
    loads = [Load(between.cluster.bootstrap, "orders", partition=partition) for partition in (0, 1)]
    for load in loads:
        load.wait_for(50)
    damages = [
        lambda records: records[:-1] + bytes([records[-1] ^ 0xFF]),
        lambda records: records[:50],
        lambda records: (2**63 - 1).to_bytes(8, "big") + records[8:],
        lambda records: bytes(8) + records[8:],
        lambda records: records[:12] + b"\x00\x00\x00\x77" + records[16:],
        lambda records: b"\xff" * len(records),
    ]
    turn = 0

    def damage(topic_id: bytes, partition: OfPartition) -> OfPartition:
        nonlocal turn
        if topic_id == METADATA_TOPIC_ID or partition.partition_index != 0:
            return partition
        turn += 1
        return with_records(partition, damages[turn % len(damages)](bytes(partition.records or b"")))

    between.change = damage
    loads[1].wait_for(200)
    admin.until(lambda: admin.isrs("orders") == [{PRIMARY}, BOTH], "the damaged partition has left the ISR")
    loads[0].wait_for(50)
    until(lambda: between.changed > len(damages), "each damage was tried")
    between.change = None
    admin.until(lambda: admin.isrs("orders") == [BOTH, BOTH], "both are in sync again")
    for load in loads:
        load.end()

    for partition, load in enumerate(loads):
        assert load.errors == []
        assert numbers_in(between.cluster.bootstrap, "orders", partition) == load.acknowledged == list(range(load.sent))
    refused = lines_with(standby, "orders-0 is not replicated, trying again: node 1 has sent ")
    assert 0 < len(refused) <= between.changed
    assert not lines_with(standby, "orders-1 is not replicated")
    assert not lines_with(standby, "Traceback")


@pytest.mark.timeout(240)
def test_a_standby_that_cannot_read_the_metadata_is_missed_and_comes_back_when_it_can(between: Between) -> None:
    standby = between.start()
    admin = Admin(between.primary.bootstrap)
    admin.create("orders", [[STANDBY, PRIMARY]])

    def cut_off(topic_id: bytes, partition: OfPartition) -> OfPartition:
        if topic_id != METADATA_TOPIC_ID:
            return partition
        return with_records(partition, bytes(partition.records or b"")[:-1])

    between.change = cut_off
    admin.create("payments", [[PRIMARY]])
    admin.until(lambda: admin.leaders("orders") == [PRIMARY], "the standby counts as dead")
    assert standby.is_running
    between.change = None
    admin.until(lambda: admin.isrs("orders") == [BOTH], "the standby is back")

    refused = lines_with(standby, "the metadata log is not followed, trying again: node 1 has sent the first ")
    assert 0 < len(refused) < between.changed < 100


@pytest.mark.timeout(240)
def test_a_standby_ends_with_metadata_that_contradicts_itself_and_says_why(between: Between) -> None:
    standby = between.start()
    admin = Admin(between.primary.bootstrap)
    admin.create("orders", [[STANDBY, PRIMARY]])

    def contradict(topic_id: bytes, partition: OfPartition) -> OfPartition:
        if topic_id != METADATA_TOPIC_ID:
            return partition
        header = read_header(bytes(partition.records or b""))
        of_nothing = PartitionChangeRecord(partition_id=7, topic_id=bytes(range(16)), leader=STANDBY)
        records = encode_records(
            [(of_nothing, 0)] * (header.last_offset_delta + 1),
            base_offset=header.base_offset,
            leader_epoch=header.partition_leader_epoch,
            now_ms=header.max_timestamp,
        )
        return dataclasses.replace(partition, records=memoryview(records), high_watermark=header.next_offset)

    between.change = contradict
    admin.create("payments", [[PRIMARY]])
    until(lambda: not standby.is_running, "the standby has ended")
    with pytest.raises(AssertionError, match="exit code 1"):
        standby.stop()

    (why,) = lines_with(standby, "this broker is no member of its cluster any more: batch at offset ")
    assert why.endswith("PartitionChangeRecord speaks of topic id 000102030405060708090a0b0c0d0e0f, which there is not")
    admin.until(lambda: admin.leaders("orders") == [PRIMARY], "the node leads")
