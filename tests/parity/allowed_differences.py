"""The one table of what may differ between Kafka's answers and ours, each entry with its reason.

`ALLOWED` are the fields in which we answer otherwise than Kafka on purpose. An entry that a whole run has no use for
fails the run. What differs by nature is in `tests.parity.rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from config.our_defaults import OUR_DEFAULTS
from tests.parity.comparison import ABSENT, CLOSED, SILENCE
from tests.parity.error_messages import begins_with_kafkas_words, says_nothing_special


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """Fields that may differ: patterns of API, step and path, a condition on both values, and the reason."""

    api: str
    step: str = "*"
    path: str = "*"
    when: Callable[[Any, Any], bool] = lambda kafka, ours: True
    reason: str
    by_chance: bool = False
    """Whether it depends on the speed of the machine if there is a difference."""


def _only_ours_says_why(kafka: Any, ours: Any) -> bool:
    return kafka in (None, ABSENT, "") and ours not in (None, ABSENT, "")


def _we_close(kafka: Any, ours: Any) -> bool:
    return bool(ours == CLOSED)


def _each_partition(responses: Any) -> list[tuple[str, str]]:
    return sorted(
        (str(topic.get("topic", topic.get("topic_id"))), str(partition))
        for topic in responses
        for partition in topic["partitions"]
    )


def _only_we_answer(kafka: Any, ours: Any) -> bool:
    return kafka == SILENCE and isinstance(ours, dict) and "error_code" not in ours


def _better_refused(kafka: Any, ours: Any) -> bool:
    return kafka != "INVALID_CONFIG"


SETTINGS_OF_THE_NODE: Final = (
    *("process.roles", "controller.listener.names", "controller.quorum.bootstrap.servers"),
    *("listeners", "advertised.listeners", "listener.security.protocol.map"),
    *("broker.id", "node.id", "log.dir", "log.dirs"),
)
"""With these each broker is told how to run on its own."""


ALLOWED: Final[tuple[Allowed, ...]] = (
    *(
        Allowed(
            api="DESCRIBE_CONFIGS",
            step="all settings of the broker*",
            path=f"results[0].configs.{setting}.*",
            reason="What a node is told to run: Kafka needs a controller's listener of its own.",
        )
        for setting in SETTINGS_OF_THE_NODE
    ),
    *(
        Allowed(
            api="DESCRIBE_CONFIGS",
            step="all settings of the broker*",
            path=f"results[0].configs.{setting}.*value",
            reason=f"Our default is not Kafka's: {default.reason}",
        )
        for setting, default in OUR_DEFAULTS.items()
        if setting not in SETTINGS_OF_THE_NODE
    ),
    Allowed(
        api="DESCRIBE_CONFIGS",
        step="all settings of the broker*",
        path="results[0].configs.ottla.*",
        when=lambda kafka, ours: bool(kafka == ABSENT),
        reason="Settings that only we have.",
    ),
    *(
        Allowed(
            api=api,
            path=f"{results}.configs.ottla.archive.*",
            when=lambda kafka, ours: bool(kafka == ABSENT),
            reason="Settings of topics that only we have.",
        )
        for api, results in (("DESCRIBE_CONFIGS", "results[*]"), ("CREATE_TOPICS", "topics*"))
    ),
    Allowed(
        api="FIND_COORDINATOR",
        step="of share groups, allowed *",
        reason="The first answer lets the topic of the states be created, and it is there sooner than Kafka's.",
        by_chance=True,
    ),
    Allowed(
        api="CREATE_ACLS",
        step="hosts *",
        path="*error_message",
        when=lambda kafka, ours: kafka.partition("': ")[0] == ours.partition("': ")[0],
        reason="Behind the same words Kafka's library says which number is out of range.",
    ),
    Allowed(
        api="CREATE_ACLS",
        step="any *",
        path="*error_code",
        when=lambda kafka, ours: (kafka, ours) == ("UNKNOWN_SERVER_ERROR", "INVALID_REQUEST"),
        reason="Kafka meets an exception that nobody expects, with each code that only filters may have.",
    ),
    Allowed(
        api="CREATE_ACLS",
        step="a match",
        path="*error_code",
        when=lambda kafka, ours: (kafka, ours) == ("UNKNOWN_SERVER_ERROR", "INVALID_REQUEST"),
        reason="Likewise.",
    ),
    *(
        Allowed(
            api="SASL_AUTHENTICATE",
            step=step,
            reason="Kafka refuses at once a name that has no credential, so that anybody can find out which users "
            "there are; we refuse it where a wrong password is refused.",
        )
        for step in ("SCRAM-*: a name that nobody has, *", "SCRAM-*: a token's name, *")
    ),
    Allowed(
        api="SASL_AUTHENTICATE",
        step="a last message with the nonce twice",
        reason="So librdkafka sends it before 2.6.1; the proof covers it, and Kafka turns such clients away.",
    ),
    *(
        Allowed(
            api=api,
            step=step,
            when=lambda kafka, ours: bool(kafka == CLOSED) and "error_code" in ours,
            reason="Kafka closes, for an exception nobody expects; we answer that the client is not let in.",
        )
        for api, step in (
            ("SASL_AUTHENTICATE", "a last message with half a proof"),
            ("SASL_AUTHENTICATE", "a token of OAUTHBEARER of another scheme"),
            ("SASL_HANDSHAKE", "again by an unknown mechanism"),
        )
    ),
    Allowed(
        api="PRODUCE",
        step="a batch length of 2147483647",
        path="*error_code",
        when=lambda kafka, ours: (kafka, ours) == ("UNKNOWN_SERVER_ERROR", "INVALID_RECORD"),
        reason="Kafka's sum of that length and the header overflows; to us the batch is cut short, as any other.",
    ),
    Allowed(
        api="PRODUCE",
        step="null for the records",
        reason="Kafka never answers, for an exception nobody expects; we say that the records are missing.",
    ),
    Allowed(
        api="PRODUCE",
        step="gzip with four bytes behind it",
        reason="Kafka does not look behind the stream; we refuse what no reader agrees on.",
    ),
    Allowed(
        api="PRODUCE",
        step="zstd without any data",
        path="*error_code",
        when=lambda kafka, ours: (kafka, ours) == ("INVALID_RECORD", "UNKNOWN_SERVER_ERROR"),
        reason="To Kafka's library no data is an empty stream, to ours a damaged one; the batch is refused by both.",
    ),
    Allowed(
        api="ALTER_CONFIGS",
        step="the same topic twice",
        reason="Kafka never answers, for an exception nobody expects; we refuse both as IncrementalAlterConfigs does.",
    ),
    Allowed(
        api="DESCRIBE_CONFIGS",
        step="the same topic twice",
        path="results",
        when=lambda kafka, ours: len(kafka) == 2 and len(ours) == 1,
        reason="Kafka describes it each time, however often; see docs/decisions/bad-input.md.",
    ),
    Allowed(
        api="DESCRIBE_CONFIGS",
        step="the broker '01'",
        reason="Kafka reads the name as a number, we as it stands.",
    ),
    Allowed(
        api="FETCH",
        step="talk-v*: *",
        path="responses",
        when=lambda kafka, ours: _each_partition(kafka) == _each_partition(ours),
        reason="In a session, too, Kafka puts topics that it does not know behind the rest.",
    ),
    Allowed(
        api="DESCRIBE_CONFIGS",
        step="the root logger",
        path="results[0].configs.root.value",
        reason="The level that the node was started with.",
    ),
    Allowed(
        api="ALTER_PARTITION_REASSIGNMENTS",
        step="no topics",
        path="error_message",
        reason="To no topics at all Kafka says an empty message, else null; nobody reads the difference.",
    ),
    Allowed(
        api="DESCRIBE_TOPIC_PARTITIONS",
        step="the topic ''",
        reason="Kafka fails to look at an empty name; we answer it as every other bad one.",
    ),
    Allowed(
        api="PRODUCE",
        step="codec ?",
        path="*.log_start_offset",
        reason="Kafka notices an unknown codec earlier in versions that may not carry zstd; the error is the same.",
    ),
    Allowed(
        api="FETCH",
        step="replica * with its epoch",
        path="node_endpoints",
        when=lambda kafka, ours: bool(kafka == ABSENT),
        reason="Kafka says who leads and not where; we say both, as for every other NOT_LEADER_OR_FOLLOWER.",
    ),
    Allowed(
        api="JOIN_GROUP",
        step="a protocol twice, alone",
        when=_only_we_answer,
        reason="Kafka takes a member that names a protocol twice for two, finds none that all know, and never answers.",
    ),
    Allowed(
        api="JOIN_GROUP",
        step="a protocol twice, beside another",
        path="protocol_name",
        reason="For the same reason Kafka passes over the protocol that it counts twice.",
    ),
    Allowed(
        api="ADD_PARTITIONS_TO_TXN",
        step="no transactions",
        when=_only_we_answer,
        reason="Kafka never answers, since it answers with the last transaction of the list.",
    ),
    *(
        Allowed(
            api="END_TXN",
            step=step,
            reason="Kafka takes a fenced producer for the producer that has ended the transaction, and so gives it the "
            "epoch of the producer that has fenced it, if that has an old client or the level is not 2.",
        )
        for step in ("*old client: the * in epoch E-1", "level ?: a fenced producer's abort")
    ),
    *(
        Allowed(api=api, step=step, reason="Kafka writes a marker with a negative producer id, which no producer has.")
        for api, step in (
            ("WRITE_TXN_MARKERS", "producer -2"),
            ("FETCH", "what lies there"),
        )
    ),
    Allowed(
        api="WRITE_TXN_MARKERS",
        step="transaction version -128",
        reason="Kafka refuses the version -1 and no other that there cannot be.",
    ),
    Allowed(
        api="WRITE_TXN_MARKERS",
        step="a partition twice",
        when=_only_we_answer,
        reason="Kafka counts the partition twice, and waits for a second answer that never comes.",
    ),
    Allowed(
        api="OFFSET_FETCH",
        step="*without a member id",
        path="groups[0].error_code",
        when=lambda kafka, ours: (kafka, ours) == ("UNKNOWN_SERVER_ERROR", "UNKNOWN_MEMBER_ID"),
        reason="Kafka fails on an epoch without a member id with an exception of its own.",
    ),
    Allowed(
        api="METADATA",
        step="* topics announced",
        when=_we_close,
        reason="A count below -1 means nothing; Kafka takes every negative one for null.",
    ),
    Allowed(
        api="API_VERSIONS",
        step="a client id of length -2",
        when=_we_close,
        reason="A length below -1 means nothing; Kafka takes every negative one for null.",
    ),
    *(
        Allowed(
            api=api,
            step=step,
            path="*error_message",
            when=_only_ours_says_why,
            reason="Kafka gives no message here where it gives one with the same code elsewhere, or another code.",
        )
        for api, step in (
            ("CREATE_ACLS", "a match"),
            ("CREATE_ACLS", "any *"),
            ("INCREMENTAL_ALTER_CONFIGS", "operation 4"),
            ("PRODUCE", "a batch length of 4*"),
            ("PRODUCE", "seventeen zero bytes behind the batch"),
            ("SHARE_FETCH", "without a state: a group without a state"),
            ("SHARE_GROUP_HEARTBEAT", "a heartbeat with* member id"),
            ("STREAMS_GROUP_HEARTBEAT", "a member joins with two subtopologies of one id"),
            ("STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE", "a topology"),
        )
    ),
    Allowed(
        api="*",
        path="*error_message",
        when=begins_with_kafkas_words,
        reason="Behind Kafka's words, for which programs look, we say more: the value, or the name that may be meant.",
    ),
    Allowed(
        api="*",
        path="*error_message",
        when=says_nothing_special,
        reason="Kafka says what it says of every INVALID_REQUEST; we say what is wrong with this one.",
    ),
    Allowed(
        api="INCREMENTAL_ALTER_CONFIGS",
        step="max.connections.per.ip.overrides='x' *",
        path="*error_message",
        when=lambda kafka, ours: str(kafka).partition(": ")[0] == str(ours).partition(": ")[0],
        reason="Behind the same words Kafka has those of a Java exception.",
    ),
    Allowed(
        api="INCREMENTAL_ALTER_CONFIGS",
        step="metric.reporters='x' *",
        path="*error_message",
        reason="Kafka names the Java class that refuses it; there are no Java classes here.",
    ),
    Allowed(
        api="INCREMENTAL_ALTER_CONFIGS",
        step="operation 4",
        path="*error_code",
        when=lambda kafka, ours: (kafka, ours) == ("UNKNOWN_SERVER_ERROR", "INVALID_REQUEST"),
        reason="Kafka fails on an operation that there is not; we refuse it.",
    ),
    Allowed(
        api="CREATE_TOPICS",
        step="retention.ms='٣'",
        when=_better_refused,
        reason="Java reads every script's digits, and keeps the text; we take ASCII digits, which all tools can read.",
    ),
    Allowed(
        api="CREATE_TOPICS",
        step="min.cleanable.dirty.ratio='NaN'",
        when=_better_refused,
        reason="Kafka takes NaN for a ratio between 0 and 1, since it is on neither side of a limit.",
    ),
    Allowed(
        api="STREAMS_GROUP_HEARTBEAT",
        step="a member needs topics",
        path="status[0].status_detail",
        when=lambda kafka, ours: (
            ours == "Internal topics are missing: a-changelog, b-changelog, c-changelog and 2 additional topics"
            and kafka.endswith(" and 2 additional topics")
        ),
        reason="Kafka names the first topics of a hash map, we name them in alphabetical order.",
    ),
    Allowed(
        api="STREAMS_GROUP_DESCRIBE",
        step="two groups, with operations, *",
        path="groups.counts.topology.subtopologies[0].state_changelog_topics[0].partitions",
        when=lambda kafka, ours: (kafka, ours) == (0, 2),
        reason="Kafka knows the partitions of a changelog from the second epoch of the group on, we know them at once.",
    ),
    Allowed(
        api="STREAMS_GROUP_HEARTBEAT",
        step="a member joins with two subtopologies of one id",
        path="error_code",
        when=lambda kafka, ours: (kafka, ours) == ("UNKNOWN_SERVER_ERROR", "STREAMS_INVALID_TOPOLOGY"),
        reason="Kafka fails on it with an exception of its own; we say what is wrong.",
    ),
    *(
        Allowed(
            api=api,
            path="responses*.current_leader",
            when=lambda kafka, ours: (kafka, ours) == ({"leader_id": 0, "leader_epoch": 0}, ABSENT),
            reason="Kafka names broker 0 where it names no leader, which franz-go follows; we answer -1, as in Fetch.",
        )
        for api in ("SHARE_FETCH", "SHARE_ACKNOWLEDGE")
    ),
    *(
        Allowed(
            api="LIST_GROUPS",
            step=f"groups in the state '{state}'",
            reason="Kafka's administrators ask for the state by its name, and are told of no group; we tell them.",
        )
        for state in ("NotReady", "notready")
    ),
)
