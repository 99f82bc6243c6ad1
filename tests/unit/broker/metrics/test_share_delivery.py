"""Metrics of records on their way to share groups."""

from typing import Any

import pytest

from config.resources import ConfigResource
from protocol.errors import ErrorCode as E
from tests.support.altered_configs import configure
from tests.support.broker import InProcessBroker
from tests.support.metrics import now, scrape, shown, up
from tests.support.share_groups import ShareMember, acquired, codes, keep_states_in_memory

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
LOCK_MS = 30_000

CACHE = "kafka_server_sharesessioncache"
TOPICS = "kafka_server_brokertopicmetrics"
GROUPS = "kafka_server_sharegroupmetrics"
PARTITIONS = "kafka_server_sharepartitionmetrics"


@pytest.fixture
def jobs(broker: InProcessBroker) -> bytes:
    keep_states_in_memory(broker)
    topic_id = broker.create_topic("jobs")
    configure(broker, ConfigResource.GROUP, "workers", "share.auto.offset.reset", "earliest")
    return topic_id


def of_partition(name: str, quantile: str = "") -> str:
    of_quantile = f',quantile="{quantile}"' if quantile else ""
    return f'{PARTITIONS}_{name}{{group="workers",partition="0",topic="jobs"{of_quantile}}}'


def of_group(name: str, quantile: str = "") -> str:
    of_quantile = f',quantile="{quantile}"' if quantile else ""
    return f'{GROUPS}_{name}{{group="workers"{of_quantile}}}'


def test_sessions_are_counted(broker: InProcessBroker, jobs: bytes) -> None:
    with shown(broker, {f"{CACHE}_sharesessionscount": now(1), f"{CACHE}_sharepartitionscount": now(1)}):
        anna = ShareMember(broker, jobs)
        anna.fetch()
    with shown(broker, {f"{CACHE}_sharesessionscount": now(0), f"{CACHE}_sharesessionevictions_total": up(1)}):
        anna.client.close()
    assert scrape(broker)[f"{CACHE}_sharepartitionscount"] == 0


def test_fetches_acknowledgements_and_records_in_flight_are_counted(broker: InProcessBroker, jobs: bytes) -> None:
    broker.produce("jobs", *[b"x"] * 10)
    anna = ShareMember(broker, jobs)
    with shown(
        broker,
        {
            f"{TOPICS}_totalsharefetchrequests_total": up(1),
            f'{TOPICS}_totalsharefetchrequests_total{{topic="jobs"}}': up(1),
        },
    ):
        assert anna.acquire() == [(0, 9, 1)]
    page = scrape(broker)
    assert (page[of_partition("inflightmessagecount")], page[of_partition("inflightbatchcount")]) == (10, 1)
    changes = {
        f"{TOPICS}_totalshareacknowledgementrequests_total": up(1),
        f'{TOPICS}_totalshareacknowledgementrequests_total{{topic="jobs"}}': up(1),
        f'{GROUPS}_recordacknowledgements_total{{ackType="Accept"}}': up(3),
        f'{GROUPS}_recordacknowledgements_total{{ackType="Reject"}}': up(1),
        f'{GROUPS}_recordacknowledgements_total{{ackType="Release"}}': up(1),
        of_partition("inflightmessagecount"): now(6),
    }
    with shown(broker, changes):
        said = anna.acknowledge({(jobs, 0): [(0, 2, ACCEPT), (3, 4, REJECT, RELEASE)]})
        assert codes(said) == [E.NONE, E.NONE]
    with shown(
        broker,
        {
            f"{TOPICS}_failedshareacknowledgementrequests_total": up(1),
            f'{TOPICS}_failedshareacknowledgementrequests_total{{topic="jobs"}}': up(1),
        },
    ):
        anna.acknowledge({(jobs, 0): [(3, 3, ACCEPT), (4, 4, ACCEPT)]})
    with shown(broker, {of_partition("acquisitionlocktimeout_total"): up(5)}):
        broker.advance(LOCK_MS)


def test_fetches_that_wait_and_those_that_fail_are_counted(broker: InProcessBroker, jobs: bytes) -> None:
    anna = ShareMember(broker, jobs)
    anna.fetch()
    waiting = 'kafka_server_delayedoperationpurgatory_numdelayedoperations{delayedOperation="ShareFetch"}'
    with shown(broker, {waiting: now(1)}):
        anna.send(max_wait_ms=1_000)
        assert anna.client.has_no_answer()
    with shown(broker, {waiting: now(0), "kafka_server_delayedsharefetchmetrics_expires_total": up(1)}):
        broker.advance(1_000)
    anna.receive()
    other = ShareMember(broker, jobs, group_id="others", member_id="bert")
    configure(broker, ConfigResource.GROUP, "others", "share.auto.offset.reset", "by_duration:PT1S")
    with shown(broker, {f"{TOPICS}_failedsharefetchrequests_total": up(1)}):
        assert codes(other.fetch()) == [E.NONE, E.OFFSET_NOT_AVAILABLE, E.NONE]


def test_dead_letters_are_counted(broker: InProcessBroker, jobs: bytes) -> None:
    broker.create_topic("dlq.jobs", errors_deadletterqueue_group_enable="true")
    configure(broker, ConfigResource.GROUP, "workers", "errors.deadletterqueue.topic.name", "dlq.jobs")
    broker.produce("jobs", b"a", b"b")
    anna = ShareMember(broker, jobs)
    assert anna.acquire() == [(0, 1, 1)]
    anna.acknowledge({(jobs, 0): [(0, 0, REJECT)]})
    broker.settle()
    page = scrape(broker)
    assert page[f'{GROUPS}_deadletterqueuerecordcount_total{{group="workers"}}'] == 1
    assert page[f'{GROUPS}_deadletterqueuetotalproducerequests_total{{group="workers"}}'] == 1
    configure(broker, ConfigResource.GROUP, "workers", "errors.deadletterqueue.topic.name", "other")
    anna.acknowledge({(jobs, 0): [(1, 1, REJECT)]})
    broker.settle()
    assert scrape(broker)[f'{GROUPS}_deadletterqueuefailedproducerequests_total{{group="workers"}}'] == 1


def test_the_sizes_of_batches_that_are_put_in_flight_are_told(broker: InProcessBroker, jobs: bytes) -> None:
    for size in (2, 3, 7):
        broker.produce("jobs", *[b"x"] * size)
    anna = ShareMember(broker, jobs)
    assert len(anna.acquire(batch_size=1)) == 3
    page = scrape(broker)
    assert page[of_partition("inflightbatchmessagecount", "0.50")] == 3
    assert page[of_partition("inflightbatchmessagecount", "0.95")] == 7
    assert page[of_partition("inflightbatchmessagecount_count")] == 3
    anna.acknowledge({(jobs, 0): [(0, 11, RELEASE)]})
    assert len(anna.acquire(batch_size=1)) == 3
    assert scrape(broker)[of_partition("inflightbatchmessagecount_count")] == 3, "the batches are in flight already"
    broker.advance(60_000)
    broker.advance(60_000)
    page = scrape(broker)
    assert page[of_partition("inflightbatchmessagecount", "0.95")] == 0, "only the last minutes count"
    assert page[of_partition("inflightbatchmessagecount_count")] == 3


def test_how_many_partitions_a_fetch_can_acquire_from_is_told(broker: InProcessBroker, jobs: bytes) -> None:
    configure(broker, ConfigResource.GROUP, "workers", "share.partition.max.record.locks", "100")
    broker.produce("jobs", *[b"x"] * 100)
    anna = ShareMember(broker, jobs, broker.create_topic("idle"), broker.create_topic("idle-too"))
    assert anna.acquire() == [(0, 99, 1)]
    page = scrape(broker)
    ratio = "requesttopicpartitionsfetchratio"
    assert (page[of_group(f"{ratio}_count")], page[of_group(ratio, "0.50")]) == (1, pytest.approx(100, rel=0.13))
    for _ in range(3):
        assert anna.acquire() == [], "the window of one partition is full"
    page = scrape(broker)
    assert (page[of_group(f"{ratio}_count")], page[of_group(ratio, "0.50")]) == (4, pytest.approx(66, rel=0.13))


def test_how_long_a_fetch_waits_for_a_partition_to_acquire_from_is_told(broker: InProcessBroker, jobs: bytes) -> None:
    configure(broker, ConfigResource.GROUP, "workers", "share.partition.max.record.locks", "100")
    broker.produce("jobs", *[b"x"] * 100)
    anna, bert = ShareMember(broker, jobs), ShareMember(broker, jobs, member_id="bert")
    assert anna.acquire() == [(0, 99, 1)]
    time = "topicpartitionsacquiretimems"
    page = scrape(broker)
    assert (page[of_group(f"{time}_count")], page[of_group(time, "0.999")]) == (1, 0)
    bert.send(max_wait_ms=5_000)
    assert bert.client.has_no_answer()
    broker.advance(700)
    anna.acknowledge({(jobs, 0): [(0, 99, RELEASE)]})
    assert acquired(bert.receive()) == [(0, 99, 2)]
    page = scrape(broker)
    assert (page[of_group(f"{time}_count")], page[of_group(time, "0.999")]) == (2, pytest.approx(700, rel=0.13))
    with shown(broker, {of_group(f"{time}_count"): up(1), of_group(time, "0.999"): now(831)}):
        anna.send(max_wait_ms=800)
        broker.advance(800)
        assert acquired(anna.receive()) == [], "its time is over"


def test_times_of_a_group_go_with_its_last_session(broker: InProcessBroker, jobs: bytes) -> None:
    broker.produce("jobs", b"x")
    anna = ShareMember(broker, jobs)
    assert anna.acquire() == [(0, 0, 1)]
    assert scrape(broker)[of_group("topicpartitionsacquiretimems_count")] == 1
    anna.client.close()
    broker.settle()
    assert scrape(broker).get(of_group("topicpartitionsacquiretimems_count")) is None


def test_how_long_the_state_of_a_partition_takes_to_read_is_told(broker: InProcessBroker, jobs: bytes) -> None:
    delivery = broker.server.share_delivery
    assert delivery is not None
    persister, waiting = delivery.persister, []

    class SlowPersister:
        def read(self, *asked: Any) -> None:
            waiting.append(asked)

    delivery.persister = SlowPersister()  # type: ignore[assignment]
    anna = ShareMember(broker, jobs)
    anna.send(max_wait_ms=5_000)
    broker.wait_until(lambda: bool(waiting))
    broker.advance(300)
    load = f"{GROUPS}_partitionloadtimems"
    with shown(broker, {f"{load}_count": up(1), f'{load}{{quantile="0.50"}}': now(319)}):
        persister.read(*waiting[0])


@pytest.mark.settings(ottla_prometheus_partitions="false")
def test_without_series_of_partitions_those_of_groups_stay(broker: InProcessBroker, jobs: bytes) -> None:
    broker.produce("jobs", b"x")
    assert ShareMember(broker, jobs).acquire() == [(0, 0, 1)]
    page = scrape(broker)
    assert page[of_group("topicpartitionsacquiretimems_count")] == 1
    assert not page.of(f"{PARTITIONS}_inflightmessagecount")
    assert not page.of(f"{PARTITIONS}_inflightbatchmessagecount")
