"""A change that touches many partitions, one after the other, costs the requests that wait for them what has changed,
and not all that they wait for, again and again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.fetch.fast_path import MOST_REMEMBERED
from broker.replication.partition import LeaderAndIsr, Partition
from protocol.errors import ErrorCode
from protocol.fetch_layout import FetchLayout
from protocol.messages.fetch import FetchRequest
from protocol.messages.produce import ProduceRequest
from tests.support.batches import produced, record
from tests.support.broker import InProcessBroker, running_broker
from tests.support.cost import calls
from tests.support.leadership import OTHER, OURS
from tests.support.share_groups import ShareMember, keep_states_in_memory

FEW = 2 * MOST_REMEMBERED
MANY = 4 * FEW
VERSION = 17


class Wide:
    """A broker that leads ``partitions`` of one topic, which have a follower elsewhere."""

    def __init__(self, broker: InProcessBroker, partitions: int) -> None:
        self.broker = broker
        self.topic_id = broker.create_topic("wide", partitions=partitions)
        self.replicas = broker.server.components.replicas
        self.partitions = [self.replicas.partition("wide", index) for index in range(partitions)]
        self.client = broker.connect()

    def change(self, change: Callable[[Partition], object]) -> int:
        """What it costs to change all partitions in one turn of the loop."""

        async def change_all() -> None:
            for partition in self.partitions:
                change(partition)

        return calls(lambda: self.broker.run(change_all()))

    def lead(self, partition: Partition, in_sync: set[int]) -> None:
        """New metadata of a partition: it has a follower, and these replicas in sync."""
        epoch = 0 if partition.followers is None else partition.followers.partition_epoch + 1
        state = LeaderAndIsr(OURS, partition.leader_epoch, (OURS, OTHER), frozenset(in_sync), partition_epoch=epoch)
        self.replicas.apply(partition, state)

    # Requests that wait

    def _fetch(self, **fields: Any) -> FetchRequest:
        asked = [
            FetchRequest.Topic.Partition(partition=one.topic_partition.partition, fetch_offset=0, partition_max_bytes=9)
            for one in self.partitions
        ]
        named = [FetchRequest.Topic(topic_id=self.topic_id, partitions=asked)]
        return FetchRequest(**{"max_wait_ms": 60_000, "min_bytes": 1, "topics": named, **fields})

    def _send(self, request: object, version: int) -> None:
        self.client.send(request, version)
        assert self.client.has_no_answer()

    def session(self) -> None:
        """A consumer with a fetch session."""
        answer = self.client.ask(self._fetch(max_wait_ms=0, session_epoch=0), VERSION)
        self._send(self._fetch(session_id=answer.session_id, session_epoch=1, topics=[]), VERSION)

    def no_session(self) -> None:
        """A consumer without a session, as librdkafka is; it names all partitions."""
        self.client.ask(self._fetch(max_wait_ms=0, session_epoch=-1), VERSION)
        self._send(self._fetch(session_epoch=-1), VERSION)

    def no_session_on_the_slow_path(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FetchLayout, "read", lambda *_: None)
            self._send(self._fetch(session_epoch=-1), VERSION)

    def producer(self) -> None:
        """A producer with acks=all, whose records the follower does not have."""
        self.change(lambda one: self.lead(one, {OURS, OTHER}))
        data = [
            ProduceRequest.TopicData.PartitionData(
                index=one.topic_partition.partition, records=produced([record(b"v")])
            )
            for one in self.partitions
        ]
        topics = [ProduceRequest.TopicData(name="wide", partition_data=data)]
        self._send(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=topics), 9)

    def share_consumer(self) -> None:
        """A member of a share group."""
        keep_states_in_memory(self.broker)
        member = ShareMember(self.broker, client=self.client)
        for partition in self.partitions:
            member.add(self.topic_id, partition.topic_partition.partition)
        assert member.fetch().error_code == ErrorCode.NONE
        member.send(max_wait_ms=60_000)
        assert self.client.has_no_answer()


def cost_of(
    directory: Path, partitions: int, waiting: Callable[[Wide], None], change: Callable[[Wide, Partition], object]
) -> int:
    """What it costs to change all partitions while a request waits for them."""
    with running_broker(directory) as broker:
        wide = Wide(broker, partitions)
        waiting(wide)
        cost = wide.change(lambda partition: change(wide, partition))
        assert wide.client.has_no_answer(), "it still waits"
        return cost


def changed(wide: Wide, partition: Partition) -> None:
    """As a new setting of the topic does."""
    wide.replicas.changed(partition)
    wide.replicas.watermark_moved(partition)


def other_isr(wide: Wide, partition: Partition) -> None:
    """As a broker does that is fenced, which is in sync nowhere then, and comes back."""
    wide.lead(partition, {OURS, OTHER})


@pytest.mark.parametrize("change", [changed, other_isr])
@pytest.mark.parametrize(
    "waiting",
    [Wide.session, Wide.no_session, Wide.no_session_on_the_slow_path, Wide.producer, Wide.share_consumer],
)
def test_four_times_as_many_partitions_cost_four_times_as_much(
    tmp_path: Path, waiting: Callable[[Wide], None], change: Callable[[Wide, Partition], object]
) -> None:
    few = cost_of(tmp_path / "few", FEW, waiting, change)
    many = cost_of(tmp_path / "many", MANY, waiting, change)
    assert few > FEW
    assert many < 5 * few
