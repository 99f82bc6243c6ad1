"""DescribeConfigs through the codec."""

import logging

import pytest

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResponse
from tests.support.broker import InProcessBroker

Config = DescribeConfigsResponse.Result.Config

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
DYNAMIC_TOPIC, DYNAMIC_DEFAULT, STATIC_BROKER, DEFAULT = 1, 3, 4, 5


def ask(
    broker: InProcessBroker, kind: int, name: str, *keys: str, version: int = 4, **fields: bool
) -> DescribeConfigsResponse.Result:
    """Describe one resource."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.Resource(
                resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
            )
        ],
        **fields,
    )
    (result,) = broker.ask(request, version).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def by_name(result: DescribeConfigsResponse.Result) -> dict[str, Config]:
    """The configs by their names."""
    assert (result.error_code, result.error_message) == (E.NONE, "")
    return {config.name: config for config in result.configs}


@serves(DescribeConfigsRequest)
@every_version(DescribeConfigsRequest)
def test_a_topic_has_its_own_and_inherited_configs(broker: InProcessBroker, version: int) -> None:
    broker.create_topic("orders", retention_ms=1000)
    configs = by_name(ask(broker, TOPIC, "orders", version=version, include_synonyms=True))

    assert len(configs) == 39
    own, inherited = configs["retention.ms"], configs["segment.bytes"]
    assert (own.value, own.config_source, own.read_only, own.is_sensitive) == ("1000", DYNAMIC_TOPIC, False, False)
    assert (inherited.value, inherited.config_source) == ("1073741824", DEFAULT)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in inherited.synonyms] == [
        ("log.segment.bytes", "1073741824", DEFAULT)
    ]
    assert next((synonym.name, synonym.value, synonym.source) for synonym in own.synonyms) == (
        "retention.ms",
        "1000",
        DYNAMIC_TOPIC,
    )
    assert own.config_type == (5 if version >= 3 else 0)


def test_only_what_is_asked_for_is_told(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    plain = by_name(ask(broker, TOPIC, "orders", "retention.ms", "nope"))
    assert list(plain) == ["retention.ms"]
    assert (plain["retention.ms"].synonyms, plain["retention.ms"].documentation) == ([], None)
    documented = by_name(ask(broker, BROKER, "1", "num.io.threads", include_documentation=True))
    assert documented["num.io.threads"].documentation


@pytest.mark.settings(num_io_threads=3)
def test_the_broker_tells_what_it_was_set_to(broker: InProcessBroker) -> None:
    configs = by_name(ask(broker, BROKER, "1", include_synonyms=True))
    assert (configs["num.io.threads"].value, configs["num.io.threads"].config_source) == ("3", STATIC_BROKER)
    assert (configs["num.network.threads"].value, configs["num.network.threads"].config_source) == ("3", DEFAULT)
    assert configs["num.partitions"].read_only
    assert configs["ssl.keystore.password"].value is None
    assert configs["ssl.keystore.password"].is_sensitive


def test_what_formatting_has_set_for_all_brokers_is_described(broker: InProcessBroker) -> None:
    (config,) = by_name(ask(broker, BROKER, "")).values()
    assert (config.name, config.value, config.config_source) == ("min.insync.replicas", "1", DYNAMIC_DEFAULT)


def test_groups_and_client_metrics_have_their_defaults(broker: InProcessBroker) -> None:
    group = by_name(ask(broker, GROUP, "any", include_synonyms=True))
    assert len(group) == 21
    behind = {name: group[name].synonyms[0].name for name in ("share.session.timeout.ms", "share.isolation.level")}
    assert behind == {
        "share.session.timeout.ms": "group.share.session.timeout.ms",
        "share.isolation.level": "share.isolation.level",
    }
    assert group["consumer.session.timeout.ms"].value == "45000"
    metrics = by_name(ask(broker, CLIENT_METRICS, "any"))
    assert {name: config.value for name, config in metrics.items()} == {
        "interval.ms": "300000",
        "match": "",
        "metrics": "",
    }


def test_loggers_are_told_with_their_levels(broker: InProcessBroker) -> None:
    loggers = by_name(ask(broker, LOGGER, "1", include_synonyms=True))
    logging.getLogger("broker.server.broker_server").setLevel(logging.WARNING)
    try:
        changed = by_name(ask(broker, LOGGER, "1"))
    finally:
        logging.getLogger("broker.server.broker_server").setLevel(logging.NOTSET)
    assert next(iter(loggers)) == "root"
    assert loggers["broker.server.broker_server"].value == loggers["root"].value
    assert (changed["broker.server.broker_server"].value, changed["broker.server.broker_server"].config_source) == (
        "WARN",
        6,
    )
    assert (loggers["root"].config_type, loggers["root"].documentation) == (0, "")


@serves(
    DescribeConfigsRequest, E.UNKNOWN_TOPIC_OR_PARTITION, E.INVALID_TOPIC_EXCEPTION, E.INVALID_REQUEST, versions=[4]
)
def test_each_mistake_has_its_code(broker: InProcessBroker) -> None:
    for kind, name, code in (
        (TOPIC, "nowhere", E.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", E.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", E.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", E.INVALID_REQUEST),
        (BROKER, "abc", E.INVALID_REQUEST),
        (BROKER, " 1", E.INVALID_REQUEST),
        (BROKER, "1_", E.INVALID_REQUEST),
        (LOGGER, "", E.INVALID_REQUEST),
        (LOGGER, "2", E.INVALID_REQUEST),
        (GROUP, "", E.INVALID_REQUEST),
        (CLIENT_METRICS, "", E.INVALID_REQUEST),
        (0, "x", E.INVALID_REQUEST),
        (3, "x", E.INVALID_REQUEST),
    ):
        result = ask(broker, kind, name)
        assert (result.error_code, result.configs) == (code, []), (kind, name)
        assert bool(result.error_message) == (code != E.UNKNOWN_TOPIC_OR_PARTITION), "which has none in Kafka"
