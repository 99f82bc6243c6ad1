"""The states of a broker, from start to stop, by the numbers of Kafka's metric BrokerState."""

from enum import IntEnum


class BrokerState(IntEnum):
    """The state of a broker, with Kafka's number."""

    STARTING = 1
    RECOVERY = 2
    """Logs are being opened, and recovered where they were not closed cleanly."""
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
