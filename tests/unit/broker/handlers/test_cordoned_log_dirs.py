"""`cordoned.log.dirs` (KIP-1066): directories that keep their replicas and take no new ones."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode as E
from protocol.messages.configs import IncrementalAlterConfigsRequest
from protocol.messages.features import UpdateFeaturesRequest
from protocol.messages.log_dirs import DescribeLogDirsRequest
from protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest
from tests.support.broker import InProcessBroker, running_broker

SET, DELETE, APPEND, SUBTRACT = range(4)
CORDONED_SINCE = 30
FENCED = "All brokers are currently fenced, or have all their log directories cordoned."
ASSIGNED = "The manual partition assignment includes broker 1, but all its log directories are cordoned."
TOO_OLD = "The cordoned.log.dirs configuration value cannot be set because it requires metadata.version >= 4.3-IV0"


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    return [str(tmp_path / name) for name in ("one", "two")]


@pytest.fixture
def broker(paths: list[str]) -> Iterator[InProcessBroker]:
    with running_broker(Path(paths[0]), log_dirs=",".join(paths)) as broker:
        yield broker


def finalise(broker: InProcessBroker, metadata_version: int) -> None:
    update = UpdateFeaturesRequest.FeatureUpdate(feature="metadata.version", max_version_level=metadata_version)
    assert broker.ask(UpdateFeaturesRequest(feature_updates=[update]), 1).error_code == E.NONE
    broker.wait_until(lambda: registered(broker) is not None)


def cordon(
    broker: InProcessBroker, value: str | None, operation: int = SET, name: str = "1", *, validate_only: bool = False
) -> tuple[E, str | None]:
    """Change the setting; the error and its message."""
    of_request = IncrementalAlterConfigsRequest.Resource
    change = of_request.Config(name="cordoned.log.dirs", config_operation=operation, value=value)
    request = IncrementalAlterConfigsRequest(
        resources=[of_request(resource_type=4, resource_name=name, configs=[change])], validate_only=validate_only
    )
    (result,) = broker.ask(request, 1).responses
    broker.wait_until(lambda: registered(broker) in (None, broker.server.log_dirs.cordoned_ids))
    return E(result.error_code), result.error_message


def cordoned(broker: InProcessBroker) -> list[bool]:
    """What DescribeLogDirs says of each directory."""
    return [one.is_cordoned for one in broker.ask(DescribeLogDirsRequest(topics=None), 5).results]


def registered(broker: InProcessBroker) -> list[bytes] | None:
    """What the metadata has of the directories."""
    return broker.server.components.metadata.image.cluster.brokers[1].cordoned_log_dirs


def places(broker: InProcessBroker, topic: str) -> list[str]:
    """The names of the directories that have partitions of a topic, in the order of the partitions."""
    logs = [log for log in broker.server.components.logs.all() if log.topic_partition.topic == topic]
    logs.sort(key=lambda log: log.topic_partition.partition)
    return [Path(log.directory).parent.name for log in logs]


def create(broker: InProcessBroker, name: str, **fields: object) -> tuple[E, str | None]:
    """Create a topic; the error and its message."""
    asked = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": [], **fields}
    (topic,) = broker.ask(CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(name=name, **asked)]), 7).topics
    return E(topic.error_code), topic.error_message


def grow(broker: InProcessBroker, count: int, assignments: list[list[int]] | None = None) -> tuple[E, str | None]:
    """Give topic `before` more partitions; the error and its message."""
    of_topic = CreatePartitionsRequest.Topic
    wanted = None if assignments is None else [of_topic.Assignment(broker_ids=one) for one in assignments]
    topics = [of_topic(name="before", count=count, assignments=wanted)]
    (result,) = broker.ask(CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=False), 3).results
    return E(result.error_code), result.error_message


def test_a_cordoned_directory_keeps_its_replicas_and_takes_no_new_ones(
    broker: InProcessBroker, paths: list[str]
) -> None:
    broker.create_topic("before", partitions=4)
    assert (cordoned(broker), registered(broker)) == ([False, False], [])

    assert cordon(broker, paths[0]) == (E.NONE, None)

    one = next(known for known, directory in broker.server.log_dirs.by_id.items() if directory.path == paths[0])
    assert (cordoned(broker), registered(broker)) == ([True, False], [one])
    broker.create_topic("after", partitions=3)
    assert places(broker, "before") == ["one", "two", "one", "two"]
    assert places(broker, "after") == ["two", "two", "two"]
    broker.produce("before", b"still written to")


def test_it_holds_over_a_restart_until_it_is_taken_back(broker: InProcessBroker, paths: list[str]) -> None:
    cordon(broker, paths[1])

    broker.restart()

    assert cordoned(broker) == [False, True]
    assert len(registered(broker) or []) == 1
    broker.create_topic("orders", partitions=2)
    assert places(broker, "orders") == ["one", "one"]
    assert cordon(broker, None, DELETE) == (E.NONE, None)
    assert (cordoned(broker), registered(broker)) == ([False, False], [])
    broker.create_topic("letters", partitions=2)
    assert places(broker, "letters") == ["two", "two"]


@pytest.mark.parametrize("all_of_them", ["*", "each"])
def test_where_all_are_cordoned_nothing_new_is_placed(
    broker: InProcessBroker, paths: list[str], all_of_them: str
) -> None:
    broker.create_topic("before")
    assert cordon(broker, "*" if all_of_them == "*" else ",".join(paths)) == (E.NONE, None)

    assert cordoned(broker) == [True, True]
    unable = f"Unable to replicate the partition 2 time(s): {FENCED}"
    assert create(broker, "after", replication_factor=2) == (E.INVALID_REPLICATION_FACTOR, unable)
    of_partition = CreateTopicsRequest.Topic.Assignment
    for brokers, refusal in (
        ([1], ASSIGNED),
        ([1, 1], ASSIGNED),
        ([7, 1], ASSIGNED),
        ([0, 1], "The manual partition assignment includes broker 0, but no such broker is registered."),
    ):
        by_hand = [of_partition(partition_index=0, broker_ids=brokers)]
        answer = create(broker, "after", num_partitions=-1, replication_factor=-1, assignments=by_hand)
        assert answer == (E.INVALID_REPLICA_ASSIGNMENT, refusal)
    assert grow(broker, 2) == (E.INVALID_REPLICATION_FACTOR, FENCED)
    assert grow(broker, 2, [[1]]) == (E.INVALID_REPLICA_ASSIGNMENT, ASSIGNED)


def test_a_list_grows_and_shrinks(broker: InProcessBroker, paths: list[str]) -> None:
    assert cordon(broker, paths[0]) == (E.NONE, None)
    assert cordon(broker, paths[1], APPEND) == (E.NONE, None)
    assert cordoned(broker) == [True, True]
    assert cordon(broker, paths[0], SUBTRACT) == (E.NONE, None)
    assert cordoned(broker) == [False, True]


def test_what_is_not_a_directory_of_the_broker_is_refused_in_kafkas_words(
    broker: InProcessBroker, paths: list[str]
) -> None:
    one = paths[0]
    missing = "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : "
    alone = "When cordoned.log.dirs is set to *, it must not contain other values"
    for value, refusal in (
        ("x", f"{missing}x"),
        (f"{one},x,y", f"{missing}x, y"),
        (f"{one}/", f"{missing}{one}/"),
        ("*,x", alone),
        (f"*,{one}", alone),
        (f"{one},{one}", "Configuration 'cordoned.log.dirs' values must not be duplicated."),
        (",", "Configuration 'cordoned.log.dirs' values must not be duplicated."),
        (f"{one},", "Configuration 'cordoned.log.dirs' values must not be empty."),
    ):
        assert cordon(broker, value) == (E.INVALID_REQUEST, refusal)
    assert cordon(broker, "*", name="") == (
        E.INVALID_REQUEST,
        "Cannot update these configs at default cluster level, broker id must be specified: [cordoned.log.dirs]",
    )
    assert cordon(broker, "*", validate_only=True) == (E.NONE, None)
    assert cordon(broker, "") == (E.NONE, None)
    assert cordoned(broker) == [False, False]


def test_a_directory_that_is_no_longer_in_log_dirs_is_passed_over(
    broker: InProcessBroker, paths: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    cordon(broker, paths[1])
    broker.stop()
    broker._settings["log.dirs"] = paths[0]
    broker.start()

    assert cordoned(broker) == [False]
    assert any("cordoned.log.dirs" in text and "is ignored" in text for text in caplog.messages)


class TestAtALevelWithoutIt:
    """The metadata.version of the directory is 25."""

    @pytest.fixture
    def broker(self, paths: list[str]) -> Iterator[InProcessBroker]:
        with running_broker(
            Path(paths[0]), log_dirs=",".join(paths), ottla_release_version="4.0", cordoned_log_dirs=paths[0]
        ) as broker:
            yield broker

    def test_the_file_counts_for_this_broker_and_is_not_told(self, broker: InProcessBroker) -> None:
        broker.create_topic("orders", partitions=3)

        assert places(broker, "orders") == ["two", "two", "two"]
        assert (cordoned(broker), registered(broker)) == ([False, False], None)

    def test_no_change_is_accepted(self, broker: InProcessBroker, paths: list[str]) -> None:
        for value, operation in ((paths[1], SET), ("*", SET), ("", SET), (None, DELETE)):
            assert cordon(broker, value, operation) == (E.INVALID_CONFIG, TOO_OLD), value

    def test_it_is_told_once_the_cluster_has_it(self, broker: InProcessBroker) -> None:
        finalise(broker, CORDONED_SINCE)

        assert cordoned(broker) == [True, False]
        assert len(registered(broker) or []) == 1


def test_where_the_file_cordons_all_at_a_level_without_it_the_first_directory_is_taken(paths: list[str]) -> None:
    with running_broker(
        Path(paths[0]), log_dirs=",".join(paths), ottla_release_version="4.0", cordoned_log_dirs="*"
    ) as broker:
        broker.create_topic("orders", partitions=2)
        assert places(broker, "orders") == ["one", "one"]
