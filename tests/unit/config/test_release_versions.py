"""Kafka's release versions, and the feature levels that each gives."""

from collections.abc import Mapping

import pytest

from config.errors import InvalidConfig
from config.parse import load_settings
from config.release_versions import NEWEST, RELEASE_VERSIONS, read_release_version

GROUPS = {"group.version": 1}
TRANSACTIONS = {"transaction.version": 2}
ELIGIBLE_LEADERS = {"eligible.leader.replicas.version": 1}

# What `kafka-storage format --release-version` of Kafka 4.4.0 writes.
LEVELS_BY_NAME: Mapping[str, tuple[int, Mapping[str, int]]] = {
    "3.3-IV3": (7, {}),
    "3.4-IV0": (8, {}),
    "3.5-IV0": (9, {}),
    "3.5-IV1": (10, {}),
    "3.5-IV2": (11, {}),
    "3.6-IV0": (12, {}),
    "3.6-IV1": (13, {}),
    "3.6-IV2": (14, {}),
    "3.7-IV0": (15, {}),
    "3.7-IV1": (16, {}),
    "3.7-IV2": (17, {}),
    "3.7-IV3": (18, {}),
    "3.7-IV4": (19, {}),
    "3.8-IV0": (20, {}),
    "3.9-IV0": (21, {}),
    "4.0-IV0": (22, GROUPS),
    "4.0-IV1": (23, GROUPS),
    "4.0-IV2": (24, {**GROUPS, **TRANSACTIONS}),
    "4.0-IV3": (25, {**GROUPS, **TRANSACTIONS}),
    "4.1-IV0": (26, {**ELIGIBLE_LEADERS, **GROUPS, **TRANSACTIONS}),
    "4.1-IV1": (27, {**ELIGIBLE_LEADERS, **GROUPS, **TRANSACTIONS}),
    "4.2-IV0": (28, {**ELIGIBLE_LEADERS, **GROUPS, "share.version": 1, **TRANSACTIONS}),
    "4.2-IV1": (29, {**ELIGIBLE_LEADERS, **GROUPS, "share.version": 1, "streams.version": 1, **TRANSACTIONS}),
    "4.3-IV0": (30, {**ELIGIBLE_LEADERS, **GROUPS, "share.version": 1, "streams.version": 1, **TRANSACTIONS}),
    "4.4-IV0": (31, {**ELIGIBLE_LEADERS, **GROUPS, "share.version": 2, "streams.version": 1, **TRANSACTIONS}),
    "4.4-IV1": (32, {**ELIGIBLE_LEADERS, **GROUPS, "share.version": 2, "streams.version": 1, **TRANSACTIONS}),
    "4.4-IV2": (33, {**ELIGIBLE_LEADERS, **GROUPS, "share.version": 2, "streams.version": 1, **TRANSACTIONS}),
}


@pytest.mark.parametrize("name", LEVELS_BY_NAME)
def test_each_release_version_gives_the_levels_that_kafka_gives_in_its_order(name: str) -> None:
    version = read_release_version(name)

    metadata_version, others = LEVELS_BY_NAME[name]
    assert version is not None
    assert list(version.levels.items()) == [("metadata.version", metadata_version), *others.items()]


def test_no_other_release_version_is_known() -> None:
    assert [version.name for version in RELEASE_VERSIONS.values()] == list(LEVELS_BY_NAME)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("3.3", "3.3-IV3"),
        ("4.0", "4.0-IV3"),
        ("4.0.0", "4.0-IV3"),
        ("4.0.7-anything", "4.0-IV3"),
        ("4.0-IV1.2", "4.0-IV1"),
        ("4.3.1", "4.3-IV0"),
        ("4.4", "4.4-IV2"),
    ],
)
def test_a_release_stands_for_the_last_of_its_levels(text: str, name: str) -> None:
    version = read_release_version(text)

    assert version is not None
    assert version.name == name


@pytest.mark.parametrize("text", ["3.2", "3.3-IV2", "4.5", "4.5-IV0", "4.10", "4", "33", "latest", "4.0-iv3", "v4.0"])
def test_a_release_version_that_kafka_does_not_know_is_refused(text: str) -> None:
    with pytest.raises(
        InvalidConfig, match=r"ottla\.release\.version is '.*', expected a release of Kafka from 3.3 to 4.4"
    ):
        load_settings(None, [("ottla.release.version", text)])


@pytest.mark.parametrize(
    ("name", "kafka"), [("3.3", "3.9.0"), ("3.9", "3.9.0"), ("4.0-IV1", "4.0.0"), ("4.3", "4.3.0"), ("4.4", "4.4.0")]
)
def test_the_oldest_kafka_that_opens_a_new_directory(name: str, kafka: str) -> None:
    version = read_release_version(name)

    assert version is not None
    assert version.oldest_kafka == kafka


def test_a_directory_gets_the_newest_levels_where_nothing_else_is_wanted() -> None:
    assert NEWEST.name == "4.4-IV2"
    assert load_settings(None, [("ottla.release.version", "")]).settings.ottla_release_version is None


def test_a_member_of_a_cluster_has_the_levels_of_its_controllers() -> None:
    member = {"process.roles": "broker", "controller.quorum.bootstrap.servers": "c:9093", "node.id": "7"}
    member["controller.listener.names"] = "CONTROLLER"

    with pytest.raises(
        InvalidConfig, match=r"ottla\.release\.version is '4.0-IV3', expected nothing where process.roles"
    ):
        load_settings(None, [*member.items(), ("ottla.release.version", "4.0")])
