"""Settings that name classes of Java: each is decided, wherever it stands and by whatever way it comes."""

import re

import pytest

from config.broker_settings import BrokerSettings
from config.class_settings import CLASS_SETTINGS, Where
from config.definitions import definitions
from config.dynamic import with_dynamic
from config.errors import SettingsError
from config.listeners import Listener
from config.parse import combine_settings

FOREIGN = "com.example.Mine"
NAMES_CLASSES = r".*(\.class|\.class\.name|\.reporters|\.assignors|\.providers?)"
OF_EVERY_START = sorted(name for name, one in CLASS_SETTINGS.items() if one.where is Where.EVERY_START)
WITH_A_CLASS_OF_KAFKAS = sorted(name for name in OF_EVERY_START if CLASS_SETTINGS[name].kafkas)
OF_A_LISTENER = {
    Where.SASL: {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="wonder";'
        ),
    },
    Where.TLS: {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "/etc/broker.pem",
    },
}
SECURED = sorted((name, one.where) for name, one in CLASS_SETTINGS.items() if one.where in OF_A_LISTENER)


def refusal(*sources: dict[str, str]) -> str:
    with pytest.raises(SettingsError) as refused:
        combine_settings(sources)
    return str(refused.value)


def test_every_setting_of_kafka_that_names_a_class_is_decided() -> None:
    settings = {**definitions("broker"), **definitions("internal")}
    named = {name for name, one in settings.items() if one.type.name == "CLASS" or re.fullmatch(NAMES_CLASSES, name)}

    assert named == set(CLASS_SETTINGS)


@pytest.mark.parametrize("name", OF_EVERY_START)
def test_a_class_that_decides_something_stops_the_start(name: str) -> None:
    decides = CLASS_SETTINGS[name].decides
    sentence = (
        f"{name} is '{FOREIGN}', but this broker cannot load classes of Java, and this one would decide {decides}"
    )

    assert refusal({name: FOREIGN}).startswith(sentence)
    assert refusal({f"listener.name.plaintext.{name}": f" {FOREIGN} "}).startswith(
        f"listener.name.plaintext.{sentence}"
    )


@pytest.mark.parametrize("name", WITH_A_CLASS_OF_KAFKAS)
def test_kafkas_own_class_named_in_full_is_taken(name: str) -> None:
    for kafkas in CLASS_SETTINGS[name].kafkas:
        assert combine_settings([{name: kafkas}]).settings.given[name] == kafkas
    assert f"leave it out, or name {CLASS_SETTINGS[name].kafkas[0]}" in refusal({name: FOREIGN})


@pytest.mark.parametrize(("name", "where"), SECURED)
def test_a_class_of_a_secured_listener_stops_the_start_where_there_is_such_a_listener(name: str, where: Where) -> None:
    prefix = "plain." if where is Where.SASL else ""
    listener = OF_A_LISTENER[where]["listeners"].partition(":")[0].lower()

    for key in (name, f"listener.name.{listener}.{prefix}{name}"):
        assert refusal(OF_A_LISTENER[where], {key: FOREIGN}).startswith(f"{key} is '{FOREIGN}', but")
        for kafkas in CLASS_SETTINGS[name].kafkas:
            assert combine_settings([OF_A_LISTENER[where], {key: kafkas}])
    assert combine_settings([{name: FOREIGN}]).notices == [f"accepted without effect here: {name}"]


@pytest.mark.parametrize("name", sorted(name for name, one in CLASS_SETTINGS.items() if one.where is Where.NOWHERE))
def test_a_class_that_only_watches_is_accepted_and_named(name: str) -> None:
    assert combine_settings([{name: FOREIGN}]).notices == [f"accepted without effect here: {name}"]


def test_assignors_may_be_named_by_their_classes() -> None:
    package = "org.apache.kafka.coordinator.group"
    settings = combine_settings(
        [
            {
                "group.consumer.assignors": f"{package}.assignor.RangeAssignor,uniform",
                "group.streams.assignors": f"{package}.streams.assignor.StickyTaskAssignor",
            }
        ]
    ).settings

    assert settings.group_consumer_assignors == ("range", "uniform")
    assert settings.group_streams_assignors == ("sticky",)
    assert "group.consumer.assignors" in refusal({"group.consumer.assignors": FOREIGN})


@pytest.mark.parametrize(
    "key",
    [
        "principal.builder.class",
        "listener.name.plaintext.principal.builder.class",
        "ssl.engine.factory.class",
        "listener.name.plaintext.ssl.engine.factory.class",
        "listener.name.sasl.plain.sasl.server.callback.handler.class",
    ],
)
def test_a_class_in_the_metadata_of_an_adopted_directory_is_passed_over_with_a_sentence(key: str) -> None:
    secured = (Listener("PLAINTEXT", "", 9092, "SSL"), Listener("SASL", "", 9093, "SASL_PLAINTEXT"))

    found = with_dynamic(BrokerSettings(listeners=secured), {}, {key: FOREIGN, "num.io.threads": "4"})

    assert list(found.passed_over) == [key]
    assert str(found.passed_over[key]).startswith(f"{key} is '{FOREIGN}', but this broker cannot load classes of Java")
    assert found.settings.num_io_threads == 4
