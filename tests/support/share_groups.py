"""Share groups in tests: a persister in memory, and partitions of made-up batches."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from broker.coordinators.share.persister import (
    NO_START_OFFSET,
    NOT_COUNTED,
    SharePartitionKey,
    ShareState,
    StateBatch,
)
from protocol.errors import ErrorCode
from protocol.messages.share_fetch import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from storage.batch.record_batch import CONTROL_BIT, HEADER_SIZE, LOG_OVERHEAD, MAGIC, TRANSACTIONAL_BIT, BatchHeader
from tests.support.broker import Client, InProcessBroker
from tests.support.raw_client import RawClient

KEY = SharePartitionKey("workers", bytes(range(16)), 0)


class InMemoryPersister:
    """A `broker.coordinators.share.persister.SharePersister` that keeps everything in this process."""

    def __init__(self) -> None:
        self.states: dict[SharePartitionKey, ShareState] = {}
        self.writes: list[ShareState] = []
        self.answers_with = ErrorCode.NONE
        """The code of the next writes; with an error nothing is written."""
        self.is_holding = False
        """Whether answers to reads and writes wait for `answer`."""
        self._held: list[Callable[[], None]] = []

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, then: Callable[[ErrorCode], None]
    ) -> None:
        self.states[key] = ShareState(state_epoch, -1, start_offset, NOT_COUNTED, ())
        then(ErrorCode.NONE)

    def read(
        self, key: SharePartitionKey, leader_epoch: int, then: Callable[[ErrorCode, ShareState | None], None]
    ) -> None:
        state = self.states.get(key, ShareState(0, leader_epoch, NO_START_OFFSET, NOT_COUNTED, ()))
        self._answer(lambda: then(ErrorCode.NONE, state))

    def write(self, key: SharePartitionKey, state: ShareState, then: Callable[[ErrorCode], None]) -> None:
        code = self.answers_with
        if code is ErrorCode.NONE:
            self.writes.append(state)
            before = self.states.get(key)
            self.states[key] = state._replace(
                batches=merged(() if before is None else before.batches, state.batches, state.start_offset)
            )
        self._answer(lambda: then(code))

    def _answer(self, answer: Callable[[], None]) -> None:
        if self.is_holding:
            self._held.append(answer)
        else:
            answer()

    def answer(self) -> None:
        """Answer all reads and writes that wait."""
        held, self._held = self._held, []
        for one in held:
            one()

    def delete(self, key: SharePartitionKey, then: Callable[[ErrorCode], None]) -> None:
        self.states.pop(key, None)
        then(ErrorCode.NONE)

    def summarize(
        self, key: SharePartitionKey, leader_epoch: int, then: Callable[[ErrorCode, ShareState | None], None]
    ) -> None:
        state = self.states.get(key)
        then(ErrorCode.NONE, None if state is None else state._replace(batches=()))


def merged(before: Iterable[StateBatch], after: Iterable[StateBatch], start_offset: int) -> Sequence[StateBatch]:
    """What is stored after ``after`` was written on ``before``: offset by offset, the slow and obvious way."""
    states = {
        offset: (one.delivery_state, one.delivery_count)
        for batches in (before, after)
        for one in batches
        for offset in range(one.first_offset, one.last_offset + 1)
    }
    offsets = sorted(offset for offset in states if offset >= start_offset)
    runs = groupby(enumerate(offsets), lambda item: (item[1] - item[0], states[item[1]]))
    return [StateBatch(run[0][1], run[-1][1], *states[run[0][1]]) for run in (list(items) for _, items in runs)]


def batch_header(
    base_offset: int,
    last_offset: int,
    *,
    producer_id: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
) -> BatchHeader:
    """The header of a batch of which only the offsets are of interest."""
    attributes = (TRANSACTIONAL_BIT if is_transactional else 0) | (CONTROL_BIT if is_control else 0)
    return BatchHeader(
        base_offset=base_offset,
        batch_length=HEADER_SIZE - LOG_OVERHEAD,
        partition_leader_epoch=0,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last_offset - base_offset,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=producer_id,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=last_offset - base_offset + 1,
    )


def keep_states_in_memory(broker: InProcessBroker) -> InMemoryPersister:
    """Let the state of share groups be kept in memory."""
    persister = InMemoryPersister()
    groups = broker.server.share_delivery
    assert groups is not None
    groups.persister = persister
    return persister


class ShareMember:
    """A member of a share group, as a client library would be one, on a connection of its own."""

    def __init__(
        self,
        broker: InProcessBroker | None,
        *topic_ids: bytes,
        group_id: str = "workers",
        member_id: str = "anna",
        version: int = 2,
        client: Client | RawClient | None = None,
    ) -> None:
        """``client``: the member's connection; None: a new connection to ``broker``."""
        if client is None:
            assert broker is not None, "a member has a broker or a connection"
            client = broker.connect()
        self.client = client
        self.group_id = group_id
        self.member_id = member_id
        self.version = version
        self.epoch = 0
        self._new = [(topic_id, 0) for topic_id in topic_ids]

    def add(self, topic_id: bytes, partition: int = 0) -> None:
        """Ask for another partition from the next fetch on."""
        self._new.append((topic_id, partition))

    def request(self, said: "Said | None" = None, **fields: Any) -> ShareFetchRequest:
        """The next request of the session."""
        said = said or {}
        topics = [
            ShareFetchRequest.Topic(
                topic_id=topic_id,
                partitions=[
                    ShareFetchRequest.Topic.Partition(
                        partition_index=index,
                        acknowledgement_batches=[
                            ShareFetchRequest.Topic.Partition.AcknowledgementBatch(
                                first_offset=first, last_offset=last, acknowledge_types=list(types)
                            )
                            for first, last, *types in said.get((topic_id, index), ())
                        ],
                    )
                ],
            )
            for topic_id, index in dict.fromkeys([*self._new, *said])
        ]
        return ShareFetchRequest(
            **{
                "group_id": self.group_id,
                "member_id": self.member_id,
                "share_session_epoch": self.epoch,
                "max_wait_ms": 0,
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "max_records": 500,
                "batch_size": 500,
                "topics": topics,
                "forgotten_topics_data": [],
                **fields,
            }
        )

    def send(self, said: "Said | None" = None, **fields: Any) -> None:
        """Send a ShareFetch."""
        self.client.send(self.request(said, **fields), self.version)

    def receive(self) -> ShareFetchResponse:
        """The answer to a ShareFetch."""
        answer: ShareFetchResponse = self.client.receive()
        if answer.error_code == ErrorCode.NONE:
            self._new.clear()
            self.epoch += 1
        return answer

    def fetch(self, said: "Said | None" = None, **fields: Any) -> ShareFetchResponse:
        """Fetch, with acknowledgements."""
        self.send(said, **fields)
        return self.receive()

    def acquire(self, said: "Said | None" = None, **fields: Any) -> list[tuple[int, int, int]]:
        """Fetch from one partition: what was acquired, as first offset, last offset, delivery count."""
        answer = self.fetch(said, **fields)
        assert answer.error_code == ErrorCode.NONE, answer
        return acquired(answer)

    def acknowledge(self, said: "Said", **fields: Any) -> ShareAcknowledgeResponse:
        """Acknowledge without fetching."""
        of_fetch = self.request(said)
        request = ShareAcknowledgeRequest(
            **{
                "group_id": self.group_id,
                "member_id": self.member_id,
                "share_session_epoch": self.epoch,
                "topics": [
                    ShareAcknowledgeRequest.Topic(
                        topic_id=topic.topic_id,
                        partitions=[
                            ShareAcknowledgeRequest.Topic.Partition(
                                partition_index=partition.partition_index,
                                acknowledgement_batches=[
                                    ShareAcknowledgeRequest.Topic.Partition.AcknowledgementBatch(
                                        first_offset=one.first_offset,
                                        last_offset=one.last_offset,
                                        acknowledge_types=one.acknowledge_types,
                                    )
                                    for one in partition.acknowledgement_batches
                                ],
                            )
                            for partition in topic.partitions
                        ],
                    )
                    for topic in of_fetch.topics
                ],
                **fields,
            }
        )
        answer: ShareAcknowledgeResponse = self.client.ask(request, self.version)
        if answer.error_code == ErrorCode.NONE:
            self.epoch += 1
        return answer


Said = dict[tuple[bytes, int], list[tuple[int, ...]]]
"""What a member says of records: topic id and index -> first offset, last offset, types."""


def acquired(answer: ShareFetchResponse) -> list[tuple[int, int, int]]:
    """What a ShareFetch of one partition gave: first offset, last offset, delivery count."""
    return [
        (run.first_offset, run.last_offset, run.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for run in partition.acquired_records
    ]


def codes(answer: ShareFetchResponse | ShareAcknowledgeResponse) -> list[int]:
    """The code of the answer, then those of the partitions; of a ShareFetch the codes of acknowledgements, too."""
    found: list[int] = [answer.error_code]
    for topic in answer.responses:
        for partition in topic.partitions:
            found.append(partition.error_code)
            if isinstance(partition, ShareFetchResponse.Response.Partition):
                found.append(partition.acknowledge_error_code)
    return found
