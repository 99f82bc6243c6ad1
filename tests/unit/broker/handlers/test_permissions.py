"""A permission that is withdrawn is gone with the next request, also where a shortcut serves the request.

Alice comes in by the listener with SASL; anonymous clients are super users.
"""

import logging

import pytest

from broker.request.permissions import Operation
from protocol.errors import ErrorCode as E
from protocol.messages.fetch import FetchRequest
from protocol.messages.metadata import MetadataRequest
from tests.support.acls import AUTHORIZER, acl, creation, deletion, denial
from tests.support.batches import produced
from tests.support.broker import InProcessBroker
from tests.support.requests import fetch_request, produce_request
from tests.support.sasl_client import LISTENERS, SaslClient

pytestmark = pytest.mark.settings(**AUTHORIZER, **LISTENERS, super_users="User:ANONYMOUS;User:admin")

READ, WRITE = Operation.READ, Operation.WRITE


@pytest.fixture
def alice(broker: InProcessBroker) -> SaslClient:
    broker.create_topic("orders")
    client = SaslClient(broker)
    client.log_in()
    return client


def allow(broker: InProcessBroker, operation: Operation) -> None:
    broker.ask(creation(acl("orders", operation=operation)), 3)


def withdraw(broker: InProcessBroker) -> None:
    broker.ask(deletion(principal_filter="User:alice"), 3)


def produce(alice: SaslClient) -> int:
    answer = alice.ask(produce_request("orders", produced(1)), 9)
    return int(answer.responses[0].partition_responses[0].error_code)


def test_of_a_producer_that_repeats_itself(broker: InProcessBroker, alice: SaslClient) -> None:
    assert produce(alice) == E.TOPIC_AUTHORIZATION_FAILED
    allow(broker, WRITE)
    assert [produce(alice) for _ in range(3)] == [E.NONE] * 3
    withdraw(broker)
    assert [produce(alice) for _ in range(2)] == [E.TOPIC_AUTHORIZATION_FAILED] * 2
    assert broker.log("orders").log_end_offset == 3
    allow(broker, WRITE)
    assert produce(alice) == E.NONE


@pytest.mark.parametrize("partitions", [1, 40])
def test_of_a_consumer_that_repeats_itself(broker: InProcessBroker, alice: SaslClient, partitions: int) -> None:
    broker.create_topic("wide", partitions)
    of_topic = FetchRequest.Topic
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[
            of_topic(
                topic="wide",
                partitions=[
                    of_topic.Partition(partition=index, fetch_offset=0, partition_max_bytes=1000)
                    for index in range(partitions)
                ],
            )
        ],
    )

    def codes() -> set[int]:
        return {one.error_code for one in alice.ask(request, 11).responses[0].partitions}

    assert codes() == {E.TOPIC_AUTHORIZATION_FAILED}
    broker.ask(creation(acl("wide", operation=READ)), 3)
    assert [codes() for _ in range(4)] == [{E.NONE}] * 4
    broker.ask(creation(denial("wide", operation=READ)), 3)
    assert codes() == {E.TOPIC_AUTHORIZATION_FAILED}


def test_of_a_session_whose_partitions_have_nothing_new(broker: InProcessBroker, alice: SaslClient) -> None:
    allow(broker, READ)
    opened = alice.ask(fetch_request("orders", min_bytes=0, session_epoch=0), 11)
    session = {"min_bytes": 0, "session_id": opened.session_id}
    assert alice.ask(fetch_request(session_epoch=1, **session), 11).responses == []
    withdraw(broker)
    (topic,) = alice.ask(fetch_request(session_epoch=2, **session), 11).responses
    assert topic.partitions[0].error_code == E.TOPIC_AUTHORIZATION_FAILED
    allow(broker, READ)
    (topic,) = alice.ask(fetch_request(session_epoch=3, **session), 11).responses
    assert topic.partitions[0].error_code == E.NONE


def test_a_denial_is_logged_in_kafkas_words(
    broker: InProcessBroker, alice: SaslClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    produce(alice)
    broker.ask(creation(denial("ord", pattern_type=4, operation=WRITE)), 3)
    produce(alice)
    said = (
        "Principal = User:alice is Denied operation = WRITE from host = 127.0.0.1 on resource = Topic:LITERAL:orders "
    )
    said += "for request = Produce with resourceRefCount = 1 based on rule "
    assert [line.getMessage() for line in caplog.records if line.name == "kafka.authorizer.logger"] == [
        said + "DefaultDeny",
        said + "MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=ord, patternType=PREFIXED, "
        "principal=User:alice, host=*, operation=WRITE, permissionType=DENY))",
    ]


def test_what_is_left_out_of_an_answer_is_not_logged(
    broker: InProcessBroker, alice: SaslClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    assert alice.ask(MetadataRequest(topics=None), 12).topics == []
    assert not [line for line in caplog.records if line.name == "kafka.authorizer.logger"]


def test_at_debug_what_is_allowed_is_logged_too(
    broker: InProcessBroker, alice: SaslClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The level may change between two requests, of which the second is decided by what is remembered."""
    allow(broker, WRITE)
    alice.ask(MetadataRequest(topics=None), 12)
    with caplog.at_level(logging.DEBUG, "kafka.authorizer.logger"):
        assert alice.ask(MetadataRequest(topics=None), 12).topics[0].name == "orders"
        produce(alice)
    produce(alice)
    lines = [
        (line.levelname, line.getMessage().partition(" with ")[0])
        for line in caplog.records
        if line.name == "kafka.authorizer.logger" and "User:alice" in line.getMessage()
    ]
    allowed = (
        "Principal = User:alice is Allowed operation = %s from host = 127.0.0.1 on resource = Topic:LITERAL:orders"
    )
    assert lines == [
        ("DEBUG", allowed % "DESCRIBE" + " for request = Metadata"),
        ("DEBUG", allowed % "WRITE" + " for request = Produce"),
    ]
