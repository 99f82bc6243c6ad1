"""A producer that numbers its batches writes each record once, also when an answer is lost on the way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dev.broker_process import BrokerProcess, port_below_client_ports
from dev.brokers import broker_for_tests
from tests.support.clients import Client, Record, connect, values
from tests.support.proxy import Exchange, FrameProxy

PRODUCE = 0


class LostAnswers:
    """Lets everything pass until told to lose the next answer to a Produce request."""

    def __init__(self) -> None:
        self._lose = threading.Event()
        self.lost: list[Exchange] = []

    def lose_the_next(self) -> None:
        self._lose.set()

    def passes(self, exchange: Exchange) -> bool:
        if exchange.api_key != PRODUCE or not self._lose.is_set():
            return True
        self._lose.clear()
        self.lost.append(exchange)
        return False


@pytest.fixture(scope="module")
def broker_and_network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, str, LostAnswers]]:
    """A broker, the address of a proxy in front of it, and what that proxy loses."""
    directory: Path = tmp_path_factory.mktemp("behind-a-proxy")
    answers = LostAnswers()
    port = port_below_client_ports()
    with FrameProxy(("127.0.0.1", port), on_answer=answers.passes) as proxy:
        advertised = f"PLAINTEXT://127.0.0.1:{proxy.port}"
        with broker_for_tests(directory, settings={"advertised.listeners": advertised}, port=port) as process:
            yield process, f"127.0.0.1:{proxy.port}", answers


def test_an_idempotent_producer_writes_in_order(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    sent = [str(number).encode() for number in range(2_000)]

    records = [Record(value=value, partition=number % 2) for number, value in enumerate(sent)]
    answers = client.produce(topic, records, idempotent=True)

    assert [answer.offset for answer in answers] == [number // 2 for number in range(2_000)]
    for partition in range(2):
        assert values(client.consume(topic, partition=partition, offset=0, count=1_000)) == sent[partition::2]


def test_a_lost_answer_does_not_write_twice(
    client_name: str, broker_and_network: tuple[BrokerProcess, str, LostAnswers], topic: str
) -> None:
    _, bootstrap, answers = broker_and_network
    client = connect(client_name, bootstrap)
    client.create_topic(topic)
    lost_before = len(answers.lost)
    sent = [str(number).encode() for number in range(50)]

    answers.lose_the_next()
    produced = client.produce(topic, [Record(value=value) for value in sent], idempotent=True)

    assert len(answers.lost) == lost_before + 1, "no answer was lost: the test shows nothing"
    assert [answer.offset for answer in produced] == list(range(50))
    assert values(client.consume_all(topic)) == sent
    assert client.offsets(topic) == {0: (0, 50)}
