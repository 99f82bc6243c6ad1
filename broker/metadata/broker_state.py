"""The states of a broker, from start to stop, by the numbers of Kafka's metric BrokerState."""

from enum import IntEnum


class BrokerState(IntEnum):
    """By Kafka's numbers."""

    STARTING = 1
    RECOVERY = 2
    """Logs are being opened, and recovered where they were not closed in order."""
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
