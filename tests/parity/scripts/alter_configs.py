"""AlterConfigs, IncrementalAlterConfigs and ListConfigResources: settings changed, in every right and wrong way."""

from collections.abc import Sequence
from typing import Any

from protocol.messages.config_resources import ListConfigResourcesRequest
from protocol.messages.configs import AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest
from tests.parity.exchange import Exchange

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

BAD_VALUES = (
    ("retention.ms", "-2"),
    ("retention.ms", ""),
    ("retention.ms", " 1e3 "),
    ("segment.bytes", "2147483648"),
    ("compression.gzip.level", "0"),
    ("compression.lz4.level", "18"),
    ("compression.type", "brotli"),
    ("cleanup.policy", "none"),
    ("min.cleanable.dirty.ratio", "1.5"),
    ("min.cleanable.dirty.ratio", "x"),
    ("preallocate", "yes"),
    ("leader.replication.throttled.replicas", "0:1,x"),
    ("remote.storage.enable", "true"),
    ("Retention.ms", "1"),
    ("log.retention.ms", "1"),
)
"""One of each type and each kind of limit, and two names like those of settings."""

LONG_LIST = ",".join(f"{partition}:1" for partition in range(3000))
"""More than half of the 32,767 bytes that a text may have."""

Change = tuple[str, int, str | None]


def change(*resources: tuple[int, str, Sequence[Change]], **fields: Any) -> IncrementalAlterConfigsRequest:
    resource = IncrementalAlterConfigsRequest.Resource
    return IncrementalAlterConfigsRequest(
        resources=[
            resource(
                resource_type=kind,
                resource_name=name,
                configs=[resource.Config(name=key, config_operation=how, value=value) for key, how, value in changes],
            )
            for kind, name, changes in resources
        ],
        **fields,
    )


def replace(*resources: tuple[int, str, Sequence[tuple[str, str | None]]], **fields: Any) -> AlterConfigsRequest:
    resource = AlterConfigsRequest.Resource
    return AlterConfigsRequest(
        resources=[
            resource(
                resource_type=kind,
                resource_name=name,
                configs=[resource.Config(name=key, value=value) for key, value in configs],
            )
            for kind, name, configs in resources
        ],
        **fields,
    )


def described(name: str, *keys: str) -> DescribeConfigsRequest:
    asked = DescribeConfigsRequest.Resource(resource_type=TOPIC, resource_name=name, configuration_keys=[*keys])
    return DescribeConfigsRequest(resources=[asked])


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders", retention_ms=1000)
    for version in range(2):
        changes(exchange, version)
    replacements(exchange)
    others(exchange)
    for version in range(2):
        exchange.ask("every resource", ListConfigResourcesRequest(), version)
    for kinds in ([TOPIC], [BROKER], [LOGGER], [CLIENT_METRICS], [GROUP], [TOPIC, BROKER], [TOPIC, TOPIC]):
        exchange.ask(f"resources of the types {kinds}", ListConfigResourcesRequest(resource_types=kinds), 1)
    for kind in (0, 1, 3, 64, -1):
        exchange.ask(f"resources of the type {kind}", ListConfigResourcesRequest(resource_types=[kind]), 1)
        exchange.ask(f"resources of the types 2 and {kind}", ListConfigResourcesRequest(resource_types=[2, kind]), 1)


def changes(exchange: Exchange, version: int) -> None:
    def ask(step: str, *made: Change, name: str = "orders", **fields: Any) -> None:
        exchange.ask(step, change((TOPIC, name, made), **fields), version)

    ask("a setting", ("retention.ms", SET, "2000"))
    ask("two settings", ("retention.ms", SET, "3000"), ("max.message.bytes", SET, "5000"))
    ask("only validated", ("retention.ms", SET, "4000"), validate_only=True)
    ask("a setting goes", ("max.message.bytes", DELETE, None))
    ask("a setting goes that is not there", ("max.message.bytes", DELETE, None))
    ask("a setting goes, with a value", ("retention.ms", DELETE, "7"))
    ask("an unknown setting", ("nope", SET, "1"))
    ask("an unknown setting goes", ("nope", DELETE, None))
    ask("a list grows", ("cleanup.policy", APPEND, "compact"))
    ask("a list grows by what it has", ("cleanup.policy", APPEND, "compact"))
    ask("a list grows by nonsense", ("cleanup.policy", APPEND, "nonsense"))
    ask("a list shrinks", ("cleanup.policy", SUBTRACT, "compact"))
    ask("a list shrinks by what it has not", ("cleanup.policy", SUBTRACT, "compact"))
    ask("a list shrinks to nothing", ("cleanup.policy", SUBTRACT, "delete"))
    ask("a list is put back", ("cleanup.policy", DELETE, None))
    ask("something that is no list grows", ("retention.ms", APPEND, "1"))
    ask("something that is no list shrinks", ("retention.ms", SUBTRACT, "1"))
    for how in (SET, APPEND, SUBTRACT):
        ask(f"null, operation {how}", ("cleanup.policy", how, None))
    ask("a bad value", ("retention.ms", SET, "x"))
    ask("a value out of range", ("segment.bytes", SET, "1"))
    for key, value in BAD_VALUES:
        ask(f"{key}={value!r}", (key, SET, value))
    ask("a least lag above the most", ("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5"))
    ask("an unknown and a bad setting", ("retention.ms", SET, "x"), ("nope", SET, "1"))
    ask("operation 4", ("retention.ms", 4, "1"))
    ask("a long list", ("follower.replication.throttled.replicas", SET, LONG_LIST))
    longer = LONG_LIST.replace(":1", ":2")
    ask("a long list grows too long", ("follower.replication.throttled.replicas", APPEND, longer))
    ask("a long list goes", ("follower.replication.throttled.replicas", DELETE, None))
    ask("good and bad at once", ("retention.ms", SET, "1"), ("segment.bytes", SET, "1"))
    ask("the same setting twice", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    ask("no settings")
    for name in ("nope", "", ".", "no spaces", "__cluster_metadata"):
        ask(f"the topic {name!r}", ("retention.ms", SET, "1"), name=name)
    twice = (TOPIC, "orders", [("retention.ms", SET, "1")])
    exchange.ask("the same topic twice", change(twice, twice), version)
    bad = (TOPIC, "nope", [("retention.ms", SET, "1")])
    exchange.ask("good and bad resources", change(bad, (TOPIC, "orders", [("retention.ms", SET, "77")])), version)
    exchange.ask("no resources", change(), version)
    keys = ("retention.ms", "cleanup.policy", "max.message.bytes")
    exchange.ask_until(
        f"what is set after version {version}",
        described("orders", *keys),
        4,
        lambda answer: "77" in [config.value for config in answer.results[0].configs],
    )
    ask("the next round begins", ("retention.ms", SET, "1000"))


def replacements(exchange: Exchange) -> None:
    def ask_each(step: str, *configs: tuple[str, str | None], name: str = "orders", **fields: Any) -> None:
        exchange.ask_each(step, replace((TOPIC, name, configs), **fields))

    ask_each("all settings", ("retention.ms", "2000"), ("max.message.bytes", "5000"))
    ask_each("only validated", ("retention.ms", "9"), validate_only=True)
    ask_each("null", ("retention.ms", None))
    ask_each("an unknown setting", ("nope", "1"))
    ask_each("a bad value", ("retention.ms", "x"))
    for key, value in BAD_VALUES:
        ask_each(f"{key}={value!r}", (key, value))
    ask_each("the same setting twice", ("retention.ms", "1"), ("retention.ms", "2"))
    for name in ("nope", "", "no spaces", "__cluster_metadata"):
        ask_each(f"the topic {name!r}", ("retention.ms", "1"), name=name)
    twice = (TOPIC, "orders", [("retention.ms", "1")])
    exchange.ask_each("the same topic twice", replace(twice, twice))
    exchange.ask_each("no resources", replace())
    ask_each("no settings at all")
    for kind in (0, 1, 3, 64, -1):
        exchange.ask_each(f"resource type {kind}", replace((kind, "x", [("retention.ms", "1")])))
    exchange.ask_each("a logger", replace((LOGGER, "1", [("root", "INFO")])))


def others(exchange: Exchange) -> None:
    def ask_each(step: str, kind: int, name: str, *made: Change, **fields: Any) -> None:
        exchange.ask_each(step, change((kind, name, made), **fields))

    ask_each("a setting of all brokers", BROKER, "", ("log.retention.ms", SET, "86400000"))
    ask_each("it goes", BROKER, "", ("log.retention.ms", DELETE, None))
    ask_each("a setting of this broker", BROKER, "1", ("log.cleaner.threads", SET, "2"))
    ask_each("it goes too", BROKER, "1", ("log.cleaner.threads", DELETE, None))
    ask_each("a setting that needs a restart", BROKER, "1", ("num.partitions", SET, "3"))
    ask_each("an unknown setting of the broker", BROKER, "1", ("nope", SET, "1"), validate_only=True)
    ask_each("a bad value for the broker", BROKER, "1", ("log.cleaner.threads", SET, "x"))
    for name in ("2", "abc", "-1"):
        ask_each(f"the broker {name!r}", BROKER, name, ("log.cleaner.threads", SET, "2"))
    ask_each("a level that there is not", LOGGER, "1", ("root", SET, "LOUD"))
    ask_each("the root logger goes", LOGGER, "1", ("root", DELETE, None))
    ask_each("a logger grows", LOGGER, "1", ("root", APPEND, "INFO"))
    ask_each("an unknown logger", LOGGER, "1", ("nope.nope", SET, "INFO"))
    for name in ("", "2"):
        ask_each(f"the loggers of {name!r}", LOGGER, name, ("root", SET, "INFO"))
    ask_each("a setting of a group", GROUP, "readers", ("consumer.session.timeout.ms", SET, "50000"))
    ask_each("a setting of a group, out of range", GROUP, "readers", ("consumer.session.timeout.ms", SET, "1"))
    ask_each("an unknown setting of a group", GROUP, "readers", ("nope", SET, "1"))
    ask_each("a group without a name", GROUP, "", ("consumer.session.timeout.ms", SET, "50000"))
    for key, value in (
        ("errors.deadletterqueue.topic.name", "dlq.readers"),
        ("errors.deadletterqueue.topic.name", ""),
        ("errors.deadletterqueue.topic.name", "__readers"),
        ("errors.deadletterqueue.copy.record.enable", "true"),
        ("streams.assignor.name", "sticky"),
        ("streams.assignor.name", "nope"),
        ("streams.assignor.name", ""),
        ("streams.rack.aware.assignment.tags", "zone,cluster"),
        ("streams.rack.aware.assignment.tags", "zone, zone"),
        ("consumer.assignor.offload.enable", "false"),
        ("streams.num.warmup.replicas", "20"),
        ("streams.num.warmup.replicas", "21"),
        ("streams.task.offset.interval.ms", "14999"),
    ):
        ask_each(f"{key}={value!r} for a group", GROUP, "readers", (key, SET, value))
    for key, value in (
        ("errors.deadletterqueue.topic.name.prefix", "__dlq"),
        ("errors.deadletterqueue.auto.create.topics.enable", "true"),
        ("log.remote.copy.lag.ms", "-2"),
        ("max.decompressed.message.bytes", "1000"),
        ("max.decompressed.message.bytes", "0"),
        ("group.streams.assignors", "sticky"),
        ("group.streams.assignor.offload.enable", "false"),
    ):
        for name in ("", "1"):
            ask_each(f"{key}={value!r} for the broker {name!r}", BROKER, name, (key, SET, value), validate_only=True)
    for key, value in (
        ("consumer.heartbeat.interval.ms", "x"),
        ("consumer.heartbeat.interval.ms", "15001"),
        ("consumer.assignor.offload.enable", "x"),
        ("consumer.session.timeout.ms", "60001"),
        ("share.auto.offset.reset", "nope"),
        ("share.auto.offset.reset", "by_duration:x"),
        ("share.isolation.level", "nope"),
        ("share.record.lock.duration.ms", "1"),
        ("streams.num.standby.replicas", "-1"),
        ("streams.num.standby.replicas", "3"),
    ):
        ask_each(f"{key}={value!r} for a group", GROUP, "readers", (key, SET, value))
    ask_each("an unknown setting of client metrics", CLIENT_METRICS, "m", ("nope", SET, "1"))
    ask_each("client metrics without a name", CLIENT_METRICS, "", ("interval.ms", SET, "1000"))
    for key, value in (
        ("interval.ms", "x"),
        ("interval.ms", "1"),
        ("match", "nope=1"),
        ("match", "client_id=("),
        ("match", "x"),
    ):
        ask_each(f"{key}={value!r} for client metrics", CLIENT_METRICS, "m", (key, SET, value))
    for kind in (0, 1, 3, 64, -1):
        ask_each(f"resource type {kind}", kind, "x", ("retention.ms", SET, "1"))
