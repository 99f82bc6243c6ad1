"""Retention waits for the group that archives a topic: set, committed and watched by stock clients, through kills."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.broker_process import BrokerProcess
from dev.waiting import until
from tests.support.clients import Client, Committed, Place, Record, RequestFailed, connect, values
from tests.support.metrics import Page, http_get

OFTEN = {
    "log.retention.check.interval.ms": "50",
    "log.initial.task.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
}
TOO_OLD = {"retention.ms": "1000", "segment.ms": "60000"}
"""Of records an hour ago, and a segment for each minute of them."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Ours, whatever else the tests may ask: nobody else has the setting."""
    process = BrokerProcess(tmp_path, settings=OFTEN)
    process.start()
    yield process
    process.close()


@pytest.fixture
def group(topic: str) -> str:
    return f"archive.{topic}"


def fill(client: Client, topic: str) -> list[bytes | None]:
    """Ten records in five segments, all of them too old."""
    an_hour_ago_ms = int(time.time() * 1000) - 3_600_000
    sent = [
        Record(value=b"%d" % number * 1000, timestamp_ms=an_hour_ago_ms + number // 2 * 120_000, partition=0)
        for number in range(10)
    ]
    for record in sent:
        client.produce(topic, [record])
    return [record.value for record in sent]


def told(broker: BrokerProcess, what: str, topic: str) -> float | None:
    page = Page(http_get(broker.metrics_port, "/metrics").text)
    return page.get(f'ottla_archive_{what}{{topic="{topic}",partition="0"}}')


def first_offset(client: Client, topic: str) -> int:
    return client.offsets(topic)[0][0]


def test_records_stay_until_the_group_has_committed_them_through_kills_and_then_go(
    client_name: str, broker: BrokerProcess, topic: str, group: str
) -> None:
    client = connect(client_name, broker.bootstrap)
    client.create_topic(topic)
    client.alter_topic(topic, {**TOO_OLD, "ottla.archive.group": group})
    assert client.topic_configs(topic)["ottla.archive.group"] == group
    sent = fill(client, topic)

    until(lambda: told(broker, "held_records", topic) == 10, "that ten records are held")
    assert client.offsets(topic) == {0: (0, 10)}

    for archived in (2, 4, 6):
        client.commit(group, {Place(topic, 0): Committed(archived)})
        broker.kill()
        broker.start()
        until(lambda left=10 - archived: told(broker, "held_records", topic) == left, f"that {archived} have gone")
        assert first_offset(client, topic) == archived
        kept = client.consume(topic, partition=0, offset=archived, count=10 - archived)
        assert values(kept) == sent[archived:]
        assert told(broker, "lag_records", topic) == 10 - archived

    client.commit(group, {Place(topic, 0): Committed(10)})
    until(lambda: client.offsets(topic) == {0: (10, 10)}, "that everything has gone")
    assert told(broker, "lag_records", topic) == 0


def test_above_its_limit_the_oldest_go_unarchived_and_the_log_and_the_metrics_say_so(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    client = connect("confluent-kafka", broker.bootstrap)
    client.create_topic(topic, configs={**TOO_OLD, "ottla.archive.group": group})
    fill(client, topic)
    until(lambda: told(broker, "held_records", topic) == 10, "that ten records are held")
    held = told(broker, "held_bytes", topic)
    assert held is not None

    client.alter_topic(topic, {"ottla.archive.max.bytes": str(int(held) // 2)})

    until(lambda: first_offset(client, topic) == 6, "that three segments have gone")
    until(lambda: told(broker, "given_up_records_total", topic) == 6, "that they are counted")
    (line,) = re.findall(rf"retention: {topic}-0 gives up .*", broker.log_text())
    assert f"offsets 0 to 5, {int(held) * 3 // 5} bytes that group {group} has not committed" in line
    assert f"ottla.archive.max.bytes is {int(held) // 2}" in line


def test_without_the_setting_what_is_too_old_goes(broker: BrokerProcess, topic: str, group: str) -> None:
    client = connect("kafka-python", broker.bootstrap)
    client.create_topic(topic, configs={**TOO_OLD, "ottla.archive.group": group})
    fill(client, topic)
    until(lambda: told(broker, "held_records", topic) == 10, "that ten records are held")

    client.alter_topic(topic, {"ottla.archive.group": ""})

    until(lambda: client.offsets(topic) == {0: (10, 10)}, "that everything has gone")
    assert told(broker, "held_records", topic) is None


@pytest.mark.parametrize(
    "configs",
    [{"ottla.archive.group": "a\tb"}, {"ottla.archive.max.bytes": "-2"}, {"ottla.archive.max.bytes": "10 GB"}],
)
def test_a_wrong_value_is_refused_and_nothing_is_changed(
    client_name: str, broker: BrokerProcess, topic: str, configs: dict[str, str]
) -> None:
    client = connect(client_name, broker.bootstrap)
    client.create_topic(topic)
    before = client.topic_configs(topic)

    with pytest.raises(RequestFailed) as refused:
        client.alter_topic(topic, configs)

    assert refused.value.code == 40  # INVALID_CONFIG
    assert client.topic_configs(topic) == before
