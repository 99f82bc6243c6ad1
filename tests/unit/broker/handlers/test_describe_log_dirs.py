"""DescribeLogDirs through the codec."""

from pathlib import Path

import pytest

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from storage.log_dir import LogDir
from tests.support.broker import InProcessBroker, running_broker

Topic = DescribeLogDirsRequest.Topic


def describe(broker: InProcessBroker, topics: dict[str, list[int]] | None, version: int = 5) -> DescribeLogDirsResponse:
    """Ask for the directories."""
    asked = None if topics is None else [Topic(topic=name, partitions=indexes) for name, indexes in topics.items()]
    answer: DescribeLogDirsResponse = broker.ask(DescribeLogDirsRequest(topics=asked), version)
    return answer


def found_in(result: DescribeLogDirsResponse.Result) -> dict[str, set[int]]:
    """The partitions of each topic."""
    return {topic.name: {one.partition_index for one in topic.partitions} for topic in result.topics}


@serves(DescribeLogDirsRequest)
@every_version(DescribeLogDirsRequest)
def test_a_directory_is_described_with_what_stands_in_it(broker: InProcessBroker, version: int) -> None:
    broker.create_topic("orders", partitions=2)
    broker.produce("orders", b"x" * 1000, partition=1)

    answer = describe(broker, None, version)

    assert answer.error_code == E.NONE
    (result,) = answer.results
    assert (result.error_code, result.log_dir) == (E.NONE, str(broker.directory))
    (topic,) = result.topics
    assert topic.name == "orders"
    on_disk = (broker.directory / "orders-1" / f"{0:020}.log").stat().st_size
    assert on_disk > 1000
    assert {
        (one.partition_index, one.partition_size, one.offset_lag, one.is_future_key) for one in topic.partitions
    } == {
        (0, 0, 0, False),
        (1, on_disk, 0, False),
    }
    if version >= 4:
        assert result.total_bytes >= result.usable_bytes > 0


def test_only_partitions_that_are_asked_for_and_there_are_listed(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=3)
    broker.create_topic("letters")
    (result,) = describe(broker, {"orders": [0, 2, 99], "nowhere": [0], "__cluster_metadata": [0]}).results
    assert found_in(result) == {"orders": {0, 2}}


@pytest.mark.parametrize("topics", [{}, {"orders": []}])
def test_a_directory_is_described_without_its_topics_too(broker: InProcessBroker, topics: dict[str, list[int]]) -> None:
    broker.create_topic("orders")
    (result,) = describe(broker, topics).results
    assert found_in(result) == {}
    assert result.total_bytes > 0


def test_several_directories_are_told_apart(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("one", "two")]
    with running_broker(tmp_path / "one", log_dirs=",".join(paths)) as broker:
        broker.create_topic("orders", partitions=4)
        results = describe(broker, None).results
        assert [result.log_dir for result in results] == paths
        assert [len(found_in(result)["orders"]) for result in results] == [2, 2]


@serves(DescribeLogDirsRequest, E.KAFKA_STORAGE_ERROR, versions=[5])
def test_a_directory_that_has_failed_says_so(broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("orders")
    with monkeypatch.context() as patched:
        patched.setattr(LogDir, "has_failed", True, raising=False)
        (result,) = describe(broker, None).results
    assert (result.error_code, result.topics, result.total_bytes) == (E.KAFKA_STORAGE_ERROR, [], -1)
