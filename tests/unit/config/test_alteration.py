"""What may be changed while a broker runs, and what the settings come to."""

import pytest

from config.alteration import check_broker_alteration
from config.broker_settings import BROKER_SETTINGS, BrokerSettings
from config.definitions import definitions
from config.described import BrokerTexts
from config.dynamic import is_dynamic, split_listener_key, with_dynamic
from config.errors import SettingsError

NOTHING_SAID = BrokerTexts(static={})


def refusal(key: str, text: str, *, for_all: bool = False, before: BrokerTexts = NOTHING_SAID) -> str | None:
    """The sentence with which a change is refused; None if it is not."""
    after = before._replace(**{"dynamic_default" if for_all else "dynamic_broker": {key: text}})
    try:
        check_broker_alteration(BrokerSettings(), before, after)
    except SettingsError as error:
        return str(error)
    return None


def test_everything_that_kafka_can_change_can_be_changed_but_for_the_listeners_themselves() -> None:
    kafkas = {name for name, definition in definitions("broker").items() if definition.is_dynamic}

    assert {name for name in kafkas if not is_dynamic(name)} == {"listeners", "listener.security.protocol.map"}
    assert not is_dynamic("ottla.connection.max.in.flight")


def test_every_setting_that_can_be_changed_and_does_something_here_takes_its_default_again() -> None:
    static = BrokerSettings()
    for key, declaration in BROKER_SETTINGS.items():
        if is_dynamic(key) and declaration.default is not None:
            changed = with_dynamic(static, {key: declaration.default}, {})
            assert changed == (static, {}), key


def test_the_strongest_source_counts() -> None:
    settings, passed_over = with_dynamic(
        BrokerSettings(message_max_bytes=1, log_segment_bytes=1048576),
        {"message.max.bytes": "2", "log.roll.ms": "5"},
        {"message.max.bytes": "3"},
    )

    assert (settings.message_max_bytes, settings.log_roll_ms, settings.log_segment_bytes) == (3, 5, 1048576)
    assert passed_over == {}


def test_what_contradicts_itself_is_passed_over_and_the_rest_counts() -> None:
    settings, passed_over = with_dynamic(
        BrokerSettings(),
        {"max.connections.per.ip": "0", "message.max.bytes": "2"},
        {"log.retention.ms": "0", "max.connections": "7"},
    )

    assert (settings.message_max_bytes, settings.max_connections, settings.log_retention_ms) == (2, 7, None)
    assert {key: str(error) for key, error in passed_over.items()} == {
        "max.connections.per.ip": "max.connections.per.ip is '0', expected at least 1, unless "
        "max.connections.per.ip.overrides names who may connect",
        "log.retention.ms": "log.retention.ms is '0', expected a whole number of at least 1, or -1 for no limit",
    }


@pytest.mark.parametrize(
    ("key", "listener", "setting"),
    [
        ("listener.name.internal.max.connections", "internal", "max.connections"),
        ("listener.name.max", None, "listener.name.max"),
        ("max.connections", None, "max.connections"),
    ],
)
def test_a_listeners_prefix_is_taken_off(key: str, listener: str | None, setting: str) -> None:
    assert split_listener_key(key) == (listener, setting)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("sasl.kerberos.min.time.before.relogin", "58000"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("sasl.jaas.config", "secret"),
        ("ssl.client.auth", "required"),
        ("ssl.cipher.suites", "a,b"),
        ("listener.name.plaintext.ssl.keystore.location", "/x"),
        ("listener.name.plaintext.plain.sasl.jaas.config", "secret"),
        ("config.providers", "file"),
        ("metric.reporters", ""),
        ("follower.fetch.last.tiered.offset.enable", "false"),
        ("my.plugin.key", "x"),
    ],
)
def test_a_setting_of_a_feature_that_is_off_can_be_changed_as_in_kafka(key: str, text: str) -> None:
    assert refusal(key, text) is None


def test_every_setting_that_kafka_can_change_takes_its_own_default() -> None:
    for key, known in definitions("broker").items():
        if is_dynamic(key) and known.default is not None:
            refused = refusal(key, known.default)
            assert refused is None or key in refused
            assert (refused is None) == (key not in ("ssl.keystore.type", "ssl.truststore.type")), key


def test_key_stores_are_changed_for_a_listener_only() -> None:
    assert refusal("ssl.keystore.location", "/x") == (
        "These security configs can be dynamically updated only per-listener using the listener prefix: "
        "[ssl.keystore.location]"
    )


@pytest.mark.parametrize(
    ("key", "text", "sentence"),
    [
        ("principal.builder.class", "my.Builder", "Class my.Builder could not be found."),
        ("ssl.engine.factory.class", "my.Factory", "Class my.Factory could not be found."),
        ("metric.reporters", "my.Reporter", "since there are no Java classes here"),
        ("max.connections", "0", "Invalid max.connections 0"),
        ("max.connection.creation.rate", "0", "Invalid max.connection.creation.rate 0"),
        ("listener.name.plaintext.max.connections", "0", "Invalid max.connections 0"),
        ("log.cleanup.policy", "delete,delete", "Configuration 'log.cleanup.policy' values must not be duplicated."),
        ("log.cleaner.dedupe.buffer.size", "1048576", "must be at least 1MB per cleaner thread"),
        ("log.local.retention.ms", "-1", "Value must not be -1 as log.retention.ms value is set as 604800000."),
        ("log.local.retention.ms", "604800001", "must not be more than log.retention.ms property value: 604800000"),
        ("cordoned.log.dirs", "/x", "cordoned.log.dirs is '/x', expected entries of log.dirs, which has ./data"),
        ("cordoned.log.dirs", "*,./data", "cordoned.log.dirs is '*,./data', expected * alone, or directories"),
        ("num.partitions", "3", "Cannot update these configs dynamically: [num.partitions]"),
    ],
)
def test_what_kafka_refuses_is_refused_in_its_words(key: str, text: str, sentence: str) -> None:
    assert sentence in str(refusal(key, text))


@pytest.mark.parametrize(
    "key",
    [
        "sasl.kerberos.min.time.before.relogin",
        "ssl.client.auth",
        "principal.builder.class",
        "listener.name.plaintext.num.io.threads",
        "listener.name.plaintext.ssl.keystore.type",
        "cordoned.log.dirs",
    ],
)
def test_some_settings_are_changed_for_one_broker_only(key: str) -> None:
    known = definitions("broker").get(split_listener_key(key)[1])
    assert known is not None

    assert refusal(key, known.default or "", for_all=True) == (
        f"Cannot update these configs at default cluster level, broker id must be specified: [{key}]"
    )


def test_limits_of_a_listener_may_be_changed_for_all_brokers_at_once() -> None:
    assert refusal("listener.name.plaintext.max.connections", "5", for_all=True) is None
    assert refusal("listener.name.plaintext.num.io.threads", "8") is None


def test_a_secret_is_not_repeated() -> None:
    assert "geheim" not in str(refusal("ssl.keystore.password", "geheim"))


def test_threads_change_in_steps() -> None:
    assert refusal("num.network.threads", "7") == (
        "num.network.threads is '7', expected at least half and at most twice the number of now, 3: change it in steps"
    )
    assert refusal("num.network.threads", "6") is None
    assert refusal("log.cleaner.threads", "0") is not None


def test_the_brokers_own_group_settings_keep_within_its_limits() -> None:
    assert refusal("group.consumer.assignment.interval.ms", "15000") is None
    assert refusal("group.consumer.assignment.interval.ms", "15001") == (
        "group.consumer.assignment.interval.ms is '15001', expected at most "
        "group.consumer.max.assignment.interval.ms, which is 15000"
    )
