"""UpdateFeatures through the codec."""

import pytest

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.features import UpdateFeaturesRequest, UpdateFeaturesResponse
from tests.support.broker import InProcessBroker

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
    assert finalized == {"metadata.version": 25, "transaction.version": 2, "kraft.version": 1}
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
        ("metadata.version", 26, UPGRADE, "only supports versions 7-25"),
        ("metadata.version", 6, SAFE_DOWNGRADE, "only supports versions 7-25"),
        ("metadata.version", 24, UPGRADE, "Can't downgrade"),
        ("metadata.version", -1, UPGRADE, "cannot be less than 0"),
        ("kraft.version", 2, UPGRADE, "only supports versions 0-1"),
        ("transaction.version", 3, UPGRADE, "only supports versions 0-2"),
        ("transaction.version", 1, UPGRADE, "Can't downgrade"),
        ("group.version", 1, UPGRADE, "does not support this feature"),
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


@pytest.mark.parametrize(("feature", "level"), [("metadata.version", 24), ("kraft.version", 0)])
def test_other_features_stay_at_the_level_of_the_directory(broker: InProcessBroker, feature: str, level: int) -> None:
    answer = update(broker, 2, (feature, level), upgrade_type=SAFE_DOWNGRADE)
    assert answer.error_code == E.INVALID_UPDATE_VERSION
    assert f"works at level {level + 1}" in answer.error_message


def test_the_first_version_can_ask_for_no_downgrade(broker: InProcessBroker) -> None:
    answer = update(broker, 0, ("transaction.version", 1), upgrade_type=SAFE_DOWNGRADE)
    assert answer.error_code == E.INVALID_UPDATE_VERSION
    assert "Can't downgrade" in answer.error_message


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
    answer = update(broker, 2, ("metadata.version", 25), upgrade_type=upgrade_type)
    assert answer.error_code == E.INVALID_UPDATE_VERSION
    assert "does not support the given upgrade type" in answer.error_message
