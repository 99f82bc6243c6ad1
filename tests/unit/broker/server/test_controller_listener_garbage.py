"""Whatever comes in on a controller listener is answered or ends its connection, and the node serves on."""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest

from broker.server.controller_apis import CONTROLLER_APIS
from protocol.headers import encode_request
from protocol.messages.cluster import DescribeClusterRequest
from protocol.schema import ArrayOf, Sized, StructOf, WireType, layout, request_class
from tests.support.broker import Client, ConnectionClosed, InProcessBroker
from tests.unit.broker.server.controller_clients import DIRECTORY, LISTENERS, Member, envelope

pytestmark = pytest.mark.settings(**LISTENERS, num_partitions=1)

TEXTS = (
    "",
    "orders",
    "__cluster_metadata",
    "PLAINTEXT",
    "metadata.version",
    "1",
    "2",
    "ö" * 100,
    "log.cleaner.threads",
)
IDS = (bytes(16), bytes(15) + b"\1", bytes(15) + b"\2", DIRECTORY, b"\xff" * 16)
REQUESTS = 400


class Chance(random.Random):
    """Chooses the values of requests: those that mean something, and those at the edges."""

    def __init__(self, seed: int, broker: InProcessBroker) -> None:
        super().__init__(seed)
        node = broker.server.components.node
        self._texts = (*TEXTS, node.cluster_id)
        self._ids = (
            *IDS,
            *(topic.topic_id for topic in broker.server.components.metadata.image.topics.by_name.values()),
        )

    def message(self, cls: type[Any], version: int) -> Any:
        """A request with any values."""
        return cls(**{one.name: self._value(one.wire_type, version) for one in layout(cls) if one.is_in(version)})

    def _value(self, wire_type: WireType, version: int) -> Any:
        if isinstance(wire_type, StructOf):
            return self.message(wire_type.cls, version)
        if isinstance(wire_type, ArrayOf):
            return [self._value(wire_type.element, version) for _ in range(self.choice((0, 1, 1, 2)))]
        if wire_type is Sized.STRING:
            return self.choice(self._texts)
        if wire_type is Sized.BYTES or wire_type is Sized.RECORDS:
            return self.randbytes(self.choice((0, 1, 4, 16, 40)))
        if wire_type.format == "16s":
            return self.choice(self._ids)
        if wire_type.format == "?":
            return self.choice((False, True))
        bits = 8 * {"b": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8}[wire_type.format]
        if wire_type.format == "H":
            return self.choice((0, 1, 9093, 2**bits - 1))
        return self.choice((-1, 0, 1, 2, 3, 9, 10, 20, 1 << (bits - 1) >> 1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))))


def any_request(chance: Chance) -> bytes:
    """A frame with a request that a controller listener may get."""
    api = chance.choice(CONTROLLER_APIS).key
    version = chance.randint(*api.versions)
    request = chance.message(request_class(api), version)
    if chance.random() < 0.2:
        request, version = envelope(request, version), 0
    frame = bytearray(encode_request(1, "fuzz", request, version))
    if chance.random() < 0.2:
        for _ in range(chance.randint(1, 3)):
            frame[chance.randrange(4, len(frame))] ^= 1 << chance.randrange(8)
    return bytes(frame)


def is_answered_or_closed(broker: InProcessBroker, client: Client, frame: bytes) -> bool:
    """Send a frame; False if the connection is closed."""
    client.send_bytes(frame)
    for _ in range(60):
        if client.connection.is_closed or not client.has_no_answer():
            break
        broker.advance(60_000)
    try:
        client.receive_payload()
    except ConnectionClosed:
        return False
    return True


@pytest.mark.parametrize("seed", range(4))
def test_any_request_is_answered_or_closes_its_connection(
    broker: InProcessBroker, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("orders")
    for api in CONTROLLER_APIS:
        assert broker.server.controller_registry.route(api.key, api.key.versions[1]), "and its messages are known now"
    chance = Chance(seed, broker)
    client = broker.connect("CONTROLLER")
    for _ in range(REQUESTS):
        with caplog.at_level(logging.ERROR):
            if not is_answered_or_closed(broker, client, any_request(chance)):
                broker.forget(client)
                client = broker.connect("CONTROLLER")
        assert not caplog.records, f"seed {seed}"
    assert client.ask(DescribeClusterRequest(endpoint_type=2), 1).controller_id == 1
    assert Member(broker, node_id=77).register().error_code == 0
