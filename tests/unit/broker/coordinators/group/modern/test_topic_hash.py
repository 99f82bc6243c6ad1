"""The hash of topics: what Kafka's own classes compute, value by value."""

import pytest

from broker.coordinators.group.modern.topics import GroupTopic, TopicHashes, _signed, topic_hash
from broker.coordinators.group.modern.xxh3 import xxh3_64
from tests.unit.broker.coordinators.group.harness import Topics

HASHES = [
    "0",
    "3244421341483603138",
    "1",
    "5502495245947142431",
    "3",
    "7943829059066201772",
    "4",
    "6650799683851767871",
    "8",
    "18013639643258255605",
    "9",
    "8944394699905593055",
    "16",
    "9704121104262105176",
    "17",
    "13081819869213806705",
    "32",
    "16388932025501132398",
    "33",
    "11880189719134216051",
    "64",
    "1338082372350062813",
    "65",
    "10936639315039379145",
    "96",
    "9307085733980681061",
    "97",
    "17385482648986237405",
    "128",
    "1211889905577015873",
    "129",
    "1605741916052902306",
    "160",
    "7303868565341031498",
    "240",
    "13172940074023354854",
    "241",
    "10767172507156293534",
    "256",
    "12780746281945784236",
    "511",
    "6491897709703144074",
    "512",
    "11594931819786113239",
    "1023",
    "12200247895068469476",
    "1024",
    "8123710315364152507",
    "1025",
    "7405123385822357415",
    "1087",
    "4195253162261845823",
    "1088",
    "17599442263495781564",
    "1089",
    "3547648957351721518",
    "2047",
    "16055882653434449002",
    "2048",
    "10035931636063484464",
    "2049",
    "6349179943806269125",
    "5000",
    "16429264659058461020",
]
"""From hash4j 0.22, which Kafka 4.4.0 uses, for bytes 7, 138, 269 mod 256, …"""


@pytest.mark.parametrize(("length", "expected"), list(zip(HASHES[::2], HASHES[1::2], strict=True)))
def test_xxh3_is_that_of_the_library(length, expected):
    assert xxh3_64(bytes((131 * place + 7) % 256 for place in range(int(length)))) == int(expected)


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
