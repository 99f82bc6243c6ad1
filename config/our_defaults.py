"""The one list of settings whose default is not Kafka's, and why; `docs/configuration.md` prints it."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class OurDefault(NamedTuple):
    """A default of ours, as text, and the reason for it in one sentence."""

    value: str
    reason: str


OUR_DEFAULTS: Final[Mapping[str, OurDefault]] = {
    "node.id": OurDefault("1", "Kafka demands one; a single node needs none."),
    "process.roles": OurDefault("broker,controller", "Kafka demands them; a single node is both."),
    "listeners": OurDefault(
        "PLAINTEXT://127.0.0.1:9092",
        "Without authentication, a broker without configuration should be reachable only from its own machine.",
    ),
    "log.dirs": OurDefault(
        "./data", "Data stays beside the person who started the broker, and survives a reboot, unlike /tmp."
    ),
    "group.initial.rebalance.delay.ms": OurDefault(
        "0",
        "Waiting for more members pays where many start at once; elsewhere it only makes the first poll late.",
    ),
    "offsets.topic.replication.factor": OurDefault(
        "1",
        "A node with its own controller is mostly alone: with 3 it could not create the topic. A member has Kafka's 3.",
    ),
    "transaction.state.log.replication.factor": OurDefault(
        "1",
        "A node with its own controller is mostly alone: with 3 it could not create the topic. A member has Kafka's 3.",
    ),
    "transaction.state.log.min.isr": OurDefault(
        "1", "A node with its own controller is mostly alone. A member has Kafka's 2."
    ),
    "share.coordinator.state.topic.replication.factor": OurDefault(
        "1",
        "A node with its own controller is mostly alone: with 3 it could not create the topic. A member has Kafka's 3.",
    ),
    "share.coordinator.state.topic.min.isr": OurDefault(
        "1", "A node with its own controller is mostly alone. A member has Kafka's 2."
    ),
    "socket.send.buffer.bytes": OurDefault(
        "-1", "The system's own tuning: Kafka's 100 KiB halves the speed of large transfers."
    ),
    "socket.receive.buffer.bytes": OurDefault(
        "-1", "The system's own tuning: Kafka's 100 KiB halves the speed of large transfers."
    ),
    "queued.max.request.bytes": OurDefault(
        "268435456",
        "256 MiB: requests that wait must not be able to fill the memory of a small machine; Kafka has no bound.",
    ),
}


KAFKAS_ON_A_MEMBER: Final = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
)
"""Settings whose default is Kafka's on a node whose controllers are other nodes: there are several brokers."""


def ours(key: str) -> str:
    """Our default for a setting, as text."""
    return OUR_DEFAULTS[key].value
