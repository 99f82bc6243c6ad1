"""Share groups beside the rest of the broker: dead letter queues, transactions, rights, quotas, a restart."""

from pathlib import Path

import pytest

from broker.coordinators.share.persister import SharePartitionKey
from broker.request.permissions import Operation, ResourceType
from config.resources import ConfigResource
from protocol.errors import ErrorCode as E
from storage.batch.records import Record, iterate_records
from tests.support.acls import AUTHORIZER, acl, creation
from tests.support.altered_configs import configure
from tests.support.batches import produced, record
from tests.support.broker import WITH_CONTROLLER_LISTENER, InProcessBroker, running_broker, running_member
from tests.support.quotas import limit
from tests.support.requests import produce_request
from tests.support.sasl_client import ALICE, LISTENERS, SaslClient
from tests.support.share_groups import ShareMember, acquired, codes, keep_states_in_memory
from tests.unit.broker.handlers.transactional_client import TransactionalClient, with_coordinators

ACCEPT, RELEASE, REJECT = 1, 2, 3
LOCK_MS = 30_000


def from_the_beginning(broker: InProcessBroker, group_id: str = "workers") -> None:
    """Let a new group read what is there already."""
    configure(broker, ConfigResource.GROUP, group_id, "share.auto.offset.reset", "earliest")


def letters(broker: InProcessBroker, topic: str, partition: int = 0) -> list[Record]:
    """The records of a dead letter queue."""
    return [one for _, batch in broker.log(topic, partition).batches() for one in iterate_records(batch)]


def headers(letter: Record) -> dict[str, str]:
    return {name.removeprefix("__dlq.errors."): (value or b"").decode() for name, value in letter.headers}


def test_rejected_records_and_those_delivered_too_often_go_to_the_dead_letter_queue(broker: InProcessBroker) -> None:
    keep_states_in_memory(broker)
    topic_id = broker.create_topic("jobs", partitions=2)
    broker.create_topic("dlq.jobs", errors_deadletterqueue_group_enable="true", partitions=1)
    from_the_beginning(broker)
    configure(broker, ConfigResource.GROUP, "workers", "errors.deadletterqueue.topic.name", "dlq.jobs")
    configure(broker, ConfigResource.GROUP, "workers", "share.delivery.count.limit", "2")
    broker.produce("jobs", b"a", b"b", b"c", partition=1)
    anna = ShareMember(broker)
    anna.add(topic_id, 1)
    assert anna.acquire() == [(0, 2, 1)]
    assert codes(anna.acknowledge({(topic_id, 1): [(0, 2, ACCEPT, REJECT, RELEASE)]})) == [E.NONE, E.NONE]
    broker.settle()

    (letter,) = letters(broker, "dlq.jobs")
    assert (letter.key, letter.value) == (None, None)
    assert headers(letter) == {
        "topic": "jobs", "partition": "1", "offset": "1", "group": "workers", "delivery.count": "1",
        "message": "Offset rejected by client.",
    }  # fmt: skip
    (hosted,) = broker.server.share_delivery.partitions.hosted()
    assert (hosted.share.window.start_offset, hosted.share.window.complete_count) == (2, 0)

    configure(broker, ConfigResource.GROUP, "workers", "errors.deadletterqueue.copy.record.enable", "true")
    assert anna.acquire() == [(2, 2, 2)]
    broker.advance(LOCK_MS)
    broker.settle()
    assert anna.acquire() == []
    letter = letters(broker, "dlq.jobs")[-1]
    assert (letter.value, headers(letter)["message"]) == (b"c", "Offset delivery count exceeded the threshold.")
    stats = broker.server.share_delivery.stats
    assert (stats.dead_letters["workers"], stats.failed_dead_letter_requests["workers"]) == (2, 0)


def test_a_dead_letter_queue_is_created_where_the_broker_may(tmp_path: Path) -> None:
    with running_broker(tmp_path, errors_deadletterqueue_auto_create_topics_enable="true") as broker:
        keep_states_in_memory(broker)
        topic_id = broker.create_topic("jobs")
        from_the_beginning(broker)
        configure(broker, ConfigResource.GROUP, "workers", "errors.deadletterqueue.topic.name", "dlq.new")
        broker.produce("jobs", b"a")
        anna = ShareMember(broker, topic_id)
        assert anna.acquire() == [(0, 0, 1)]
        assert codes(anna.acknowledge({(topic_id, 0): [(0, 0, REJECT)]})) == [E.NONE, E.NONE]
        broker.wait_until(lambda: "dlq.new" in broker.topics())
        broker.advance(1_000)
        broker.wait_until(lambda: len(letters(broker, "dlq.new")) == 1)
        config = broker.server.components.configs.topic_config("dlq.new")
        assert config.errors_deadletterqueue_group_enable


@pytest.mark.parametrize(
    ("name", "made"),
    [("dlq.missing", False), ("other.jobs", True), ("dlq.refused", True)],
    ids=["there is none, and none may be created", "the prefix is another", "the topic does not allow it"],
)
def test_records_are_archived_even_if_they_cannot_be_copied(broker: InProcessBroker, name: str, made: bool) -> None:
    persister = keep_states_in_memory(broker)
    topic_id = broker.create_topic("jobs")
    if made:
        broker.create_topic(name, errors_deadletterqueue_group_enable=str(name != "dlq.refused").lower())
    from_the_beginning(broker)
    configure(broker, ConfigResource.GROUP, "workers", "errors.deadletterqueue.topic.name", name)
    broker.produce("jobs", b"a")
    anna = ShareMember(broker, topic_id)
    assert anna.acquire() == [(0, 0, 1)]
    assert codes(anna.acknowledge({(topic_id, 0): [(0, 0, REJECT)]})) == [E.NONE, E.NONE]
    assert [batch.delivery_state for state in persister.writes for batch in state.batches] == [3, 4]
    assert broker.server.share_delivery.stats.failed_dead_letter_requests["workers"] == 1
    assert not made or not letters(broker, name)


def test_many_dead_letters_are_cut_to_the_size_of_a_message(broker: InProcessBroker) -> None:
    keep_states_in_memory(broker)
    topic_id = broker.create_topic("jobs")
    broker.create_topic("dlq.jobs", errors_deadletterqueue_group_enable="true", max_message_bytes=4_000)
    from_the_beginning(broker)
    configure(broker, ConfigResource.GROUP, "workers", "errors.deadletterqueue.topic.name", "dlq.jobs")
    configure(broker, ConfigResource.GROUP, "workers", "errors.deadletterqueue.copy.record.enable", "true")
    broker.produce("jobs", *[bytes([65 + number]) * 500 for number in range(20)])
    anna = ShareMember(broker, topic_id)
    assert anna.acquire() == [(0, 19, 1)]
    assert codes(anna.acknowledge({(topic_id, 0): [(0, 19, REJECT)]})) == [E.NONE, E.NONE]
    broker.settle()
    found = letters(broker, "dlq.jobs")
    assert [headers(one)["offset"] for one in found] == [str(offset) for offset in range(20)]
    assert [(one.value or b"")[:1] for one in found if one.value] == [bytes([65 + number]) for number in range(20)]
    assert all(header.size <= 4_000 for header, _ in broker.log("dlq.jobs").batches())


def test_records_of_aborted_transactions_are_left_out_for_a_group_that_reads_committed(broker: InProcessBroker) -> None:
    keep_states_in_memory(broker)
    with_coordinators(broker)
    topic_id = broker.create_topic("orders")
    for group in ("committed", "all"):
        from_the_beginning(broker, group)
    configure(broker, ConfigResource.GROUP, "committed", "share.isolation.level", "read_committed")
    producer = TransactionalClient(broker).begun()
    for commit in (True, False, True):
        producer.add(3, ("orders", [0]))
        producer.produce(11, records=2)
        assert producer.end(3, commit=commit) is E.NONE
        broker.settle()
        broker.advance(10)
    producer.add(3, ("orders", [0]))
    producer.produce(11, records=1)

    # Offsets 2, 5 and 8 are markers; 3 and 4 are aborted; 9 is still open.
    committed = ShareMember(broker, topic_id, group_id="committed")
    assert committed.acquire() == [(0, 2, 1), (5, 8, 1)]
    everything = ShareMember(broker, topic_id, group_id="all", member_id="bert")
    assert everything.acquire() == [(0, 9, 1)]
    assert codes(committed.acknowledge({(topic_id, 0): [(0, 2, 1, 1, 0), (5, 8, 0, 1, 1, 0)]})) == [E.NONE, E.NONE]
    in_flight = {
        one.share.key.group_id: one.share.window.size for one in broker.server.share_delivery.partitions.hosted()
    }
    assert in_flight == {"committed": 0, "all": 10}


@pytest.mark.settings(**AUTHORIZER, **LISTENERS, super_users="User:ANONYMOUS")
def test_members_need_the_right_to_read_group_and_topic(broker: InProcessBroker) -> None:
    keep_states_in_memory(broker)
    topic_id = broker.create_topic("jobs")
    from_the_beginning(broker)
    broker.produce("jobs", b"a")
    alice = SaslClient(broker)
    alice.handshake()
    alice.token(ALICE)
    anna = ShareMember(broker, topic_id, client=alice.client)
    assert anna.fetch().error_code == E.GROUP_AUTHORIZATION_FAILED
    assert anna.acknowledge({}).error_code == E.GROUP_AUTHORIZATION_FAILED
    broker.ask(creation(acl("workers", resource_type=ResourceType.GROUP, operation=Operation.READ)), 3)
    assert codes(anna.fetch()) == [E.NONE, E.TOPIC_AUTHORIZATION_FAILED, E.NONE]
    said = anna.acknowledge({(topic_id, 0): [(0, 0, ACCEPT)]})
    assert codes(said) == [E.NONE, E.TOPIC_AUTHORIZATION_FAILED]
    broker.ask(creation(acl("jobs", operation=Operation.READ)), 3)
    assert anna.acquire() == [(0, 0, 1)]


def test_a_member_above_its_quota_gets_nothing_and_loses_nothing(broker: InProcessBroker) -> None:
    keep_states_in_memory(broker)
    topic_id = broker.create_topic("jobs")
    from_the_beginning(broker)
    for _ in range(30):
        broker.ask(produce_request("jobs", produced([record(bytes(2_000))])), 9)
    limit(broker, {"client-id": "test"}, consumer_byte_rate=1_000)
    anna = ShareMember(broker, topic_id)
    throttled = 0
    delivered: dict[int, int] = {}
    for _ in range(200):
        answer = anna.fetch(max_records=1)
        throttled = max(throttled, answer.throttle_time_ms)
        for first, last, count in acquired(answer):
            delivered.update(dict.fromkeys(range(first, last + 1), count))
            broker.advance(answer.throttle_time_ms)
            assert codes(anna.acknowledge({(topic_id, 0): [(first, last, ACCEPT)]})) == [E.NONE, E.NONE]
        if len(delivered) == 30:
            break
        broker.advance(max(answer.throttle_time_ms, 1))
    assert throttled > 0
    assert delivered == dict.fromkeys(range(30), 1)


def test_ten_thousand_sessions_are_refused_and_nothing_is_kept_of_them(tmp_path: Path) -> None:
    with running_broker(tmp_path, group_share_max_share_sessions=10) as broker:
        keep_states_in_memory(broker)
        topic_id = broker.create_topic("jobs")
        member = ShareMember(broker)
        found = []
        for number in range(10_000):
            if number <= 10:
                member.add(topic_id)
            member.epoch = 0
            found.append(member.fetch(member_id=f"m{number}", group_id=f"g{number % 700}").error_code)
        assert found == [E.NONE] * 10 + [E.SHARE_SESSION_LIMIT_REACHED] * 9_990
        groups = broker.server.share_delivery
        assert (groups.sessions.stats.sessions, len(groups.partitions.hosted())) == (10, 10)
        member.client.close()
        broker.settle()
        assert (groups.sessions.stats.sessions, len(groups.partitions.hosted())) == (0, 0)


def test_the_share_coordinator_keeps_the_state_through_a_restart(tmp_path: Path) -> None:
    with running_broker(tmp_path, share_coordinator_state_topic_num_partitions=1) as broker:
        topic_id = broker.create_topic("jobs")
        from_the_beginning(broker)
        broker.produce("jobs", *[b"x"] * 10)
        initialised: list[E] = []
        key = SharePartitionKey("workers", topic_id, 0)
        broker.server.components.share_states.get().persister.initialize(key, 0, -1, initialised.append)
        anna = ShareMember(broker, topic_id)

        def delivered() -> list[tuple[int, int, int]]:
            for _ in range(200):
                found = anna.acquire(max_wait_ms=0)
                if found:
                    return found
                broker.advance(100)
            raise AssertionError("nothing is delivered")

        assert delivered() == [(0, 9, 1)]
        assert codes(anna.acknowledge({(topic_id, 0): [(0, 4, ACCEPT), (6, 6, REJECT)]})) == [E.NONE, E.NONE]
        broker.restart()
        anna = ShareMember(broker, topic_id)
        found = delivered()
        assert [(first, last) for first, last, _ in found] == [(5, 5), (7, 9)]


def test_a_partition_that_only_another_broker_has_is_not_led_here(tmp_path: Path) -> None:
    with running_broker(tmp_path / "primary", **WITH_CONTROLLER_LISTENER) as primary:
        topic_id = primary.create_topic("jobs")
        with running_member(tmp_path / "member", primary) as member:
            member.wait_until(lambda: "jobs" in member.server.metadata.image.topics.by_name)
            keep_states_in_memory(member)
            anna = ShareMember(member, topic_id)
            answer = anna.fetch()
            (partition,) = answer.responses[0].partitions
            assert partition.error_code == E.NOT_LEADER_OR_FOLLOWER
            assert partition.current_leader.leader_id == 1
