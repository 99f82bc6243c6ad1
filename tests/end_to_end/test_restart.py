"""What was acknowledged is there after a stop and after a SIGKILL, under the same port, topics and offsets."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from dev.broker_process import BrokerProcess
from dev.waiting import until
from tests.support.clients import Client, Record, connect, values

STOP: dict[str, Callable[[BrokerProcess], object]] = {"SIGTERM": lambda b: b.stop(), "SIGKILL": lambda b: b.kill()}


@pytest.fixture(params=list(STOP))
def end(request: pytest.FixtureRequest) -> Callable[[BrokerProcess], object]:
    return STOP[str(request.param)]


def test_records_topics_and_offsets_survive(
    client_name: str, own_broker: BrokerProcess, topic: str, end: Callable[[BrokerProcess], object]
) -> None:
    client: Client = connect(client_name, own_broker.bootstrap)
    client.create_topic(topic, partitions=2, configs={"retention.ms": "86400000"})
    first = [Record(value=str(number).encode(), key=b"k", headers=(("n", b"1"),), partition=0) for number in range(500)]
    client.produce(topic, first)
    client.produce(topic, [Record(value=b"compressed", partition=1)], codec="zstd")
    cluster = client.cluster()

    end(own_broker)
    own_broker.start()

    assert client.cluster() == cluster
    assert client.topic_configs(topic)["retention.ms"] == "86400000"
    assert client.offsets(topic) == {0: (0, 500), 1: (0, 1)}
    assert values(client.consume(topic, partition=0, offset=0, count=500)) == [record.value for record in first]
    (answer,) = client.produce(topic, [Record(value=b"after", partition=0)])
    assert answer.offset == 500
    assert values(client.consume(topic, partition=0, offset=499, count=2)) == [b"499", b"after"]
    assert values(client.consume(topic, partition=1, offset=0, count=1)) == [b"compressed"]


def test_a_broker_may_be_stopped_and_started_again_and_again(
    own_broker: BrokerProcess, topic: str, end: Callable[[BrokerProcess], object]
) -> None:
    client = connect("confluent-kafka", own_broker.bootstrap)
    sent = []
    for life in range(4):
        sent.append(b"life %d" % life)
        client.produce(topic, [Record(value=sent[-1])])
        end(own_broker)
        own_broker.start()

    assert values(client.consume_all(topic)) == sent


def test_what_a_power_cut_brings_back_of_a_deleted_topic_is_not_given_to_the_next_of_its_name(
    own_broker: BrokerProcess, topic: str
) -> None:
    """The deleted topic's directory has its old name again, and its id is lost: neither was on the disk."""
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic(topic)
    client.produce(topic, [Record(value=b"of the former topic")])
    directory = own_broker.data_directory / f"{topic}-0"
    shutil.copytree(directory, former := own_broker.data_directory.with_name("former"))
    (former / "partition.metadata").unlink()
    client.delete_topic(topic)
    until(lambda: not directory.exists(), "the directory has another name")
    client.create_topic(topic)
    own_broker.kill()
    shutil.rmtree(directory)
    shutil.move(former, directory)
    own_broker.start()

    assert client.offsets(topic) == {0: (0, 0)}
    client.produce(topic, [Record(value=b"of the next topic")])
    assert values(client.consume_all(topic)) == [b"of the next topic"]
    [stray] = own_broker.data_directory.glob(f"{topic}-0.*-stray")
    assert (stray / "00000000000000000000.log").stat().st_size > 0


def test_a_new_topic_whose_id_a_power_cut_has_taken_keeps_its_records(own_broker: BrokerProcess, topic: str) -> None:
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic(topic)
    client.produce(topic, [Record(value=b"kept")])
    own_broker.kill()
    (own_broker.data_directory / f"{topic}-0" / "partition.metadata").unlink()
    own_broker.start()

    assert values(client.consume_all(topic)) == [b"kept"]
