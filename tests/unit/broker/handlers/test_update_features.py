"""UpdateFeatures through the codec."""

import os
from pathlib import Path

import pytest

from broker.raft.formatting import format_directories
from broker.runtime.clock import SystemIds
from config.listeners import Listener
from config.release_versions import NEWEST
from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.configs import DescribeConfigsRequest
from protocol.messages.features import UpdateFeaturesRequest, UpdateFeaturesResponse
from protocol.messages.metadata import MetadataRequest
from storage.checkpoints import read_meta_properties
from storage.files import FileSystem
from tests.support.broker import InProcessBroker, running_broker

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3

NAMED = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def update(
    broker: InProcessBroker, version: int, *wanted: tuple[str, int], upgrade_type: int = UPGRADE
) -> UpdateFeaturesResponse:
    answer: UpdateFeaturesResponse = broker.ask(
        UpdateFeaturesRequest(
            feature_updates=[
                UpdateFeaturesRequest.FeatureUpdate(
                    feature=feature,
                    max_version_level=level,
                    allow_downgrade=version == 0 and upgrade_type != UPGRADE,
                    upgrade_type=upgrade_type if version > 0 else UPGRADE,
                )
                for feature, level in wanted
            ]
        ),
        version,
    )
    return answer


@serves(UpdateFeaturesRequest)
@every_version(UpdateFeaturesRequest)
def test_a_feature_may_get_the_level_that_it_has(broker: InProcessBroker, version: int) -> None:
    finalized = {one.name: one.max_version_level for one in broker.ask(NAMED, 3).finalized_features}
    assert finalized == {**NEWEST.levels, "kraft.version": 1}
    answer = update(broker, version, *finalized.items())
    assert (answer.error_code, answer.error_message) == (E.NONE, None)
    assert [(result.feature, result.error_code, result.error_message) for result in answer.results] == (
        [(name, E.NONE, "NONE") for name in finalized] if version < 2 else []
    )
    assert update(broker, version).error_code == E.NONE, "nothing is to be changed"


@serves(UpdateFeaturesRequest, E.INVALID_UPDATE_VERSION)
@every_version(UpdateFeaturesRequest)
@pytest.mark.parametrize(
    ("feature", "level", "upgrade_type", "why"),
    [
        ("metadata.version", 34, UPGRADE, "Local controller 1 only supports versions 7-33"),
        ("metadata.version", 6, SAFE_DOWNGRADE, "only supports versions 7-33"),
        ("metadata.version", 32, UPGRADE, "Can't downgrade"),
        ("metadata.version", -1, UPGRADE, "cannot be less than 0"),
        ("kraft.version", 2, UPGRADE, "only supports versions 0-1"),
        ("transaction.version", 3, UPGRADE, "only supports versions 0-2"),
        ("transaction.version", 1, UPGRADE, "Can't downgrade"),
        ("group.version", 2, UPGRADE, "only supports versions 0-1"),
        ("share.version", 3, UPGRADE, "only supports versions 0-2"),
        ("streams.version", 2, UPGRADE, "only supports versions 0-1"),
        ("", 1, UPGRADE, "does not support this feature"),
    ],
)
def test_no_other_level_is_finalised_and_the_sentence_says_why(
    broker: InProcessBroker, feature: str, level: int, upgrade_type: int, why: str, version: int
) -> None:
    answer = update(broker, version, ("kraft.version", 1), (feature, level), upgrade_type=upgrade_type)
    assert (answer.error_code, answer.results) == (E.INVALID_UPDATE_VERSION, [])
    assert f"Invalid update version {level} for feature {feature}. " in answer.error_message
    assert why in answer.error_message


@pytest.mark.parametrize(
    ("upgrade_type", "why"),
    [
        (SAFE_DOWNGRADE, "Refusing to perform the requested downgrade because it might delete metadata information."),
        (UNSAFE_DOWNGRADE, "Unsafe metadata downgrade is not supported in this version."),
    ],
)
def test_metadata_is_never_lost(broker: InProcessBroker, upgrade_type: int, why: str) -> None:
    answer = update(broker, 2, ("metadata.version", 32), upgrade_type=upgrade_type)
    assert answer.error_code == E.INVALID_UPDATE_VERSION
    assert answer.error_message.endswith(f": Unsupported metadata.version downgrade from 33 to 32. {why}")


def test_the_metadata_version_goes_up_and_down_where_nothing_is_lost_and_stays_over_a_restart(tmp_path: Path) -> None:
    with running_broker(tmp_path, ottla_release_version="4.0") as broker:
        assert update(broker, 2, ("metadata.version", 23), upgrade_type=SAFE_DOWNGRADE).error_code == E.NONE
        assert finalised(broker)["metadata.version"] == 23
        assert update(broker, 2, ("metadata.version", 33)).error_code == E.NONE
    with running_broker(tmp_path) as broker:
        assert finalised(broker)["metadata.version"] == 33
        broker.create_topic("made-after-it")
        broker.restart()
        assert [topic.name for topic in broker.ask(MetadataRequest(topics=None), 12).topics] == ["made-after-it"]


@pytest.mark.settings(ottla_release_version="4.0")
def test_eligible_leaders_need_a_metadata_version_and_one_min_insync_replicas(broker: InProcessBroker) -> None:
    eligible = ("eligible.leader.replicas.version", 1)
    assert update(broker, 2, eligible).error_code == E.NONE
    assert finalised(broker)["eligible.leader.replicas.version"] == 1
    described = broker.ask(
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.Resource(
                    resource_type=4, resource_name="", configuration_keys=["min.insync.replicas"]
                )
            ]
        ),
        4,
    )
    assert [(config.name, config.value) for config in described.results[0].configs] == [("min.insync.replicas", "1")]
    assert update(broker, 2, ("eligible.leader.replicas.version", 0), upgrade_type=SAFE_DOWNGRADE).error_code == E.NONE
    assert "eligible.leader.replicas.version" not in finalised(broker)


@pytest.mark.parametrize(
    ("feature", "level", "why"),
    [
        ("kraft.version", 0, "Can't downgrade the version of this feature."),
        ("share.version", 2, "Can't downgrade to a newer version."),
    ],
)
@pytest.mark.settings(ottla_release_version="4.3")
def test_a_downgrade_goes_down(broker: InProcessBroker, feature: str, level: int, why: str) -> None:
    answer = update(broker, 2, (feature, level), upgrade_type=SAFE_DOWNGRADE)
    assert answer.error_code == E.INVALID_UPDATE_VERSION
    assert answer.error_message.endswith(f"for feature {feature}. {why}")


def test_the_first_version_can_ask_for_no_downgrade(broker: InProcessBroker) -> None:
    answer = update(broker, 0, ("transaction.version", 1), upgrade_type=SAFE_DOWNGRADE)
    assert answer.error_code == E.INVALID_UPDATE_VERSION
    assert "Can't downgrade" in answer.error_message


def test_the_voters_of_an_adopted_directory_come_from_the_settings_into_the_log(tmp_path: Path) -> None:
    """kraft.version 0 is what Kafka formatted before 3.9, and formats with `controller.quorum.voters`."""
    directory = str(tmp_path)
    format_directories(
        FileSystem(),
        [directory],
        metadata_directory=directory,
        node_id=1,
        cluster_id=None,
        controller_endpoint=Listener("CONTROLLER", "127.0.0.1", 9093),
        ids=SystemIds(os.urandom),
        now_ms=0,
        date="today",
    )
    (voters,) = tmp_path.glob("__cluster_metadata-0/*.checkpoint")
    voters.unlink()
    directory_id = read_meta_properties(FileSystem(), f"{directory}/meta.properties").directory_id
    with running_broker(tmp_path) as broker:
        assert "kraft.version" not in finalised(broker)
        for validate_only in (True, False):
            answer = broker.ask(
                UpdateFeaturesRequest(
                    feature_updates=[
                        UpdateFeaturesRequest.FeatureUpdate(
                            feature="kraft.version", max_version_level=1, upgrade_type=UPGRADE
                        )
                    ],
                    validate_only=validate_only,
                ),
                2,
            )
            assert answer.error_code == E.NONE
            assert ("kraft.version" in finalised(broker)) is not validate_only
        for _ in range(2):
            log = broker.server.components.raft
            assert [(one.voter_id, one.voter_directory_id) for one in log.quorum.voters.voters] == [(1, directory_id)]
            broker.restart()
        assert finalised(broker)["kraft.version"] == 1
    assert '"data_version":1' in (tmp_path / "__cluster_metadata-0" / "quorum-state").read_text()


def finalised(broker: InProcessBroker) -> dict[str, int]:
    return {one.name: one.max_version_level for one in broker.ask(NAMED, 4).finalized_features}


@pytest.mark.parametrize("upgrade_type", [SAFE_DOWNGRADE, UNSAFE_DOWNGRADE])
def test_the_transaction_version_goes_down_and_up_again_and_stays_over_a_restart(
    broker: InProcessBroker, upgrade_type: int
) -> None:
    for level in (1, 0):
        assert update(broker, 2, ("transaction.version", level), upgrade_type=upgrade_type).error_code == E.NONE
        assert finalised(broker).get("transaction.version", 0) == level
    broker.restart()
    assert "transaction.version" not in finalised(broker)
    assert update(broker, 1, ("transaction.version", 2)).results[0].error_message == "NONE"
    assert finalised(broker)["transaction.version"] == 2


def test_an_update_that_is_only_validated_changes_nothing(broker: InProcessBroker) -> None:
    downgrade = UpdateFeaturesRequest.FeatureUpdate(
        feature="transaction.version", max_version_level=0, upgrade_type=SAFE_DOWNGRADE
    )
    answer = broker.ask(UpdateFeaturesRequest(feature_updates=[downgrade], validate_only=True), 2)
    assert answer.error_code == E.NONE
    assert finalised(broker)["transaction.version"] == 2


@pytest.mark.parametrize("upgrade_type", [0, 4])
def test_there_are_three_upgrade_types(broker: InProcessBroker, upgrade_type: int) -> None:
    answer = update(broker, 2, ("metadata.version", 33), upgrade_type=upgrade_type)
    assert answer.error_code == E.INVALID_UPDATE_VERSION
    assert "does not support the given upgrade type" in answer.error_message
