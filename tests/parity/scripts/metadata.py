"""Metadata: all topics, some, by name and by id, and the topics that asking makes."""

from typing import Any

from protocol.messages.metadata import MetadataRequest
from protocol.schema import NO_UUID
from tests.parity.exchange import Exchange

Topic = MetadataRequest.Topic
UNKNOWN = bytes.fromhex("00112233445566778899aabbccddeeff")


def named(*names: str | None, **fields: Any) -> MetadataRequest:
    topics = [Topic(name=name) for name in names]
    return MetadataRequest(topics=topics, **{"allow_auto_topic_creation": False, **fields})


def by_id(*ids: bytes, name: str | None = None, **fields: Any) -> MetadataRequest:
    topics = [Topic(topic_id=topic_id, name=name) for topic_id in ids]
    return MetadataRequest(topics=topics, **{"allow_auto_topic_creation": False, **fields})


def run(exchange: Exchange) -> None:
    exchange.ask_each("all topics where there are none", MetadataRequest(topics=None), since=1)
    orders = exchange.create_topic("orders", partitions=3)
    other = exchange.create_topic("a.topic-with_all.characters")
    exchange.ask_each("all topics", MetadataRequest(topics=None), since=1)
    exchange.ask("all topics, by an empty list", MetadataRequest(topics=[]), 0)
    exchange.ask_each("no topics", MetadataRequest(topics=[]), since=1)
    exchange.ask_each("one topic", named("orders"), since=4)
    exchange.ask_each("two topics", named("orders", "a.topic-with_all.characters"), since=4)
    exchange.ask_each("the same topic twice", named("orders", "orders"), since=4)
    exchange.ask_each(
        "an unknown topic between two others", named("orders", "nope", "a.topic-with_all.characters"), since=4
    )
    exchange.ask_each("an unknown topic", named("nope"), since=4)
    for name, what in (
        ("", "an empty name"),
        (".", "a dot as name"),
        ("..", "two dots as name"),
        ("a" * 249, "a name of 249 characters"),
        ("a" * 250, "a name of 250 characters"),
        ("no spaces", "a name with a space"),
        ("größe", "a name with an umlaut"),
        ("a/b", "a name with a slash"),
        ("a\0b", "a name with a zero"),
        ("__cluster_metadata", "the metadata topic"),
        ("__consumer_offsets", "the offsets topic before it exists"),
        ("__transaction_state", "the transaction topic before it exists"),
    ):
        exchange.ask_each(what, named(name), since=4)
        exchange.ask_each(f"{what}, among others", named("orders", name, "nope"), since=8)
    exchange.ask_each(
        "authorized operations of topics", named("orders", include_topic_authorized_operations=True), since=8
    )
    exchange.ask_each(
        "authorized operations of an unknown topic", named("nope", include_topic_authorized_operations=True), since=8
    )
    exchange.ask_each(
        "authorized operations of a bad name", named("no spaces", include_topic_authorized_operations=True), since=8
    )
    exchange.ask_each(
        "authorized operations by an unknown id", by_id(UNKNOWN, include_topic_authorized_operations=True), since=12
    )
    exchange.ask_each(
        "authorized operations of the cluster", named(include_cluster_authorized_operations=True), since=8, until=10
    )

    exchange.ask_each("an id", by_id(orders), since=12)
    exchange.ask_each("two ids", by_id(orders, other), since=12)
    exchange.ask_each("an unknown id", by_id(UNKNOWN), since=12)
    exchange.ask_each("a known and an unknown id", by_id(UNKNOWN, orders), since=12)
    exchange.ask_each("the same id twice", by_id(orders, orders), since=12)
    exchange.ask_each("an id with its name", by_id(orders, name="orders"), since=12)
    exchange.ask_each("an id with the name of another", by_id(orders, name="a.topic-with_all.characters"), since=12)
    exchange.ask_each("an id with an unknown name", by_id(orders, name="nope"), since=12)
    exchange.ask_each("an unknown id with a known name", by_id(UNKNOWN, name="orders"), since=12)
    mixed = [Topic(topic_id=orders, name=None), Topic(name="a.topic-with_all.characters")]
    exchange.ask_each("an id, and a name without one", MetadataRequest(topics=mixed), since=12)
    exchange.ask_each("neither id nor name", by_id(NO_UUID), since=10)
    exchange.ask_each("an id where only names are asked", by_id(orders), since=10, until=11)
    exchange.ask_each(
        "an id with its name where only names are asked", by_id(orders, name="orders"), since=10, until=11
    )
    exchange.ask_each("an unknown id where only names are asked", by_id(UNKNOWN), since=10, until=11)
    exchange.ask_each("null as name, without auto-creation", named(None), since=10)
    exchange.ask_each("null as name among others", named("orders", None), since=10)

    for version in range(14):
        asked = named(f"made-by-asking-in-v{version}", allow_auto_topic_creation=True)
        exchange.ask("a topic that asking makes", asked, version)
        exchange.wait_for_topic(f"made-by-asking-in-v{version}")
        exchange.ask("the topic that asking made", asked, version)
    exchange.ask_each("a bad name, with auto-creation", named("no spaces", allow_auto_topic_creation=True))
    exchange.ask_each("an empty name, with auto-creation", named("", allow_auto_topic_creation=True))
    exchange.ask_each(
        "the metadata topic, with auto-creation", named("__cluster_metadata", allow_auto_topic_creation=True)
    )
    exchange.ask("two new names that collide", named("col.lide", "col_lide", allow_auto_topic_creation=True), 12)
    exchange.wait_for_topic("col.lide")
    exchange.wait_for_topic("col_lide")
    collides = named("made-by_asking.in-v5", "made-by-asking.in.v5", allow_auto_topic_creation=True)
    exchange.ask("new names beside others", collides, 12)
    exchange.ask(
        "a name that collides with a topic",
        named("col-lide", "col.l_ide", "a_topic-with_all_characters", allow_auto_topic_creation=True),
        12,
    )
    for name in ("made-by_asking.in-v5", "made-by-asking.in.v5", "col-lide", "col.l_ide"):
        exchange.wait_for_topic(name)
    exchange.ask("what was made of it", named("a_topic-with_all_characters", "col-lide"), 12)
    exchange.ask_each("all topics after all this", MetadataRequest(topics=None), since=10)
