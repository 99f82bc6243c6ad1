"""UnregisterBroker and UnregisterController through the codec."""

import dataclasses

from dev.serving import serves
from protocol.errors import ErrorCode as E
from protocol.messages.registrations import UnregisterBrokerRequest, UnregisterControllerRequest
from tests.support.broker import InProcessBroker


def adopt_broker_and_controller(broker: InProcessBroker, node_id: int) -> None:
    """Another node as a Kafka knew it that ran on the directory before."""
    cluster = broker.server.components.metadata.image.cluster
    published: list[None] = []
    broker.server.components.controller._append(
        [
            dataclasses.replace(cluster.brokers[1], broker_id=node_id, fenced=True),
            dataclasses.replace(cluster.controllers[1], controller_id=node_id),
        ],
        lambda: published.append(None),
    )
    broker.wait_until(lambda: bool(published))


def unregister(broker: InProcessBroker, broker_id: int) -> int:
    return int(broker.ask(UnregisterBrokerRequest(broker_id=broker_id), 0).error_code)


@serves(UnregisterBrokerRequest, E.NONE, E.BROKER_ID_NOT_REGISTERED, E.INVALID_REQUEST, versions=[0])
def test_a_broker_that_is_gone_is_forgotten_for_good(broker: InProcessBroker) -> None:
    adopt_broker_and_controller(broker, 7)
    assert unregister(broker, 7) == E.NONE
    assert set(broker.server.components.metadata.image.cluster.brokers) == {1}
    assert unregister(broker, 7) == E.BROKER_ID_NOT_REGISTERED
    assert unregister(broker, -1) == E.BROKER_ID_NOT_REGISTERED
    assert unregister(broker, 1) == E.INVALID_REQUEST
    broker.restart()
    assert set(broker.server.components.metadata.image.cluster.brokers) == {1}


@serves(
    UnregisterControllerRequest,
    E.CONTROLLER_ID_NOT_REGISTERED,
    E.INVALID_REQUEST,
    E.UNSUPPORTED_VERSION,
    versions=[0],
)
def test_a_controller_stays_registered(broker: InProcessBroker) -> None:
    adopt_broker_and_controller(broker, 7)
    answers = {
        controller_id: broker.ask(UnregisterControllerRequest(controller_id=controller_id), 0)
        for controller_id in (9, 1, 7)
    }
    assert {controller_id: answer.error_code for controller_id, answer in answers.items()} == {
        9: E.CONTROLLER_ID_NOT_REGISTERED,
        1: E.INVALID_REQUEST,
        7: E.UNSUPPORTED_VERSION,
    }
    assert answers[1].error_message == "Controller cannot unregister itself while it is active."
