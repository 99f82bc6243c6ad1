"""What differs between two brokers by nature, and what takes its place before their answers are compared.

`RULES` give names to such values, on both sides, so that the rest of the answer and the consistency of the named things
are still compared. A rule that a whole run has no use for fails the run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dev.apache_kafka import OPEN_CONTROLLER_ABOVE, SASL_ABOVE
from protocol.api_keys import ApiKey
from tests.parity.error_messages import SOME_TEXT, words


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

    def bind_owned(self, struct: dict[str, Any]) -> None:
        """Name the topic id of a struct that says whose it is."""
        if str(struct.get("topic_id")).startswith("id:") and struct.get("name"):
            self.bind(struct["topic_id"], f"id of {struct['name']}")

    def of(self, value: object, name: str) -> str:
        """The name of a value, `name` if it had none."""
        self.bind(value, name)
        return self._names[value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When and where a step was asked."""

    script: str
    api: str
    step: str
    sent_ms: int
    received_ms: int
    port: int
    data_directory: str
    member_ids: Names
    """Of the groups that the script is about just now."""


_RANDOM_MEMBER_ID: Final = re.compile(
    r"(?P<prefix>.*)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?=.*[A-Z0-9_-])[\w-]{22}", re.DOTALL
)
"""What a coordinator hands out: the client's id or the instance's, and a random UUID; in a consumer group of the newer
protocol a UUID in base64."""

Replace = Callable[[Any, Moment, Names], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A value at `path` (fields, `[]` for any element; `*` for anything) is replaced before it is compared."""

    script: str = "*"
    api: str = "*"
    path: str
    replace: Replace
    orders: bool = False
    """Whether it makes a dictionary of a list whose order says nothing."""
    reason: str


# What takes the place of values


def _text(value: Any, moment: Moment, names: Names) -> Any:
    return SOME_TEXT if isinstance(value, str) and value else value


def _words(value: Any, moment: Moment, names: Names) -> Any:
    return words(value, moment.api)


def _id(value: Any, moment: Moment, names: Names) -> Any:
    is_id = isinstance(value, str) and value.startswith("id:")
    return names.of(value, f"id first seen in {moment.step}") if is_id else value


def _named(name: str) -> Replace:
    def replace(value: Any, moment: Moment, names: Names) -> Any:
        return names.of((name, value), name) if value and not str(value).startswith("<") else value

    return replace


def _member_id(value: Any, moment: Moment, names: Names) -> Any:
    found = _RANDOM_MEMBER_ID.fullmatch(value) if isinstance(value, str) else None
    return moment.member_ids.of(value, f"{found['prefix'] or ''}-uuid") if found else value


def _by_member(value: Any, moment: Moment, names: Names) -> Any:
    """A dictionary by member id, unless two elements have the same."""
    if not isinstance(value, list):
        return value
    named = {_member_id(item["member_id"], moment, names): item for item in value}
    if len(named) < len(value):
        return value
    return {key: {field: held for field, held in named[key].items() if field != "member_id"} for key in sorted(named)}


def _of_this_moment(value: Any, moment: Moment, names: Names) -> Any:
    is_now = isinstance(value, int) and moment.sent_ms - 60_000 <= value <= moment.received_ms + 1_000
    return "<now>" if is_now else value


def _recent(value: Any, moment: Moment, names: Names) -> Any:
    """A time since the script began, with an hour for a busy machine."""
    return "<now>" if isinstance(value, int) and value >= moment.sent_ms - 3_600_000 else value


def _future(value: Any, moment: Moment, names: Names) -> Any:
    """A time since the script began, or later."""
    return "<time>" if isinstance(value, int) and value >= moment.sent_ms - 3_600_000 else value


def _producer(value: Any, moment: Moment, names: Names) -> Any:
    is_id = isinstance(value, int) and value >= 0
    return names.of(("producer", value), f"producer of {moment.step}") if is_id else value


def _batches_of_producers(value: Any, moment: Moment, names: Names) -> Any:
    """A line for each batch, without the CRC, which depends on the producer's id; markers have the broker's time."""
    if not isinstance(value, list):
        return value
    told: list[Any] = []
    for batch in value:
        if not isinstance(batch, dict):
            told.append(batch)
            continue
        shown = {**batch}
        if "producer_id" in batch:
            shown["producer_id"] = _producer(batch["producer_id"], moment, names)
        shown |= {time: _recent(batch[time], moment, names) for time in ("base_timestamp", "max_timestamp")}
        told.append(_line(shown, "base_offset", "crc"))
    return told


def _line(batch: dict[str, Any], *left_out: str) -> str:
    fields = [f"{name} {held}" for name, held in batch.items() if name not in (*left_out, "records")]
    return f"{batch['base_offset']}: {', '.join(fields)}, {batch['records']}"


_LEADER_EPOCH: Final = re.compile(r" partition_leader_epoch \d+,| sha256 \w+,|=.* 0 headers")


def _without_leader_epochs(value: Any, moment: Moment, names: Names) -> Any:
    """A restart raises leader epochs, which batches have, and markers as the epoch of their coordinator."""
    return _LEADER_EPOCH.sub("", value) if isinstance(value, str) else value


def _sorted_by(field: str) -> Replace:
    def replace(value: Any, moment: Moment, names: Names) -> Any:
        return sorted(value, key=lambda item: item[field]) if isinstance(value, list) else value

    return replace


def _sorted_by_topic_id(value: Any, moment: Moment, names: Names) -> Any:
    return sorted(value, key=lambda item: names.of(item["topic_id"], "id")) if isinstance(value, list) else value


def _batches(value: Any, moment: Moment, names: Names) -> Any:
    """What differs by the broker's clock is named so; equal batches that follow each other are told once."""
    if not isinstance(value, list):
        return value
    told: list[Any] = []
    expected_offset = -1
    for batch in value:
        if not isinstance(batch, dict):
            told.append(batch)
            continue
        batch = {**batch}
        if batch["max_timestamp"] != _of_this_moment(batch["max_timestamp"], moment, names):
            batch |= {"max_timestamp": "<now>", "crc": "<of now>", "records": len(batch["records"])}
        last = told[-1] if told and isinstance(told[-1], dict) else {}
        if batch["base_offset"] == expected_offset and _but_for_its_place(last) == _but_for_its_place(batch):
            last["times"] = last.get("times", 1) + 1
        else:
            told.append(batch)
        expected_offset = batch["base_offset"] + batch.get("last_offset_delta", 0) + 1
    return told


def _but_for_its_place(batch: dict[str, Any]) -> dict[str, Any]:
    return {field: held for field, held in batch.items() if field not in ("base_offset", "times")}


def _ranges(value: Any, moment: Moment, names: Names) -> Any:
    if not isinstance(value, list):
        return value
    return {ApiKey(api["api_key"]).name: f"{api['min_version']}-{api['max_version']}" for api in value}


def _address(value: Any, moment: Moment, names: Names) -> Any:
    if not isinstance(value, str):
        return value
    value = value.replace(moment.data_directory, "<data>")
    value = value.replace(moment.data_directory.rpartition("/")[0] + "/", "<beside data>/")
    return value.replace(f":{moment.port + 1}", ":<controller port>").replace(f":{moment.port}", ":<port>")


def _port(value: Any, moment: Moment, names: Names) -> Any:
    if not isinstance(value, int):
        return value
    ports = {
        moment.port: "<port>",
        moment.port + 1: "<controller port>",
        moment.port + SASL_ABOVE: "<port with SASL>",
        moment.port + OPEN_CONTROLLER_ABOVE: "<open controller port>",
    }
    return ports.get(value, value)


def _at_least_zero(value: Any, moment: Moment, names: Names) -> Any:
    return "<at least 0>" if isinstance(value, int) and value >= 0 else value


def _by(*fields: str) -> Replace:
    """A dictionary by these fields, unless two elements have the same."""

    def replace(value: Any, moment: Moment, names: Names) -> Any:
        if not isinstance(value, list) or not value:
            return value
        for item in value:
            names.bind_owned(item)
        keys = [" ".join(str(_id(item[field], moment, names)) for field in fields if field in item) for item in value]
        if len(set(keys)) < len(keys):
            return value
        rest = [{field: held for field, held in item.items() if field not in fields} for item in value]
        return dict(sorted(zip(keys, rest, strict=True)))

    return replace


def _sorted(value: Any, moment: Moment, names: Names) -> Any:
    return sorted(value) if isinstance(value, list) else value


def _by_partition(value: Any, moment: Moment, names: Names) -> Any:
    """The partitions of all topics by topic and index, unless one occurs twice."""
    if not isinstance(value, list):
        return value
    found: dict[str, Any] = {}
    for topic in value:
        owner = (
            topic.get("topic") or names.of(topic["topic_id"], "unknown id")
            if "topic_id" in topic
            else topic.get("topic", "")
        )
        for partition in topic["partitions"]:
            key = f"{owner} {partition['partition_index']}"
            if key in found:
                return value
            found[key] = partition
        if not topic["partitions"]:
            found[owner] = []
    return dict(sorted(found.items()))


def _by_entity(value: Any, moment: Moment, names: Names) -> Any:
    """What is said of entities of quotas, by entity, unless an entity occurs twice."""
    if not isinstance(value, list):
        return value
    found: dict[str, Any] = {}
    for entry in value:
        parts = sorted(f"{part['entity_type']}={part['entity_name']}" for part in entry["entity"])
        said = {field: held for field, held in entry.items() if field not in ("entity", "values")}
        if "values" in entry:
            said |= {one["key"]: str(one["value"]) for one in sorted(entry["values"], key=lambda one: one["key"])}
        key = " ".join(parts)
        if key in found:
            return value
        found[key] = said
    return dict(sorted(found.items()))


def _to_100_s(value: Any, moment: Moment, names: Names) -> Any:
    """A throttle time of hours, from which the time since the first request is taken off."""
    return f"<{round(value / 100_000) * 100} s>" if isinstance(value, int) and value > 100_000 else value


def _all(value: Any, moment: Moment, names: Names) -> Any:
    return "<all>" if value else value


_OF_THE_NONCE: Final = re.compile(r"(?<='r=)[^,']*(?=,)|(?<='v=)[^']*")


def _of_a_login(value: Any, moment: Moment, names: Names) -> Any:
    """A message of SCRAM without the server's nonce, and the signature that depends on the nonce."""
    return _OF_THE_NONCE.sub("...", value) if isinstance(value, str) else value


def _nearly_an_hour(value: Any, moment: Moment, names: Names) -> Any:
    """A lifetime of an hour, from which the time since the token was made is taken off."""
    return "<an hour>" if isinstance(value, int) and 3_400_000 < value < 3_600_000 else value


RULES: Final[tuple[Rule, ...]] = (
    Rule(script="sasl", api="API_VERSIONS", path="api_keys", replace=_all, reason="Another script compares them."),
    Rule(script="sasl", api="SASL_AUTHENTICATE", path="auth_bytes", replace=_of_a_login, reason="A nonce is random."),
    Rule(
        script="sasl",
        api="SASL_AUTHENTICATE",
        path="session_lifetime_ms",
        replace=_nearly_an_hour,
        reason="The broker's clock goes on since the token was made.",
    ),
    Rule(
        script="client_quotas",
        path="entries",
        replace=_by_entity,
        reason="Kafka tells entities, the parts of an entity, and quotas in the order of a hash table.",
    ),
    Rule(
        script="client_quotas",
        path="throttle_time_ms",
        replace=_to_100_s,
        reason="The broker's clock goes on between two requests of a throttled client.",
    ),
    Rule(
        api="DESCRIBE_ACLS",
        path="resources",
        replace=_by("resource_type", "pattern_type", "resource_name"),
        orders=True,
        reason="A hash map's order.",
    ),
    Rule(
        api="DESCRIBE_ACLS",
        path="resources*.acls",
        replace=_by("principal", "host", "operation", "permission_type"),
        orders=True,
        reason="A hash map's order.",
    ),
    Rule(
        api="DELETE_ACLS",
        path="filter_results[].matching_acls",
        replace=_by(
            "resource_type", "pattern_type", "resource_name", "principal", "host", "operation", "permission_type"
        ),
        orders=True,
        reason="A hash map's order.",
    ),
    Rule(
        script="*authorization",
        path="*error_message",
        replace=_text,
        reason="Kafka's words for most refusals are those of a program's inner state.",
    ),
    Rule(
        script="authorization",
        path="*producer_id",
        replace=_producer,
        reason="Which producer ids are given is the broker's affair.",
    ),
    *(
        Rule(script="authorization", api="*_DELEGATION_TOKEN", path=path, replace=replace, reason=reason)
        for path, replace, reason in (
            ("*token_id", _named("token"), "Ids are random."),
            ("*hmac", _text, "The secret follows from the id."),
            ("*timestamp*", _future, "The broker's clock."),
        )
    ),
    *(
        Rule(
            script="authorization",
            api=api,
            path=path,
            replace=_by(*fields),
            orders=True,
            reason="Kafka answers what it refuses first or last, or in the order of a hash map.",
        )
        for api, path, fields in (
            ("PRODUCE", "responses", ("name", "topic_id")),
            ("DESCRIBE_TOPIC_PARTITIONS", "topics", ("name",)),
            ("CREATE_TOPICS", "topics", ("name",)),
            ("DESCRIBE_CONFIGS", "results", ("resource_type", "resource_name")),
            ("ELECT_LEADERS", "replica_election_results", ("topic",)),
        )
    ),
    Rule(
        script="authorization",
        api="DESCRIBE_DELEGATION_TOKEN",
        path="tokens",
        replace=_sorted_by("issue_timestamp"),
        orders=True,
        reason="A hash map's order.",
    ),
    Rule(
        path="*error_message",
        replace=_words,
        reason="The words of an administrator's errors are compared; of other errors, whether there is a message, and "
        "whether it is empty or null.",
    ),
    Rule(api="DESCRIBE_CONFIGS", path="*documentation", replace=_text, reason="The wording of documentation is ours."),
    Rule(path="*_id", replace=_id, reason="Ids are random; where the same one comes again is compared."),
    Rule(path="*member_id", replace=_member_id, reason="It ends in a random UUID; which member it is, is compared."),
    Rule(api="JOIN_GROUP", path="leader", replace=_member_id, reason="It is a member's id."),
    Rule(path="*cluster_id", replace=_named("cluster id"), reason="Each broker has its own."),
    Rule(api="FETCH", path="session_id", replace=_named("session"), reason="Session ids are random."),
    Rule(path="*port", replace=_port, reason="Each broker has its own ports."),
    Rule(path="*configs*", replace=_address, reason="Values of settings that hold addresses or directories."),
    Rule(api="PRODUCE", path="*log_append_time_ms", replace=_of_this_moment, reason="The broker's clock."),
    Rule(
        script="transaction_*",
        api="FETCH",
        path="*.records",
        replace=_batches_of_producers,
        reason="Which producer ids are given is the broker's affair, and markers have its time.",
    ),
    Rule(
        script="transaction_loading",
        api="FETCH",
        path="*.records[]",
        replace=_without_leader_epochs,
        reason="Kafka raises leader epochs twice at a restart in order, we do not.",
    ),
    Rule(api="FETCH", path="*.records", replace=_batches, reason="LogAppendTime is the broker's clock."),
    Rule(
        script="transaction_*",
        path="*producer_id",
        replace=_producer,
        reason="Which producer ids are given is the broker's affair; which producer it is, is compared.",
    ),
    Rule(
        api="DESCRIBE_TRANSACTIONS",
        path="*transaction_start_time_ms",
        replace=_recent,
        reason="The broker's clock.",
    ),
    Rule(
        script="transaction_*",
        api="LIST_OFFSETS",
        path="*.timestamp",
        replace=_recent,
        reason="A marker has the broker's time.",
    ),
    Rule(api="DESCRIBE_PRODUCERS", path="*last_timestamp", replace=_recent, reason="A marker has the broker's time."),
    Rule(api="DESCRIBE_LOG_DIRS", path="*log_dir", replace=_address, reason="Each has its own directory."),
    Rule(api="DESCRIBE_LOG_DIRS", path="*total_bytes", replace=_at_least_zero, reason="The disk's size."),
    Rule(api="DESCRIBE_LOG_DIRS", path="*usable_bytes", replace=_at_least_zero, reason="What is free at that moment."),
    Rule(api="DESCRIBE_QUORUM", path="*_timestamp", replace=_of_this_moment, reason="The broker's clock."),
    Rule(
        api="DESCRIBE_QUORUM",
        path="*log_end_offset",
        replace=_at_least_zero,
        reason="An offset of the metadata log, in which each has records of its own.",
    ),
    Rule(
        api="DESCRIBE_QUORUM",
        path="*high_watermark",
        replace=_at_least_zero,
        reason="An offset of the metadata log, in which each has records of its own.",
    ),
    Rule(
        api="API_VERSIONS",
        path="finalized_features_epoch",
        replace=_at_least_zero,
        reason="An offset of the metadata log, in which each has records of its own.",
    ),
    # Orders that Kafka takes from hash maps
    Rule(api="API_VERSIONS", path="api_keys", replace=_ranges, orders=True, reason="A hash map's order."),
    Rule(api="API_VERSIONS", path="*_features", replace=_by("name"), orders=True, reason="A hash map's order."),
    Rule(
        api="*_SHARE_GROUP_STATE*",
        path="results",
        replace=_sorted_by_topic_id,
        orders=True,
        reason="A hash map's order, whose keys are random ids.",
    ),
    Rule(
        api="PRODUCE",
        path="responses[].partition_responses",
        replace=_by("index"),
        orders=True,
        reason="Kafka answers the partitions of a topic in the order of a hash map.",
    ),
    Rule(
        api="METADATA", path="topics", replace=_by("name"), orders=True, reason="All topics come in a hash map's order."
    ),
    Rule(
        script="fetch",
        api="FETCH",
        path="responses",
        replace=_by_partition,
        orders=True,
        reason="Kafka puts what it refuses behind the rest, and topics together that follow each other.",
    ),
    *(
        Rule(
            script="share_*",
            api=api,
            path="responses",
            replace=_by_partition,
            orders=True,
            reason="Kafka has no order for them.",
        )
        for api in ("SHARE_FETCH", "SHARE_ACKNOWLEDGE")
    ),
    Rule(
        api="LIST_CONFIG_RESOURCES",
        path="config_resources",
        replace=_by("resource_type", "resource_name"),
        orders=True,
        reason="Kafka lists the types in the order of a hash map.",
    ),
    Rule(api="CREATE_PARTITIONS", path="results", replace=_by("name"), orders=True, reason="A hash map's order."),
    Rule(api="DELETE_RECORDS", path="topics", replace=_by("name"), orders=True, reason="A hash map's order."),
    Rule(
        api="DELETE_RECORDS",
        path="topics.*.partitions",
        replace=_by("partition_index"),
        orders=True,
        reason="A hash map's order.",
    ),
    Rule(
        api="DESCRIBE_LOG_DIRS", path="results[].topics", replace=_by("name"), orders=True, reason="A hash map's order."
    ),
    Rule(
        api="DESCRIBE_LOG_DIRS",
        path="results[].topics.*.partitions",
        replace=_by("partition_index"),
        orders=True,
        reason="A hash map's order.",
    ),
    Rule(api="JOIN_GROUP", path="members", replace=_by_member, orders=True, reason="A hash map's order."),
    *(
        Rule(api=api, path=path, replace=_sorted_by("partitions"), orders=True, reason="A hash map's order.")
        for api, path in (
            ("CONSUMER_GROUP_HEARTBEAT", "assignment.topic_partitions"),
            ("CONSUMER_GROUP_DESCRIBE", "groups*.members*.assignment.topic_partitions"),
            ("CONSUMER_GROUP_DESCRIBE", "groups*.members*.target_assignment.topic_partitions"),
        )
    ),
    *(
        Rule(
            api=api, path="groups*.members", replace=_sorted_by("member_id"), orders=True, reason="A hash map's order."
        )
        for api in ("CONSUMER_GROUP_DESCRIBE", "STREAMS_GROUP_DESCRIBE")
    ),
    Rule(api="DESCRIBE_GROUPS", path="groups*.members", replace=_by_member, orders=True, reason="A hash map's order."),
    *(
        Rule(
            api=api,
            path="groups",
            replace=_by("group_id"),
            orders=True,
            reason="Each partition of the coordinator answers for its groups when it can.",
        )
        for api in ("DESCRIBE_GROUPS", "CONSUMER_GROUP_DESCRIBE", "STREAMS_GROUP_DESCRIBE")
    ),
    *(
        Rule(api=api, path=path, replace=_sorted_by(field), orders=True, reason="A hash map's order.")
        for api, path, field in (
            ("SHARE_GROUP_DESCRIBE", "groups", "group_id"),
            ("SHARE_GROUP_DESCRIBE", "groups*.members", "member_id"),
            ("DESCRIBE_SHARE_GROUP_OFFSETS", "groups*.topics", "topic_name"),
            ("DESCRIBE_SHARE_GROUP_OFFSETS", "groups*.topics*.partitions", "partition_index"),
            ("ALTER_SHARE_GROUP_OFFSETS", "responses", "topic_name"),
        )
    ),
    Rule(api="LIST_GROUPS", path="groups", replace=_by("group_id"), orders=True, reason="A hash map's order."),
    Rule(api="DELETE_GROUPS", path="results", replace=_by("group_id"), orders=True, reason="A hash map's order."),
    Rule(
        api="OFFSET_COMMIT",
        path="topics*.partitions",
        replace=_by("partition_index"),
        orders=True,
        reason="Kafka answers the partitions that it refuses first.",
    ),
    Rule(
        api="OFFSET_DELETE",
        path="topics*.partitions",
        replace=_by("partition_index"),
        orders=True,
        reason="Kafka answers the partitions that it refuses first.",
    ),
    Rule(
        api="OFFSET_FETCH",
        path="*topics",
        replace=_by("name", "topic_id"),
        orders=True,
        reason="All topics come in a hash map's order, and those with unknown ids last.",
    ),
    Rule(
        api="OFFSET_FETCH",
        path="*topics*.partitions",
        replace=_by("partition_index"),
        orders=True,
        reason="All partitions come in a hash map's order.",
    ),
    Rule(api="LIST_OFFSETS", path="topics", replace=_by("name"), orders=True, reason="A hash map's order."),
    Rule(
        api="LIST_OFFSETS",
        path="topics.*.partitions",
        replace=_by("partition_index"),
        orders=True,
        reason="Kafka answers the partitions that it refuses first.",
    ),
    Rule(
        api="DESCRIBE_CONFIGS",
        path="results[].configs",
        replace=_by("name"),
        orders=True,
        reason="Kafka lists settings in the order of a hash map.",
    ),
    Rule(
        api="DELETE_TOPICS",
        path="responses",
        replace=_by("name", "topic_id"),
        orders=True,
        reason="A hash map's order.",
    ),
    Rule(api="CREATE_TOPICS", path="topics*.configs", replace=_by("name"), orders=True, reason="Read by name."),
    Rule(
        api="ADD_PARTITIONS_TO_TXN",
        path="*results_by_partition",
        replace=_by("partition_index"),
        orders=True,
        reason="Kafka answers the partitions that it refuses first.",
    ),
    *(
        Rule(
            api="ADD_PARTITIONS_TO_TXN",
            path=path,
            replace=_by("name"),
            orders=True,
            reason="Kafka answers the topics that it refuses first.",
        )
        for path in ("results_by_topic_v3_and_below", "*topic_results")
    ),
    Rule(
        api="TXN_OFFSET_COMMIT",
        path="topics*.partitions",
        replace=_by("partition_index"),
        orders=True,
        reason="Kafka answers the partitions that it refuses first.",
    ),
    Rule(
        script="transaction_*",
        api="ADD_PARTITIONS_TO_TXN",
        path="results_by_transaction",
        replace=_by("transactional_id"),
        orders=True,
        reason="Kafka answers the transactions when each is decided.",
    ),
    Rule(
        api="DESCRIBE_TRANSACTIONS",
        path="transaction_states[].topics",
        replace=_by("topic"),
        orders=True,
        reason="A hash map's order.",
    ),
    Rule(
        api="DESCRIBE_TRANSACTIONS",
        path="transaction_states[].topics.*.partitions",
        replace=_sorted,
        orders=True,
        reason="A hash set's order.",
    ),
    Rule(
        api="DESCRIBE_PRODUCERS",
        path="*active_producers",
        replace=_sorted_by("producer_id"),
        orders=True,
        reason="A hash map's order.",
    ),
    Rule(
        script="transaction_*",
        api="WRITE_TXN_MARKERS",
        path="markers",
        replace=_sorted_by("producer_id"),
        orders=True,
        reason="A hash map's order.",
    ),
    Rule(
        script="transaction_*",
        api="WRITE_TXN_MARKERS",
        path="markers[].topics",
        replace=_by("name"),
        orders=True,
        reason="A hash map's order.",
    ),
    Rule(
        script="transaction_*",
        api="WRITE_TXN_MARKERS",
        path="markers[].topics.*.partitions",
        replace=_by("partition_index"),
        orders=True,
        reason="A hash map's order.",
    ),
    Rule(
        script="transaction_*",
        api="PRODUCE",
        path="responses",
        replace=_by("name", "topic_id"),
        orders=True,
        reason="Several topics come in a hash map's order.",
    ),
    Rule(
        script="transaction_*",
        api="PRODUCE",
        path="responses.*.partition_responses",
        replace=_by("index"),
        orders=True,
        reason="Kafka answers the partitions of a topic in the order of a hash map.",
    ),
    Rule(
        api="LIST_TRANSACTIONS",
        path="transaction_states",
        replace=_by("transactional_id"),
        orders=True,
        reason="A hash map's order.",
    ),
    Rule(
        api="LIST_TRANSACTIONS",
        path="unknown_state_filters",
        replace=_sorted,
        orders=True,
        reason="A hash set's order.",
    ),
    *(
        Rule(api=api, path="results", replace=_by("user"), orders=True, reason="A hash map's order.")
        for api in ("DESCRIBE_USER_SCRAM_CREDENTIALS", "ALTER_USER_SCRAM_CREDENTIALS")
    ),
    Rule(
        api="DESCRIBE_USER_SCRAM_CREDENTIALS",
        path="results*.credential_infos",
        replace=_by("mechanism"),
        orders=True,
        reason="A hash map's order.",
    ),
    Rule(
        api="ALTER_REPLICA_LOG_DIRS",
        path="results",
        replace=_by("topic_name"),
        orders=True,
        reason="A hash map's order.",
    ),
    Rule(
        api="ALTER_REPLICA_LOG_DIRS",
        path="results*.partitions",
        replace=_by("partition_index"),
        orders=True,
        reason="A hash map's order.",
    ),
)
