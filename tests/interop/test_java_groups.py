"""Kafka's own tools for groups: `kafka-consumer-groups` in all its forms, and its consumers that are in a group."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.waiting import until
from tests.interop.java_tools import JavaTools
from tests.interop.programs import Running
from tests.support.clients import Client, Committed, Place, Record
from tests.support.clients.members import Membership, SeenMember, places, wait_for, wait_until_shared

NOON_MS = int(datetime.datetime.now(datetime.UTC).timestamp() * 1000) - 3_600_000
"""Of these tests: an hour ago."""
GROUPS = "kafka-consumer-groups"
AT_FOUR_AND_SIX = {0: 4, 1: 6}


@pytest.fixture
def group(topic: str) -> str:
    return f"group-of-{topic}"


@pytest.fixture
def read(client: Client, topic: str) -> str:
    """The test's topic with ten records, a second apart, in each of two partitions."""
    client.create_topic(topic, partitions=2)
    sent = [Record(value=b"%d" % n, partition=n % 2, timestamp_ms=NOON_MS + n // 2 * 1_000) for n in range(20)]
    client.produce(topic, sent)
    return topic


@pytest.fixture
def idle(client: Client, read: str, group: str) -> str:
    """A group without members that has read four records of one partition, and six of the other."""
    client.commit(group, {Place(read, number): Committed(offset) for number, offset in AT_FOUR_AND_SIX.items()})
    return group


@pytest.fixture
def member(client: Client, read: str, group: str) -> Iterator[SeenMember]:
    """The only member of a group that has read all there is."""
    with SeenMember(client, Membership(group=group, topics=(read,), commits="after each poll")) as member:
        wait_until_shared(client, group, places(read, 2), [member])
        wait_for("reading", lambda: sum(member.seen.committed.values()) == 20, [member])
        yield member


def table(lines: list[str]) -> list[dict[str, str]]:
    """The rows of a table by its headings. The coordinator's column has its id in it, which is left out."""
    start = next(number for number, line in enumerate(lines) if re.match(r"GROUP|TOPIC", line))
    headings, *rows = (re.sub(r"\((ID|\d+)\)", "", line).split() for line in lines[start:])
    return [dict(zip(headings, row, strict=False)) for row in rows]


def committed(client: Client, group: str, topic: str) -> dict[int, int]:
    found = client.committed(group, places(topic, 2))
    return {place.partition: one.offset for place, one in found.items()}


# Looking


def test_groups_are_listed_with_their_state_and_type(java: JavaTools, idle: str) -> None:
    assert idle in java.lines(GROUPS, "--list")
    assert {"GROUP": idle, "STATE": "Empty"} in table(java.lines(GROUPS, "--list", "--state"))
    assert {"GROUP": idle, "TYPE": "Classic"} in table(java.lines(GROUPS, "--list", "--type", "classic"))
    assert idle not in java.lines(GROUPS, "--list", "--state", "Stable")


def test_groups_of_every_type_are_listed(java: JavaTools, group: str, member: SeenMember) -> None:
    assert {"GROUP": group, "TYPE": "Classic", "PROTOCOL": "consumer"} in table(java.lines("kafka-groups", "--list"))


def test_a_group_without_members_is_described_by_its_offsets(java: JavaTools, idle: str, read: str) -> None:
    outcome = java.run(GROUPS, "--describe", "--group", idle).done()
    assert f"Consumer group '{idle}' has no active members." in outcome.said
    nobody = {"CONSUMER-ID": "-", "HOST": "-", "CLIENT-ID": "-"}
    at = {"GROUP": idle, "TOPIC": read, "LOG-END-OFFSET": "10"}
    assert table(outcome.lines) == [
        {**at, "PARTITION": "0", "CURRENT-OFFSET": "4", "LAG": "6", **nobody},
        {**at, "PARTITION": "1", "CURRENT-OFFSET": "6", "LAG": "4", **nobody},
    ]


def test_a_group_is_described_with_members_offsets_and_state(
    java: JavaTools, group: str, read: str, member: SeenMember
) -> None:
    def described(*what: str) -> list[dict[str, str]]:
        return table(java.lines(GROUPS, "--describe", "--group", group, *what))

    (row,) = described("--members")
    assert (row["HOST"], row["CLIENT-ID"], row["#PARTITIONS"]) == ("/127.0.0.1", "rdkafka", "2")
    (verbose,) = described("--members", "--verbose")
    assert row.items() <= verbose.items()
    assert verbose["CURRENT-ASSIGNMENT"] == f"{read}:0,1"
    for number, offsets in enumerate(described("--offsets", "--verbose")):
        assert offsets == {
            **{"GROUP": group, "TOPIC": read, "PARTITION": str(number), "LEADER-EPOCH": offsets["LEADER-EPOCH"]},
            **{"CURRENT-OFFSET": "10", "LOG-END-OFFSET": "10", "LAG": "0"},
            **{"CONSUMER-ID": row["CONSUMER-ID"], "HOST": "/127.0.0.1", "CLIENT-ID": "rdkafka"},
        }
    (state,) = described("--state")
    assert (state["ASSIGNMENT-STRATEGY"], state["STATE"], state["#MEMBERS"]) == ("range", "Stable", "1")
    assert state["COORDINATOR"] == java.bootstrap


def test_a_group_that_is_not_there_is_said_not_to_be(java: JavaTools, group: str) -> None:
    for what in ("--describe", "--delete"):
        assert "GroupIdNotFoundException" in java.run(GROUPS, what, "--group", group).said


# Setting offsets


def a_datetime(second: int) -> str:
    moment = datetime.datetime.fromtimestamp(NOON_MS / 1000 + second, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (("--to-earliest",), {0: 0, 1: 0}),
        (("--to-latest",), {0: 10, 1: 10}),
        (("--to-current",), AT_FOUR_AND_SIX),
        (("--to-offset", "3"), {0: 3, 1: 3}),
        (("--to-offset", "77"), {0: 10, 1: 10}),
        (("--shift-by", "-5"), {0: 0, 1: 1}),
        (("--shift-by", "2"), {0: 6, 1: 8}),
        (("--to-datetime", a_datetime(5)), {0: 5, 1: 5}),
        (("--by-duration", "PT0S"), {0: 10, 1: 10}),
        (("--by-duration", "P1D"), {0: 0, 1: 0}),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",  # without the time of now: workers name tests alike
)
def test_offsets_are_set_to(
    java: JavaTools, client: Client, idle: str, read: str, where: tuple[str, ...], expected: dict[int, int]
) -> None:
    said = java.lines(GROUPS, "--reset-offsets", "--group", idle, "--topic", read, *where, "--execute")
    rows = {int(row["PARTITION"]): int(row["NEW-OFFSET"]) for row in table(said)}
    assert rows == committed(client, idle, read) == expected


def test_offsets_of_one_partition_are_set_and_a_dry_run_sets_none(
    java: JavaTools, client: Client, idle: str, read: str
) -> None:
    one = ("--reset-offsets", "--group", idle, "--topic", f"{read}:1", "--to-offset", "9")
    (row,) = table(java.lines(GROUPS, *one, "--dry-run"))
    assert (row["PARTITION"], row["NEW-OFFSET"]) == ("1", "9")
    assert committed(client, idle, read) == AT_FOUR_AND_SIX
    java.run(GROUPS, *one, "--execute").done()
    assert committed(client, idle, read) == {0: 4, 1: 9}


def test_offsets_are_exported_and_set_from_the_file(
    java: JavaTools, client: Client, idle: str, read: str, tmp_path: Path
) -> None:
    of_all = ("--reset-offsets", "--group", idle, "--all-topics")
    exported = java.lines(GROUPS, *of_all, "--to-current", "--export", "--dry-run")
    assert sorted(line.replace('"', "") for line in exported) == [f"{read},0,4", f"{read},1,6"]
    java.run(GROUPS, *of_all, "--to-earliest", "--execute").done()
    file = tmp_path / "offsets.csv"
    file.write_text("\n".join(exported))
    java.run(GROUPS, "--reset-offsets", "--group", idle, "--from-file", str(file), "--execute").done()
    assert committed(client, idle, read) == AT_FOUR_AND_SIX


def test_a_group_that_was_never_there_is_given_its_offsets(
    java: JavaTools, client: Client, group: str, read: str
) -> None:
    java.run(GROUPS, "--reset-offsets", "--group", group, "--topic", read, "--to-offset", "2", "--execute").done()
    assert committed(client, group, read) == {0: 2, 1: 2}
    assert client.describe_group(group).state == "Empty"


# Deleting


def test_offsets_of_a_partition_and_of_a_topic_are_deleted(
    java: JavaTools, client: Client, idle: str, read: str
) -> None:
    (row,) = table(java.lines(GROUPS, "--delete-offsets", "--group", idle, "--topic", f"{read}:1"))
    assert row == {"TOPIC": read, "PARTITION": "1", "STATUS": "Successful"}
    assert committed(client, idle, read) == {0: 4}
    java.run(GROUPS, "--delete-offsets", "--group", idle, "--topic", read).done()
    assert committed(client, idle, read) == {}


def test_a_group_is_deleted(java: JavaTools, client: Client, idle: str, read: str) -> None:
    (said,) = java.lines(GROUPS, "--delete", "--group", idle)
    assert said == f"Deletion of requested consumer groups ('{idle}') was successful."
    assert committed(client, idle, read) == {}
    assert client.describe_group(idle).state == "Dead"


def test_of_a_group_with_members_nothing_is_taken(
    java: JavaTools, client: Client, group: str, read: str, member: SeenMember
) -> None:
    reset = java.run(GROUPS, "--reset-offsets", "--group", group, "--all-topics", "--to-earliest", "--execute")
    assert "can only be reset if the group" in reset.said
    assert (
        "GroupSubscribedToTopicException"
        in java.run(GROUPS, "--delete-offsets", "--group", group, "--topic", read).said
    )
    assert "GroupNotEmptyException" in java.run(GROUPS, "--delete", "--group", group).said
    assert committed(client, group, read) == {0: 10, 1: 10}
    assert client.describe_group(group).state == "Stable"


# Consumers


def printed(consumer: Running) -> list[int]:
    return [int(line) for line in consumer.lines]


@pytest.mark.parametrize("assignor", [None, "CooperativeSticky", "RoundRobin"])
def test_two_console_consumers_share_a_topic(
    java: JavaTools, client: Client, group: str, topic: str, assignor: str | None
) -> None:
    client.create_topic(topic, partitions=4)
    words = ["--topic", topic, "--group", group, "--from-beginning"]
    if assignor is not None:
        strategy = f"org.apache.kafka.clients.consumer.{assignor}Assignor"
        words += ["--command-property", f"partition.assignment.strategy={strategy}"]
    words += ["--command-property", "heartbeat.interval.ms=250"]
    with java.begin("kafka-console-consumer", *words) as one, java.begin("kafka-console-consumer", *words) as other:
        until(lambda: [len(part) for part in client.describe_group(group).assignments] == [2, 2], "a part for each")
        client.produce(topic, [Record(value=b"%d" % n, partition=n % 4) for n in range(40)])
        until(lambda: len(printed(one)) + len(printed(other)) == 40, "40 lines")
        assert sorted(printed(one) + printed(other)) == list(range(40))
        parts = [{number % 4 for number in printed(consumer)} for consumer in (one, other)]
        assert [len(part) for part in parts] == [2, 2]

        # One leaves: the other has all of it.
        one.end()
        until(lambda: [len(part) for part in client.describe_group(group).assignments] == [4], "everything for one")
        client.produce(topic, [Record(value=b"%d" % n, partition=n % 4) for n in range(40, 60)])
        until(lambda: set(range(40, 60)) <= set(printed(other)), "20 lines more")
        other.end()
    assert client.describe_group(group).state == "Empty"
    assert client.committed(group, places(topic, 4)) == {place: Committed(15) for place in places(topic, 4)}


def test_a_console_consumer_goes_on_where_the_last_one_stopped(
    java: JavaTools, client: Client, group: str, read: str
) -> None:
    words = ("--topic", read, "--group", group, "--from-beginning", "--max-messages")
    first = java.lines("kafka-console-consumer", *words, "20")
    client.produce(read, [Record(value=b"%d" % n, partition=n % 2) for n in range(20, 26)])
    second = java.lines("kafka-console-consumer", *words, "6")
    assert (sorted(map(int, first)), sorted(map(int, second))) == (list(range(20)), list(range(20, 26)))


def test_load_is_read_in_a_group(java: JavaTools, client: Client, group: str, topic: str) -> None:
    client.create_topic(topic, partitions=6)
    client.produce(topic, [Record(value=b"x" * 1_000, partition=n % 6) for n in range(6_000)])
    said = java.lines("kafka-consumer-perf-test", "--topic", topic, "--group", group, "--num-records", "6000")
    figures = dict(zip(said[-2].split(", "), said[-1].split(", "), strict=True))
    assert int(figures["data.consumed.in.nMsg"]) == 6_000
    assert client.describe_group(group).state == "Empty"


def test_a_verifiable_consumer_commits_what_it_reads(java: JavaTools, client: Client, group: str, read: str) -> None:
    words = ("--topic", read, "--group-id", group, "--max-messages", "20", "--reset-policy", "earliest")
    said = [json.loads(line) for line in java.lines("kafka-verifiable-consumer", *words)]
    assert sum(event["count"] for event in said if event["name"] == "records_consumed") == 20
    assert all(event["success"] for event in said if event["name"] == "offsets_committed")
    assert committed(client, group, read) == {0: 10, 1: 10}
