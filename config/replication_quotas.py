"""The quotas of replication that are dynamic settings of a broker only: Kafka's file of settings does not know them."""

from typing import Final

from config.resources import BrokerTexts
from config.values import ConfigType, read_value

MOVES: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
"""How many bytes a second are copied for replicas that move to another log directory (KIP-113)."""

_NO_LIMIT: Final = (1 << 63) - 1


def copied_bytes_per_second(texts: BrokerTexts) -> int:
    """The quota of `MOVES`: this broker's, else that of all brokers; without a number there is no limit."""
    text = texts.dynamic_broker.get(MOVES, texts.dynamic_default.get(MOVES, ""))
    number = read_value(ConfigType.LONG, text)
    return number if isinstance(number, int) else _NO_LIMIT
