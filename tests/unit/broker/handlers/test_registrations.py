"""UnregisterBroker and UnregisterController through the codec."""

import dataclasses

from dev.serving import serves
from protocol.errors import ErrorCode as E
from protocol.messages.registrations import UnregisterBrokerRequest, UnregisterControllerRequest
from protocol.records.cluster_metadata import FeatureLevelRecord
from tests.support.broker import InProcessBroker


def adopt(broker: InProcessBroker, node_id: int, metadata_version: int = 25) -> None:
    """Another broker and controller as a Kafka knew them that ran on the directory before."""
    cluster = broker.server.components.metadata.image.cluster
    published: list[None] = []
    broker.server.components.controller.append(
        [
            FeatureLevelRecord(name="metadata.version", feature_level=metadata_version),
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
    adopt(broker, 7)
    assert unregister(broker, 7) == E.NONE
    assert set(broker.server.components.metadata.image.cluster.brokers) == {1}
    assert unregister(broker, 7) == E.BROKER_ID_NOT_REGISTERED
    assert unregister(broker, -1) == E.BROKER_ID_NOT_REGISTERED
    assert unregister(broker, 1) == E.INVALID_REQUEST
    broker.restart()
    assert set(broker.server.components.metadata.image.cluster.brokers) == {1}


def unregister_controller(broker: InProcessBroker, controller_id: int) -> int:
    return int(broker.ask(UnregisterControllerRequest(controller_id=controller_id), 0).error_code)


@serves(UnregisterControllerRequest, E.INVALID_REQUEST, E.UNSUPPORTED_VERSION, versions=[0])
def test_a_controller_stays_registered_where_the_metadata_has_no_record_to_forget_it(broker: InProcessBroker) -> None:
    adopt(broker, 7)
    assert unregister_controller(broker, 1) == E.INVALID_REQUEST
    assert unregister_controller(broker, 7) == E.UNSUPPORTED_VERSION
    assert unregister_controller(broker, 9) == E.UNSUPPORTED_VERSION
    assert set(broker.server.components.metadata.image.cluster.controllers) == {1, 7}


@serves(UnregisterControllerRequest, E.NONE, E.INVALID_REQUEST, E.CONTROLLER_ID_NOT_REGISTERED, versions=[0])
def test_in_a_directory_of_kafka_4_4_a_controller_that_is_gone_is_forgotten_for_good(broker: InProcessBroker) -> None:
    adopt(broker, 7, metadata_version=33)
    assert unregister_controller(broker, 1) == E.INVALID_REQUEST
    assert unregister_controller(broker, 9) == E.CONTROLLER_ID_NOT_REGISTERED
    assert unregister_controller(broker, 7) == E.NONE
    broker.restart()
    assert set(broker.server.components.metadata.image.cluster.controllers) == {1}
