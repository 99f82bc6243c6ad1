"""CreateTopics and DeleteTopics."""

from collections.abc import Sequence
from typing import Any

from protocol.messages.metadata import MetadataRequest
from protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from protocol.schema import NO_UUID
from tests.parity.exchange import Exchange

Topic = CreateTopicsRequest.Topic
Config = Topic.Config
Assignment = Topic.Assignment
ById = DeleteTopicsRequest.Topic
UNKNOWN = bytes.fromhex("00112233445566778899aabbccddeeff")


def topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assigned: Sequence[tuple[int, Sequence[int]]] = (),
    configs: Sequence[tuple[str, str | None]] = (),
) -> Topic:
    return Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[Assignment(partition_index=index, broker_ids=[*brokers]) for index, brokers in assigned],
        configs=[Config(name=key, value=value) for key, value in configs],
    )


def create(*topics: Topic, **fields: Any) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[*topics], **{"timeout_ms": 30_000, **fields})


def delete(*names: str, ids: Sequence[tuple[str | None, bytes]] = (), timeout_ms: int = 30_000) -> DeleteTopicsRequest:
    """By name in every version; `ids` are (name, id)."""
    return DeleteTopicsRequest(
        topics=[ById(name=name, topic_id=NO_UUID) for name in names] + [ById(name=name, topic_id=i) for name, i in ids],
        topic_names=[*names],
        timeout_ms=timeout_ms,
    )


def run(exchange: Exchange) -> None:
    creations(exchange)
    configs(exchange)
    deletions(exchange)


def creations(exchange: Exchange) -> None:
    exchange.create_topic("orders")
    exchange.create_topic("dotted.name_x")
    exchange.ask_each("a new topic", lambda version: create(topic(f"new-in-v{version}")))
    exchange.ask_each("the broker's own numbers", lambda version: create(topic(f"defaults-in-v{version}", -1, -1)))
    exchange.ask_each("three partitions", lambda version: create(topic(f"three-in-v{version}", 3)))
    exchange.ask_each(
        "assigned by hand", lambda version: create(topic(f"assigned-in-v{version}", -1, -1, [(0, [1]), (1, [1])]))
    )
    exchange.ask_each(
        "assigned by hand, out of order",
        lambda version: create(topic(f"shuffled-in-v{version}", -1, -1, [(1, [1]), (0, [1])])),
    )
    exchange.ask_each(
        "two topics at once", lambda version: create(topic(f"both-a-v{version}"), topic(f"both-b-v{version}"))
    )
    exchange.ask_each("a topic that exists", create(topic("orders")))
    exchange.ask_each("only validated", create(topic("validated", 3), validate_only=True))
    exchange.ask_each("a topic that exists, only validated", create(topic("orders"), validate_only=True))
    exchange.ask_each("no topics", create())
    for name, what in (
        ("", "an empty name"),
        (".", "a dot as name"),
        ("..", "two dots as name"),
        ("a" * 250, "a name of 250 characters"),
        ("no spaces", "a name with a space"),
        ("größe", "a name with an umlaut"),
        ("dotted_name.x", "a name that collides"),
        ("__cluster_metadata", "the metadata topic"),
    ):
        exchange.ask_each(what, create(topic(name)))
    exchange.ask_each("a name of 249 characters", lambda version: create(topic(f"v{version}-" + "a" * 246)))
    exchange.ask_each(
        "two new names that collide", lambda version: create(topic(f"co.lli_v{version}"), topic(f"co_lli.v{version}"))
    )
    for count in (0, -2, -0x8000_0000, 10_001, 1_000_000, 0x7FFF_FFFF):
        exchange.ask_each(f"{count} partitions", create(topic("counted", count)))
        exchange.ask_each(f"{count} partitions, only validated", create(topic("counted", count), validate_only=True))
    exchange.ask_each("6000 and 6000 partitions", create(topic("counted-a", 6000), topic("counted-b", 6000)))
    for factor in (0, -2, 2, 3, 0x7FFF, -0x8000):
        exchange.ask_each(f"a replication factor of {factor}", create(topic("replicated", 1, factor)))
        exchange.ask_each(f"0 partitions and a replication factor of {factor}", create(topic("replicated", 0, factor)))
    exchange.ask_each("a bad name, 0 partitions and 5 replicas", create(topic("no spaces", 0, 5)))
    exchange.ask_each("a topic that exists with 0 partitions", create(topic("orders", 0)))
    for what, assigned in (
        ("a gap in the partitions", [(0, [1]), (2, [1])]),
        ("partitions from 1", [(1, [1])]),
        ("a partition twice", [(0, [1]), (0, [1])]),
        ("partition -1", [(-1, [1])]),
        ("no brokers", [(0, [])]),
        ("an unknown broker", [(0, [2])]),
        ("a known and an unknown broker", [(0, [1, 2])]),
        ("broker -1", [(0, [-1])]),
        ("the same broker twice", [(0, [1, 1])]),
        ("different numbers of replicas", [(0, [1]), (1, [])]),
    ):
        exchange.ask_each(f"assigned: {what}", create(topic("assigned", -1, -1, assigned)))
    exchange.ask_each("assignments and a number of partitions", create(topic("assigned", 1, -1, [(0, [1])])))
    exchange.ask_each("assignments and a replication factor", create(topic("assigned", -1, 1, [(0, [1])])))
    exchange.ask_each("the same name twice", create(topic("twice"), topic("twice")))
    exchange.ask_each(
        "the same name three times among others",
        create(topic("twice"), topic("orders"), topic("twice"), topic("nope!"), topic("twice")),
    )
    for timeout in (0, -1):
        exchange.ask_each(
            f"a timeout of {timeout}",
            lambda version, t=timeout: create(topic(f"timeless{t}-v{version}"), timeout_ms=t),
            versions=(2, 7),
        )
        exchange.ask_each(
            f"a timeout of {timeout}, a topic that exists", create(topic("orders"), timeout_ms=timeout), versions=(2, 7)
        )
    exchange.ask_each(
        "good and bad together",
        lambda version: create(topic("no spaces"), topic(f"good-in-v{version}"), topic("orders"), topic("x", 0)),
    )
    exchange.ask("the transaction topic by hand", create(topic("__transaction_state")), 7)
    exchange.ask("the offsets topic by hand", create(topic("__consumer_offsets", 3)), 7)
    for name, partitions in (("new-in-v2", 1), ("assigned-in-v2", 2), ("good-in-v7", 1), ("__consumer_offsets", 3)):
        exchange.wait_for_topic(name, partitions)
    names = (
        "new-in-v2",
        "defaults-in-v7",
        "three-in-v7",
        "assigned-in-v2",
        "shuffled-in-v2",
        "validated",
        "timeless0-v2",
        "timeless0-v7",
        "twice",
        "__transaction_state",
        "__consumer_offsets",
    )
    asked = MetadataRequest(
        topics=[MetadataRequest.Topic(name=name) for name in names], allow_auto_topic_creation=False
    )
    exchange.ask("what was created", asked, 12)


def configs(exchange: Exchange) -> None:
    for number, (key, value) in enumerate(
        (
            ("retention.ms", "1000"),
            ("retention.ms", " 1000 "),
            ("retention.ms", "-1"),
            ("retention.ms", "-2"),
            ("retention.ms", ""),
            ("retention.ms", None),
            ("retention.ms", "1e3"),
            ("retention.ms", "0x10"),
            ("retention.ms", "9223372036854775808"),
            ("retention.ms", "+5"),
            ("retention.ms", "1_000"),
            ("retention.ms", "1000.0"),
            ("retention.ms", "٣"),
            ("retention.bytes", "-2"),
            ("segment.bytes", "1048575"),
            ("segment.bytes", "1048576"),
            ("segment.bytes", "2147483648"),
            ("segment.ms", "0"),
            ("segment.ms", "1"),
            ("segment.jitter.ms", "-1"),
            ("segment.index.bytes", "3"),
            ("index.interval.bytes", "-1"),
            ("cleanup.policy", ""),
            ("cleanup.policy", "compact,compact"),
            ("cleanup.policy", "delete, compact"),
            ("cleanup.policy", "Delete"),
            ("cleanup.policy", "none"),
            ("cleanup.policy", "delete,"),
            ("cleanup.policy", None),
            ("compression.type", "zstd"),
            ("compression.type", "ZSTD"),
            ("compression.type", "brotli"),
            ("compression.type", "producer"),
            ("compression.gzip.level", "0"),
            ("compression.gzip.level", "-1"),
            ("compression.lz4.level", "18"),
            ("compression.zstd.level", "23"),
            ("compression.zstd.level", "-131073"),
            ("message.timestamp.type", "LogAppendTime"),
            ("message.timestamp.type", "logappendtime"),
            ("message.timestamp.before.max.ms", "-1"),
            ("message.timestamp.after.max.ms", "0"),
            ("min.insync.replicas", "0"),
            ("min.insync.replicas", "5"),
            ("max.message.bytes", "-1"),
            ("max.message.bytes", "0"),
            ("max.decompressed.message.bytes", "0"),
            ("max.decompressed.message.bytes", "1"),
            ("max.decompressed.message.bytes", "2147483639"),
            ("max.decompressed.message.bytes", "2147483640"),
            ("min.cleanable.dirty.ratio", "1.1"),
            ("min.cleanable.dirty.ratio", "NaN"),
            ("min.cleanable.dirty.ratio", "0.25"),
            ("min.cleanable.dirty.ratio", ".5"),
            ("unclean.leader.election.enable", "TRUE"),
            ("unclean.leader.election.enable", "yes"),
            ("preallocate", "true"),
            ("flush.messages", "0"),
            ("flush.messages", "1"),
            ("flush.ms", "-1"),
            ("delete.retention.ms", "-1"),
            ("file.delete.delay.ms", "-1"),
            ("min.compaction.lag.ms", "-1"),
            ("max.compaction.lag.ms", "0"),
            ("remote.storage.enable", "true"),
            ("remote.storage.enable", "false"),
            ("local.retention.ms", "-3"),
            ("local.retention.bytes", "-2"),
            ("local.retention.ms", "99999999999"),
            ("remote.copy.lag.ms", "-2"),
            ("remote.copy.lag.ms", "99999999999"),
            ("remote.copy.lag.bytes", "-2"),
            ("remote.copy.lag.bytes", "-1"),
            ("errors.deadletterqueue.group.enable", "true"),
            ("errors.deadletterqueue.group.enable", "1"),
            ("leader.replication.throttled.replicas", "*"),
            ("leader.replication.throttled.replicas", "0:1,1:1"),
            ("leader.replication.throttled.replicas", "x"),
            ("follower.replication.throttled.replicas", "none"),
            ("message.format.version", "3.0-IV1"),
            ("message.downconversion.enable", "true"),
            ("nope", "1"),
            ("", "1"),
            ("Retention.ms", "1"),
            ("log.retention.ms", "1"),
            ("ottla.nope", "1"),
        )
    ):
        name = f"config-{number}"
        exchange.ask(f"{key}={value!r}", create(topic(name, configs=[(key, value)])), 7)
    twice = [("retention.ms", "1"), ("retention.ms", "2")]
    exchange.ask("a setting twice", create(topic("config-twice", configs=twice)), 7)
    bad = [("retention.ms", "x"), ("nope", "1"), ("segment.bytes", "-1")]
    exchange.ask_each("three bad settings", create(topic("config-bad", configs=bad)))
    good = [("retention.ms", "1000"), ("cleanup.policy", "compact")]
    exchange.ask_each("two settings", lambda version: create(topic(f"config-v{version}", configs=good)))
    exchange.ask_each(
        "two settings, only validated", create(topic("config-validated", configs=good), validate_only=True)
    )
    long = [("leader.replication.throttled.replicas", ",".join(["0:1"] * 8192))]
    exchange.ask("a value of 32767 bytes", create(topic("config-long", configs=long)), 7)
    together = [("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")]
    exchange.ask("a least lag above the most", create(topic("config-lags", configs=together)), 7)


def deletions(exchange: Exchange) -> None:
    ids = {name: exchange.create_topic(name) for name in ("a", "b", "c", "d", "e", "f")}
    for version in range(1, 7):
        name = f"new-in-v{version}" if version > 1 else "defaults-in-v2"
        exchange.ask("a topic", delete(name), version)
        exchange.ask("it is gone", delete(name), version)
    exchange.ask_each("an unknown topic", delete("nope"))
    exchange.ask_each("an unknown topic twice", delete("nope", "nope"))
    exchange.ask_each("a topic twice", delete("a", "a"))
    for name in ("", ".", "no spaces", "a" * 250, "__cluster_metadata"):
        exchange.ask_each(f"the name {name!r:.20}", delete(name))
    exchange.ask_each("no topics", delete())
    for timeout in (0, -1):
        exchange.ask_each(f"a timeout of {timeout}", delete("b", timeout_ms=timeout), versions=(1, 6))
    exchange.ask("an unknown id", delete(ids=[(None, UNKNOWN)]), 6)
    exchange.ask("an unknown id twice", delete(ids=[(None, UNKNOWN), (None, UNKNOWN)]), 6)
    exchange.ask("neither name nor id", delete(ids=[(None, NO_UUID)]), 6)
    exchange.ask("both name and id", delete(ids=[("a", ids["a"])]), 6)
    exchange.ask("a name with an unknown id", delete(ids=[("a", UNKNOWN)]), 6)
    exchange.ask("the same id twice", delete(ids=[(None, ids["a"]), (None, ids["a"])]), 6)
    exchange.ask("a topic by its name and by its id", delete("a", ids=[(None, ids["a"])]), 6)
    exchange.ask("by id", delete(ids=[(None, ids["c"])]), 6)
    exchange.ask("the same id again", delete(ids=[(None, ids["c"])]), 6)
    exchange.ask("names and ids, good and bad", delete("nope", "d", ids=[(None, UNKNOWN), (None, ids["e"])]), 6)
    remaining = MetadataRequest(
        topics=[MetadataRequest.Topic(name=name) for name in ids], allow_auto_topic_creation=False
    )
    exchange.ask_until(
        "what is left", remaining, 12, lambda answer: sum(not found.error_code for found in answer.topics) <= 3
    )
