"""Values from nothing to ten megabytes; above one megabyte only the topic's and the producer's limits are raised."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.support.clients import Client, Record, RequestFailed, values

TEN_MEGABYTES = 10_000_000


def value_of(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize("size", [1, 2, 127, 128, 16_383, 16_384, 65_536, 500_000, 990_000])
def test_a_value_of_any_size_up_to_the_default_limit(client: Client, new_topic: Callable[..., str], size: int) -> None:
    topic = new_topic()
    sent = [value_of(size), b"behind it"]

    client.produce(topic, [Record(value=value) for value in sent])

    assert values(client.consume_all(topic)) == sent


@pytest.mark.parametrize("size", [1_100_000, 3_000_000, TEN_MEGABYTES])
def test_a_larger_value_needs_nothing_but_the_two_limits(
    client: Client, new_topic: Callable[..., str], size: int
) -> None:
    topic = new_topic(configs={"max.message.bytes": str(TEN_MEGABYTES + 10_000)})
    sent = [b"before it", value_of(size), b"behind it"]

    client.produce(topic, [Record(value=value) for value in sent], most_bytes=TEN_MEGABYTES + 10_000)

    assert values(client.consume_all(topic)) == sent


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_ten_megabytes_in_every_codec(client: Client, new_topic: Callable[..., str], codec: str) -> None:
    topic = new_topic(configs={"max.message.bytes": str(TEN_MEGABYTES + 200_000)})
    value = value_of(100_000) * 100

    client.produce(topic, [Record(value=value)], codec=codec, most_bytes=TEN_MEGABYTES + 200_000)

    assert values(client.consume_all(topic)) == [value]


def test_a_batch_above_the_topics_limit_is_refused_and_not_kept(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic(configs={"max.message.bytes": "50000"})

    with pytest.raises(RequestFailed) as refused:
        client.produce(topic, [Record(value=value_of(60_000))])

    assert refused.value.code == 10  # MESSAGE_TOO_LARGE
    assert client.offsets(topic) == {0: (0, 0)}


def test_many_small_records_in_one_go(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    sent = [str(number).encode() for number in range(20_000)]

    client.produce(topic, [Record(value=value) for value in sent])

    assert values(client.consume_all(topic)) == sent
