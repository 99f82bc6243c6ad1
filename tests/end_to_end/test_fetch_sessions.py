"""One fetch session from its beginning to its end, field by field, as Apache Kafka 4.4.0 answers it too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dev.broker_process import BrokerProcess
from dev.waiting import until
from protocol.errors import ErrorCode as E
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from protocol.schema import NO_UUID
from tests.support.batches import produced
from tests.support.raw_client import RawClient
from tests.support.requests import produce_request

BATCH_BYTES = len(produced(1))
BY_NAME, BY_ID = 12, 16

Row = tuple[str, int, int, int, int, int]


class Exchange:
    """A client that says exactly what it wants to say."""

    def __init__(self, client: RawClient, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self.ids: dict[str, bytes] = {}
        self.error = 0
        self.session_id = 0

    def create(self, name: str, partitions: int) -> None:
        """A topic whose partitions are there."""
        topic = CreateTopicsRequest.Topic(
            name=self._prefix + name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        (created,) = self._client.ask(CreateTopicsRequest(topics=[topic]), 7).topics
        assert created.error_code == 0
        self.ids[name] = created.topic_id
        codes = {0}
        until(lambda: codes == {row[2] for index in range(partitions) for row in self._look(name, index)})

    def delete(self, name: str) -> None:
        """Gone when it can't be read any more."""
        self._client.ask(DeleteTopicsRequest(topic_names=[self._prefix + name], timeout_ms=10_000), 5)
        until(lambda: self._look(name, 0)[0][2] == E.UNKNOWN_TOPIC_OR_PARTITION)

    def produce(self, name: str, partition: int) -> None:
        """One batch of `BATCH_BYTES`."""
        answer = self._client.ask(produce_request(self._prefix + name, produced(1), partition=partition), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0

    def fetch(
        self,
        session_id: int,
        epoch: int,
        asked: dict[tuple[str, int], int] | None = None,
        *,
        forget: tuple[tuple[str, int], ...] = (),
        version: int = BY_NAME,
        **fields: Any,
    ) -> list[Row]:
        """Topic, partition, error, high watermark, log start, bytes of records: of everything that is told."""
        request = FetchRequest(
            **{"max_wait_ms": 0, "min_bytes": 1, **fields},
            session_id=session_id,
            session_epoch=epoch,
            topics=[
                FetchRequest.Topic(
                    **self._names(name),
                    partitions=[
                        FetchRequest.Topic.Partition(
                            partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
                        )
                    ],
                )
                for (name, partition), offset in (asked or {}).items()
            ],
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(**self._names(name), partitions=[partition]) for name, partition in forget
            ],
        )
        answer: FetchResponse = self._client.ask(request, version)
        self.error, self.session_id = answer.error_code, answer.session_id
        names = {topic_id: name for name, topic_id in self.ids.items()}
        return [
            (
                names[topic.topic_id] if topic.topic_id != NO_UUID else topic.topic.removeprefix(self._prefix),
                one.partition_index,
                one.error_code,
                one.high_watermark,
                one.log_start_offset,
                len(one.records),
            )
            for topic in answer.responses
            for one in topic.partitions
        ]

    def _names(self, name: str) -> dict[str, Any]:
        # Each version writes the one that it has.
        return {"topic": self._prefix + name, "topic_id": self.ids.get(name, b"0123456789abcdef")}

    def _look(self, name: str, partition: int) -> list[Row]:
        return self.fetch(0, -1, {(name, partition): 0})


@pytest.fixture
def exchange(broker: BrokerProcess, topic: str) -> Iterator[Exchange]:
    with RawClient(broker.bootstrap) as client:
        exchange = Exchange(client, f"{topic}-")
        exchange.create("a", 3)
        exchange.create("b", 1)
        exchange.produce("a", 0)
        exchange.produce("a", 1)
        yield exchange


def test_a_session_of_names_from_beginning_to_end(exchange: Exchange) -> None:
    fetch = exchange.fetch
    nowhere = ("nowhere", 0, E.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, 0)

    # It begins: everything is told, what is unknown behind the rest.
    everything = {("nowhere", 0): 0, ("a", 0): 0, ("a", 1): 0, ("a", 2): 0, ("b", 0): 0}
    assert fetch(0, 0, everything) == [
        ("a", 0, 0, 1, 0, BATCH_BYTES),
        ("a", 1, 0, 1, 0, BATCH_BYTES),
        ("a", 2, 0, 0, 0, 0),
        ("b", 0, 0, 0, 0, 0),
        nowhere,
    ]
    session = exchange.session_id
    assert session > 0

    # What the client has not taken comes again; what it has taken does not; an error comes each time.
    assert fetch(session, 1, {("a", 0): 1}) == [("a", 1, 0, 1, 0, BATCH_BYTES), nowhere]
    assert fetch(session, 2, {("a", 1): 1}) == [nowhere]
    assert fetch(session, 3, forget=(("nowhere", 0),)) == []
    assert fetch(session, 4, max_wait_ms=50) == []

    # New records; who had some goes to the end.
    for name, partition in (("a", 0), ("a", 2), ("b", 0)):
        exchange.produce(name, partition)
    turns = [fetch(session, epoch, max_bytes=1) for epoch in range(5, 9)]
    assert turns[:3] == [
        [("a", 0, 0, 2, 0, BATCH_BYTES), ("a", 2, 0, 1, 0, 0), ("b", 0, 0, 1, 0, 0)],
        [("a", 2, 0, 1, 0, BATCH_BYTES)],
        [("b", 0, 0, 1, 0, BATCH_BYTES)],
    ]
    assert turns[3] == turns[0][:1]
    assert fetch(session, 9, {("a", 0): 2, ("a", 2): 1, ("b", 0): 1}) == []

    # What is refused, and leaves the session as it was.
    assert fetch(session, 20) == []
    assert (exchange.error, exchange.session_id) == (E.INVALID_FETCH_SESSION_EPOCH, 0)
    assert fetch(0, 5) == []
    assert (exchange.error, exchange.session_id) == (E.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert fetch(session, 10, version=BY_ID) == []
    assert (exchange.error, exchange.session_id) == (E.FETCH_SESSION_TOPIC_ID_ERROR, 0)
    assert fetch(session, 10) == []
    assert (exchange.error, exchange.session_id) == (0, session)

    # An error, each time, at once; when it is over, the high watermark.
    out_of_range = ("a", 1, E.OFFSET_OUT_OF_RANGE, -1, -1, 0)
    assert fetch(session, 11, {("a", 1): 99}, max_wait_ms=20_000) == [out_of_range]
    assert fetch(session, 12, max_wait_ms=20_000) == [out_of_range]
    assert fetch(session, 13, {("a", 1): 1}) == [("a", 1, 0, 1, 0, 0)]

    # The topic goes, and comes back under its name.
    exchange.delete("b")
    assert fetch(session, 14) == [("b", 0, E.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, 0)]
    exchange.create("b", 1)
    assert fetch(session, 15) == [("b", 0, E.OFFSET_OUT_OF_RANGE, -1, -1, 0)]
    assert fetch(session, 16, {("b", 0): 0}) == [("b", 0, 0, 0, 0, 0)]

    # Begun anew, closed, and emptied.
    assert fetch(session, 0, {("a", 0): 2}) == [("a", 0, 0, 2, 0, 0)]
    second = exchange.session_id
    assert second not in (0, session)
    assert fetch(session, 17) == []
    assert exchange.error == E.FETCH_SESSION_ID_NOT_FOUND
    assert fetch(second, 1, forget=(("a", 0),)) == []
    assert (exchange.error, exchange.session_id) == (0, 0)
    assert fetch(second, 2) == []
    assert exchange.error == E.FETCH_SESSION_ID_NOT_FOUND
    assert fetch(second, -1, {("a", 0): 0}) == [("a", 0, 0, 2, 0, 2 * BATCH_BYTES)]
    assert (exchange.error, exchange.session_id) == (0, 0)


def test_a_session_of_ids_notices_that_a_topic_is_another(exchange: Exchange) -> None:
    fetch = exchange.fetch
    unknown = ("nowhere", 0, E.UNKNOWN_TOPIC_ID, -1, -1, 0)
    exchange.ids["nowhere"] = b"0123456789abcdef"

    assert fetch(0, 0, {("nowhere", 0): 0, ("a", 0): 1, ("b", 0): 0}, version=BY_ID) == [
        ("a", 0, 0, 1, 0, 0),
        ("b", 0, 0, 0, 0, 0),
        unknown,
    ]
    session = exchange.session_id
    assert fetch(session, 1, version=BY_ID) == [unknown]
    assert fetch(session, 2) == []
    assert exchange.error == E.FETCH_SESSION_TOPIC_ID_ERROR
    assert fetch(session, 2, forget=(("nowhere", 0),), version=BY_ID) == []

    # The session remembers the name that the id had.
    exchange.delete("b")
    assert fetch(session, 3, version=BY_ID) == [("b", 0, E.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, 0)]
    old_id = exchange.ids["b"]
    exchange.create("b", 1)
    new_id, exchange.ids["b"] = exchange.ids["b"], old_id
    assert fetch(session, 4, max_wait_ms=20_000, version=BY_ID) == [("b", 0, E.INCONSISTENT_TOPIC_ID, -1, -1, 0)]
    assert fetch(session, 5, forget=(("b", 0),), version=BY_ID) == []
    exchange.ids["b"] = new_id
    assert fetch(session, 6, {("b", 0): 0}, version=BY_ID) == [("b", 0, 0, 0, 0, 0)]
    exchange.produce("b", 0)
    assert fetch(session, 7, max_wait_ms=20_000, version=BY_ID) == [("b", 0, 0, 1, 0, BATCH_BYTES)]
