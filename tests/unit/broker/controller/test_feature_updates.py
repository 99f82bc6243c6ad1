"""Updates of features in a cluster: what every broker must support, and what a level has room for."""

import pytest

from broker.controller.feature_updates import FeatureUpdate, UpgradeType
from broker.request.faults import InvalidUpdateVersion
from protocol.errors import ErrorCode as E
from protocol.messages.broker_lifecycle import BrokerRegistrationRequest
from protocol.records.cluster_metadata import ConfigRecord
from tests.unit.broker.controller.cluster import OWN, Broker, Cluster

ELIGIBLE = "eligible.leader.replicas.version"
MIN_INSYNC = "min.insync.replicas"


def update(cluster, feature, level, upgrade_type=UpgradeType.UPGRADE):
    done = []
    updates = [FeatureUpdate(feature, level, upgrade_type)]
    cluster.controller.update_features(updates, validate_only=False, then=lambda: done.append(True))
    assert done == [True]
    return cluster.controller.image.features.levels.get(feature, 0)


def registered(cluster, **ranges):
    broker = Broker(cluster, 2)
    features = [
        BrokerRegistrationRequest.Feature(
            name=name.replace("_", "."), min_supported_version=low, max_supported_version=high
        )
        for name, (low, high) in ({"metadata_version": (7, 33), "kraft_version": (0, 1)} | ranges).items()
    ]
    assert broker.register(features=features) is E.NONE
    return broker


def set_min_insync(cluster, broker, value):
    cluster.controller.append([ConfigRecord(resource_type=4, resource_name=broker, name=MIN_INSYNC, value=value)])


@pytest.mark.parametrize(
    ("ranges", "feature", "level", "why"),
    [
        ({"metadata_version": (7, 30)}, "metadata.version", 33, "Broker 2 only supports versions 7-30"),
        ({}, ELIGIBLE, 1, "Broker 2 does not support this feature."),
    ],
)
def test_no_level_is_finalised_that_another_broker_does_not_support(ranges, feature, level, why):
    cluster = Cluster()
    registered(cluster, **ranges)
    with pytest.raises(InvalidUpdateVersion, match=f"Invalid update version {level} for feature {feature}. {why}"):
        update(cluster, feature, level)
    assert cluster.controller.image.features.levels.get(feature, 0) in (0, 25)


def test_a_feature_that_a_broker_does_not_support_may_be_switched_off():
    cluster = Cluster(elr=True)
    assert update(cluster, ELIGIBLE, 0, UpgradeType.SAFE_DOWNGRADE) == 0


def test_a_level_that_has_room_for_controllers_is_told_of_this_one():
    cluster = Cluster(metadata_version=14)
    assert OWN not in cluster.controller.image.cluster.controllers

    assert update(cluster, "metadata.version", 25) == 25

    assert OWN in cluster.controller.image.cluster.controllers


def test_eligible_leaders_make_min_insync_replicas_the_same_on_all_brokers():
    cluster = Cluster()
    set_min_insync(cluster, str(OWN), "2")
    assert update(cluster, ELIGIBLE, 1) == 1
    configs = cluster.controller.image.configs
    assert configs.of(4, "") == {MIN_INSYNC: "1"}
    assert configs.of(4, str(OWN)) == {}


def test_eligible_leaders_take_min_insync_replicas_from_a_broker_that_is_not_registered_any_more():
    cluster = Cluster()
    cluster.broker(2)
    set_min_insync(cluster, "2", "2")
    cluster.controller.unregister_broker(2, lambda: None)
    assert update(cluster, ELIGIBLE, 1) == 1
    assert cluster.controller.image.configs.of(4, "2") == {}


def test_a_min_insync_replicas_of_the_whole_cluster_stays():
    cluster = Cluster()
    set_min_insync(cluster, "", "2")
    update(cluster, ELIGIBLE, 1)
    assert cluster.controller.image.configs.of(4, "") == {MIN_INSYNC: "2"}
