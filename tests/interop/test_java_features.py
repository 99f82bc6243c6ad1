"""Kafka's own tool for features: `transaction.version` goes down and up, and what cannot be is refused in Kafka's
words."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from dev.broker_process import BrokerProcess
from dev.brokers import broker_for_tests
from tests.interop import programs
from tests.interop.conftest import installed
from tests.interop.java_tools import JavaTools

FEATURE = "transaction.version"
NOT_UP = r"Could not upgrade transaction\.version to {level}\. The update failed for all features since the following "
NOT_DOWN_BY_UPGRADE = (
    r"feature had an error: Invalid update version 1 for feature transaction\.version\. Can't downgrade the version of "
    r"this feature without setting the upgrade type to either safe or unsafe downgrade\."
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose features no other file's tests see."""
    with broker_for_tests(tmp_path_factory.mktemp("features")) as process:
        yield process


@pytest.fixture(scope="module")
def java(broker: BrokerProcess) -> JavaTools:
    return JavaTools(installed(programs.java), broker.bootstrap)


def described(java: JavaTools) -> tuple[str, str, str]:
    """The first and the last level of `transaction.version` that are supported, and its finalised level."""
    [line] = [line for line in java.lines("kafka-features", "describe") if FEATURE in line]
    found = re.search(r"SupportedMinVersion: (\d+)\s+SupportedMaxVersion: (\d+)\s+FinalizedVersionLevel: (\d+)", line)
    assert found, line
    first, last, finalised = found.groups()
    return first, last, finalised


def changed(java: JavaTools, verb: str, level: int, *options: str) -> list[str]:
    return java.lines("kafka-features", verb, "--feature", f"{FEATURE}={level}", *options)


def test_the_transaction_version_goes_down_and_up(java: JavaTools) -> None:
    assert described(java) == ("0", "2", "2")
    assert changed(java, "downgrade", 1) == ["transaction.version was downgraded to 1."]
    assert changed(java, "upgrade", 2, "--dry-run") == ["transaction.version can be upgraded to 2."]
    assert described(java) == ("0", "2", "1")
    assert java.lines("kafka-features", "disable", "--feature", FEATURE) == ["transaction.version was disabled."]
    assert described(java) == ("0", "2", "0")
    assert changed(java, "upgrade", 2) == ["transaction.version was upgraded to 2."]
    assert described(java) == ("0", "2", "2")


@pytest.mark.parametrize(
    ("level", "why"),
    [
        (1, NOT_DOWN_BY_UPGRADE),
        (3, r"feature had an error: Invalid update version 3 for feature transaction\.version\. .* 0-2"),
    ],
)
def test_a_level_that_can_not_be_is_refused(java: JavaTools, level: int, why: str) -> None:
    outcome = java.run("kafka-features", "upgrade", "--feature", f"{FEATURE}={level}").refused()
    assert re.search(NOT_UP.format(level=level) + why, outcome.said), outcome
    assert "1 out of 1 operation(s) failed." in outcome.said


def test_of_two_features_neither_is_changed_where_one_can_not_be(java: JavaTools) -> None:
    wanted = ("--feature", f"{FEATURE}=1", "--feature", "strange.version=1")
    outcome = java.run("kafka-features", "downgrade", *wanted).refused()
    assert "Could not downgrade transaction.version to 1. The update failed for all features" in outcome.said
    assert "Invalid update version 1 for feature strange.version." in outcome.said
    assert described(java) == ("0", "2", "2")
