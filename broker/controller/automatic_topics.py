"""Topics that come into being without CreateTopics: with the broker's defaults, or as the coordinators need them."""

from broker.controller.topic_creation import NewTopic
from broker.metadata.internal_topics import internal_topic
from config.broker_settings import BrokerSettings


def automatic_topic(name: str, settings: BrokerSettings) -> NewTopic:
    """The topic to create for a client that has asked about ``name``."""
    internal = internal_topic(name, settings)
    if internal is None:
        return NewTopic(name=name)
    return NewTopic(name, internal.partitions, internal.replication_factor, configs=internal.configs)
