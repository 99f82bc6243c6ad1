"""DescribeConfigs of topics, brokers, loggers, groups and clients."""

from collections.abc import Sequence
from typing import Any

from protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from tests.parity.exchange import Exchange

Resource = DescribeConfigsRequest.Resource
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SETTINGS = {"log.retention.ms": "86400000", "num.partitions": "2", "auto.create.topics.enable": "false"}


def describe(*resources: tuple[int, str, Sequence[str] | None], **fields: Any) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[
            Resource(resource_type=kind, resource_name=name, configuration_keys=None if keys is None else [*keys])
            for kind, name, keys in resources
        ],
        **fields,
    )


def change(kind: int, name: str, key: str, value: str) -> IncrementalAlterConfigsRequest:
    resource = IncrementalAlterConfigsRequest.Resource
    config = resource.Config(name=key, config_operation=0, value=value)
    return IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=kind, resource_name=name, configs=[config])]
    )


def run(exchange: Exchange) -> None:
    exchange.create_topic("plain")
    exchange.create_topic("set", retention_ms=1000, cleanup_policy="compact,delete", max_message_bytes=5000)
    exchange.ask("all settings of a topic", describe((TOPIC, "plain", None)), 4)
    exchange.ask("all settings, with synonyms", describe((TOPIC, "set", None), include_synonyms=True), 4)
    exchange.ask("all settings, by an empty list", describe((TOPIC, "set", [])), 4)
    keys = ["retention.ms", "cleanup.policy", "min.insync.replicas", "segment.bytes"]
    exchange.ask_each("some settings", describe((TOPIC, "set", keys)))
    exchange.ask_each("some settings, with synonyms", describe((TOPIC, "set", keys), include_synonyms=True))
    exchange.ask_each(
        "some settings, with documentation", describe((TOPIC, "set", keys), include_documentation=True), since=3
    )
    exchange.ask_each("an unknown setting", describe((TOPIC, "set", ["nope"])))
    exchange.ask_each("the same setting twice", describe((TOPIC, "set", ["retention.ms", "retention.ms"])))
    exchange.ask_each("a setting of the broker's, of a topic", describe((TOPIC, "set", ["log.retention.ms"])))
    for name in ("nope", "", ".", "no spaces", "a" * 250, "__cluster_metadata"):
        exchange.ask_each(f"the topic {name!r:.20}", describe((TOPIC, name, None)))
    exchange.ask_each("the same topic twice", describe((TOPIC, "set", keys), (TOPIC, "set", keys)))
    exchange.ask_each(
        "good and bad together", describe((TOPIC, "nope", keys), (TOPIC, "set", keys), (BROKER, "9", keys))
    )
    exchange.ask_each("nothing", describe())

    exchange.ask("all settings of the broker", describe((BROKER, "1", None)), 4)
    exchange.ask("all settings of the broker, with synonyms", describe((BROKER, "1", None), include_synonyms=True), 4)
    known = ["log.retention.ms", "num.partitions", "log.retention.hours", "min.insync.replicas", "log.cleaner.threads"]
    exchange.ask_each("some settings of the broker", describe((BROKER, "1", known), include_synonyms=True))
    exchange.ask_each("an unknown setting of the broker", describe((BROKER, "1", ["nope"])))
    exchange.ask_each("the brokers' defaults", describe((BROKER, "", None)))
    exchange.ask_each("the brokers' defaults, with synonyms", describe((BROKER, "", None), include_synonyms=True))
    for name in ("2", "abc", "-1", " 1", "01", "1.0"):
        exchange.ask_each(f"the broker {name!r}", describe((BROKER, name, known)))
    for name in ("", "2", "abc"):
        exchange.ask_each(f"the loggers of {name!r}", describe((LOGGER, name, [])))
    exchange.ask_each("an unknown logger", describe((LOGGER, "1", ["nope"])))
    exchange.ask_each("the root logger", describe((LOGGER, "1", ["root"])))
    for name in ("any", ""):
        exchange.ask_each(f"the group {name!r}", describe((GROUP, name, None)))
        exchange.ask_each(f"the client metrics {name!r}", describe((CLIENT_METRICS, name, None)))
    exchange.ask("a group with synonyms", describe((GROUP, "any", None), include_synonyms=True), 4)
    own = describe((GROUP, "own", None), include_synonyms=True)
    for key, value in (("streams.num.warmup.replicas", "3"), ("streams.rack.aware.assignment.tags", "zone , rack")):
        exchange.ask(f"{key} for a group", change(GROUP, "own", key, value), 1)
    exchange.ask_until(
        "a group with values of its own",
        own,
        4,
        lambda answer: any(config.value == "zone,rack" for config in answer.results[0].configs),
    )
    for kind in (0, 1, 3, 64, 127, -1):
        exchange.ask_each(f"resource type {kind}", describe((kind, "x", None)))
