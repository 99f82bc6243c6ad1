"""Metrics of consumer groups: members, committed offsets and lag."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.metrics import group_survey
from protocol.errors import ErrorCode
from protocol.messages.committed_offsets import OffsetDeleteRequest
from protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from protocol.messages.groups import DeleteGroupsRequest
from protocol.messages.topics import DeleteTopicsRequest
from protocol.records.group_metadata import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupRecord,
)
from tests.support.broker import InProcessBroker, running_broker
from tests.support.groups import Consumer, commit_request, create_offsets_topic, leave_request
from tests.support.metrics import OPENMETRICS, Page, get, now, scrape, shown, up

MANAGER = "kafka_coordinator_group_groupmetadatamanager"
COORDINATOR = "kafka_server_group_coordinator_metrics"
READERS = '{consumergroup="readers"}'
ON_ORDERS = '{consumergroup="readers",topic="orders"}'
ON_ORDERS_1 = '{consumergroup="readers",topic="orders",partition="1"}'

RETENTION_MS = 600_000
CHECK_MS = 10_000


@pytest.fixture
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[InProcessBroker]:
    """A broker with a topic to read, and that of the groups."""
    mark = request.node.get_closest_marker("settings")
    with running_broker(tmp_path / "data", **(mark.kwargs if mark else {})) as broker:
        create_offsets_topic(broker)
        broker.create_topic("orders", partitions=3)
        yield broker


def commit(broker: InProcessBroker, offset: int, *, topic: str = "orders", partition: int = 0, group: str = "readers"):
    """Commit as a consumer without a group does it, or an administrator."""
    (answered,) = broker.ask(commit_request({(topic, partition): offset}, group_id=group), 9).topics
    assert answered.partitions[0].error_code == ErrorCode.NONE


def commit_as(consumer: Consumer, offset: int, partition: int = 0) -> None:
    """Commit as a member."""
    as_member = {
        "member_id": consumer.joined.member_id,
        "generation_id_or_member_epoch": consumer.joined.generation_id,
    }
    (answered,) = consumer.client.ask(commit_request({("orders", partition): offset}, **as_member), 9).topics
    assert answered.partitions[0].error_code == ErrorCode.NONE


def stable_member(broker: InProcessBroker) -> Consumer:
    consumer = Consumer(broker)
    consumer.join()
    consumer.sync({consumer.joined.member_id: b"all"})
    return consumer


# Who is in them -------------------------------------------------------------------------------------------------------


def test_a_group_goes_through_its_states_as_its_consumers_come_and_go(broker: InProcessBroker) -> None:
    first, second = Consumer(broker), Consumer(broker)
    with shown(
        broker,
        {
            f"{MANAGER}_numgroups": now(1),
            f"{MANAGER}_numgroupscompletingrebalance": now(1),
            f'{COORDINATOR}_classic_group_count{{state="CompletingRebalance"}}': now(1),
            f'{COORDINATOR}_group_count{{protocol="classic"}}': now(1),
            f"kafka_consumergroup_members{READERS}": now(1),
        },
    ):
        first.join()
    with shown(
        broker,
        {
            f"{MANAGER}_numgroupscompletingrebalance": now(0),
            f"{MANAGER}_numgroupsstable": now(1),
            f"{COORDINATOR}_group_completed_rebalance_count": up(1),
            f"{COORDINATOR}_group_completed_rebalance_rate": up(),
        },
    ):
        first.sync({first.joined.member_id: b"all"})
    with shown(
        broker,
        {
            f"{MANAGER}_numgroupsstable": now(0),
            f"{MANAGER}_numgroupspreparingrebalance": now(1),
            f"kafka_consumergroup_members{READERS}": now(2),
        },
    ):
        second.begin_join()
        broker.settle()
    first.join()
    second.end_join()
    with shown(broker, {f"{MANAGER}_numgroupsempty": now(1), f"kafka_consumergroup_members{READERS}": now(0)}):
        broker.ask(leave_request(first.joined.member_id, second.joined.member_id), 5)
    assert scrape(broker)[f"{MANAGER}_numgroupsdead"] == 0, "a group that nobody is in, and nothing is of, is none"
    with shown(broker, {f"{MANAGER}_numgroups": now(0), f"{MANAGER}_numgroupsempty": now(0)}):
        broker.ask(DeleteGroupsRequest(groups_names=["readers"]), 2)
    assert scrape(broker).get(f"kafka_consumergroup_members{READERS}") is None


def test_a_consumer_that_is_not_heard_of_is_no_member_any_more(broker: InProcessBroker) -> None:
    stable_member(broker)
    with shown(broker, {f"kafka_consumergroup_members{READERS}": now(0), f"{MANAGER}_numgroupsempty": now(1)}):
        broker.advance(10_001)


def test_new_epochs_of_consumer_groups_are_counted(broker: InProcessBroker) -> None:
    joining = ConsumerGroupHeartbeatRequest(
        group_id="modern",
        member_id="me",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    with shown(
        broker,
        {
            f"{COORDINATOR}_consumer_group_rebalance_count": up(1),
            f"{COORDINATOR}_consumer_group_rebalance_rate": up(),
            f'{COORDINATOR}_consumer_group_count{{state="Stable"}}': now(1),
        },
    ):
        assert broker.ask(joining, 1).error_code == ErrorCode.NONE


def test_groups_of_other_protocols_are_counted_by_their_kind(broker: InProcessBroker) -> None:
    with shown(
        broker,
        {
            f'{COORDINATOR}_group_count{{protocol="consumer"}}': now(1),
            f'{COORDINATOR}_consumer_group_count{{state="Empty"}}': now(1),
        },
    ):
        (coordinator, *_) = broker.server.components.group_coordinator.groups.active
        coordinator.shard.replay(
            GroupRecord(ConsumerGroupMetadataKey(group_id="modern"), ConsumerGroupMetadataValue(epoch=1), 0)
        )
    assert scrape(broker)[f"{MANAGER}_numgroups"] == 0, "it counts classic groups"


# What they have committed ---------------------------------------------------------------------------------------------


def test_a_group_that_reads_on_commits_and_falls_behind(broker: InProcessBroker) -> None:
    consumer = stable_member(broker)
    broker.produce("orders", *[b"order"] * 10, partition=1)
    broker.produce("orders", *[b"order"] * 5, partition=2)
    with shown(
        broker,
        {
            f"kafka_consumergroup_current_offset{ON_ORDERS_1}": now(4),
            f"kafka_consumergroup_lag{ON_ORDERS_1}": now(6),
            f"kafka_consumergroup_current_offset_sum{ON_ORDERS}": now(4),
            f"kafka_consumergroup_lag_sum{ON_ORDERS}": now(6),
            f"{MANAGER}_numoffsets": now(1),
            f"{COORDINATOR}_offset_count": now(1),
            f"{COORDINATOR}_offset_commit_count": up(1),
            f"{COORDINATOR}_offset_commit_rate": up(),
        },
    ):
        commit_as(consumer, 4, partition=1)
    with shown(
        broker,
        {
            f"kafka_consumergroup_current_offset_sum{ON_ORDERS}": now(7),
            f"kafka_consumergroup_lag_sum{ON_ORDERS}": now(8),
            f"{MANAGER}_numoffsets": now(2),
        },
    ):
        commit_as(consumer, 3, partition=2)
    with shown(
        broker, {f"kafka_consumergroup_lag{ON_ORDERS_1}": now(8), f"kafka_consumergroup_lag_sum{ON_ORDERS}": now(10)}
    ):
        broker.produce("orders", b"two", b"more", partition=1)
    with shown(
        broker, {f"kafka_consumergroup_lag{ON_ORDERS_1}": now(0), f"kafka_consumergroup_lag_sum{ON_ORDERS}": now(2)}
    ):
        commit_as(consumer, 12, partition=1)


def test_who_is_ahead_of_the_log_is_not_behind(broker: InProcessBroker) -> None:
    commit(broker, 100, partition=1)
    page = scrape(broker)
    assert page[f"kafka_consumergroup_current_offset{ON_ORDERS_1}"] == 100
    assert page[f"kafka_consumergroup_lag{ON_ORDERS_1}"] == 0


def test_of_a_partition_that_is_not_there_only_the_offset_is_told(broker: InProcessBroker) -> None:
    commit(broker, 5, partition=1)
    coordinators = broker.server.components.group_coordinator.groups.active
    (image,) = [one.shard.image for one in coordinators if one.shard.image.offsets.count("readers")]
    image.offsets.replay_put("readers", "gone", 0, bytes(7) + b"\x09" + bytes(36))
    page = scrape(broker)
    gone = '{consumergroup="readers",topic="gone",partition="0"}'
    assert page[f"kafka_consumergroup_current_offset{gone}"] == 9
    assert page.get(f"kafka_consumergroup_lag{gone}") is None
    assert page['kafka_consumergroup_lag_sum{consumergroup="readers",topic="gone"}'] == 0


def test_deleted_offsets_are_counted_and_their_series_go(broker: InProcessBroker) -> None:
    for partition in range(3):
        commit(broker, 1, partition=partition)
    topic = OffsetDeleteRequest.Topic
    with shown(
        broker,
        {
            f"{MANAGER}_numoffsets": now(2),
            f"{COORDINATOR}_offset_deletion_count": up(1),
            f"{COORDINATOR}_offset_deletion_rate": up(),
        },
    ):
        gone = topic(name="orders", partitions=[topic.Partition(partition_index=1)])
        broker.ask(OffsetDeleteRequest(group_id="readers", topics=[gone]), 0)
    assert scrape(broker).get(f"kafka_consumergroup_lag{ON_ORDERS_1}") is None
    with shown(broker, {f"{MANAGER}_numoffsets": now(0)}):
        request = DeleteTopicsRequest.Topic(name="orders", topic_id=bytes(16))
        broker.ask(DeleteTopicsRequest(topics=[request], timeout_ms=1), 6)
        broker.settle()
    assert scrape(broker).get(f"kafka_consumergroup_lag_sum{ON_ORDERS}") is None


@pytest.mark.settings(offsets_retention_minutes=RETENTION_MS // 60_000, offsets_retention_check_interval_ms=CHECK_MS)
def test_offsets_that_expire_are_counted(broker: InProcessBroker) -> None:
    commit(broker, 1)
    with shown(
        broker,
        {
            f"{MANAGER}_numoffsets": now(0),
            f"{MANAGER}_numgroups": now(0),
            f"{COORDINATOR}_offset_expiration_count": up(1),
        },
    ):
        broker.advance(RETENTION_MS + CHECK_MS)
        broker.settle()
    assert scrape(broker)[f"{COORDINATOR}_offset_expiration_rate"] > 0


def test_rates_are_those_of_the_last_minutes(broker: InProcessBroker) -> None:
    commit(broker, 1)
    broker.advance(60_000)
    assert scrape(broker)[f"{COORDINATOR}_offset_commit_rate"] == pytest.approx(1 / 60, rel=0.1)
    broker.advance(60_000)
    broker.advance(60_000)
    assert scrape(broker)[f"{COORDINATOR}_offset_commit_rate"] == 0


def test_a_count_goes_on_when_a_partition_of_groups_is_loaded_again(broker: InProcessBroker) -> None:
    commit(broker, 1)
    groups = broker.server.components.group_coordinator.groups
    for coordinator in groups.active:
        groups._reload(coordinator)
    broker.wait_until(lambda: groups.loading == 0)
    page = scrape(broker)
    assert page[f"{COORDINATOR}_offset_commit_count"] == 1
    assert page[f"{MANAGER}_numoffsets"] == 1


# The partitions that hold them ----------------------------------------------------------------------------------------


def test_partitions_of_groups_are_counted_and_how_long_they_took_to_load(broker: InProcessBroker) -> None:
    commit(broker, 1)
    assert scrape(broker)[f'{COORDINATOR}_num_partitions{{state="active"}}'] == 5
    assert scrape(broker)[f'{COORDINATOR}_num_partitions{{state="failed"}}'] == 0
    groups = broker.server.components.group_coordinator.groups
    coordinator = groups.active[0]
    with shown(
        broker,
        {
            f'{COORDINATOR}_num_partitions{{state="active"}}': now(4),
            f'{COORDINATOR}_num_partitions{{state="loading"}}': now(1),
        },
    ):
        groups._is_started = False
        groups._reload(coordinator)
    with shown(broker, {f'{COORDINATOR}_num_partitions{{state="loading"}}': now(0)}):
        groups.start()
        broker.wait_until(lambda: groups.loading == 0)


def test_how_long_loading_takes_is_told(broker: InProcessBroker) -> None:
    broker.advance(120_000)  # what came with the start is forgotten
    assert scrape(broker)[f"{COORDINATOR}_partition_load_time_max"] == 0
    times = broker.server.components.group_coordinator.groups.load_times
    times.record(1_000)
    times.record(7_000)
    page = scrape(broker)
    assert page[f"{COORDINATOR}_partition_load_time_max"] == pytest.approx(7, rel=0.13)
    assert page[f"{COORDINATOR}_partition_load_time_avg"] == pytest.approx(4, rel=0.13)


def test_every_partition_that_is_loaded_is_timed(broker: InProcessBroker) -> None:
    before = sum(broker.server.components.group_coordinator.groups.load_times.recent())
    assert before == 5
    commit(broker, 1)
    broker.restart()
    groups = broker.server.components.group_coordinator.groups
    broker.wait_until(lambda: groups.loading == 0)
    assert sum(groups.load_times.recent()) == 5


def test_changes_that_are_being_written_are_told(broker: InProcessBroker) -> None:
    broker.create_topic("flushed", flush_messages=1)
    (coordinator, *_) = broker.server.components.group_coordinator.groups.active
    assert scrape(broker)[f"{COORDINATOR}_event_queue_size"] == 0
    with shown(broker, {f"{COORDINATOR}_event_queue_size": now(1)}):
        coordinator.writer._entries.append(object())
    coordinator.writer._entries.clear()


def test_what_no_client_can_change_is_what_it_is(broker: InProcessBroker) -> None:
    page = scrape(broker)

    assert 0 <= page[f"{COORDINATOR}_thread_idle_ratio_avg"] <= 1
    for state in ("Empty", "Assigning", "Reconciling", "Stable", "Dead"):
        assert page[f'{COORDINATOR}_consumer_group_count{{state="{state}"}}'] == 0
    for state in ("Assigning", "Reconciling", "Dead"):
        assert page[f'{COORDINATOR}_streams_group_count{{state="{state}"}}'] == 0
    for protocol in ("classic", "consumer", "share", "streams"):
        assert page[f'{COORDINATOR}_group_count{{protocol="{protocol}"}}'] == 0


def test_before_anybody_has_asked_for_a_coordinator_there_are_no_groups(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        page = scrape(broker)
    assert page[f"{MANAGER}_numgroups"] == 0
    assert page[f'{COORDINATOR}_num_partitions{{state="active"}}'] == 0
    assert not page.of("kafka_consumergroup_members")


# Names and numbers that clients choose --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        'a "quoted" group',
        "two\nlines",
        "back\\slash",
        '\\"',
        "\\n",
        "trailing\\",
        "Gruppe für Bestellungen, 注文, 🦦",
        "tab\tand\x00null and \x7f",
        "line\u2028separator\x85and\x0bothers\r",
        "} 1\nkafka_brokers 7",
        " ",
    ],
)
def test_any_id_of_a_group_is_a_label(broker: InProcessBroker, name: str) -> None:
    broker.produce("orders", b"one", b"two")
    commit(broker, 1, group=name)
    plain = scrape(broker)
    openmetrics = Page(get(broker, "/metrics", accept=OPENMETRICS).text, is_openmetrics=True)
    for page in (plain, openmetrics):
        found = {"consumergroup": name, "topic": "orders"}
        assert page.labelled("kafka_consumergroup_members") == [{"consumergroup": name}]
        assert page.labelled("kafka_consumergroup_lag_sum") == [found]
        assert page.labelled("kafka_consumergroup_lag") == [{**found, "partition": "0"}]
        assert list(page.of("kafka_consumergroup_lag").values()) == [1]
        assert page["kafka_brokers"] == 1


def test_ids_of_clients_may_be_anything_too(broker: InProcessBroker) -> None:
    consumer = Consumer(broker)
    consumer.client.send(commit_request({("orders", 0): 1}, group_id='odd "ones"'), 9, client_id='"\n\\ é \x00')
    assert consumer.client.receive().topics[0].partitions[0].error_code == ErrorCode.NONE
    assert scrape(broker).labelled("kafka_consumergroup_members") == [{"consumergroup": 'odd "ones"'}]


@pytest.mark.settings(ottla_prometheus_partitions="false")
def test_without_series_of_partitions_the_sums_stay(broker: InProcessBroker) -> None:
    broker.produce("orders", b"one")
    commit(broker, 0)
    page = scrape(broker)
    assert page[f"kafka_consumergroup_lag_sum{ON_ORDERS}"] == 1
    assert page[f"kafka_consumergroup_members{READERS}"] == 0
    assert not page.of("kafka_consumergroup_lag")
    assert "kafka_consumergroup_lag " not in get(broker, "/metrics").text
    assert page["ottla_consumergroup_left_out"] == 0, "nobody wants them"


def test_what_has_no_room_is_left_out_and_counted(broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        commit(broker, 1, group=f"group-{number}")
        commit(broker, 2, partition=1, group=f"group-{number}")
    assert scrape(broker)["ottla_consumergroup_left_out"] == 0
    monkeypatch.setattr(group_survey, "MOST_CHARACTERS", 4 * len('{consumergroup="group-0",topic="orders"}'))
    page = scrape(broker)
    groups, topics, partitions = (len(page.of(f"kafka_consumergroup_{name}")) for name in ("members", "lag_sum", "lag"))
    assert (topics, 3 <= partitions <= 4, 5 <= groups <= 8) == (4, True, True)
    # Partitions of a topic without room are not even looked at.
    assert page["ottla_consumergroup_left_out"] == (10 - groups) + (10 - topics) + (2 * topics - partitions)
    assert page[f"{MANAGER}_numoffsets"] == 20
    assert page[f"{MANAGER}_numgroups"] == 10
    assert all(value == 3 for value in page.of("kafka_consumergroup_current_offset_sum").values())


def test_the_loop_turns_while_many_offsets_are_looked_at(broker: InProcessBroker) -> None:
    commit(broker, 1)
    coordinators = broker.server.components.group_coordinator.groups.active
    (shard,) = [one.shard for one in coordinators if one.shard.image.offsets.count("readers")]
    for partition in range(1, 5_000):
        shard.image.offsets.replay_put("readers", "orders", partition, bytes(44))
    surveyor = group_survey.GroupSurveyor(broker.server.metric_sources)
    steps = surveyor.look()
    assert sum(1 for _ in steps) >= 5_000 // group_survey.OFFSETS_A_TURN
    assert surveyor.seen.offsets == 5_000


def test_a_group_may_go_while_it_is_looked_at(broker: InProcessBroker) -> None:
    for number in range(50):
        commit(broker, 1, group=f"group-{number}")
        commit(broker, 1, partition=1, group=f"group-{number}")
    surveyor = group_survey.GroupSurveyor(broker.server.metric_sources)
    steps = surveyor.look()
    next(steps)
    broker.ask(DeleteGroupsRequest(groups_names=[f"group-{number}" for number in range(50)]), 2)
    assert sum(1 for _ in steps) >= 0
    assert len(surveyor.seen.groups.rows) == 1
