"""BrokerMetadataPublisher: the order of its subscribers, and that answers come after all of them."""

from broker.coordinators.group_coordinator import GroupCoordinator
from broker.membership.membership import Membership
from broker.metadata.dynamic_broker_config import DynamicBrokerConfig
from broker.server.late_parts import LateParts
from broker.server.no_replication import NoReplication
from broker.server.quota_enforcement import QuotaEnforcement
from broker.server.replica_assignment import ReplicaAssignment
from tests.support.broker import InProcessBroker


def test_settings_come_first_then_replicas_transactions_groups_and_quotas(
    broker: InProcessBroker,
) -> None:
    subscribers = broker.server.components.publisher.subscribers
    assert [type(subscriber) for subscriber in subscribers] == [
        NoReplication,
        DynamicBrokerConfig,
        ReplicaAssignment,
        LateParts,  # of transactions
        GroupCoordinator,
        LateParts,  # of share groups
        Membership,
        QuotaEnforcement,
    ]


def test_every_subscriber_has_heard_of_a_topic_before_its_creation_is_answered(broker: InProcessBroker) -> None:
    heard: list[str] = []
    publisher = broker.server.components.publisher

    class Listening:
        def __init__(self, name: str, subscriber: object) -> None:
            self.name, self.subscriber = name, subscriber

        def apply(self, delta, image):  # type: ignore[no-untyped-def]
            assert image is broker.server.metadata.image
            self.subscriber.apply(delta, image)  # type: ignore[attr-defined]
            if "orders" in delta.topics.created:
                heard.append(self.name)

    publisher.subscribers = tuple(Listening(type(one).__name__, one) for one in publisher.subscribers)

    broker.create_topic("orders")

    assert heard == [
        "NoReplication",
        "DynamicBrokerConfig",
        "ReplicaAssignment",
        "LateParts",
        "GroupCoordinator",
        "LateParts",
        "Membership",
        "QuotaEnforcement",
    ]
