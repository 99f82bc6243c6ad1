"""`ottla.topics.at.start`: the meaning of its entries, and the errors of wrong ones."""

import pytest

from config.broker_settings import BrokerSettings
from config.errors import SettingsError
from config.parse import load_settings
from config.sources import read_yaml
from config.topics_at_start import KEY, TopicAtStart


def topics(text: str) -> tuple[TopicAtStart, ...]:
    settings: BrokerSettings = load_settings(None, [(KEY, text)]).settings
    return settings.ottla_topics_at_start


def test_nothing_is_made_where_nothing_is_said() -> None:
    assert load_settings(None).settings.ottla_topics_at_start == topics("") == ()


def test_an_entry_is_a_name_with_partitions_and_configs_where_they_are_given() -> None:
    assert topics("orders:6:retention.ms=3600000:min.insync.replicas=1, payments:3 ,audit") == (
        TopicAtStart(name="orders", partitions=6, configs={"retention.ms": "3600000", "min.insync.replicas": "1"}),
        TopicAtStart(name="payments", partitions=3),
        TopicAtStart(name="audit"),
    )


def test_configs_may_follow_the_name_at_once() -> None:
    assert topics("audit:retention.ms=-1") == (TopicAtStart(name="audit", configs={"retention.ms": "-1"}),)


def test_a_value_with_a_comma_or_a_colon_stands_in_brackets() -> None:
    key = "leader.replication.throttled.replicas"

    assert topics(f"a:1:cleanup.policy=[compact,delete],b:2:{key}=[0:1,1:1]") == (
        TopicAtStart(name="a", partitions=1, configs={"cleanup.policy": "compact,delete"}),
        TopicAtStart(name="b", partitions=2, configs={key: "0:1,1:1"}),
    )


def test_a_yaml_list_does_as_well() -> None:
    texts = read_yaml(
        "ottla.topics.at.start:\n  - orders:6:cleanup.policy=[compact,delete]\n  - audit\n", "server.yaml"
    )

    assert [topic.name for topic in topics(texts[KEY])] == ["orders", "audit"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("orders:x", r"is 'orders:x', expected a whole number of at least 1 behind the topic's name"),
        ("orders:0", r"is 'orders:0', expected a whole number of at least 1"),
        ("orders:99999999999", r"is 'orders:99999999999', expected a whole number of at least 1"),
        ("orders:1:compact", r"is 'orders:1:compact', expected name, name:partitions or name:partitions:config=value"),
        ("orders:", r"is 'orders:', expected a whole number"),
        (":3", r"is ':3', expected name, "),
        ("orders,", r"is '', expected name, "),
        ("orders,payments,orders:3", r"expected each topic once, but orders stands there 2 times"),
        ("orders:1:retention.ms=1:retention.ms=2", r"expected each config once, but retention.ms stands there twice"),
        ("orders:1:cleanup.policy=compact,delete", r"is 'delete', expected brackets around a value with a comma"),
        ("orders:1:retention.mss=1", r"has topic orders, whose retention.mss is not .*; did you mean retention.ms\?"),
        ("orders:1:retention.ms=week", r"has topic orders, whose retention.ms is 'week', expected a whole number"),
        ("orders:1:cleanup.policy=[compact", r"whose cleanup.policy is '\[compact', expected"),
    ],
)
def test_an_entry_that_cannot_be_kept_is_named(text: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=f"^{KEY} .*{sentence}"):
        topics(text)
