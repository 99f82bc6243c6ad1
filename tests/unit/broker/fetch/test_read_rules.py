"""The rules of reading, each by itself, and the fast path and the slow path that both go by them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.fetch.fast_path import RepeatedFetch
from broker.fetch.read_rules import FetchBudget, FetchRequirements, read_records
from broker.replication.isolation import FetchIsolation, consumer_isolation
from broker.replication.partition import Partition
from broker.request.faults import NegativeFetchSize
from protocol.headers import encode_request
from protocol.messages.fetch import FetchRequest
from tests.support.broker import InProcessBroker
from tests.support.logs import batch_of, marker

PARTITIONS: Final = 3
BATCHES: Final = 8
FETCH_MAX_BYTES: Final = 1024
"""As small as the setting may be: less than a partition holds."""
NOBODY: Final = 2
"""A node that is not there."""
TAGGED: Final = 5
"""A high watermark that a follower knows, which stands in a tagged field since version 18."""

Topic, Asked, Forgotten = FetchRequest.Topic, FetchRequest.Topic.Partition, FetchRequest.ForgottenTopic


def requirements(
    *,
    isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
    min_bytes: int = 1,
    max_bytes: int = 10_000,
    max_wait_ms: int = 500,
    fetch_max_bytes: int = 5_000,
) -> FetchRequirements:
    return FetchRequirements(
        isolation=isolation,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        max_wait_ms=max_wait_ms,
        fetch_max_bytes=fetch_max_bytes,
    )


@pytest.fixture
def orders(broker: InProcessBroker) -> Sequence[Partition]:
    """Three partitions of eight batches of one record: of the second the batch at 3 belongs to an aborted transaction,
    of the third the batch at 5 to a transaction that is still open."""
    broker.create_topic("orders", partitions=PARTITIONS)
    partitions = [broker.server.components.replicas.partition("orders", index) for index in range(PARTITIONS)]
    for index, partition in enumerate(partitions):
        log = partition.log
        while log.log_end_offset < BATCHES:
            is_transactional = (index, log.log_end_offset) in ((1, 3), (2, 5))
            producer = {"producer_id": 7, "is_transactional": True} if is_transactional else {}
            log.stage(batch_of(b"%100d" % log.log_end_offset, **producer), leader_epoch=0)  # type: ignore[arg-type]
            log.append_all(0)
            if (index, log.log_end_offset) == (1, 4):
                log.stage_trusted(marker(7, commit=False), leader_epoch=0)
                log.append_all(0)
        partition.advance_high_watermark()
    return partitions


# The limits of a request


@pytest.mark.parametrize(
    ("min_bytes", "max_bytes", "capped"),
    [(1, 10_000, (1, 5_000)), (9_000, 10_000, (5_000, 5_000)), (50, 20, (20, 20)), (1, -1, (-1, -1))],
)
def test_the_brokers_limit_caps_both_numbers_of_bytes(min_bytes: int, max_bytes: int, capped: tuple[int, int]) -> None:
    asked = requirements(min_bytes=min_bytes, max_bytes=max_bytes, fetch_max_bytes=5_000)
    assert (asked.min_bytes, asked.max_bytes) == capped


def test_fewer_bytes_than_asked_for_are_enough_for_a_fetch_that_does_not_wait() -> None:
    asked = requirements(min_bytes=100, max_wait_ms=500)
    assert not asked.is_enough(99)
    assert asked.is_enough(100)
    assert asked.without_wait().is_enough(0)
    assert (asked.without_wait().min_bytes, asked.without_wait().max_bytes) == (asked.min_bytes, asked.max_bytes)


def test_only_the_first_batch_of_an_answer_may_exceed_what_is_left(orders: Sequence[Partition]) -> None:
    asked = requirements(max_bytes=1)
    budget = FetchBudget(asked.max_bytes)
    sizes = [read_records(partition, 0, 1000, asked, budget, False)[0].size for partition in orders]
    assert sizes == [orders[0].log.size // BATCHES, 0, 0]
    assert (budget.size, budget.left) == (sizes[0], 0)


def test_partitions_share_the_bytes_of_an_answer(orders: Sequence[Partition]) -> None:
    asked = requirements(max_bytes=500)
    budget = FetchBudget(asked.max_bytes)
    sizes = [read_records(partition, 0, 300, asked, budget, False)[0].size for partition in orders]
    assert sizes == [300, 200, 0]


def test_a_negative_limit_is_refused_where_there_are_records(orders: Sequence[Partition]) -> None:
    asked = requirements()
    with pytest.raises(NegativeFetchSize, match="orders-0: at most -1 bytes"):
        read_records(orders[0], 0, -1, asked, FetchBudget(asked.max_bytes), False)
    found, _ = read_records(orders[0], BATCHES, -1, asked, FetchBudget(asked.max_bytes), False)
    assert found.size == 0


def test_aborted_transactions_are_given_to_a_consumer_of_committed_records(orders: Sequence[Partition]) -> None:
    for isolation, expected in (
        (FetchIsolation.TXN_COMMITTED, [7]),
        (FetchIsolation.HIGH_WATERMARK, None),
        (FetchIsolation.LOG_END, None),
    ):
        asked = requirements(isolation=isolation)
        _, aborted = read_records(orders[1], 0, 5_000, asked, FetchBudget(asked.max_bytes), False)
        assert (aborted and [one.producer_id for one in aborted]) == expected


# Who may read, and up to where


def test_replicas_see_the_log_end_and_consumers_what_is_replicated_or_committed(orders: Sequence[Partition]) -> None:
    partition = orders[2]
    partition.log.high_watermark = 7
    ends = {isolation: partition.visible_end(isolation) for isolation in FetchIsolation}
    assert ends == {
        FetchIsolation.LOG_END: BATCHES,
        FetchIsolation.HIGH_WATERMARK: 7,
        FetchIsolation.TXN_COMMITTED: 5,
    }
    for isolation, end in ends.items():
        assert not partition.has_nothing_for(end - 1, isolation)
        assert partition.has_nothing_for(end, isolation)


def test_an_isolation_level_that_the_protocol_does_not_have_is_none() -> None:
    levels = [consumer_isolation(code) for code in (-1, 0, 1, 2)]
    assert levels == [None, FetchIsolation.HIGH_WATERMARK, FetchIsolation.TXN_COMMITTED, None]


def test_a_partition_is_read_in_the_epoch_that_its_leader_has(orders: Sequence[Partition]) -> None:
    partition = orders[0]
    partition.leader_epoch = 3
    assert [epoch for epoch in range(-1, 5) if partition.is_readable_in(epoch, True)] == [-1, 3]
    partition.leader = NOBODY
    assert not any(partition.is_readable_in(epoch, True) for epoch in range(-1, 5))


# Both paths


@dataclass
class State:
    """What a partition is set to before an example."""

    log_start_offset: int
    high_watermark: int
    leader_epoch: int
    is_leader: bool


states = st.builds(
    State,
    log_start_offset=st.sampled_from([0, 0, 0, 2]),
    high_watermark=st.integers(2, BATCHES),
    leader_epoch=st.sampled_from([0, 3]),
    is_leader=st.sampled_from([True] * 9 + [False]),
)
asked_partitions = st.builds(
    Asked,
    partition=st.integers(0, PARTITIONS - 1),
    current_leader_epoch=st.sampled_from([-1] * 6 + [-5, 0, 3, 4]),
    fetch_offset=st.one_of(st.integers(0, BATCHES), st.integers(-1, BATCHES + 1)),
    last_fetched_epoch=st.sampled_from([-1] * 6 + [-2, 0, 1]),
    partition_max_bytes=st.sampled_from([1000, 1000, 1000, 250, 1, 0, -1]),
    high_watermark=st.sampled_from([0x7FFF_FFFF_FFFF_FFFF] * 9 + [TAGGED]),
)
requests = st.builds(
    FetchRequest,
    max_wait_ms=st.sampled_from([0, 500]),
    min_bytes=st.sampled_from([0, 1, 1, 1, 2, 300, 5_000]),
    max_bytes=st.sampled_from([0x7FFF_FFFF, 0x7FFF_FFFF, 700, 200, 1, 0, -1]),
    isolation_level=st.sampled_from([0, 1]),
    topics=st.lists(asked_partitions, min_size=1, max_size=PARTITIONS, unique_by=lambda one: one.partition).map(
        lambda partitions: [Topic(topic="orders", partitions=partitions)]
    ),
)


class Outcome:
    """An answer to a request on a connection of its own, whether it was waited for, and what was counted meanwhile."""

    def __init__(self, broker: InProcessBroker, partitions: Sequence[Partition], request: FetchRequest, version: int):
        before = self._counted(broker, partitions)
        client = broker.connect()
        client.send_bytes(encode_request(7, "test", request, version))
        self.has_waited = client.has_no_answer()
        if self.has_waited:
            broker.advance(request.max_wait_ms)
        self.payload = client.receive_payload()
        self.was_read_by_fast_path = isinstance(client.connection.stream.repeats, RepeatedFetch)
        broker.forget(client)
        self.counted = [now - then for now, then in zip(self._counted(broker, partitions), before, strict=True)]

    def _counted(self, broker: InProcessBroker, partitions: Sequence[Partition]) -> list[int]:
        errors = broker.server.registry.stats.errors.get("Fetch", {})
        stats = [one.stats for one in partitions]
        return [
            *(count for one in stats for count in (one.fetches, one.fetched_bytes, one.failed_fetches)),
            *(errors.get(code, 0) for code in range(-1, 120)),
        ]


@pytest.mark.settings(fetch_max_bytes=FETCH_MAX_BYTES)
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    request=requests,
    states=st.tuples(*[states] * PARTITIONS),
    version=st.sampled_from([7, 12, 18]),
)
def test_both_paths_answer_wait_and_count_alike(
    broker: InProcessBroker,
    orders: Sequence[Partition],
    request: FetchRequest,
    states: Sequence[State],
    version: int,
) -> None:
    topic_id = orders[0].topic_id
    for partition, state in zip(orders, states, strict=True):
        partition.log.log_start_offset = state.log_start_offset
        partition.log.high_watermark = state.high_watermark
        partition.leader_epoch = state.leader_epoch
        partition.leader = partition.node_id if state.is_leader else NOBODY
    request.topics[0].topic_id = topic_id
    fast = Outcome(broker, orders, request, version)
    # Without a session there is nothing to forget, but only the slow path reads such a request.
    request.forgotten_topics_data = [Forgotten(topic="nowhere", topic_id=b"nowhere".ljust(16), partitions=[0])]
    slow = Outcome(broker, orders, request, version)
    has_tags = version == 18 and any(asked.high_watermark == TAGGED for asked in request.topics[0].partitions)
    assert fast.was_read_by_fast_path is not has_tags
    assert not slow.was_read_by_fast_path
    assert fast.has_waited == slow.has_waited
    assert fast.payload == slow.payload
    assert fast.counted == slow.counted
