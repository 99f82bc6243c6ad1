"""FindCoordinator."""

from typing import Any

from protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.parity.exchange import Exchange

GROUP, TRANSACTION, SHARE = 0, 1, 2
SINCE_BATCHED = 4
SINCE_TYPED = 1


def of(*keys: str, key_type: int = GROUP) -> FindCoordinatorRequest:
    """The first of the keys, until several can be asked for at once."""
    return FindCoordinatorRequest(key=keys[0] if keys else "", key_type=key_type, coordinator_keys=[*keys])


def found(answer: Any) -> bool:
    return not answer.coordinators[0].error_code


def run(exchange: Exchange) -> None:
    exchange.ask("a group, before there is a topic for it", of("orders"), 3)
    exchange.ask_until("the same group, once there is one", of("orders"), 4, found, patience_s=60.0)
    exchange.ask("a transaction, before there is a topic for it", of("tx", key_type=TRANSACTION), 4)
    exchange.wait_until(of("tx", key_type=TRANSACTION), 4, found, patience_s=60.0)
    exchange.ask_each("a group", of("orders"))
    exchange.ask_each("another group", of("payments"))
    exchange.ask_each("a transaction", of("tx", key_type=TRANSACTION), since=SINCE_TYPED)
    for key in ("", " ", "größe", "a/b:c", "x" * 70):
        exchange.ask_each(f"the group {key!r:.20}", of(key))
        exchange.ask_each(f"the transaction {key!r:.20}", of(key, key_type=TRANSACTION), since=SINCE_TYPED)
    exchange.ask_each("a share group, whose key is none", of("orders", key_type=SHARE), since=SINCE_TYPED)
    share_key = f"orders:{'A' * 22}:0"
    exchange.ask("the state of a share group, before there is a topic for it", of(share_key, key_type=SHARE), 6)
    exchange.ask_each(
        "the state of a share group in a version without it", of(share_key, key_type=SHARE), versions=(1, 5)
    )
    for key_type in (3, -1, 127, -128):
        exchange.ask_each(f"key type {key_type}", of("orders", key_type=key_type), since=SINCE_TYPED)
    exchange.ask_each("three groups", of("orders", "payments", ""), since=SINCE_BATCHED)
    exchange.ask_each("a group twice", of("orders", "orders"), since=SINCE_BATCHED)
    exchange.ask_each("two transactions", of("tx", "ty", key_type=TRANSACTION), since=SINCE_BATCHED)
    exchange.ask_each("two of an unknown type", of("orders", "tx", key_type=9), since=SINCE_BATCHED)
    exchange.ask_each("nothing", of(), since=SINCE_BATCHED)
