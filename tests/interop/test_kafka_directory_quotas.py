"""Quotas change hands with the directory: Apache Kafka throttles a client as Ottla does, and the other way round."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from dev.broker_process import BrokerProcess
from dev.waiting import until
from protocol.errors import ErrorCode
from protocol.messages.client_quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from protocol.messages.metadata import MetadataRequest
from tests.interop.directories import SharedDirectory, Visitor
from tests.support.batches import produced, record
from tests.support.raw_client import RawClient
from tests.support.requests import fetch_request, produce_request

pytestmark = pytest.mark.timeout(300)  # several starts of a Java broker, on whatever machine

BATCH = produced([record(bytes(100_000))])
SPAN_S = 10
"""Over which a rate is taken at least."""


def test_a_client_is_throttled_alike_behind_each_handover(shared: SharedDirectory) -> None:
    shared.ottla.start()
    with Visitor(shared.ottla.bootstrap) as ottla:
        ottla.create("orders")
        alter(ottla, {"client-id": "slow"}, producer_byte_rate=25_000.0)
        alter(ottla, {"user": None, "client-id": "reader"}, consumer_byte_rate=25_000.0)
        alter(ottla, {"ip": "10.0.0.7"}, connection_creation_rate=7.0)
        of_ottla = described(ottla)
    produces_until_throttled(shared.ottla, rate=25_000, batches=3)
    fetches_until_throttled(shared.ottla, rate=25_000, batches=3)
    shared.ottla.stop()

    shared.kafka.start()
    with Visitor(shared.kafka.bootstrap) as kafka:
        assert described(kafka) == of_ottla
    produces_until_throttled(shared.kafka, rate=25_000, batches=3)
    fetches_until_throttled(shared.kafka, rate=25_000, batches=3)
    with Visitor(shared.kafka.bootstrap) as kafka:
        alter(kafka, {"client-id": "slow"}, producer_byte_rate=15_000.0)
        alter(kafka, {"ip": "10.0.0.7"}, connection_creation_rate=None)
        of_kafka = described(kafka)
    shared.kafka.stop()

    shared.ottla.start()
    with Visitor(shared.ottla.bootstrap) as ottla:
        assert described(ottla) == of_kafka
    produces_until_throttled(shared.ottla, rate=15_000, batches=2)
    fetches_until_throttled(shared.ottla, rate=25_000, batches=3)
    shared.ottla.stop()


def alter(broker: Visitor, entity: Mapping[str, str | None], **values: float | None) -> None:
    """Alter quotas, and wait until the broker describes them so, which may be after its answer."""
    of_entry = AlterClientQuotasRequest.Entry
    entry = of_entry(
        entity=[of_entry.Entity(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[of_entry.Op(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )
    (result,) = broker.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1).entries
    assert result.error_code == ErrorCode.NONE, result.error_message
    name = tuple(sorted(entity.items()))

    def is_there() -> bool:
        found = {key: value for each, key, value in described(broker) if each == name}
        return all(found.get(key) == value for key, value in values.items())

    until(is_there, f"the quotas of {name}")


def described(broker: Visitor) -> set[tuple[Any, ...]]:
    """Every quota: its entity, its key, its value."""
    answer = broker.ask(DescribeClientQuotasRequest(components=[], strict=False), 1)
    return {
        (tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)), one.key, one.value)
        for entry in answer.entries
        for one in entry.values
    }


def expected_ms(rate: int, batches: int) -> Any:
    """For how long so many batches throttle a client that has sent or read nothing before."""
    return pytest.approx((batches * len(BATCH) / SPAN_S / rate - 1) * SPAN_S * 1_000, rel=0.1)


def produces_until_throttled(broker: BrokerProcess, *, rate: int, batches: int) -> None:
    """The last of so many batches throttles: the answer says so, and the next request waits as long."""
    with RawClient(broker.bootstrap, client_id="slow") as client:
        answers = [client.ask(produce_request("orders", BATCH), 9) for _ in range(batches)]
        is_muted(client, [answer.throttle_time_ms for answer in answers], rate)


def fetches_until_throttled(broker: BrokerProcess, *, rate: int, batches: int) -> None:
    """The answer that would throttle comes without records."""
    with RawClient(broker.bootstrap, client_id="reader") as client:
        answers = [client.ask(fetch_request("orders", max_bytes=1, offset=0), 11) for _ in range(batches)]
        sizes = [len(answer.responses[0].partitions[0].records or b"") if answer.responses else 0 for answer in answers]
        assert sizes == [*[len(BATCH)] * (batches - 1), 0]
        is_muted(client, [answer.throttle_time_ms for answer in answers], rate)


def is_muted(client: RawClient, throttle_times_ms: list[int], rate: int) -> None:
    *before, last_ms = throttle_times_ms
    assert before == [0] * len(before)
    assert last_ms == expected_ms(rate, len(throttle_times_ms))
    asked = time.monotonic()
    client.ask(MetadataRequest(topics=[]), 9)
    assert time.monotonic() - asked > last_ms / 1_000 * 0.8
