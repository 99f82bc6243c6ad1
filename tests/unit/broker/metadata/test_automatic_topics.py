"""What a topic is created with that nobody has created: by the settings of which node."""

from pathlib import Path
from typing import Any

import pytest

from broker.metadata.automatic_topics import CONTROLLERS_DEFAULT, automatic_topic
from broker.metadata.cache import MetadataCache
from broker.metadata.topic_rules import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from config.broker_settings import BrokerSettings
from protocol.messages.metadata import MetadataRequest
from tests.support.broker import WITH_CONTROLLER_LISTENER, InProcessBroker, running_broker, running_member


@pytest.mark.parametrize(
    ("given", "partitions", "replication_factor"),
    [
        ({}, CONTROLLERS_DEFAULT, CONTROLLERS_DEFAULT),
        ({"num.partitions": "5"}, 5, CONTROLLERS_DEFAULT),
        ({"default.replication.factor": "3"}, CONTROLLERS_DEFAULT, 3),
        ({"num.partitions": "1", "default.replication.factor": "1"}, 1, 1),
    ],
)
def test_only_what_is_given_to_the_broker_counts_before_the_controllers_settings(
    given: dict[str, str], partitions: int, replication_factor: int
) -> None:
    settings = BrokerSettings(
        num_partitions=max(partitions, 1), default_replication_factor=max(replication_factor, 1), given=given
    )
    assert automatic_topic("orders", settings) == (partitions, replication_factor, ())


def test_the_topics_of_coordinators_are_made_as_the_broker_has_them_given_or_not() -> None:
    settings = BrokerSettings(
        offsets_topic_num_partitions=7, offsets_topic_replication_factor=3, transaction_state_log_replication_factor=2
    )
    made = {
        name: automatic_topic(name, settings)[:2] for name in (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
    }
    assert made == {CONSUMER_OFFSETS: (7, 3), TRANSACTION_STATE: (50, 2), SHARE_GROUP_STATE: (50, 1)}


@pytest.mark.parametrize(
    ("controllers", "members", "by_controller", "by_member"),
    [
        ({}, {"num_partitions": 5}, 1, 5),
        ({"num_partitions": 3}, {}, 3, 3),
        ({"num_partitions": 3}, {"num_partitions": 1}, 3, 1),
    ],
)
def test_a_topic_has_the_partitions_of_the_broker_that_was_asked(
    tmp_path: Path, controllers: dict[str, Any], members: dict[str, Any], by_controller: int, by_member: int
) -> None:
    """Kafka 4.3.1 and 4.4.0 answer the same with a controller and a broker of their own."""
    with (
        running_broker(tmp_path / "primary", **controllers, **WITH_CONTROLLER_LISTENER) as primary,
        running_member(tmp_path / "member", primary, **members) as member,
    ):
        assert (partitions_made_by(primary, "here"), partitions_made_by(member, "there")) == (by_controller, by_member)


def partitions_made_by(broker: InProcessBroker, topic: str) -> int:
    """How many partitions a topic has once a client has asked this broker about it."""
    request = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)], allow_auto_topic_creation=True)

    def is_made() -> bool:
        broker.advance(20)
        (answer,) = broker.ask(request, 12).topics
        return bool(answer.error_code == 0)

    broker.wait_until(is_made)
    metadata: MetadataCache = broker.server.metadata
    return len(metadata.image.topics.by_name[topic].partitions)
