"""The PromQL expressions of which the boards' queries are made."""

from collections.abc import Mapping, Sequence
from typing import Final

ALL_TOPICS: Final = 'topic=""'
"""The series of the whole broker, beside those of its topics."""
EACH_TOPIC: Final = 'topic=~"$topic"'
EACH_GROUP: Final = 'consumergroup=~"$group"'
EACH_SHARE_GROUP: Final = 'group=~"$group"'
EACH_REQUEST: Final = 'request=~"$request"'
P99: Final = 'quantile="0.99"'
"""The slowest hundredth is slower than this."""

TOPICS_SHOWN: Final = 15
"""Lines in a panel, at most: more cannot be told apart by eye."""


def of(name: str, *matchers: str) -> str:
    """The series of one name of the broker that is looked at."""
    chosen = ", ".join(('instance="$instance"', *matchers))
    return f"{name}{{{chosen}}}"


def per_second(name: str, *matchers: str) -> str:
    """How fast a counter grows."""
    return f"rate({of(name, *matchers)}[$__rate_interval])"


def slope(name: str, *matchers: str) -> str:
    """How fast a gauge rises or falls, as offsets do, a second."""
    return f"deriv({of(name, *matchers)}[$__rate_interval])"


def total(expr: str, *by: str) -> str:
    """The sum, of each of what stands in ``by``."""
    return f"sum by ({', '.join(by)}) ({expr})" if by else f"sum({expr})"


def highest(expr: str) -> str:
    """The highest of many."""
    return f"topk({TOPICS_SHOWN}, {expr})"


def requests(*matchers: str, by: Sequence[str] = ("request",)) -> str:
    """Answered requests a second."""
    return total(per_second("kafka_network_requestmetrics_requests_total", *matchers), *by)


def errors(*matchers: str, by: Sequence[str]) -> str:
    """Answers with an error a second; only the errors that there are."""
    counted = per_second("kafka_network_requestmetrics_errors_total", 'error!="NONE"', *matchers)
    return f"{total(counted, *by)} > 0"


def filled_in(expr: str, values: Mapping[str, str]) -> str:
    """An expression with Grafana's variables replaced, as Grafana does it."""
    # The longest first: no name is taken for the beginning of another.
    for name in sorted(values, key=len, reverse=True):
        expr = expr.replace(f"${name}", values[name])
    return expr
