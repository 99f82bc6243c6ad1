"""The hash of topics: what Kafka's own classes compute, value by value."""

import pytest
from xxhash import xxh3_64_intdigest

from broker.coordinators.group.modern.topics import GroupTopic, TopicHashes, _signed, topic_hash
from tests.unit.broker.coordinators.group.harness import Topics

HASHES = {
    0: 3_244_421_341_483_603_138,
    3: 7_943_829_059_066_201_772,
    16: 9_704_121_104_262_105_176,
    128: 1_211_889_905_577_015_873,
    240: 13_172_940_074_023_354_854,
    1025: 7_405_123_385_822_357_415,
}
"""From hash4j 0.22, which Kafka 4.4.0 uses, for so many of the bytes 7, 138, 269 mod 256, …"""


@pytest.mark.parametrize("length", HASHES)
def test_the_library_computes_what_kafkas_library_does(length):
    assert xxh3_64_intdigest(bytes((131 * place + 7) % 256 for place in range(length))) == HASHES[length]


def test_a_hash_depends_on_id_name_partitions_and_racks():
    topic = GroupTopic("orders", bytes(15) + b"\1", 2, [])
    others = [
        topic._replace(name="order"),
        topic._replace(topic_id=bytes(15) + b"\2"),
        topic._replace(partitions=3),
        topic._replace(racks=[("a",), ("b",)]),
        topic._replace(racks=[("a",), ("c",)]),
    ]

    assert len({topic_hash(one) for one in [topic, *others]}) == 6


def test_a_groups_hash_does_not_depend_on_the_order_and_topics_that_do_not_exist_do_not_count():
    topics = Topics()
    hashes = TopicHashes(topics)
    assert hashes.of_group(["orders", "payments"]) == 0

    topics.put("orders", 3)
    only_orders = hashes.of_group(["orders"])
    assert hashes.of_group(["payments", "orders"]) == only_orders != 0
    topics.put("payments", 1)
    both = hashes.of_group(["payments", "orders"])
    assert both == hashes.of_group(["orders", "payments"]) != only_orders
    topics.put("orders", 4)
    assert hashes.of_group(["orders", "payments"]) != both
    assert _signed((1 << 64) - 5) == -5
