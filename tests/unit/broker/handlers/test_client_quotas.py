"""DescribeClientQuotas and AlterClientQuotas through the codec."""

from collections.abc import Mapping

import pytest

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from protocol.records.cluster_metadata import ClientQuotaRecord
from tests.support.broker import InProcessBroker

EXACT, DEFAULT, SPECIFIED = 0, 1, 2

Component = DescribeClientQuotasRequest.Component
Change = AlterClientQuotasRequest.Entry


def adopt(broker: InProcessBroker, entity: Mapping[str, str | None], **quotas: float) -> None:
    """Quotas as a Kafka has set them that ran on the directory before."""
    parts = [ClientQuotaRecord.Entity(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    published: list[None] = []
    broker.server.components.controller.append(
        [ClientQuotaRecord(entity=parts, key=key, value=value, remove=False) for key, value in quotas.items()],
        lambda: published.append(None),
    )
    broker.wait_until(lambda: bool(published))


def described(broker: InProcessBroker, *asked: tuple[str, int, str | None], strict: bool = False) -> dict[str, object]:
    """Quotas by entity, as far as they are asked for."""
    components = [Component(entity_type=kind, match_type=match, match=name) for kind, match, name in asked]
    answer = broker.ask(DescribeClientQuotasRequest(components=components, strict=strict), 1)
    assert answer.error_code == E.NONE
    return {
        " ".join(f"{part.entity_type}={part.entity_name}" for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries
    }


@serves(DescribeClientQuotasRequest)
@every_version(DescribeClientQuotasRequest)
def test_a_new_broker_has_no_quotas(broker: InProcessBroker, version: int) -> None:
    answer = broker.ask(DescribeClientQuotasRequest(components=[], strict=False), version)
    assert (answer.error_code, answer.error_message, answer.entries) == (E.NONE, "", [])


def test_quotas_of_an_adopted_directory_are_found_by_their_entities(broker: InProcessBroker) -> None:
    adopt(broker, {"user": "alice"}, producer_byte_rate=1000.0, consumer_byte_rate=2000.0)
    adopt(broker, {"user": "alice", "client-id": "shop"}, producer_byte_rate=10.0)
    adopt(broker, {"user": None}, producer_byte_rate=5.0)
    adopt(broker, {"ip": "10.0.0.1"}, connection_creation_rate=3.0)

    alice = {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0}
    shop = {"client-id=shop user=alice": {"producer_byte_rate": 10.0}}
    default = {"user=None": {"producer_byte_rate": 5.0}}
    assert len(described(broker)) == 4
    assert described(broker, ("user", EXACT, "alice")) == {"user=alice": alice, **shop}
    assert described(broker, ("user", EXACT, "alice"), strict=True) == {"user=alice": alice}
    assert described(broker, ("user", DEFAULT, None)) == default
    assert described(broker, ("user", SPECIFIED, None)) == {"user=alice": alice, **shop, **default}
    assert described(broker, ("user", SPECIFIED, None), ("client-id", EXACT, "shop")) == shop
    assert described(broker, ("ip", SPECIFIED, None)) == {"ip=10.0.0.1": {"connection_creation_rate": 3.0}}
    assert described(broker, ("client-id", DEFAULT, None)) == {}


def test_entities_parts_and_quotas_are_in_the_order_of_kafkas_hash_maps(broker: InProcessBroker) -> None:
    """As Apache Kafka 4.4.0 has answered. Entities of one request that share a bucket come out in reverse."""
    limits = {"request_percentage": 444.0, "producer_byte_rate": 856.0, "controller_mutation_rate": 400.0,
              "consumer_byte_rate": 915.0}  # fmt: skip
    entities = [{"user": "Müller", "client-id": "x"}, {"user": "user6"}, {"client-id": "client-2"}]
    request = AlterClientQuotasRequest(
        entries=[
            Change(
                entity=[Change.Entity(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                ops=[Change.Op(key=key, value=value, remove=False) for key, value in limits.items()],
            )
            for entity in entities
        ],
        validate_only=False,
    )

    altered = broker.ask(request, 1).entries

    assert [[part.entity_name for part in entry.entity] for entry in altered] == [
        ["x", "Müller"],
        ["client-2"],
        ["user6"],
    ]
    found = described(broker)
    assert list(found) == ["client-id=client-2", "client-id=x user=Müller", "user=user6"]
    assert list(found["user=user6"]) == [  # type: ignore[call-overload]
        "producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate", "request_percentage",
    ]  # fmt: skip


@serves(DescribeClientQuotasRequest, E.INVALID_REQUEST, E.UNSUPPORTED_VERSION)
@every_version(DescribeClientQuotasRequest)
def test_a_question_that_contradicts_itself_is_refused(broker: InProcessBroker, version: int) -> None:
    def answer(*asked: tuple[str, int, str | None]) -> DescribeClientQuotasResponse:
        components = [Component(entity_type=kind, match_type=match, match=name) for kind, match, name in asked]
        answer: DescribeClientQuotasResponse = broker.ask(
            DescribeClientQuotasRequest(components=components, strict=False), version
        )
        assert answer.entries is None
        return answer

    for asked in (
        [("", EXACT, "a")],
        [("user", EXACT, "a"), ("user", DEFAULT, None)],
        [("user", EXACT, None)],
        [("user", DEFAULT, "a")],
        [("user", SPECIFIED, "a")],
        [("user", 7, "a")],
        [("ip", EXACT, "10.0.0.1"), ("user", EXACT, "a")],
    ):
        assert answer(*asked).error_code == E.INVALID_REQUEST
    assert answer(("team", EXACT, "a")).error_code == E.UNSUPPORTED_VERSION


def altered(
    broker: InProcessBroker, entity: Mapping[str, str | None], *keys: str, version: int = 1
) -> AlterClientQuotasResponse.Entry:
    parts = [Change.Entity(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    changes = [Change.Op(key=key, value=100.0, remove=False) for key in keys]
    asked = AlterClientQuotasRequest(entries=[Change(entity=parts, ops=changes)], validate_only=False)
    (entry,) = broker.ask(asked, version).entries
    assert {part.entity_type: part.entity_name for part in entry.entity} == entity
    assert isinstance(entry, AlterClientQuotasResponse.Entry)
    return entry


@serves(AlterClientQuotasRequest, E.NONE)
@every_version(AlterClientQuotasRequest)
def test_a_quota_is_set_and_told_back(broker: InProcessBroker, version: int) -> None:
    assert altered(broker, {"user": "alice"}, "producer_byte_rate", version=version).error_code == E.NONE
    assert described(broker) == {"user=alice": {"producer_byte_rate": 100.0}}


@pytest.mark.parametrize("host", ["localhost", "no.such.host.invalid"])
def test_a_host_is_looked_up_before_it_gets_a_quota(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    known = {"localhost": "127.0.0.1"}
    monkeypatch.setattr("broker.network.host_addresses.resolved", known.get)
    code = altered(broker, {"ip": host}, "connection_creation_rate").error_code
    assert code == (E.NONE if host in known else E.INVALID_REQUEST)


@serves(AlterClientQuotasRequest, E.INVALID_REQUEST)
@every_version(AlterClientQuotasRequest)
def test_a_quota_that_no_entity_can_have_is_named_so(broker: InProcessBroker, version: int) -> None:
    for entity, key in (
        ({}, "producer_byte_rate"),
        ({"team": "a"}, "producer_byte_rate"),
        ({"user": "a"}, "bogus"),
        ({"ip": "10.0.0.1"}, "producer_byte_rate"),
    ):
        assert altered(broker, entity, key, version=version).error_code == E.INVALID_REQUEST


def test_quotas_are_still_there_after_a_restart(broker: InProcessBroker) -> None:
    adopt(broker, {"user": "alice"}, request_percentage=50.0)
    broker.restart()
    assert described(broker) == {"user=alice": {"request_percentage": 50.0}}
