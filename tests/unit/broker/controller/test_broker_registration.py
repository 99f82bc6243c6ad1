"""Registrations of brokers: each check of BrokerRegistration, and what a new run changes of partitions."""

import pytest

from protocol.errors import ErrorCode as E
from protocol.messages.broker_lifecycle import BrokerRegistrationRequest
from tests.unit.broker.controller.cluster import OWN, Broker, Cluster, directory

Feature = BrokerRegistrationRequest.Feature
Listener = BrokerRegistrationRequest.Listener
PARTITION = [2, 3, OWN]


def listener(name="PLAINTEXT", port=9092):
    return Listener(name=name, host="127.0.0.1", port=port, security_protocol=0)


def features(**ranges):
    supported = {"metadata.version": (7, 33), "kraft.version": (0, 1)} | {
        name.replace("_", "."): span for name, span in ranges.items()
    }
    return [
        Feature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in supported.items()
    ]


def test_a_broker_is_registered_fenced_with_what_it_says_of_itself():
    cluster = Cluster()
    end_offset = cluster.log.end_offset
    broker = Broker(cluster, 2, rack="a", directories=2)

    assert broker.register() is E.NONE

    assert (broker.epoch, broker.registered.broker_epoch) == (end_offset, end_offset)
    assert (broker.registered.fenced, broker.registered.rack) == (True, "a")
    assert broker.registered.log_dirs == [directory(2, 0), directory(2, 1)]
    assert [(point.name, point.host, point.port) for point in broker.registered.end_points] == [
        ("PLAINTEXT", "127.0.0.1", 9092)
    ]


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"cluster_id": "another"}, E.INCONSISTENT_CLUSTER_ID),
        ({"log_dirs": []}, E.INVALID_REGISTRATION),
        ({"log_dirs": [directory(2), directory(2)]}, E.INVALID_REGISTRATION),
        ({"log_dirs": [(99).to_bytes(16, "big")]}, E.INVALID_REGISTRATION),
        ({"log_dirs": [directory(OWN)]}, E.INVALID_REGISTRATION),
        ({"features": []}, E.INVALID_REGISTRATION),
        ({"features": features(metadata_version=(7, 24))}, E.UNSUPPORTED_VERSION),
        ({"features": features(metadata_version=(26, 33))}, E.UNSUPPORTED_VERSION),
        ({"features": features(kraft_version=(0, 0))}, E.UNSUPPORTED_VERSION),
        ({"features": features(metadata_version=(25, 25), unheard_of=(3, 4))}, E.NONE),
        ({"is_migrating_zk_broker": True}, E.BROKER_ID_NOT_REGISTERED),
        ({"listeners": [listener(port=0)]}, E.INVALID_REGISTRATION),
        ({"listeners": []}, E.INVALID_REGISTRATION),
        ({"listeners": [listener(), listener(port=9093)]}, E.INVALID_REGISTRATION),
        ({"listeners": [listener(), listener("REPLICATION", 9093)]}, E.NONE),
        ({"broker_id": -3}, E.INVALID_REGISTRATION),
        ({"broker_id": OWN, "log_dirs": [directory(OWN)]}, E.DUPLICATE_BROKER_REGISTRATION),
    ],
)
def test_a_registration_is_checked(changed, error):
    cluster = Cluster()
    before = cluster.image.cluster.brokers

    assert Broker(cluster, 2).register(**changed) is error

    assert (cluster.image.cluster.brokers == before) == (error is not E.NONE)


def test_a_finalised_feature_has_to_be_supported():
    assert Broker(Cluster(elr=True), 2).register(features=features()) is E.UNSUPPORTED_VERSION
    assert Broker(Cluster(elr=False), 2).register(features=features()) is E.NONE


def test_a_new_run_waits_until_the_session_of_the_last_one_is_over():
    cluster = Cluster()
    broker = cluster.broker(2)
    cluster.clock.advance(1_000)
    broker.heartbeat()

    cluster.clock.advance(9_000)
    assert broker.register() is E.DUPLICATE_BROKER_REGISTRATION
    cluster.clock.advance(1)
    before = broker.epoch
    assert broker.register() is E.NONE
    assert broker.epoch > before


def test_a_broker_that_has_stopped_waits_too():
    cluster = Cluster()
    broker = cluster.broker(2)
    assert broker.heartbeat(shutdown=True).should_shut_down

    assert broker.register() is E.DUPLICATE_BROKER_REGISTRATION
    cluster.clock.advance(9_001)
    assert broker.register() is E.NONE


def test_the_same_run_registers_again_with_its_epoch_and_state():
    cluster = Cluster()
    broker = cluster.broker(2)
    before = broker.epoch

    assert broker.register(incarnation_id=broker.incarnation_id, listeners=[listener(port=9999)]) is E.NONE

    assert broker.epoch == before
    assert (broker.registered.fenced, broker.registered.end_points[0].port) == (False, 9999)


def test_a_run_that_was_stopped_in_order_may_come_back_with_its_incarnation():
    cluster = Cluster()
    broker, other = cluster.broker(2), cluster.broker(3)
    cluster.topic("orders", PARTITION)
    assert not broker.heartbeat(shutdown=True).should_shut_down
    other.heartbeat()
    assert broker.heartbeat(shutdown=True).should_shut_down
    assert broker.registered.in_controlled_shutdown

    assert broker.register(incarnation_id=broker.incarnation_id) is E.NONE
    broker.heartbeat()

    assert (broker.registered.fenced, broker.registered.in_controlled_shutdown) == (False, False)


def eligible(cluster):
    partition = cluster.partition()
    return list(partition.isr), list(partition.eligible_leader_replicas)


@pytest.mark.parametrize(("is_clean", "expected"), [(True, ([OWN], [2, 3])), (False, ([OWN], [3]))])
def test_a_broker_that_may_have_lost_records_is_no_eligible_leader(is_clean, expected):
    cluster = Cluster(elr=True)
    second, third = cluster.broker(2), cluster.broker(3)
    cluster.topic("orders", PARTITION, min_insync_replicas="3")
    second.heartbeat(fence=True)
    third.heartbeat(fence=True)
    assert eligible(cluster) == ([OWN], [2, 3])

    cluster.clock.advance(9_001)
    assert second.register(previous_epoch=second.epoch if is_clean else -1) is E.NONE

    assert eligible(cluster) == expected


def test_an_unclean_run_of_a_leader_takes_it_out_of_the_isr_before_it_is_fenced():
    cluster = Cluster(elr=True)
    second, third = cluster.broker(2), cluster.broker(3)
    cluster.topic("orders", PARTITION)
    cluster.clock.advance(9_001)
    third.heartbeat()

    assert second.register() is E.NONE

    assert cluster.leader_and_isr() == (3, 1, [3, OWN])


def test_without_eligible_leaders_the_last_replica_in_sync_stays_so():
    cluster = Cluster(elr=False)
    second = cluster.broker(2)
    cluster.topic("orders", [2])
    cluster.clock.advance(9_001)

    assert second.register() is E.NONE
    assert cluster.leader_and_isr() == (-1, 1, [2])
    second.heartbeat()
    assert cluster.leader_and_isr() == (2, 2, [2])


def test_the_last_leader_leads_where_no_replica_is_eligible_any_more():
    cluster = Cluster(elr=True)
    second = cluster.broker(2)
    cluster.topic("orders", [2])
    cluster.clock.advance(9_001)
    assert second.register() is E.NONE
    assert (eligible(cluster), cluster.partition().last_known_elr) == (([], []), (2,))

    second.heartbeat()

    assert cluster.leader_and_isr() == (2, 2, [2])
    assert (cluster.partition().leader_recovery_state, cluster.partition().last_known_elr) == (1, ())
