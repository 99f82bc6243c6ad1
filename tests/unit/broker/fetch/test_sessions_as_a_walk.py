"""Whatever happens, a session's answers are those of a walk over all its partitions, as Kafka makes one each time."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.fetch.read_rules import FetchBudget, FetchRequirements
from broker.fetch.round import PartitionFetch, PartitionRead, read_partition
from broker.replication.isolation import consumer_isolation
from broker.replication.partition import LeaderAndIsr
from broker.request.faults import InconsistentTopicId, UnknownTopicId, UnknownTopicOrPartition, error_code_of
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.topics import DeleteTopicsRequest
from tests.support.broker import InProcessBroker, running_broker

TOPICS = ("a", "b", "c")
PARTITIONS = 2
BY_NAME, BY_ID = 12, 13
UNKNOWN_ID = b"0123456789abcdef"

AskedPartition = FetchRequest.Topic.Partition
Row = tuple[Any, ...]


class Walk:
    """A session as Kafka keeps it: every fetch reads every partition, and says what is not as it was said before."""

    def __init__(self, broker: InProcessBroker) -> None:
        self.broker = broker
        self.asked: dict[tuple[Any, int], AskedPartition] = {}
        self.names: dict[tuple[Any, int], str] = {}
        self.answered: dict[tuple[Any, int], tuple[int, int]] = {}

    def take(self, request: FetchRequest) -> None:
        """Add, change and forget what the request says."""
        for topic in request.topics:
            for asked in topic.partitions:
                self.asked[topic.topic or topic.topic_id, asked.partition] = asked
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                for state in (self.asked, self.names, self.answered):
                    state.pop((forgotten.topic or forgotten.topic_id, index), None)

    def answer(self, request: FetchRequest, *, is_full: bool) -> list[Row]:
        """Read everything within the limits, and remember what is answered."""
        found = [(key, self._locate(key, asked)) for key, asked in self.asked.items()]
        found.sort(key=lambda one: one[1].partition is None)
        isolation = consumer_isolation(request.isolation_level)
        assert isolation is not None
        requirements = FetchRequirements(
            isolation=isolation,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            max_wait_ms=request.max_wait_ms,
            fetch_max_bytes=request.max_bytes,
        )
        budget = FetchBudget(requirements.max_bytes)
        rows: list[Row] = []
        order = dict(self.asked)
        for key, fetch in found:
            read = read_partition(fetch, requirements, budget)
            now = (read.high_watermark, read.log_start_offset)
            has_records = read.region is not None
            must_answer = has_records or read.error is not None or read.diverging_epoch is not None
            if must_answer or self.answered.get(key) != now or is_full:
                rows.append(as_row(key, read))
            self.answered[key] = now
            if has_records and not is_full:
                order[key] = order.pop(key)
        # A new session is in the order of the answer.
        self.asked = {key: order[key] for key, _ in found} if is_full else order
        return rows

    def _locate(self, key: tuple[Any, int], asked: AskedPartition) -> PartitionFetch:
        topic, index = key
        fetch = PartitionFetch(
            topic=None,
            topic_id=bytes(16),
            index=index,
            fetch_offset=asked.fetch_offset,
            max_bytes=asked.partition_max_bytes,
            current_leader_epoch=asked.current_leader_epoch,
            last_fetched_epoch=asked.last_fetched_epoch,
        )
        if isinstance(topic, bytes):
            known = self.broker.server.components.metadata.image.topics.by_id.get(topic)
            name = self.names.setdefault(key, known.name) if known else self.names.get(key)
            if name is None:
                fetch.fault = UnknownTopicId("")
                return fetch
        else:
            name = topic
        fetch.partition = self.broker.server.components.replicas.find(name, index)
        if fetch.partition is None:
            fetch.fault = UnknownTopicOrPartition("")
        elif isinstance(topic, bytes) and fetch.partition.topic_id != topic:
            fetch.fault = InconsistentTopicId("")
        return fetch


def as_row(key: tuple[Any, int], read: PartitionRead) -> Row:
    """A read as the answer has it."""
    diverging = read.diverging_epoch
    return (
        *key,
        error_code_of(read.error) if read.error else 0,
        read.high_watermark,
        read.last_stable_offset,
        read.log_start_offset,
        (diverging.epoch, diverging.end_offset) if diverging else (-1, -1),
        read.region.read() if read.region else b"",
    )


def rows_of(answer: FetchResponse, version: int) -> list[Row]:
    """An answer's partitions in their order."""
    return [
        (
            topic.topic_id if version >= BY_ID else topic.topic,
            one.partition_index,
            one.error_code,
            one.high_watermark,
            one.last_stable_offset,
            one.log_start_offset,
            (one.diverging_epoch.epoch, one.diverging_epoch.end_offset),
            bytes(one.records or b""),
        )
        for topic in answer.responses
        for one in topic.partitions
    ]


class SessionUnderTest:
    """A client's session, and the walk that it is held against."""

    def __init__(self, broker: InProcessBroker, version: int) -> None:
        self.broker = broker
        self.version = version
        self.client = broker.connect()
        self.ids = dict.fromkeys(TOPICS, UNKNOWN_ID)
        """The ids that this client has heard of."""
        self.begin()

    def begin(self) -> None:
        self.session_id, self.epoch = 0, 0
        self.walk = Walk(self.broker)

    def request(self, step: dict[str, Any], **fields: Any) -> FetchRequest:
        topics = []
        for name, index, offset, size, epoch, last_epoch in step["asked"]:
            asked = AskedPartition(
                partition=index,
                fetch_offset=self._offset(name, index, offset),
                partition_max_bytes=size,
                current_leader_epoch=epoch,
                last_fetched_epoch=last_epoch,
            )
            topics.append(FetchRequest.Topic(**self._topic(name), partitions=[asked]))
        return FetchRequest(
            **{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": step["max_bytes"], **fields},
            isolation_level=step["isolation"],
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=topics,
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(**self._topic(name), partitions=[index])
                for name, index in (step["forgotten"] if self.session_id else ())
            ],
        )

    def fetch(self, step: dict[str, Any]) -> None:
        """Ask, and compare."""
        request = self.request(step)
        self.client.send(request, self.version)
        self.compare(request)

    def fetch_and_wait(self, step: dict[str, Any], meanwhile: Any) -> None:
        """Ask for more than there is, let something happen, let time pass, and compare."""
        request = self.request(step, max_wait_ms=500, min_bytes=step["min_bytes"])
        self.client.send(request, self.version)
        if self.client.has_no_answer():
            meanwhile()
            if self.client.has_no_answer():
                self.broker.advance(500)
            self.compare(request)
        else:
            self.compare(request)
            meanwhile()

    def compare(self, request: FetchRequest) -> None:
        answer = self.client.receive()
        is_new = not self.session_id
        self.walk.take(request)
        assert answer.error_code == 0
        if not is_new and not self.walk.asked:
            assert (answer.session_id, answer.responses != []) == (
                0,
                any(topic.partitions for topic in request.topics),
            )
            self.begin()
            return
        assert rows_of(answer, self.version) == self.walk.answer(request, is_full=is_new)
        self.session_id = answer.session_id
        self.epoch += 1

    def _topic(self, name: str) -> dict[str, Any]:
        return {"topic_id": self.ids[name]} if self.version >= BY_ID else {"topic": name}

    def _offset(self, name: str, index: int, offset: int) -> int:
        """From the log's end if negative; nonsense stays nonsense."""
        partition = self.broker.server.components.replicas.find(name, index)
        return offset if partition is None or offset >= 0 else max(0, partition.log.log_end_offset + 1 + offset)


PLACES = st.tuples(st.sampled_from(TOPICS), st.integers(0, PARTITIONS - 1))
ASKED = st.tuples(
    st.sampled_from(TOPICS),
    st.integers(0, PARTITIONS - 1),
    st.sampled_from([-1, -1, -1, -2, 0, 1, 50]),
    st.sampled_from([1 << 20, 1 << 20, 1, 100]),
    st.sampled_from([-1, -1, -1, 0, 1]),
    st.sampled_from([-1, -1, -1, 0, 1]),
)
FETCH = st.fixed_dictionaries(
    {
        "what": st.sampled_from(["fetch", "fetch", "wait"]),
        "asked": st.lists(ASKED, max_size=6),
        "forgotten": st.lists(PLACES, max_size=2),
        "max_bytes": st.sampled_from([1 << 20, 1 << 20, 1, 150]),
        "min_bytes": st.sampled_from([1, 1, 200]),
        "isolation": st.sampled_from([0, 0, 0, 1]),
        "meanwhile": st.tuples(st.sampled_from(["append", "append", "begin later", "lead"]), PLACES),
    }
)
EVENT = st.fixed_dictionaries(
    {
        "what": st.sampled_from(["append", "append", "append", "delete", "create", "learn", "begin later", "lead"]),
        "where": PLACES,
    }
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with running_broker(tmp_path_factory.mktemp("data")) as broker:
        yield broker


def happen(broker: InProcessBroker, what: str, place: tuple[str, int]) -> None:
    """Something that is not a fetch."""
    name, index = place
    partition = broker.server.components.replicas.find(name, index)
    if what == "create" and partition is None:
        broker.create_topic(name, PARTITIONS)
    elif partition is None:
        return
    elif what == "append":
        broker.produce(name, b"v" * 30, partition=index)
    elif what == "delete":
        broker.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 5)
    elif what == "begin later":
        partition.log.start_offset_to(partition.log.high_watermark)
        broker.server.components.replicas.changed(partition)
    elif what == "lead":
        state = LeaderAndIsr(
            partition.leader, partition.leader_epoch + 1, partition.replicas, partition.in_sync_replicas
        )
        broker.server.components.replicas.apply(partition, state)


@pytest.mark.timeout(300)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    history=st.lists(st.one_of(FETCH, EVENT, EVENT), min_size=5, max_size=30),
    version=st.sampled_from([BY_NAME, BY_ID]),
)
def test_answers_are_those_of_a_walk_over_all_partitions(
    broker: InProcessBroker, history: list[dict[str, Any]], version: int
) -> None:
    for name in TOPICS[:2]:
        happen(broker, "create", (name, 0))
    session = SessionUnderTest(broker, version)
    learn(session)
    for step in history:
        match step["what"]:
            case "fetch":
                session.fetch(step)
            case "wait":
                session.fetch_and_wait(step, lambda step=step: happen(broker, *step["meanwhile"]))
            case "learn":
                learn(session)
            case what:
                happen(broker, what, step["where"])
    for name in TOPICS:
        happen(broker, "delete", (name, 0))


def learn(session: SessionUnderTest) -> None:
    """The client hears of the topics' ids as they are now."""
    for name, topic in session.broker.server.components.metadata.image.topics.by_name.items():
        session.ids[name] = topic.topic_id
