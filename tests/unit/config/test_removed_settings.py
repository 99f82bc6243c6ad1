"""Settings that Kafka had once: a sentence says since when each is gone, and the start goes on where it can."""

from pathlib import Path
from typing import Final

import pytest

from config.broker_settings import BrokerSettings
from config.dynamic import with_dynamic
from config.errors import SettingsError
from config.log_config import LogConfig
from config.parse import combine_settings
from config.removed_settings import STOPPING

REMOVED: Final = dict(
    line.split("\t")
    for line in Path(__file__).with_name("removed_settings.tsv").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
)
PASSED_OVER: Final = sorted(REMOVED.keys() - set(STOPPING))


@pytest.mark.parametrize("name", PASSED_OVER)
def test_a_removed_setting_is_passed_over_with_a_sentence(name: str) -> None:
    (notice,) = combine_settings([{name: "geheim", "num.io.threads": "4"}]).notices

    assert notice.startswith(f"passed over: {name} no longer exists: Kafka {REMOVED[name]} removed it: ")
    assert "geheim" not in notice


@pytest.mark.parametrize("name", STOPPING)
def test_a_removed_setting_stops_the_start_where_another_one_has_to_say_the_same(name: str) -> None:
    with pytest.raises(SettingsError) as refused:
        combine_settings([{name: "geheim"}])

    assert str(refused.value).startswith(f"{name} no longer exists: Kafka {REMOVED[name]} removed it: ")
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize("name", sorted(REMOVED))
def test_a_removed_setting_in_the_metadata_of_an_adopted_directory_is_passed_over(name: str) -> None:
    found = with_dynamic(BrokerSettings(), {name: "1"}, {"num.io.threads": "4"})

    assert found.settings.num_io_threads == 4
    assert not found.passed_over


@pytest.mark.parametrize(
    "name", ["message.format.version", "message.downconversion.enable", "message.timestamp.difference.max.ms"]
)
def test_a_removed_setting_of_a_topic_in_an_adopted_directory_is_passed_over(name: str) -> None:
    assert LogConfig().with_overrides({name: "2.8", "retention.ms": "7"}) == LogConfig(retention_ms=7)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "file.delete.delay.ms",
            "file.delete.delay.ms is a setting of single topics and says nothing of a broker, expected "
            "log.segment.delete.delay.ms, their default",
        ),
        (
            "leader.replication.throttled.replicas",
            "leader.replication.throttled.replicas is a setting of single topics and says nothing of a broker",
        ),
        (
            "log.unclean.leader.election.enable",
            "log.unclean.leader.election.enable is not the name of a setting (its value is 'true'); did you mean "
            "unclean.leader.election.enable?",
        ),
    ],
)
def test_a_name_that_no_version_had_for_brokers_stops_the_start(name: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        combine_settings([{name: "true"}])

    assert str(refused.value) == sentence
