"""The quotas of replication that are dynamic settings of a broker only: Kafka's file of settings does not know them."""

from collections.abc import Iterable, Set
from typing import Final

from config.resources import BrokerTexts
from config.values import ConfigType, read_value

MOVES: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
"""How many bytes a second are copied for replicas that move to another log directory (KIP-113)."""

LEADER: Final = "leader.replication.throttled"
FOLLOWER: Final = "follower.replication.throttled"
"""With ``.rate`` a setting of a broker: how many bytes a second it sends as a leader, or fetches as a follower, for
replicas that are not in sync. With ``.replicas`` the config of a topic that names them (KIP-73)."""

_EVERY_REPLICA: Final = "*"
_NO_REPLICA: Final = "none"

_NO_LIMIT: Final = (1 << 63) - 1


def copied_bytes_per_second(texts: BrokerTexts) -> int:
    """The quota of `MOVES`: this broker's, else that of all brokers; without a number there is no limit."""
    text = texts.dynamic_broker.get(MOVES, texts.dynamic_default.get(MOVES, ""))
    number = read_value(ConfigType.LONG, text)
    return number if isinstance(number, int) else _NO_LIMIT


def replicated_bytes_per_second(texts: BrokerTexts, direction: str) -> int | None:
    """The rate of `LEADER` or `FOLLOWER`: this broker's, else that of all brokers; None where there is no limit."""
    key = f"{direction}.rate"
    text = texts.dynamic_broker.get(key, texts.dynamic_default.get(key, ""))
    number = read_value(ConfigType.LONG, text)
    return number if isinstance(number, int) and number > 0 else None


def throttled_partitions(text: str, broker_id: int) -> Set[int] | None:
    """The partitions of a topic whose replica on a broker is throttled, from the text of the topic's config
    (``partition:broker,…``); None for all of them. What is no such pair is passed over."""
    pairs = [part.strip() for part in text.split(",")]
    if _EVERY_REPLICA in pairs:
        return None
    return frozenset(_of_broker(pairs, str(broker_id)))


def _of_broker(pairs: Iterable[str], broker_id: str) -> Iterable[int]:
    for pair in pairs:
        partition, _, broker = pair.partition(":")
        if pair != _NO_REPLICA and broker == broker_id and partition.isdecimal():
            yield int(partition)
