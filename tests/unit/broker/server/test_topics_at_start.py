"""Topics of `ottla.topics.at.start` exist when the first request is accepted; existing topics stay as they were."""

from pathlib import Path

import pytest

from broker.server.broker_server import CannotStart
from tests.support.broker import InProcessBroker, running_broker

KEY = "ottla_topics_at_start"


def partitions(broker: InProcessBroker) -> dict[str, int]:
    image = broker.server.components.metadata.image
    return {name: len(topic.partitions) for name, topic in image.topics.by_name.items()}


def test_topics_are_there_with_their_partitions_and_configs(tmp_path: Path) -> None:
    wanted = {KEY: "orders:6:retention.ms=3600000:cleanup.policy=[compact,delete],audit"}
    with running_broker(tmp_path, num_partitions=2, **wanted) as broker:
        assert partitions(broker) == {"orders": 6, "audit": 2}
        assert broker.log("orders", 5).config.retention_ms == 3_600_000
        assert broker.log("orders", 5).config.cleanup_policy == {"compact", "delete"}
        assert broker.produce("orders", b"the first record of all", partition=5) == 0


def test_topics_that_are_there_stay_as_they_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running_broker(tmp_path, ottla_topics_at_start="orders:3:retention.ms=1000,audit:2") as broker:
        topic_id = broker.server.components.metadata.image.topics.by_name["orders"].topic_id
        broker.produce("orders", b"kept")

    wanted = "orders:6:retention.ms=2000,audit:2,payments:1"
    with running_broker(tmp_path, ottla_topics_at_start=wanted) as broker:
        assert partitions(broker) == {"orders": 3, "audit": 2, "payments": 1}
        assert broker.server.components.metadata.image.topics.by_name["orders"].topic_id == topic_id
        assert broker.log("orders").config.retention_ms == 1000
        assert broker.log("orders").log_end_offset == 1
    assert [message for message in caplog.messages if "ottla.topics" in message] == [
        "topic orders keeps its 3 partitions, though ottla.topics.at.start says 6"
    ]


def test_topics_that_were_made_at_a_start_outlive_the_setting(tmp_path: Path) -> None:
    with running_broker(tmp_path, ottla_topics_at_start="orders:3"):
        pass

    with running_broker(tmp_path) as broker:
        assert partitions(broker) == {"orders": 3}


def test_a_name_that_no_topic_may_have_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    directory = tmp_path / "data"

    with pytest.raises(
        CannotStart, match=r"^ottla.topics.at.start can't be kept: .*'or ders' contains one or more characters other"
    ):
        InProcessBroker(directory, ottla_topics_at_start="audit,or ders:3")

    assert not directory.exists()


def test_none_is_made_where_one_of_them_can_not_be(tmp_path: Path) -> None:
    with running_broker(tmp_path, ottla_topics_at_start="my.orders"):
        pass

    with pytest.raises(CannotStart, match=r"can't be kept: Topic 'my_orders' collides with existing topic: my.orders"):
        InProcessBroker(tmp_path, ottla_topics_at_start="audit,my_orders")

    with running_broker(tmp_path) as broker:
        assert partitions(broker) == {"my.orders": 1}


def test_more_partitions_than_one_request_may_ask_for_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"can't be kept: Excessively large .* 10002 are asked for"):
        InProcessBroker(tmp_path, ottla_topics_at_start="orders:10001,audit:1")
