"""Metrics of records on their way to share groups."""

import pytest

from config.resources import ConfigResource
from protocol.errors import ErrorCode as E
from tests.support.altered_configs import configure
from tests.support.broker import InProcessBroker
from tests.support.metrics import now, scrape, shown, up
from tests.support.share_groups import ShareMember, codes, enable_share_groups

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
LOCK_MS = 30_000

CACHE = "kafka_server_sharesessioncache"
TOPICS = "kafka_server_brokertopicmetrics"
GROUPS = "kafka_server_sharegroupmetrics"
PARTITIONS = "kafka_server_sharepartitionmetrics"


@pytest.fixture
def jobs(broker: InProcessBroker) -> bytes:
    enable_share_groups(broker)
    topic_id = broker.create_topic("jobs")
    configure(broker, ConfigResource.GROUP, "workers", "share.auto.offset.reset", "earliest")
    return topic_id


def of_partition(name: str) -> str:
    return f'{PARTITIONS}_{name}{{group="workers",partition="0",topic="jobs"}}'


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
    with shown(broker, {f"{TOPICS}_totalsharefetchrequests_total": up(1)}):
        assert anna.acquire() == [(0, 9, 1)]
    page = scrape(broker)
    assert (page[of_partition("inflightmessagecount")], page[of_partition("inflightbatchcount")]) == (10, 1)
    changes = {
        f"{TOPICS}_totalshareacknowledgementrequests_total": up(1),
        f'{GROUPS}_recordacknowledgements_total{{ackType="Accept"}}': up(3),
        f'{GROUPS}_recordacknowledgements_total{{ackType="Reject"}}': up(1),
        f'{GROUPS}_recordacknowledgements_total{{ackType="Release"}}': up(1),
        of_partition("inflightmessagecount"): now(6),
    }
    with shown(broker, changes):
        said = anna.acknowledge({(jobs, 0): [(0, 2, ACCEPT), (3, 4, REJECT, RELEASE)]})
        assert codes(said) == [E.NONE, E.NONE]
    with shown(broker, {f"{TOPICS}_failedshareacknowledgementrequests_total": up(1)}):
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
