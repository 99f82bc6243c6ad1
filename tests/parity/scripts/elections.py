"""ElectLeaders, which one node never needs."""

from collections.abc import Sequence

from protocol.messages.elections import ElectLeadersRequest
from tests.parity.exchange import Exchange

TopicPartitions = ElectLeadersRequest.TopicPartitions

PREFERRED, UNCLEAN, UNKNOWN = 0, 1, 5


def of(
    *topics: tuple[str, Sequence[int]], election_type: int = PREFERRED, timeout_ms: int = 30_000
) -> ElectLeadersRequest:
    return ElectLeadersRequest(
        election_type=election_type,
        topic_partitions=[TopicPartitions(topic=name, partitions=[*indexes]) for name, indexes in topics],
        timeout_ms=timeout_ms,
    )


def of_all(election_type: int = PREFERRED) -> ElectLeadersRequest:
    return ElectLeadersRequest(election_type=election_type, topic_partitions=None)


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders", partitions=2)
    exchange.ask_each("of two partitions", of(("orders", [0, 1])))
    exchange.ask_each("of all partitions", of_all())
    exchange.ask_each("of none", of())
    exchange.ask_each("unclean, of a partition", of(("orders", [0]), election_type=UNCLEAN), since=1)
    exchange.ask_each("unclean, of all partitions", of_all(UNCLEAN), since=1)
    exchange.ask_each("of an unknown kind", of(("orders", [0]), ("nope", [1]), election_type=UNKNOWN), since=1)
    exchange.ask_each("of an unknown kind, of all partitions", of_all(UNKNOWN), since=1)
    exchange.ask_each("of unknown partitions", of(("orders", [9, -1, 0])))
    for name in ("nope", "", "no spaces", "__cluster_metadata"):
        exchange.ask(f"of the topic {name!r}", of((name, [0])), 2)
    exchange.ask("of a topic without partitions", of(("orders", [])), 2)
    exchange.ask("of the same partition twice", of(("orders", [0, 0])), 2)
    exchange.ask("of the same topic twice", of(("orders", [0]), ("orders", [1])), 2)
    for timeout in (0, -1):
        exchange.ask_each(f"a timeout of {timeout}", of(("orders", [0]), timeout_ms=timeout))
