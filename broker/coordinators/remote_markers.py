"""RemoteMarkers: the markers of ended transactions for partitions that other brokers lead (WriteTxnMarkers)."""

from collections.abc import Callable
from typing import Final, NamedTuple

from broker.coordinators.node_requests import Failed, NodeRequest, NodeRequests, code_of
from broker.coordinators.result import Completion
from broker.peers.errors import PeerError
from broker.peers.nodes import Nodes
from broker.replication.transaction_marker import TransactionMarker
from protocol.errors import ErrorCode
from protocol.messages.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from storage.topic_partition import TopicPartition

MOST_IN_A_REQUEST: Final = 1_000
"""Markers in one request, those of one transaction together: a leader writes all of them in one turn of its loop."""

_Waiting = dict[TransactionMarker, dict[TopicPartition, Completion]]
"""Partitions by the marker that they wait for."""


class _Batch(NamedTuple):
    """The markers of one request to a broker."""

    broker_id: int
    markers: _Waiting


class RemoteMarkers:
    """Sends markers to the leaders of partitions: all that wait for a broker in one request, one request at a time."""

    def __init__(self, nodes: Nodes, *, on_failure: Failed) -> None:
        """``nodes`` is for these requests alone, and is closed with this; ``on_failure`` is called with a bug."""
        self._requests: NodeRequests[_Batch, WriteTxnMarkersResponse] = NodeRequests(
            nodes, WriteTxnMarkersResponse, take=self._take, settle=self._settle, on_failure=on_failure
        )
        self._waiting: dict[int, _Waiting] = {}
        """By broker."""
        self._sent: dict[int, _Waiting] = {}
        """What the request in flight to each broker holds."""

    def __len__(self) -> int:
        """How many markers wait to be sent; those that were sent and not answered do not count."""
        return sum(len(places) for waiting in self._waiting.values() for places in waiting.values())

    @property
    def in_flight(self) -> int:
        """How many brokers are being asked."""
        return self._requests.in_flight

    def append(self, broker_id: int, partition: TopicPartition, marker: TransactionMarker, then: Completion) -> None:
        """Have a broker write a marker; ``then`` is called once, in a later turn of the loop: with NONE after the
        marker is acknowledged, else with the broker's error. NETWORK_EXCEPTION: there is no answer, and the marker may
        be in the log; a second one does no harm. ``then`` is not called behind `withdraw` or `close`, unless the marker
        has been sent before."""
        self._waiting.setdefault(broker_id, {}).setdefault(marker, {})[partition] = then
        self._requests.wake(broker_id)

    def withdraw(self, marker: TransactionMarker) -> None:
        """Send this marker to no more partitions."""
        for waiting in self._waiting.values():
            waiting.pop(marker, None)

    def leaders_changed(self, leader_of: Callable[[TopicPartition], int | None]) -> None:
        """Give the markers back whose partitions other brokers lead by now, or none, also those that were sent: the
        broker may never answer. Their outcome is NOT_LEADER_OR_FOLLOWER."""
        for batches in (self._waiting, self._sent):
            for broker_id, markers in list(batches.items()):
                for marker, places in list(markers.items()):
                    for partition in [one for one in places if leader_of(one) != broker_id]:
                        places.pop(partition)(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                    if markers.get(marker) == {}:
                        del markers[marker]  # a request would have it in the place of the producer's next marker

    async def close(self) -> None:
        """Send nothing any more, and close the connections."""
        self._waiting.clear()
        await self._requests.close()

    def _take(self, broker_id: int) -> NodeRequest[_Batch] | None:
        waiting = self._waiting.get(broker_id, {})
        taken: _Waiting = {}
        producers: set[int] = set()
        count = 0
        for marker, places in waiting.items():
            if count >= MOST_IN_A_REQUEST:
                break
            # The answer names the producer: two markers of the same producer could not be told apart in it.
            if marker.producer_id not in producers:
                producers.add(marker.producer_id)
                taken[marker] = places
                count += len(places)
        for marker in taken:
            del waiting[marker]
        if not waiting:
            self._waiting.pop(broker_id, None)
        if not taken:
            return None
        self._sent[broker_id] = taken
        return NodeRequest(_request(taken), _Batch(broker_id, taken))

    def _settle(self, batch: _Batch, answer: WriteTxnMarkersResponse | PeerError) -> None:
        del self._sent[batch.broker_id]
        codes = None if isinstance(answer, PeerError) else _codes(answer)
        for marker, places in batch.markers.items():
            for (topic, index), then in places.items():
                if codes is None:
                    then(ErrorCode.NETWORK_EXCEPTION)
                else:
                    then(codes.get((marker.producer_id, topic, index), ErrorCode.UNKNOWN_SERVER_ERROR))


def _request(taken: _Waiting) -> WriteTxnMarkersRequest:
    of = WriteTxnMarkersRequest.Marker
    markers = []
    for marker, places in taken.items():
        by_topic: dict[str, list[int]] = {}
        for topic, index in places:
            by_topic.setdefault(topic, []).append(index)
        markers.append(
            of(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.is_commit,
                topics=[of.Topic(name=topic, partition_indexes=indexes) for topic, indexes in by_topic.items()],
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
        )
    return WriteTxnMarkersRequest(markers=markers)


def _codes(answer: WriteTxnMarkersResponse) -> dict[tuple[int, str, int], ErrorCode]:
    """The codes of an answer, by producer id, topic and partition."""
    return {
        (marker.producer_id, topic.name, partition.partition_index): code_of(partition.error_code)
        for marker in answer.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
