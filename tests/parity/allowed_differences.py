"""The one table of what may differ between Kafka's answers and ours, each entry with its reason.

`RULES` give names to what differs by nature, on both sides, so that the rest of the answer and the consistency of the
named things are still compared. `ALLOWED` are the fields in which we answer otherwise than Kafka on purpose. An entry
that a whole run has no use for fails the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.parity.comparison import ABSENT, Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When and where a step was asked."""

    api: str
    step: str
    sent_ms: int
    received_ms: int
    port: int
    data_directory: str


class Names:
    """Names for what is random: the same thing has the same name wherever it occurs in a script."""

    def __init__(self) -> None:
        self._names: dict[object, str] = {}
        self._taken: dict[str, int] = {}

    def bind(self, value: object, name: str) -> None:
        """Name a value that has no name yet; a name that is taken gets a number."""
        if value not in self._names:
            self._taken[name] = count = self._taken.get(name, 0) + 1
            self._names[value] = f"<{name}>" if count == 1 else f"<{name}, {count}>"

    def of(self, value: object, name: str) -> str:
        """The name of a value, `name` if it had none."""
        self.bind(value, name)
        return self._names[value]


Replace = Callable[[Any, Moment, Names], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A value at `path` (fields, `[]` for any element; `*` for anything) is replaced before it is compared."""

    api: str = "*"
    path: str
    replace: Replace
    orders: bool = False
    """Whether it makes a dictionary of a list whose order says nothing."""
    reason: str


# What takes the place of values


def _text(value: Any, moment: Moment, names: Names) -> Any:
    return "<text>" if isinstance(value, str) and value else value


def _id(value: Any, moment: Moment, names: Names) -> Any:
    is_id = isinstance(value, str) and value.startswith("id:")
    return names.of(value, f"id first seen in {moment.step}") if is_id else value


def _owned_ids(value: Any, moment: Moment, names: Names) -> Any:
    """Names the topic ids of structs that say whose they are; changes nothing."""
    if isinstance(value, dict) and str(value.get("topic_id")).startswith("id:") and value.get("name"):
        names.bind(value["topic_id"], f"id of {value['name']}")
    return value


def _named(name: str) -> Replace:
    def replace(value: Any, moment: Moment, names: Names) -> Any:
        return names.of((name, value), name) if value and not str(value).startswith("<") else value

    return replace


def _of_this_moment(value: Any, moment: Moment, names: Names) -> Any:
    is_now = isinstance(value, int) and moment.sent_ms - 60_000 <= value <= moment.received_ms + 1_000
    return "<now>" if is_now else value


def _address(value: Any, moment: Moment, names: Names) -> Any:
    if not isinstance(value, str):
        return value
    value = value.replace(moment.data_directory, "<data>")
    return value.replace(f":{moment.port + 1}", ":<controller port>").replace(f":{moment.port}", ":<port>")


def _port(value: Any, moment: Moment, names: Names) -> Any:
    return {moment.port: "<port>", moment.port + 1: "<controller port>"}.get(value, value)


def _at_least_zero(value: Any, moment: Moment, names: Names) -> Any:
    return "<at least 0>" if isinstance(value, int) and value >= 0 else value


def _by(*fields: str) -> Replace:
    """A dictionary by these fields, unless two elements have the same."""

    def replace(value: Any, moment: Moment, names: Names) -> Any:
        if not isinstance(value, list) or not value:
            return value
        keys = [" ".join(str(item.get(field, "")) for field in fields) for item in value]
        if len(set(keys)) < len(keys):
            return value
        return dict(sorted(zip(keys, value, strict=True)))

    return replace


RULES: Final[tuple[Rule, ...]] = (
    Rule(
        path="*error_message",
        replace=_text,
        reason="The wording of messages is ours; whether there is one, and whether it is empty or null, is compared.",
    ),
    Rule(api="DESCRIBE_CONFIGS", path="*documentation", replace=_text, reason="The wording of documentation is ours."),
    Rule(path="*", replace=_owned_ids, reason="Names ids by their topic."),
    Rule(path="*_id", replace=_id, reason="Ids are random; where the same one comes again is compared."),
    Rule(path="*cluster_id", replace=_named("cluster id"), reason="Each broker has its own."),
    Rule(api="FETCH", path="session_id", replace=_named("session"), reason="Session ids are random."),
    Rule(path="*port", replace=_port, reason="Each broker has its own ports."),
    Rule(path="*configs*", replace=_address, reason="Values of settings that hold addresses or directories."),
    Rule(api="PRODUCE", path="*log_append_time_ms", replace=_of_this_moment, reason="The broker's clock."),
    Rule(api="FETCH", path="*_timestamp", replace=_of_this_moment, reason="LogAppendTime is the broker's clock."),
    Rule(api="FETCH", path="*records[][]", replace=_of_this_moment, reason="LogAppendTime is the broker's clock."),
    Rule(
        api="API_VERSIONS",
        path="finalized_features_epoch",
        replace=_at_least_zero,
        reason="An offset of the metadata log, in which each has records of its own.",
    ),
    # Orders that Kafka takes from hash maps
    Rule(api="API_VERSIONS", path="api_keys", replace=_by("api_key"), orders=True, reason="A hash map's order."),
    Rule(api="API_VERSIONS", path="*_features", replace=_by("name"), orders=True, reason="A hash map's order."),
    Rule(
        api="PRODUCE",
        path="responses[].partition_responses",
        replace=_by("index"),
        orders=True,
        reason="Kafka answers the partitions of a topic in the order of a hash map.",
    ),
    Rule(api="METADATA", path="topics", replace=_by("name"), orders=True, reason="All topics come in a hash map's order."),
    Rule(
        api="DESCRIBE_CONFIGS",
        path="results[].configs",
        replace=_by("name"),
        orders=True,
        reason="Kafka lists settings in the order of a hash map.",
    ),
    Rule(api="CREATE_TOPICS", path="topics[].configs", replace=_by("name"), orders=True, reason="Read by name."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """Fields that may differ: patterns of API, step and path, a condition on both values, and the reason."""

    api: str
    step: str = "*"
    path: str = "*"
    when: Callable[[Any, Any], bool] = lambda kafka, ours: True
    reason: str


def _absent_here(kafka: Any, ours: Any) -> bool:
    return bool(ours == ABSENT)


ALLOWED: Final[tuple[Allowed, ...]] = (
    Allowed(
        api="API_VERSIONS",
        path="api_keys.*",
        when=_absent_here,
        reason="APIs that are not served here yet are not advertised; those that are have Kafka's ranges.",
    ),
    Allowed(
        api="API_VERSIONS",
        path="*_features*",
        reason="We support and finalise the levels that we implement, not Kafka's newest.",
    ),
)

__all__ = ["ALLOWED", "RULES", "Allowed", "Difference", "Mapping", "Moment", "Names", "Rule"]
