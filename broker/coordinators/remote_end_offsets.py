"""RemoteEndOffsets: asks the leaders of partitions on other brokers up to where these are committed (ListOffsets)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.coordinators.node_requests import Failed, NodeRequest, NodeRequests, code_of
from broker.peers.errors import PeerError
from broker.peers.nodes import Nodes
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from storage.sentinels import NO_OFFSET
from storage.topic_partition import TopicPartition

CONSUMER: Final = -1
LATEST: Final = -1

MOST_ATTEMPTS: Final = 5
FIRST_PAUSE_MS: Final = 1_000
"""A leader that does not answer is asked again after as long, then after twice as long, as in Kafka."""

EndOffsetReply = Callable[[ErrorCode, int], None]
"""Called with the high watermark, or with the leader's error."""


class _Question:
    """A partition that a leader is asked about."""

    __slots__ = ("attempts", "partition", "reply")

    def __init__(self, partition: TopicPartition, reply: EndOffsetReply) -> None:
        self.partition = partition
        self.reply = reply
        self.attempts = 0


class RemoteEndOffsets:
    """Asks leaders as Kafka's PartitionMetadataClient does: what waits for a leader goes in one request, and each
    leader has one request in flight."""

    def __init__(self, nodes: Nodes, *, later: Callable[[int, Callable[[], None]], object], on_failure: Failed) -> None:
        """``nodes`` is for these requests alone, and is closed with this; ``later`` calls after so many milliseconds;
        ``on_failure`` is called with a bug."""
        self._requests: NodeRequests[tuple[int, list[_Question]], ListOffsetsResponse] = NodeRequests(
            nodes, ListOffsetsResponse, take=self._take, settle=self._settle, on_failure=on_failure
        )
        self._later = later
        self._waiting: dict[int, list[_Question]] = {}
        """By leader."""

    def ask(self, leader_id: int, partition: TopicPartition, reply: EndOffsetReply) -> None:
        """Ask a leader. ``reply`` is called once, in a later turn of the loop; with NETWORK_EXCEPTION if the leader
        gives no answer, as when this broker stops."""
        self._ask(leader_id, _Question(partition, reply))

    async def close(self) -> None:
        """Ask nothing any more, and close the connections; what waits is answered NETWORK_EXCEPTION."""
        await self._requests.close()
        waiting, self._waiting = self._waiting, {}
        for questions in waiting.values():
            for question in questions:
                question.reply(ErrorCode.NETWORK_EXCEPTION, NO_OFFSET)

    def _ask(self, leader_id: int, question: _Question) -> None:
        if self._requests.is_closed:
            question.reply(ErrorCode.NETWORK_EXCEPTION, NO_OFFSET)
            return
        self._waiting.setdefault(leader_id, []).append(question)
        self._requests.wake(leader_id)

    def _take(self, leader_id: int) -> NodeRequest[tuple[int, list[_Question]]] | None:
        questions = self._waiting.pop(leader_id, None)
        if not questions:
            return None
        by_topic: dict[str, dict[int, None]] = {}
        for question in questions:
            by_topic.setdefault(question.partition.topic, {})[question.partition.partition] = None
        of_topic = ListOffsetsRequest.Topic
        topics = [
            of_topic(
                name=topic,
                partitions=[of_topic.Partition(partition_index=index, timestamp=LATEST) for index in indexes],
            )
            for topic, indexes in by_topic.items()
        ]
        return NodeRequest(ListOffsetsRequest(replica_id=CONSUMER, topics=topics), (leader_id, questions))

    def _settle(self, asked: tuple[int, list[_Question]], answer: ListOffsetsResponse | PeerError) -> None:
        leader_id, questions = asked
        if isinstance(answer, PeerError):
            for question in questions:
                self._not_answered(leader_id, question)
            return
        found = {
            TopicPartition(topic.name, partition.partition_index): partition
            for topic in answer.topics
            for partition in topic.partitions
        }
        for question in questions:
            partition = found.get(question.partition)
            if partition is None:
                question.reply(ErrorCode.UNKNOWN_SERVER_ERROR, NO_OFFSET)
            else:
                question.reply(code_of(partition.error_code), partition.offset)

    def _not_answered(self, leader_id: int, question: _Question) -> None:
        question.attempts += 1
        if question.attempts >= MOST_ATTEMPTS or self._requests.is_closed:
            question.reply(ErrorCode.NETWORK_EXCEPTION, NO_OFFSET)
            return
        pause_ms = FIRST_PAUSE_MS << (question.attempts - 1)
        self._later(pause_ms, lambda: self._ask(leader_id, question))
