"""ShareFetch and ShareAcknowledge through the codec: what a member gets, what it may say of it, what is refused."""

from pathlib import Path

import pytest

from config.resources import ConfigResource
from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.share_fetch import ShareAcknowledgeRequest, ShareFetchRequest
from protocol.messages.topics import DeleteTopicsRequest
from storage.batch.record_batch import read_header
from tests.support.altered_configs import configure
from tests.support.batches import produced, record
from tests.support.broker import InProcessBroker, running_broker
from tests.support.quotas import limit
from tests.support.requests import fetch_request, produce_request
from tests.support.share_groups import (
    InMemoryPersister,
    ShareMember,
    acquired,
    codes,
    keep_states_in_memory,
)

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
LOCK_MS = 30_000
UNKNOWN = bytes.fromhex("00112233445566778899aabbccddeeff")


@pytest.fixture
def persister(broker: InProcessBroker) -> InMemoryPersister:
    """The broker serves share groups."""
    return keep_states_in_memory(broker)


@pytest.fixture
def jobs(broker: InProcessBroker, persister: InMemoryPersister) -> bytes:
    """A topic, which the group `workers` reads from the beginning."""
    topic_id = broker.create_topic("jobs")
    configure(broker, ConfigResource.GROUP, "workers", "share.auto.offset.reset", "earliest")
    return topic_id


@serves(ShareFetchRequest)
@serves(ShareAcknowledgeRequest)
@every_version(ShareFetchRequest)
def test_records_are_delivered_to_one_member_and_acknowledged(
    broker: InProcessBroker, jobs: bytes, persister: InMemoryPersister, version: int
) -> None:
    broker.produce("jobs", b"a", b"b", b"c")
    broker.produce("jobs", b"d")
    anna, bert = (
        ShareMember(broker, jobs, version=version),
        ShareMember(broker, jobs, member_id="bert", version=version),
    )

    answer = anna.fetch()
    (of_partition,) = answer.responses[0].partitions
    assert acquired(answer) == [(0, 3, 1)]
    assert answer.acquisition_lock_timeout_ms == LOCK_MS
    assert read_header(of_partition.records).base_offset == 0
    assert bytes(of_partition.records) == (
        broker.log("jobs").read(0, max_bytes=1 << 20, upper_bound_offset=4, at_least_one_batch=True).region.read()
    )
    assert bert.acquire() == []

    said = anna.acknowledge({(jobs, 0): [(0, 1, ACCEPT), (2, 3, RELEASE)]})
    assert codes(said) == [E.NONE, E.NONE]
    assert persister.states[next(iter(persister.states))].start_offset == 0
    assert bert.acquire() == [(2, 3, 2)]
    assert codes(bert.fetch({(jobs, 0): [(2, 3, ACCEPT, REJECT)]})) == [E.NONE, E.NONE, E.NONE]
    assert [(one.first_offset, one.last_offset, one.delivery_state) for one in persister.writes[-1].batches] == [
        (2, 2, 2), (3, 3, 4),
    ]  # fmt: skip


def test_a_fetch_waits_for_records(broker: InProcessBroker, jobs: bytes) -> None:
    anna = ShareMember(broker, jobs)
    anna.send(max_wait_ms=500)
    assert anna.client.has_no_answer()
    broker.produce("jobs", b"a")
    assert acquired(anna.receive()) == [(0, 0, 1)]

    anna.send(max_wait_ms=500)
    assert anna.client.has_no_answer()
    broker.advance(500)
    assert acquired(anna.receive()) == []


def test_a_fetch_that_waits_is_woken_by_a_release_and_by_a_lock_that_expires(
    broker: InProcessBroker, jobs: bytes
) -> None:
    broker.produce("jobs", b"a")
    anna, bert = ShareMember(broker, jobs), ShareMember(broker, jobs, member_id="bert")
    assert anna.acquire() == [(0, 0, 1)]

    bert.send(max_wait_ms=60_000)
    assert bert.client.has_no_answer()
    anna.acknowledge({(jobs, 0): [(0, 0, RELEASE)]})
    assert acquired(bert.receive()) == [(0, 0, 2)]

    anna.send(max_wait_ms=60_000)
    broker.advance(LOCK_MS - 1)
    assert anna.client.has_no_answer()
    broker.advance(1)
    assert acquired(anna.receive()) == [(0, 0, 3)]


def test_what_is_delivered_too_often_is_archived(broker: InProcessBroker, jobs: bytes) -> None:
    broker.produce("jobs", b"a")
    anna = ShareMember(broker, jobs)
    for count in range(1, 6):
        assert anna.acquire() == [(0, 0, count)]
        broker.advance(LOCK_MS)
    assert anna.acquire() == []
    broker.produce("jobs", b"b")
    assert anna.acquire() == [(1, 1, 1)]


def test_a_member_whose_connection_breaks_gives_its_records_back(broker: InProcessBroker, jobs: bytes) -> None:
    broker.produce("jobs", b"a")
    anna, bert = ShareMember(broker, jobs), ShareMember(broker, jobs, member_id="bert")
    assert anna.acquire() == [(0, 0, 1)]
    bert.send(max_wait_ms=60_000)
    assert bert.client.has_no_answer()

    anna.client.close()

    assert acquired(bert.receive()) == [(0, 0, 2)]
    assert broker.server.share_delivery.sessions.stats.evicted == 1


def test_records_for_a_member_that_has_gone_meanwhile_are_given_back(broker: InProcessBroker, jobs: bytes) -> None:
    anna, bert = ShareMember(broker, jobs), ShareMember(broker, jobs, member_id="bert")
    anna.send(max_wait_ms=60_000)
    assert anna.client.has_no_answer()
    anna.client.close()
    broker.produce("jobs", b"a")
    broker.settle()
    # As in Kafka, the end of a connection is seen once the request that waits there is answered.
    assert bert.acquire() == [(0, 0, 2)]


def test_a_member_that_comes_back_before_its_first_read_is_answered_keeps_its_records(
    broker: InProcessBroker, jobs: bytes, persister: InMemoryPersister
) -> None:
    """The state is read again for it; the answer to the first read is for a share partition that is fenced."""
    broker.produce("jobs", b"a", b"b")
    persister.is_holding = True  # the share coordinator is not available
    anna = ShareMember(broker, jobs)
    anna.send(max_wait_ms=500)
    broker.advance(501)
    assert acquired(anna.receive()) == []
    anna.client.close()
    persister.is_holding = False
    anna, bert = ShareMember(broker, jobs), ShareMember(broker, jobs, member_id="bert")
    assert anna.acquire() == [(0, 1, 1)]

    persister.answer()

    assert bert.acquire() == []
    assert bert.acquire() == []
    assert codes(anna.acknowledge({(jobs, 0): [(0, 1, ACCEPT)]})) == [E.NONE, E.NONE]


@serves(ShareFetchRequest, E.SHARE_SESSION_NOT_FOUND, E.INVALID_SHARE_SESSION_EPOCH, E.INVALID_REQUEST)
@serves(ShareAcknowledgeRequest, E.SHARE_SESSION_NOT_FOUND, E.INVALID_SHARE_SESSION_EPOCH, E.INVALID_REQUEST)
@every_version(ShareFetchRequest)
def test_requests_that_are_not_the_next_of_their_session(broker: InProcessBroker, jobs: bytes, version: int) -> None:
    broker.produce("jobs", b"a")
    anna = ShareMember(broker, jobs, version=version)
    for epoch in (1, 7, -1, -2):
        assert anna.fetch(share_session_epoch=epoch).error_code == E.SHARE_SESSION_NOT_FOUND
        assert anna.acknowledge({}, share_session_epoch=epoch).error_code == E.SHARE_SESSION_NOT_FOUND
    assert anna.fetch({(jobs, 0): [(0, 0, ACCEPT)]}).error_code == E.INVALID_REQUEST
    assert anna.acknowledge({}).error_code == E.INVALID_SHARE_SESSION_EPOCH
    assert anna.acquire() == [(0, 0, 1)]
    for epoch in (0x7FFF_FFFF, 2, -2):
        assert anna.fetch(share_session_epoch=epoch).error_code == E.INVALID_SHARE_SESSION_EPOCH
        assert anna.acknowledge({}, share_session_epoch=epoch).error_code == E.INVALID_SHARE_SESSION_EPOCH
    for member_id in (None, "", "x" * 37):
        assert anna.fetch(member_id=member_id).error_code == E.INVALID_REQUEST
        assert anna.acknowledge({}, member_id=member_id).error_code == E.INVALID_REQUEST
    assert anna.fetch(group_id=None).error_code == E.INVALID_REQUEST
    assert anna.acknowledge({(jobs, 0): [(0, 0, ACCEPT)]}).error_code == E.NONE


def test_the_last_request_of_a_session_gives_everything_back(broker: InProcessBroker, jobs: bytes) -> None:
    broker.produce("jobs", b"a", b"b")
    anna, bert = ShareMember(broker, jobs), ShareMember(broker, jobs, member_id="bert")
    assert anna.acquire() == [(0, 1, 1)]
    last = anna.fetch({(jobs, 0): [(0, 0, ACCEPT)]}, share_session_epoch=-1)
    assert codes(last) == [E.NONE, E.NONE, E.NONE]
    assert bert.acquire() == [(1, 1, 2)]
    assert anna.fetch(share_session_epoch=-1).error_code == E.SHARE_SESSION_NOT_FOUND


@serves(ShareFetchRequest, E.SHARE_SESSION_LIMIT_REACHED, versions=[1, 2])
def test_too_many_sessions(tmp_path: Path) -> None:
    with running_broker(tmp_path, group_share_max_share_sessions=2) as broker:
        keep_states_in_memory(broker)
        topic_id = broker.create_topic("jobs")
        members = [ShareMember(broker, topic_id, member_id=f"{number}") for number in range(3)]
        assert [member.fetch().error_code for member in members[:2]] == [E.NONE, E.NONE]
        members[2].send(max_wait_ms=300)
        assert members[2].client.has_no_answer()
        broker.advance(300)
        assert members[2].receive().error_code == E.SHARE_SESSION_LIMIT_REACHED
        members[0].client.close()
        assert members[2].fetch().error_code == E.NONE


@serves(ShareFetchRequest, E.UNKNOWN_TOPIC_ID, E.UNKNOWN_TOPIC_OR_PARTITION)
@every_version(ShareFetchRequest)
def test_what_does_not_exist(broker: InProcessBroker, jobs: bytes, version: int) -> None:
    anna = ShareMember(broker, UNKNOWN, version=version)
    anna.add(jobs, 1)
    assert sorted(codes(anna.fetch())) == [E.NONE, E.NONE, E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID]


@serves(ShareAcknowledgeRequest, E.INVALID_RECORD_STATE, E.UNKNOWN_TOPIC_ID, E.UNKNOWN_TOPIC_OR_PARTITION)
@every_version(ShareAcknowledgeRequest)
def test_acknowledgements_of_what_the_member_does_not_hold(
    broker: InProcessBroker, jobs: bytes, persister: InMemoryPersister, version: int
) -> None:
    broker.produce("jobs", b"a", b"b", b"c")
    anna = ShareMember(broker, jobs, version=version)
    bert = ShareMember(broker, jobs, member_id="bert", version=version)
    assert anna.acquire() == [(0, 2, 1)]
    assert bert.acquire() == []

    def said(member: ShareMember, *of_it: tuple[int, ...], topic_id: bytes = jobs, index: int = 0) -> int:
        return codes(member.acknowledge({(topic_id, index): list(of_it)}))[1]

    assert said(bert, (0, 2, ACCEPT)) == E.INVALID_RECORD_STATE
    assert said(anna, (0, 3, ACCEPT)) == E.INVALID_REQUEST
    assert said(anna, (7, 9, ACCEPT)) == E.INVALID_REQUEST
    assert said(anna, (1, 0, ACCEPT)) == E.INVALID_REQUEST
    assert said(anna, (1, 2, ACCEPT), (0, 0, ACCEPT)) == E.INVALID_REQUEST
    assert said(anna, (0, 2, ACCEPT, ACCEPT)) == E.INVALID_REQUEST
    assert said(anna, (0, 2)) == E.INVALID_REQUEST
    assert said(anna, (0, 2, 5)) == E.INVALID_REQUEST
    assert said(anna, (0, 2, -1)) == E.INVALID_REQUEST
    assert said(anna, (0, 2, RENEW)) == E.INVALID_REQUEST
    assert said(anna, (0, 0, ACCEPT), topic_id=UNKNOWN) == E.UNKNOWN_TOPIC_ID
    assert said(anna, (0, 0, ACCEPT), index=4) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert not persister.writes

    assert said(anna, (0, 0, ACCEPT), (2, 2, ACCEPT)) == E.NONE
    assert said(anna, (1, 2, ACCEPT)) == E.INVALID_RECORD_STATE, "2 is accepted"
    assert said(anna, (1, 1, ACCEPT)) == E.NONE
    broker.produce("jobs", b"d")
    assert anna.acquire() == [(3, 3, 1)]
    broker.advance(LOCK_MS)
    assert said(anna, (3, 3, ACCEPT)) == E.INVALID_RECORD_STATE, "the lock is gone"


def test_acknowledgements_that_are_not_persisted_are_taken_back_and_the_log_says_why(
    broker: InProcessBroker, jobs: bytes, persister: InMemoryPersister, caplog: pytest.LogCaptureFixture
) -> None:
    broker.produce("jobs", b"a")
    anna = ShareMember(broker, jobs)
    assert anna.acquire() == [(0, 0, 1)]
    persister.answers_with = E.COORDINATOR_LOAD_IN_PROGRESS
    assert codes(anna.acknowledge({(jobs, 0): [(0, 0, ACCEPT)]})) == [E.NONE, E.COORDINATOR_NOT_AVAILABLE]
    (line,) = [line for line in caplog.messages if "is not persisted" in line]
    assert line.startswith("jobs-0 of the share group workers: "), line
    assert "COORDINATOR_LOAD_IN_PROGRESS" in line, line
    persister.answers_with = E.NONE
    assert codes(anna.acknowledge({(jobs, 0): [(0, 0, ACCEPT)]})) == [E.NONE, E.NONE]


def test_the_answer_waits_for_the_persister(broker: InProcessBroker, jobs: bytes, persister: InMemoryPersister) -> None:
    broker.produce("jobs", b"a")
    broker.produce("jobs", b"b")
    anna = ShareMember(broker, jobs)
    assert anna.acquire(max_records=1) == [(0, 0, 1)]
    persister.is_holding = True
    anna.send({(jobs, 0): [(0, 0, ACCEPT)]})
    assert anna.client.has_no_answer()
    persister.answer()
    assert acquired(anna.receive()) == [(1, 1, 1)]


def waiting_above_its_quota(broker: InProcessBroker, jobs: bytes, persister: InMemoryPersister) -> ShareMember:
    """A member that has acknowledged the first record and acquired others, and whose answer waits for the share
    coordinator, for longer than it may hold records."""
    for _ in range(20):
        broker.ask(produce_request("jobs", produced([record(bytes(2_000))])), 9)
    anna = ShareMember(broker, jobs)
    assert anna.acquire(max_records=1) == [(0, 0, 1)]
    limit(broker, {"client-id": "test"}, consumer_byte_rate=1_000)
    persister.is_holding = True
    anna.send({(jobs, 0): [(0, 0, ACCEPT)]})
    assert anna.client.has_no_answer()
    persister.is_holding = False
    broker.advance(LOCK_MS + 1)
    assert anna.client.has_no_answer()
    return anna


def test_a_throttled_member_whose_locks_have_expired_gets_nothing(
    broker: InProcessBroker, jobs: bytes, persister: InMemoryPersister
) -> None:
    anna = waiting_above_its_quota(broker, jobs, persister)
    broker.ask(fetch_request("jobs", max_bytes=9_000), 12)  # the client uses its quota up

    persister.answer()

    answer = anna.receive()
    assert answer.throttle_time_ms > 0
    assert (codes(answer), acquired(answer)) == ([E.NONE, E.NONE, E.NONE], [])
    broker.advance(answer.throttle_time_ms + LOCK_MS)
    assert anna.acquire(max_records=1, batch_size=1) == [(1, 4, 2)], "the expired delivery counts"
    assert broker.server.failure is None


def test_a_throttled_member_leaves_records_to_the_member_that_has_them_by_now(
    broker: InProcessBroker, jobs: bytes, persister: InMemoryPersister
) -> None:
    anna, bert = waiting_above_its_quota(broker, jobs, persister), ShareMember(broker, jobs, member_id="bert")
    assert bert.acquire(max_records=4) == [(1, 4, 2)]  # which uses the quota of the client up

    persister.answer()

    answer = anna.receive()
    assert answer.throttle_time_ms > 0
    assert (codes(answer), acquired(answer)) == ([E.NONE, E.NONE, E.NONE], [])
    broker.advance(LOCK_MS - 1)
    assert codes(bert.acknowledge({(jobs, 0): [(1, 3, ACCEPT)]})) == [E.NONE, E.NONE]
    broker.advance(2)  # the lock of the last of them expires
    assert anna.acquire(max_records=1) == [(4, 4, 3)]
    assert broker.server.failure is None


def test_a_group_that_another_leader_has_taken_over(
    broker: InProcessBroker, jobs: bytes, persister: InMemoryPersister
) -> None:
    broker.produce("jobs", b"a")
    anna = ShareMember(broker, jobs)
    assert anna.acquire() == [(0, 0, 1)]
    persister.answers_with = E.FENCED_LEADER_EPOCH
    answer = anna.acknowledge({(jobs, 0): [(0, 0, ACCEPT)]})
    assert codes(answer) == [E.NONE, E.NOT_LEADER_OR_FOLLOWER]
    leader = answer.responses[0].partitions[0].current_leader
    assert (leader.leader_id, [endpoint.node_id for endpoint in answer.node_endpoints]) == (1, [1])
    persister.answers_with = E.NONE
    # The state is read anew: what was acquired is available.
    assert anna.acquire() == [(0, 0, 1)]


@every_version(ShareFetchRequest)
def test_only_errors_about_the_leader_name_a_leader(broker: InProcessBroker, jobs: bytes, version: int) -> None:
    """franz-go takes a leader of 0 for a hint. Kafka 4.4.0 answers 0 and 0, the fields' defaults."""
    broker.produce("jobs", b"a")
    anna = ShareMember(broker, jobs, version=version)
    here, unknown_index, unknown_topic = (jobs, 0), (jobs, 7), (UNKNOWN, 0)

    fetched = anna.fetch({here: [], unknown_index: [], unknown_topic: []})
    acknowledged = anna.acknowledge(
        {here: [(5, 5, ACCEPT)], unknown_index: [(0, 0, ACCEPT)], unknown_topic: [(0, 0, ACCEPT)]}
    )

    for answer, expected in (
        (fetched, {E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID}),
        (acknowledged, {E.INVALID_REQUEST, E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID}),
    ):
        partitions = [partition for topic in answer.responses for partition in topic.partitions]
        assert {partition.error_code for partition in partitions} == expected
        for partition in partitions:
            assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (-1, -1)
        assert answer.node_endpoints == []


@serves(ShareFetchRequest, E.INVALID_REQUEST, versions=[2])
def test_locks_are_renewed(broker: InProcessBroker, jobs: bytes) -> None:
    broker.produce("jobs", b"a")
    anna, bert = ShareMember(broker, jobs), ShareMember(broker, jobs, member_id="bert")
    assert anna.acquire() == [(0, 0, 1)]
    broker.advance(LOCK_MS - 1)
    nothing = {"is_renew_ack": True, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    for name in ("max_wait_ms", "min_bytes", "max_bytes", "max_records"):
        assert anna.fetch({(jobs, 0): [(0, 0, RENEW)]}, **{**nothing, name: 1}).error_code == E.INVALID_REQUEST
    assert codes(anna.fetch({(jobs, 0): [(0, 0, RENEW)]}, **nothing)) == [E.NONE, E.NONE, E.NONE]
    broker.advance(LOCK_MS - 1)
    assert bert.acquire() == []
    assert codes(anna.acknowledge({(jobs, 0): [(0, 0, RENEW)]}, is_renew_ack=True)) == [E.NONE, E.NONE]
    configure(broker, ConfigResource.GROUP, "workers", "share.renew.acknowledge.enable", "false")
    assert codes(anna.acknowledge({(jobs, 0): [(0, 0, RENEW)]}, is_renew_ack=True)) == [E.NONE, E.INVALID_RECORD_STATE]
    broker.advance(LOCK_MS)
    assert bert.acquire() == [(0, 0, 2)]


def test_a_new_group_begins_at_the_end_by_default(broker: InProcessBroker, persister: InMemoryPersister) -> None:
    topic_id = broker.create_topic("jobs")
    broker.produce("jobs", b"a")
    anna = ShareMember(broker, topic_id)
    assert anna.acquire() == []
    broker.produce("jobs", b"b")
    assert anna.acquire() == [(1, 1, 1)]


def test_records_that_are_deleted_are_not_delivered(broker: InProcessBroker, jobs: bytes) -> None:
    for value in (b"a", b"b", b"c"):
        broker.produce("jobs", value)
    anna = ShareMember(broker, jobs)
    assert anna.acquire() == [(0, 2, 1)]
    assert codes(anna.acknowledge({(jobs, 0): [(0, 2, RELEASE)]})) == [E.NONE, E.NONE]
    topic = DeleteRecordsRequest.Topic(
        name="jobs", partitions=[DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=2)]
    )
    broker.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=0), 2)
    assert anna.acquire() == []
    assert anna.acquire() == [(2, 2, 2)]


def test_a_topic_that_is_deleted(broker: InProcessBroker, jobs: bytes) -> None:
    broker.produce("jobs", b"a")
    anna = ShareMember(broker, jobs)
    assert anna.acquire() == [(0, 0, 1)]
    anna.send(max_wait_ms=60_000)
    assert anna.client.has_no_answer()
    broker.ask(
        DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="jobs", topic_id=bytes(16))], timeout_ms=30_000), 6
    )
    broker.settle()
    anna.receive()
    assert codes(anna.fetch())[1] == E.UNKNOWN_TOPIC_OR_PARTITION
    assert not broker.server.share_delivery.partitions.hosted()


def test_a_group_may_have_so_many_records_in_flight(broker: InProcessBroker, jobs: bytes) -> None:
    configure(broker, ConfigResource.GROUP, "workers", "share.partition.max.record.locks", "100")
    for _ in range(30):
        broker.produce("jobs", *[b"x"] * 10)
    anna = ShareMember(broker, jobs)
    assert anna.acquire() == [(0, 99, 1)]
    assert anna.acquire() == []
    assert anna.acquire({(jobs, 0): [(0, 49, ACCEPT)]}) == [(100, 149, 1)]


def test_a_limit_of_records_is_kept_to_the_record(broker: InProcessBroker, jobs: bytes) -> None:
    broker.produce("jobs", *[b"x"] * 10)
    anna, bert = ShareMember(broker, jobs), ShareMember(broker, jobs, member_id="bert")
    assert anna.acquire(max_records=3, share_acquire_mode=1) == [(0, 2, 1)]
    assert bert.acquire(max_records=4, share_acquire_mode=1) == [(3, 6, 1)]
    assert anna.acquire(max_records=3) == [(7, 9, 1)]


def test_batches_are_cut_by_the_batch_size(broker: InProcessBroker, jobs: bytes) -> None:
    for _ in range(6):
        broker.produce("jobs", *[b"x"] * 4)
    anna = ShareMember(broker, jobs)
    assert anna.acquire(batch_size=6) == [(0, 7, 1), (8, 15, 1), (16, 23, 1)]


def test_after_a_restart_nothing_accepted_comes_again(broker: InProcessBroker, jobs: bytes) -> None:
    broker.produce("jobs", *[b"x"] * 10)
    anna = ShareMember(broker, jobs)
    assert anna.acquire() == [(0, 9, 1)]
    assert codes(anna.acknowledge({(jobs, 0): [(2, 3, ACCEPT), (5, 5, RELEASE)]})) == [E.NONE, E.NONE]
    kept = broker.server.share_delivery.persister
    broker.restart()
    keep_states_in_memory(broker)
    broker.server.share_delivery.persister = kept
    bert = ShareMember(broker, jobs, member_id="bert")
    # The broker's stop has closed the member's connection, and with it the session.
    assert bert.acquire() == [(0, 1, 2), (4, 9, 2)]


@serves(ShareFetchRequest, E.UNSUPPORTED_VERSION, versions=[2])
@serves(ShareAcknowledgeRequest, E.UNSUPPORTED_VERSION, versions=[2])
@pytest.mark.settings(ottla_release_version="4.0")
def test_a_cluster_without_share_groups(broker: InProcessBroker) -> None:
    anna = ShareMember(broker)
    assert anna.fetch().error_code == E.UNSUPPORTED_VERSION
    assert anna.acknowledge({}).error_code == E.UNSUPPORTED_VERSION


def test_partitions_without_news_are_left_out(broker: InProcessBroker, jobs: bytes) -> None:
    anna = ShareMember(broker, jobs)
    assert len(anna.fetch().responses) == 1
    assert anna.fetch().responses == []


def test_a_fetch_of_nothing(broker: InProcessBroker, jobs: bytes) -> None:
    broker.produce("jobs", b"a")
    anna = ShareMember(broker, jobs)
    for nothing in ({"max_records": 0}, {"max_bytes": 0}, {"max_records": -1}):
        assert anna.acquire(**nothing) == []
    assert anna.acquire() == [(0, 0, 1)]
