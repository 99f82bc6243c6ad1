"""A client with a quota is throttled, and told so; a client beside it is not."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer, ThrottleEvent

from bench.throttled_clients import set_rates
from dev.broker_process import BrokerProcess
from dev.waiting import until
from tests.support.clients import TIMEOUT_S

VALUE = bytes(40_000)
RATE = 1_000.0
"""With what is sent here the client is throttled for longer than the test takes."""


def producer(broker: BrokerProcess, client_id: str, throttles: list[ThrottleEvent]) -> Producer:
    settings = {"bootstrap.servers": broker.bootstrap, "client.id": client_id, "linger.ms": 0}
    return Producer({**settings, "throttle_cb": throttles.append})


def test_a_throttled_producer_waits_while_another_one_goes_on(empty_broker: BrokerProcess) -> None:
    set_rates(empty_broker.bootstrap, "slow", RATE)
    slow_throttles: list[ThrottleEvent] = []
    free_throttles: list[ThrottleEvent] = []
    slow = producer(empty_broker, "slow", slow_throttles)
    free = producer(empty_broker, "free", free_throttles)
    delivered: list[str] = []

    def send(client: Producer, what: str, times: int) -> None:
        def on_delivery(error: Any, _: Any) -> None:
            if error is None:
                delivered.append(what)

        for _ in range(times):
            client.produce("orders", VALUE, on_delivery=on_delivery)

    send(slow, "before", 1)
    assert slow.flush(TIMEOUT_S) == 0
    until(lambda: bool(slow.poll(0.05) or slow_throttles), "the producer is told that it is throttled")
    send(slow, "throttled", 1)
    send(free, "free", 20)

    assert free.flush(TIMEOUT_S) == 0

    assert delivered.count("free") == 20
    assert "throttled" not in delivered, "its connection is not read"
    assert slow_throttles[0].throttle_time > 25, "40 KB are 4 KB a second at first"
    assert free_throttles == []
    slow.purge()
    slow.flush(TIMEOUT_S)
