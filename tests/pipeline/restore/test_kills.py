"""A restore that is killed is asked for again, and ends with everything there once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.tools import verify
from dev.broker_process import BrokerProcess
from tests.pipeline.restore.archiving import archive, names_in, partitions, restore, restored, stored
from tests.pipeline.restore.killed import kill_at
from tests.support.clients import Client, Committed, Place, Record, connect

TOPICS = ("killed-a", "killed-b")
STEPS_OF_SEGMENTS = {
    "begun": 1,
    "wrote a part": 3,
    "staged a log": 3,
    "staged": 1,
    "created a topic": 1,
    "created": 1,
    "removed an empty log": 2,
    "placed a log": 2,
    "placed": 1,
    "checkpoints written": 1,
    "epochs raised": 1,
    "committed": 1,
}
"""Where it is killed, and when it comes there for which time."""
STEPS_OF_PRODUCING = {"begun": 1, "created a topic": 1, "sent": 3, "produced": 1, "committed": 1}


@pytest.fixture(scope="module")
def dest(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of two topics with two partitions each, and where a group stood."""
    client = connect("confluent-kafka", broker.bootstrap)
    for topic in TOPICS:
        client.create_topic(topic, partitions=2, configs={"retention.ms": "-1"})
        for partition in (0, 1):
            client.produce(topic, [Record(value=b"%d" % number, partition=partition) for number in range(15_000)])
    client.commit("killed", {Place(TOPICS[0], 1): Committed(7_000)})
    place = tmp_path_factory.mktemp("archive") / "archive"
    archive(broker.data_directory, place, *TOPICS, bootstrap=broker.bootstrap)
    return place


@pytest.mark.parametrize("step", STEPS_OF_SEGMENTS)
def test_segments(dest: Path, broker: BrokerProcess, second: BrokerProcess, step: str) -> None:
    target = second.data_directory

    assert kill_at(step, STEPS_OF_SEGMENTS[step], "--archive", str(dest), "--target-dir", str(target))
    restored(dest, target)

    assert {place.topic for place in partitions(target)} == set(TOPICS)
    assert [name for name in names_in(target) if "stray" in name or "restore" in name] == []
    assert verify.main([str(target)]) == verify.WHOLE
    for topic in TOPICS:
        for partition in (0, 1):
            assert stored(target, topic, partition) == stored(broker.data_directory, topic, partition)
    again = connect("confluent-kafka", second.start().bootstrap)
    assert again.committed("killed", [Place(TOPICS[0], 1)]) == {Place(TOPICS[0], 1): Committed(7_000)}


@pytest.mark.parametrize("step", STEPS_OF_PRODUCING)
def test_producing(dest: Path, broker: BrokerProcess, second: BrokerProcess, tmp_path: Path, step: str) -> None:
    second.start()
    offsets = tmp_path / "offsets.json"
    words = ("--mode", "produce", "--bootstrap", second.bootstrap, "--offset-map", str(offsets))

    assert kill_at(step, STEPS_OF_PRODUCING[step], "--archive", str(dest), *words)
    assert not offsets.exists()
    assert restore(dest, *words) == 0

    again = connect("confluent-kafka", second.bootstrap)
    for topic in TOPICS:
        assert values_by_partition(again, topic) == {
            partition: [b"%d" % number for number in range(15_000)] for partition in (0, 1)
        }
    assert again.committed("killed", [Place(TOPICS[0], 1)]) == {Place(TOPICS[0], 1): Committed(7_000)}
    assert [stretch["records"] for stretch in json.loads(offsets.read_bytes())] == [15_000] * 4
    assert names_in(tmp_path) == sorted(["second", "offsets.json"])


def values_by_partition(client: Client, topic: str) -> dict[int, list[bytes | None]]:
    found: dict[int, list[bytes | None]] = {}
    for one in client.consume_all(topic):
        found.setdefault(one.partition, []).append(one.value)
    return found
