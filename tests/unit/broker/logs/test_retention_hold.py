"""Archived before deleted: retention waits for the commits of a topic's archive group."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.coordinators.loading import PartitionLoading
from broker.coordinators.partitioning import partition_of
from broker.logs.retention_hold import RetentionHold
from broker.request.line_limit import MOST_LINES, LineLimit
from broker.runtime.time_slices import TimeSlices
from protocol.errors import ErrorCode as E
from protocol.messages.committed_offsets import OffsetDeleteRequest, OffsetFetchRequest
from protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.groups import DeleteGroupsRequest
from protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from protocol.records.group_metadata import OffsetCommitKey, OffsetCommitValue, encode_group_key, encode_group_value
from storage.batch.records import Record
from storage.errors import LogDirFailed
from tests.support.batches import T, stored
from tests.support.broker import InProcessBroker
from tests.support.groups import OFFSETS_TOPIC, commit_request, create_offsets_topic, fetch_offsets_request
from tests.support.metrics import scrape

CHECK_MS = 10_000
EXPIRY_MS = 600_000
GROUP = "archive.orders"
TOPIC, SET, DELETE = 2, 0, 1
VALUE = b"v" * 1000
ORDERS = '{topic="orders",partition="0"}'


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    """A broker that looks for what is too old every ten seconds. `orders` is archived; its five segments of two records
    are all too old."""
    broker = InProcessBroker(
        tmp_path / "data",
        log_retention_check_interval_ms=CHECK_MS,
        log_initial_task_delay_ms=0,
        offsets_retention_minutes=EXPIRY_MS // 60_000,
        offsets_retention_check_interval_ms=CHECK_MS,
    )
    create_offsets_topic(broker)
    broker.advance(0)
    broker.create_topic("orders", retention_ms=1, ottla_archive_group=GROUP)
    fill(broker)
    yield broker
    broker.close()


def fill(broker: InProcessBroker, topic: str = "orders") -> None:
    log = broker.log(topic)
    for _ in range(5):
        log.roll(broker.clock.now_ms())
        broker.produce(topic, VALUE, VALUE)


def look(broker: InProcessBroker) -> tuple[int, ...]:
    """Let retention look; where the segments begin that it leaves."""
    broker.advance(CHECK_MS)
    bases: tuple[int, ...] = broker.log("orders").segments.bases
    return bases


def commit(
    broker: InProcessBroker, offset: int, *, leader_epoch: int = -1, group_id: str = GROUP, topic: str = "orders"
) -> None:
    request = commit_request({(topic, 0): offset}, group_id=group_id)
    request.topics[0].partitions[0].committed_leader_epoch = leader_epoch
    assert broker.ask(request, 9).topics[0].partitions[0].error_code == E.NONE


def committed(broker: InProcessBroker, group_id: str = GROUP) -> list[int]:
    """What the group has committed, once it is loaded."""
    request: OffsetFetchRequest = fetch_offsets_request(9, group_id=group_id)
    (group,) = broker.ask(request, 9).groups
    while group.error_code == E.COORDINATOR_LOAD_IN_PROGRESS:
        broker.settle()
        (group,) = broker.ask(request, 9).groups
    return [one.committed_offset for topic in group.topics for one in topic.partitions]


def alter(broker: InProcessBroker, name: str, value: str | None, topic: str = "orders") -> tuple[int, str | None]:
    """Error code and message."""
    change = IncrementalAlterConfigsRequest.Resource.Config(
        name=name, config_operation=DELETE if value is None else SET, value=value
    )
    resource = IncrementalAlterConfigsRequest.Resource(resource_type=TOPIC, resource_name=topic, configs=[change])
    (answer,) = broker.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1).responses
    return answer.error_code, answer.error_message


ALL, NOTHING = (0, 2, 4, 6, 8), (10,)


# What is held


def test_a_group_that_has_committed_nothing_holds_everything(broker: InProcessBroker) -> None:
    assert look(broker) == ALL
    commit(broker, 10, group_id="others")
    assert look(broker) == ALL


def test_what_is_committed_goes_with_the_next_look(broker: InProcessBroker) -> None:
    commit(broker, 5)
    assert look(broker) == (4, 6, 8)
    commit(broker, 10)
    assert look(broker) == NOTHING
    assert broker.log("orders").log_start_offset == 10


def test_by_size_it_waits_as_well(broker: InProcessBroker) -> None:
    alter(broker, "retention.ms", "-1")
    alter(broker, "retention.bytes", "1")
    assert look(broker) == ALL
    commit(broker, 10)
    assert look(broker) == (8,)


def test_what_nobody_archives_any_more_goes(broker: InProcessBroker) -> None:
    assert look(broker) == ALL
    assert alter(broker, "ottla.archive.group", None) == (E.NONE, None)
    assert look(broker) == NOTHING


def test_an_empty_name_is_nobody(broker: InProcessBroker) -> None:
    assert alter(broker, "ottla.archive.group", "") == (E.NONE, None)
    assert look(broker) == NOTHING


def test_another_group_that_is_named_holds_from_what_it_has_committed(broker: InProcessBroker) -> None:
    commit(broker, 2)
    commit(broker, 8, group_id="archive.anew")
    assert look(broker) == (2, 4, 6, 8)
    alter(broker, "ottla.archive.group", "archive.anew")
    assert look(broker) == (8,)


def test_without_a_topic_of_groups_everything_is_held(tmp_path: Path) -> None:
    broker = InProcessBroker(tmp_path / "data", log_retention_check_interval_ms=CHECK_MS)
    broker.create_topic("orders", retention_ms=1, ottla_archive_group=GROUP)
    fill(broker)
    broker.advance(10 * CHECK_MS)
    assert look(broker) == ALL
    assert OFFSETS_TOPIC not in broker.topics()
    broker.close()


# What waits for nobody


def test_records_are_deleted_on_demand_though_they_are_not_archived(broker: InProcessBroker) -> None:
    partition = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=4)
    wanted = DeleteRecordsRequest.Topic(name="orders", partitions=[partition])
    broker.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=1000), 2)
    assert look(broker) == (4, 6, 8)


def test_a_topic_is_deleted_though_it_is_not_archived_and_its_namesake_is_held(broker: InProcessBroker) -> None:
    commit(broker, 10)
    topics = [DeleteTopicsRequest.Topic(name="orders", topic_id=bytes(16))]
    assert broker.ask(DeleteTopicsRequest(topics=topics, timeout_ms=1000), 6).responses[0].error_code == E.NONE
    broker.wait_until(lambda: broker.server.components.replicas.find("orders", 0) is None)
    broker.create_topic("orders", retention_ms=1, ottla_archive_group=GROUP)
    fill(broker)
    assert look(broker) == ALL


# What a commit says


def test_a_commit_beyond_the_end_is_no_word_about_these_records(broker: InProcessBroker) -> None:
    commit(broker, 11)
    assert look(broker) == ALL
    commit(broker, 11, leader_epoch=0)
    assert look(broker) == ALL
    commit(broker, 10, leader_epoch=0)
    assert look(broker) == NOTHING


def test_a_commit_of_an_epoch_that_this_log_never_had_is_none_either(broker: InProcessBroker) -> None:
    commit(broker, 10, leader_epoch=7)
    assert look(broker) == ALL


def test_offsets_that_a_crash_has_given_to_other_records_are_not_archived(broker: InProcessBroker) -> None:
    commit(broker, 10, leader_epoch=0)
    log = broker.log("orders")
    log.truncate_to(4, broker.clock.now_ms())
    log.high_watermark = 4
    log.assign_epoch_start(3)
    for _ in range(4):
        log.roll(broker.clock.now_ms())
        broker.produce("orders", VALUE, VALUE)
    assert log.log_end_offset == 12
    assert look(broker) == (4, 6, 8, 10)


def test_a_commit_for_a_namesake_with_another_id_is_none(broker: InProcessBroker) -> None:
    commit(broker, 10)
    log = broker.log("orders")
    log.topic_id, of_its_own = bytes(15) + b"\x09", log.topic_id
    assert look(broker) == ALL
    log.topic_id = of_its_own
    assert look(broker) == NOTHING


def test_a_commit_that_does_not_say_which_topic_is_believed(broker: InProcessBroker) -> None:
    """Kafka's records do not."""
    key = encode_group_key(OffsetCommitKey(group=GROUP, topic="orders", partition=0))
    value = encode_group_value(OffsetCommitValue(offset=10, metadata="", commit_timestamp=T), 3)
    log = broker.log(OFFSETS_TOPIC, partition_of(GROUP, 5))
    log.stage_trusted(bytearray(stored([Record(timestamp=T, key=key, value=value)])))
    log.append_all(T)
    broker.restart()
    assert committed(broker) == [10]
    assert look(broker) == NOTHING


# What happens to the group


@pytest.mark.parametrize("what", ["the offsets", "the group"])
def test_where_commits_are_deleted_everything_is_held_again(broker: InProcessBroker, what: str) -> None:
    commit(broker, 4)
    assert look(broker) == (4, 6, 8)
    commit(broker, 10)
    if what == "the group":
        (result,) = broker.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2).results
        assert result.error_code == E.NONE
    else:
        topic = OffsetDeleteRequest.Topic
        wanted = topic(name="orders", partitions=[topic.Partition(partition_index=0)])
        assert broker.ask(OffsetDeleteRequest(group_id=GROUP, topics=[wanted]), 0).error_code == E.NONE
    assert look(broker) == (4, 6, 8)


def test_its_commits_do_not_expire_while_a_topic_names_it(broker: InProcessBroker) -> None:
    broker.create_topic("elsewhere")
    commit(broker, 4)
    commit(broker, 1, topic="elsewhere")
    broker.advance(2 * EXPIRY_MS)
    assert committed(broker) == [4], "what it has read of topics that do not wait for it expires"
    assert look(broker) == (4, 6, 8)
    alter(broker, "ottla.archive.group", None)
    broker.advance(2 * CHECK_MS)
    assert committed(broker) == []


def test_the_group_without_a_name_archives_no_topic_that_names_none(broker: InProcessBroker) -> None:
    broker.create_topic("plain")
    commit(broker, 1, group_id="", topic="plain")
    assert committed(broker, "") == [1]
    broker.advance(2 * EXPIRY_MS)
    assert committed(broker, "") == []


def test_until_the_group_is_loaded_everything_is_held(broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = PartitionLoading.begin
    waiting: list[tuple[PartitionLoading, TimeSlices]] = []
    monkeypatch.setattr(PartitionLoading, "begin", lambda loading, slices: waiting.append((loading, slices)))
    commit(broker, 10)
    broker.restart()
    broker.advance(1)
    assert look(broker) == look(broker) == ALL
    assert scrape(broker)[f"ottla_archive_lag_records{ORDERS}"] == 10

    async def load() -> None:
        for loading, slices in waiting:
            begin(loading, slices)

    broker.run(load())
    assert committed(broker) == [10]
    assert look(broker) == NOTHING


def test_a_group_that_cannot_be_read_holds_everything(tmp_path: Path) -> None:
    directories = ",".join(str(tmp_path / name) for name in ("a", "b"))
    broker = InProcessBroker(tmp_path, log_dirs=directories, log_retention_check_interval_ms=CHECK_MS)
    create_offsets_topic(broker)
    broker.create_topic("orders", partitions=2, retention_ms=1, ottla_archive_group=GROUP)
    offsets = broker.server.components.replicas.partition(OFFSETS_TOPIC, partition_of(GROUP, 5))
    index = next(
        n for n in (0, 1) if broker.server.components.replicas.partition("orders", n).log_dir is not offsets.log_dir
    )
    broker.produce("orders", VALUE, partition=index)
    commit_all = commit_request({("orders", index): 1}, group_id=GROUP)
    assert broker.ask(commit_all, 9).topics[0].partitions[0].error_code == E.NONE

    async def fail() -> None:
        offsets.disk_failed(LogDirFailed("the disk is gone"))

    broker.run(fail())
    broker.advance(10 * CHECK_MS)

    log = broker.log("orders", index)
    assert (log.log_start_offset, log.held.records) == (0, 1)
    broker.close()


# The limit


def test_above_its_limit_the_oldest_go_and_the_log_says_which(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    commit(broker, 1)
    size = broker.log("orders").segments[0].size
    assert alter(broker, "ottla.archive.max.bytes", str(2 * size)) == (E.NONE, None)
    assert look(broker) == look(broker) == (6, 8)
    (line,) = [line for line in caplog.messages if "gives up" in line]
    assert line == (
        f"retention: orders-0 gives up offsets 1 to 5, {3 * size} bytes that group {GROUP} has not committed: "
        f"{2 * size} bytes are held behind them, and ottla.archive.max.bytes is {2 * size}"
    )


def test_the_limit_of_the_broker_holds_for_topics_without_one(tmp_path: Path) -> None:
    broker = InProcessBroker(tmp_path / "data", log_retention_check_interval_ms=CHECK_MS, ottla_archive_max_bytes=0)
    broker.create_topic("orders", retention_ms=1, ottla_archive_group=GROUP)
    fill(broker)
    alter(broker, "ottla.archive.max.bytes", "-1")
    broker.advance(10 * CHECK_MS)
    assert look(broker) == ALL
    alter(broker, "ottla.archive.max.bytes", None)
    assert look(broker) == NOTHING
    broker.close()


def test_many_partitions_that_give_up_are_told_of_in_ten_lines(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.addFilter(limit := LineLimit(broker.clock))
    count = 3 * MOST_LINES
    broker.create_topic("many", partitions=count, retention_ms=1, ottla_archive_group=GROUP, ottla_archive_max_bytes=0)
    for index in range(count):
        broker.produce("many", VALUE, partition=index)
    broker.advance(CHECK_MS)
    broker.advance(CHECK_MS)
    caplog.handler.removeFilter(limit)
    lines = [line for line in caplog.messages if "gives up" in line]
    assert len(lines) == MOST_LINES + 1
    assert lines[-1].startswith(f"and {count - MOST_LINES} more like it in 10 s, the last: retention: many-")


# How much is held


def test_it_is_told_how_much_is_not_archived_held_and_given_up(broker: InProcessBroker) -> None:
    broker.create_topic("plain", retention_ms=1)
    size = broker.log("orders").segments[0].size
    commit(broker, 3)
    page = scrape(broker)
    assert page[f"ottla_archive_lag_records{ORDERS}"] == 7
    assert page[f"ottla_archive_held_bytes{ORDERS}"] == 0, "retention has not looked yet"
    look(broker)
    page = scrape(broker)
    assert page[f"ottla_archive_lag_records{ORDERS}"] == 7
    assert page[f"ottla_archive_held_records{ORDERS}"] == 7
    assert page[f"ottla_archive_held_bytes{ORDERS}"] == 4 * size
    assert page[f"ottla_archive_given_up_records_total{ORDERS}"] == 0
    alter(broker, "ottla.archive.max.bytes", str(size))
    look(broker)
    page = scrape(broker)
    assert page[f"ottla_archive_lag_records{ORDERS}"] == 2
    assert page[f"ottla_archive_held_records{ORDERS}"] == 2
    assert page[f"ottla_archive_held_bytes{ORDERS}"] == size
    assert page[f"ottla_archive_given_up_records_total{ORDERS}"] == 5
    assert page.get('ottla_archive_lag_records{topic="plain",partition="0"}') is None


# Setting it


def test_what_is_set_is_described_and_outlives_a_restart(broker: InProcessBroker) -> None:
    assert alter(broker, "ottla.archive.max.bytes", "1000000") == (E.NONE, None)
    broker.restart()
    resource = DescribeConfigsRequest.Resource(
        resource_type=TOPIC,
        resource_name="orders",
        configuration_keys=["ottla.archive.group", "ottla.archive.max.bytes"],
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    (answer,) = broker.ask(request, 4).results
    found = {config.name: config for config in answer.configs}
    assert {name: config.value for name, config in found.items()} == {
        "ottla.archive.group": GROUP,
        "ottla.archive.max.bytes": "1000000",
    }
    assert {config.config_source for config in answer.configs} == {1}
    assert "archives the topic" in found["ottla.archive.group"].documentation
    assert look(broker) == ALL


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("ottla.archive.group", "two\nlines", "expected the name of a group, of at most 32767 bytes without control"),
        ("ottla.archive.group", "\x7f", "expected the name of a group, of at most 32767 bytes without control"),
        ("ottla.archive.max.bytes", "-2", "Value must be at least -1"),
        ("ottla.archive.max.bytes", "much", "Not a number of type LONG"),
        ("ottla.archive.max.bytes", "", "Not a number of type LONG"),
        ("ottla.archive", "x", "Unknown topic config name: ottla.archive"),
    ],
)
def test_a_wrong_value_is_refused_and_the_old_one_stays(
    broker: InProcessBroker, name: str, value: str, sentence: str
) -> None:
    code, message = alter(broker, name, value)
    assert code == E.INVALID_CONFIG
    assert sentence in str(message)
    assert broker.log("orders").config.ottla_archive_group == GROUP
    topic = CreateTopicsRequest.Topic
    wanted = topic(
        name="anew",
        num_partitions=1,
        replication_factor=1,
        assignments=[],
        configs=[topic.Config(name=name, value=value)],
    )
    (created,) = broker.ask(CreateTopicsRequest(topics=[wanted]), 7).topics
    assert created.error_code == E.INVALID_CONFIG
    assert "anew" not in broker.topics()


def test_whether_something_is_held_can_be_asked_at_any_time(broker: InProcessBroker) -> None:
    hold = broker.server.metric_sources.retention_hold
    assert isinstance(hold, RetentionHold)
    log = broker.log("orders")
    assert (hold.held_from(log), hold.lag(log)) == (0, 10)
    broker.server.components.group_coordinator.stop()
    assert (hold.held_from(log), hold.lag(log)) == (0, 10)
    alter(broker, "ottla.archive.group", None)
    assert (hold.held_from(log), hold.lag(log)) == (None, None)
