"""The declarations, Kafka's table, server.yaml and the page for users say the same."""

import re
from pathlib import Path

import pytest

from config.broker_settings import BROKER_SETTINGS, BrokerSettings
from config.declared import Declaration
from config.definitions import broker_definition, definitions
from config.documentation import PATH, configuration_page
from config.help import SERVER_YAML, all_help
from config.log_config import OUR_TOPIC_SETTINGS, TOPIC_SETTINGS
from config.our_defaults import OUR_DEFAULTS
from config.parse import load_settings
from config.sources import read_yaml

KAFKAS_SETTINGS = [key for key in BROKER_SETTINGS if not key.startswith("ottla.")]


def server_yaml_with_every_line_in_force() -> str:
    return re.sub(r"^#(?=[a-z])", "", Path(SERVER_YAML).read_text(), flags=re.MULTILINE)


def test_the_table_holds_all_settings_of_kafka_4_4_0() -> None:
    scopes = ("broker", "topic", "group", "internal", "internal group", "quota")
    counts = {scope: len(definitions(scope)) for scope in scopes}

    assert counts == {"broker": 350, "topic": 37, "group": 21, "internal": 29, "internal group": 6, "quota": 3}


def test_topic_settings_are_declared_as_kafka_defines_them() -> None:
    kafkas = {
        name: Declaration(one.type, one.default, one.allowed, TOPIC_SETTINGS[name].convert)
        for name, one in definitions("topic").items()
    }

    assert kafkas == {name: one for name, one in TOPIC_SETTINGS.items() if name not in OUR_TOPIC_SETTINGS}


def test_topic_settings_of_ours_are_explained() -> None:
    assert {name for name in TOPIC_SETTINGS if name.startswith("ottla.")} == set(OUR_TOPIC_SETTINGS)
    assert all(line.endswith(".") for line in OUR_TOPIC_SETTINGS.values())


@pytest.mark.parametrize("key", KAFKAS_SETTINGS)
def test_a_broker_setting_is_declared_as_kafka_defines_it(key: str) -> None:
    declared, kafkas = BROKER_SETTINGS[key], broker_definition(key)

    assert kafkas is not None
    assert (declared.type, declared.allowed) == (kafkas.type, kafkas.allowed)
    if key in OUR_DEFAULTS:
        assert declared.default == OUR_DEFAULTS[key].value != kafkas.default
    else:
        assert (declared.default or None) == (kafkas.default or None)


def test_every_default_of_ours_is_one_of_a_setting_that_exists() -> None:
    assert set(OUR_DEFAULTS) <= set(BROKER_SETTINGS)


def test_server_yaml_lists_every_setting_that_does_something_here_in_order_and_helps_with_each() -> None:
    assert list(all_help()) == list(BROKER_SETTINGS)
    assert all(entry.line.endswith(".") and entry.section for entry in all_help().values())


def test_server_yaml_with_every_line_in_force_is_what_holds_without_it(tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text(server_yaml_with_every_line_in_force())

    loaded = load_settings(str(path))

    assert loaded.settings.replace(given={}) == BrokerSettings()
    assert loaded.notices == []


def test_server_yaml_as_it_is_sets_nothing() -> None:
    assert load_settings(SERVER_YAML).settings.given == {}


def test_server_yaml_shows_the_defaults_that_are_declared() -> None:
    texts = read_yaml(server_yaml_with_every_line_in_force(), "server.yaml")

    for key, declaration in BROKER_SETTINGS.items():
        assert texts.get(key, "") == (declaration.default or ""), key


@pytest.mark.sources_only
def test_the_page_for_users_is_up_to_date() -> None:
    assert Path(PATH).read_text() == configuration_page(), "run python -m config.documentation"
