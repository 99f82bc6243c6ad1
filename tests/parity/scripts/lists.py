"""Settings that are lists: entries that come twice, empty ones, white space, and what is told back of them."""

from protocol.messages.configs import DescribeConfigsRequest
from protocol.messages.topics import CreateTopicsRequest
from tests.parity.exchange import Exchange
from tests.parity.scripts.alter_configs import (
    APPEND,
    BROKER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    TOPIC,
    Change,
    change,
)

POLICIES = (
    "delete,compact,delete", "delete,delete", " delete , compact,delete ", "delete,,compact", ",", "", "delete,", " ",
    "none", "delete,DELETE",
)  # fmt: skip
REPLICAS = ("0:1,0:1", " 0:1 , 1:1 ", "0:1,,1:1", "", "*", "*,*", "*,0:1", ",", "0:1,", "00:1,0:1", "0:1;0:1")
METRICS = ("a,b,a", " a , b ", "a,,b", "", "*,*", "a,")
MATCHES = ("client_id=a,client_id=a", "client_id=a,client_id=b", " client_id=a , client_software_name=x ", "")
TAGS = ("a,b,a", " a , b ", "a,,b", "", "a,")
OPERATIONS = {SET: "is set to", APPEND: "grows by", SUBTRACT: "shrinks by"}


def run(exchange: Exchange) -> None:
    for key, texts in (("cleanup.policy", POLICIES), ("leader.replication.throttled.replicas", REPLICAS)):
        for number, text in enumerate(texts):
            created(exchange, f"{key}-{number}", key, text)
    exchange.create_topic("orders")
    altered = Altered(exchange)
    altered.all_of(TOPIC, "orders", "cleanup.policy", POLICIES, beside="retention.ms")
    altered.all_of(TOPIC, "orders", "follower.replication.throttled.replicas", REPLICAS, beside="retention.ms")
    for name in ("1", ""):
        altered.all_of(BROKER, name, "log.cleanup.policy", POLICIES, beside="log.segment.delete.delay.ms")
    altered.all_of(CLIENT_METRICS, "all", "metrics", METRICS, beside="interval.ms")
    altered.all_of(CLIENT_METRICS, "all", "match", MATCHES, beside="interval.ms")
    altered.all_of(GROUP, "readers", "streams.rack.aware.assignment.tags", TAGS, beside="streams.heartbeat.interval.ms")


def created(exchange: Exchange, name: str, key: str, text: str) -> None:
    """A topic that has the setting from its beginning."""
    topic = CreateTopicsRequest.Topic
    wanted = topic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[topic.Config(name=key, value=text)]
    )
    answer = exchange.ask(f"a topic with {key}={text!r}", CreateTopicsRequest(topics=[wanted]), 7)
    if answer.topics[0].error_code == 0:
        asked = DescribeConfigsRequest.Resource(resource_type=TOPIC, resource_name=name, configuration_keys=[key])
        exchange.ask_until(
            f"{key}={text!r} of a topic is told",
            DescribeConfigsRequest(resources=[asked], include_synonyms=True),
            4,
            lambda answer: answer.results[0].error_code == 0,
        )


class Altered:
    """Alters a list together with a number, which shows when the change has arrived."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._number = 10_000

    def all_of(self, kind: int, name: str, key: str, texts: tuple[str, ...], *, beside: str) -> None:
        for text in texts:
            for operation in OPERATIONS:
                step = f"{key} of {kind} {name!r} {OPERATIONS[operation]} {text!r}"
                self._alter(step, kind, name, (key, operation, text), beside)
            self._alter(None, kind, name, (key, DELETE, None), beside)

    def _alter(self, step: str | None, kind: int, name: str, made: Change, beside: str) -> None:
        self._number += 1
        number = str(self._number)
        if self._exchange.ask(step, change((kind, name, [made, (beside, SET, number)])), 1).responses[0].error_code:
            return
        asked = DescribeConfigsRequest.Resource(
            resource_type=kind, resource_name=name, configuration_keys=[made[0], beside]
        )
        described = DescribeConfigsRequest(resources=[asked], include_synonyms=True)
        self._exchange.wait_until(
            described, 4, lambda answer: number in [config.value for config in answer.results[0].configs]
        )
        if step is not None:
            self._exchange.ask(f"{step}, and is told", described, 4)
