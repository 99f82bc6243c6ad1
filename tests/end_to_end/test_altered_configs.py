"""Altered configs: described at once, kept to at once, and refused with Kafka's codes."""

from __future__ import annotations

import time

import pytest

from tests.support.clients import TIMEOUT_S, Client, Record, RequestFailed


def until_described(client: Client, topic: str, name: str, value: str) -> None:
    """Kafka's broker takes a moment until it has what its controller has answered."""
    deadline = time.monotonic() + TIMEOUT_S
    while client.topic_configs(topic)[name] != value:
        assert time.monotonic() < deadline, f"{name} of {topic} is still not {value} after {TIMEOUT_S} s"


def test_what_is_altered_is_described(client: Client, topic: str) -> None:
    client.create_topic(topic)

    client.alter_topic(topic, {"retention.ms": "3600000", "cleanup.policy": "compact,delete"})

    until_described(client, topic, "retention.ms", "3600000")
    assert client.topic_configs(topic)["cleanup.policy"] == "compact,delete"


def test_a_smaller_max_message_bytes_refuses_the_next_large_record(client: Client, topic: str) -> None:
    client.create_topic(topic)
    large = Record(value=b"x" * 5_000)
    client.produce(topic, [large])

    client.alter_topic(topic, {"max.message.bytes": "1000"})
    until_described(client, topic, "max.message.bytes", "1000")

    with pytest.raises(RequestFailed) as refused:
        client.produce(topic, [large])
    assert refused.value.code == 10  # MESSAGE_TOO_LARGE
    client.produce(topic, [Record(value=b"small")])


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ({"no.such.config": "1"}, 40),  # INVALID_CONFIG
        ({"retention.ms": "soon"}, 40),
        ({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, 40),
    ],
)
def test_a_wrong_config_is_refused_and_nothing_is_changed(
    client: Client, topic: str, configs: dict[str, str], code: int
) -> None:
    client.create_topic(topic, configs={"segment.ms": "3600000"})
    before = client.topic_configs(topic)

    with pytest.raises(RequestFailed) as refused:
        client.alter_topic(topic, configs)

    assert refused.value.code == code
    assert client.topic_configs(topic) == before
