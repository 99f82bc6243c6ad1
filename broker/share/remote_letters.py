"""RemoteLetters: dead letters for partitions that other brokers lead (Produce with acks=all)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from broker.coordinators.node_requests import Failed, NodeRequest, NodeRequests, code_of
from broker.peers.errors import PeerError
from broker.peers.nodes import Nodes
from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceRequest, ProduceResponse
from storage.topic_partition import TopicPartition

MOST_BYTES: Final = 1 << 20
"""No batch is added to a request that has as many bytes."""
BY_ALL: Final = -1
ACKNOWLEDGED_IN_MS: Final = 30_000
"""How long the leader waits for the replicas, as in Kafka."""

Written = Callable[[ErrorCode], None]


class Letters(NamedTuple):
    """Letters that wait to be sent."""

    destination: TopicPartition
    topic_id: bytes
    make: Callable[[], bytearray]
    """Gives the batch when it is sent: what waits takes no memory for its records."""
    then: Written


class RemoteLetters:
    """Sends letters to the leaders of dead letter queues, as Kafka does: what waits for a leader goes in one request,
    of each partition one batch, and each leader has one request in flight."""

    def __init__(self, nodes: Nodes, *, on_failure: Failed) -> None:
        """``nodes`` is for these requests alone, and is closed with this; ``on_failure`` is called with a bug."""
        self._requests: NodeRequests[list[Letters], ProduceResponse] = NodeRequests(
            nodes, ProduceResponse, take=self._take, settle=self._settle, on_failure=on_failure
        )
        self._waiting: dict[int, list[Letters]] = {}
        """By leader."""

    def append(self, leader_id: int, letters: Letters) -> None:
        """Have a leader append letters; ``letters.then`` is called once, in a later turn of the loop: with NONE when
        all replicas in sync have them, else with the leader's error. NETWORK_EXCEPTION: there is no answer, and the
        letters may be in the log. ``then`` is not called behind `close`, unless they have been sent before."""
        self._waiting.setdefault(leader_id, []).append(letters)
        self._requests.wake(leader_id)

    async def close(self) -> None:
        """Send nothing any more, and close the connections."""
        self._waiting.clear()
        await self._requests.close()

    def _take(self, leader_id: int) -> NodeRequest[list[Letters]] | None:
        waiting = self._waiting.pop(leader_id, None)
        if not waiting:
            return None
        of_topic = ProduceRequest.TopicData
        taken: dict[tuple[bytes, int], Letters] = {}
        left: list[Letters] = []
        topics: dict[bytes, ProduceRequest.TopicData] = {}
        size = 0
        for letters in waiting:
            topic_id, (topic, index) = letters.topic_id, letters.destination
            if (topic_id, index) in taken or size >= MOST_BYTES:
                left.append(letters)
                continue
            taken[topic_id, index] = letters
            records = memoryview(letters.make())
            size += len(records)
            topics.setdefault(topic_id, of_topic(name=topic, topic_id=topic_id, partition_data=[]))
            topics[topic_id].partition_data.append(of_topic.PartitionData(index=index, records=records))
        if left:
            self._waiting[leader_id] = left
        message = ProduceRequest(acks=BY_ALL, timeout_ms=ACKNOWLEDGED_IN_MS, topic_data=list(topics.values()))
        return NodeRequest(message, list(taken.values()))

    def _settle(self, sent: list[Letters], answer: ProduceResponse | PeerError) -> None:
        if isinstance(answer, PeerError):
            for letters in sent:
                letters.then(ErrorCode.NETWORK_EXCEPTION)
            return
        found = _codes(answer)
        for letters in sent:
            topic, index = letters.destination
            code = found.get((letters.topic_id, index), found.get((topic, index)))
            letters.then(ErrorCode.UNKNOWN_SERVER_ERROR if code is None else code)


def _codes(answer: ProduceResponse) -> dict[tuple[Any, int], ErrorCode]:
    """The codes by the topic's id, or by its name in older versions, and partition."""
    return {
        (key, partition.index): code_of(partition.error_code)
        for topic in answer.responses
        for key in (bytes(topic.topic_id), topic.name)
        for partition in topic.partition_responses
    }
