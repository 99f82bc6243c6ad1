"""InitProducerId without a transaction."""

from typing import Any

from protocol.messages.init_producer_id import InitProducerIdRequest
from tests.parity.exchange import Exchange


def request(**fields: Any) -> InitProducerIdRequest:
    return InitProducerIdRequest(**{"transactional_id": None, "transaction_timeout_ms": 60_000, **fields})


def run(exchange: Exchange) -> None:
    # Kafka answers COORDINATOR_LOAD_IN_PROGRESS until it has its first block of ids.
    exchange.wait_until(request(), 5, lambda answer: not answer.error_code)
    exchange.ask_each("a new producer", request())
    exchange.ask_each("another", request())
    for timeout in (0, -1, 1, 900_001, 0x7FFF_FFFF, -0x8000_0000):
        exchange.ask_each(
            f"a transaction timeout of {timeout} without a transaction", request(transaction_timeout_ms=timeout)
        )
    exchange.ask_each("an empty transactional id", request(transactional_id=""))
    exchange.ask_each(
        "an empty transactional id and a bad timeout", request(transactional_id="", transaction_timeout_ms=-1)
    )
    for producer_id, epoch in ((5, -1), (-1, 5), (5, 5), (0, 0), (-2, -2), (-2, -1), (2**62, 0x7FFF)):
        exchange.ask_each(
            f"producer {producer_id} with epoch {epoch}",
            request(producer_id=producer_id, producer_epoch=epoch),
            since=3,
        )
