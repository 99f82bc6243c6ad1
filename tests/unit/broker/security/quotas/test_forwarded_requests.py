"""A member of a cluster: the controller charges a forwarded request to its client, whom the member throttles."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode as E
from protocol.messages.metadata import MetadataRequest
from protocol.messages.topics import CreateTopicsRequest
from tests.support.broker import WITH_CONTROLLER_LISTENER, InProcessBroker, running_member
from tests.support.quotas import limit


@pytest.fixture
def member(broker: InProcessBroker, tmp_path: Path) -> Iterator[InProcessBroker]:
    with running_member(tmp_path / "member", broker) as member:
        yield member


def created(name: str) -> CreateTopicsRequest:
    of_topic = CreateTopicsRequest.Topic
    topic = of_topic(name=name, num_partitions=3, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000)


@pytest.mark.settings(**WITH_CONTROLLER_LISTENER)
def test_a_client_of_a_member_is_charged_once_and_throttled_there(
    broker: InProcessBroker, member: InProcessBroker
) -> None:
    limit(broker, {"client-id": "slow"}, controller_mutation_rate=0.1)
    client = member.connect()
    assert client.ask(created("first"), 7, "slow").topics[0].error_code == E.NONE
    refused = client.ask(created("second"), 7, "slow")
    assert refused.topics[0].error_code == E.THROTTLING_QUOTA_EXCEEDED
    assert 18_000 < refused.throttle_time_ms <= 19_000, "three were taken of the eleven tenths that were saved up"
    client.send(MetadataRequest(topics=[]), 12, "slow")
    assert client.has_no_answer()
    assert member.connect().ask(MetadataRequest(topics=[]), 12, "other").throttle_time_ms == 0


@pytest.mark.settings(**WITH_CONTROLLER_LISTENER)
def test_a_topic_that_is_created_because_a_client_of_a_member_asks_is_a_change_of_that_client(
    broker: InProcessBroker, member: InProcessBroker
) -> None:
    limit(broker, {"client-id": "slow"}, controller_mutation_rate=0.1)

    def ask(name: str, client_id: str) -> int:
        asked = MetadataRequest(topics=[MetadataRequest.Topic(name=name)], allow_auto_topic_creation=True)
        throttle_time_ms: int = member.connect().ask(asked, 12, client_id).throttle_time_ms
        return throttle_time_ms

    for name in ("first", "second"):
        assert ask(name, "slow") == 0
        member.wait_until(lambda name=name: name in member.topics())
    refused = member.connect().ask(created("third"), 7, "slow")
    assert refused.topics[0].error_code == E.THROTTLING_QUOTA_EXCEEDED, "two were taken of one and a tenth"
    assert ask("third", "slow") == ask("fourth", "other") == 0
    member.wait_until(lambda: "fourth" in member.topics())
    assert member.topics() == {"first", "second", "fourth"}


@pytest.mark.settings(**WITH_CONTROLLER_LISTENER)
def test_the_time_of_a_forwarded_request_is_charged_by_both(broker: InProcessBroker, member: InProcessBroker) -> None:
    limit(broker, {"client-id": "slow"}, request_percentage=1e-9)
    quotas = [one.server.metric_sources.client_quotas for one in (broker, member)]
    assert member.connect().ask(created("first"), 7, "slow").throttle_time_ms == 1_000
    assert [None if of_one is None else len(of_one.time.sensors) for of_one in quotas] == [1, 1]
