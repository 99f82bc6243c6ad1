"""Kafka's own tools for share groups (KIP-932): `kafka-share-groups` in all its forms, and its console consumer."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.broker_process import RETENTION_COMES_LATER, BrokerProcess
from dev.brokers import broker_for_tests
from dev.waiting import until
from tests.interop import programs
from tests.interop.conftest import installed
from tests.interop.java_tools import JavaTools
from tests.interop.programs import Running
from tests.interop.test_java_groups import table
from tests.support.clients import Client, Committed, Place, Record, connect
from tests.support.clients.members import Membership, SeenMember, places, wait_for
from tests.support.sharing import QUICK, from_the_beginning

GROUPS = "kafka-share-groups"
READ = "kafka-console-share-consumer"
AN_HOUR_AGO_MS = int(datetime.datetime.now(datetime.UTC).timestamp() * 1000) - 3_600_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose share groups notice changes soon."""
    with broker_for_tests(tmp_path_factory.mktemp("sharing"), settings={**QUICK, **RETENTION_COMES_LATER}) as process:
        yield process


@pytest.fixture(scope="module")
def java(broker: BrokerProcess) -> JavaTools:
    return JavaTools(installed(programs.java), broker.bootstrap)


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Client:
    return connect("confluent-kafka", broker.bootstrap)


@pytest.fixture
def jobs(client: Client, topic: str) -> str:
    """The test's topic with ten records in one partition, a second apart."""
    client.create_topic(topic)
    client.produce(
        topic, [Record(value=b"%d" % n, partition=0, timestamp_ms=AN_HOUR_AGO_MS + n * 1_000) for n in range(10)]
    )
    return topic


@pytest.fixture
def group(java: JavaTools, jobs: str) -> str:
    """A group that begins with the first job."""
    from_the_beginning(java.bootstrap, group := f"group-of-{jobs}")
    return group


def work(java: JavaTools, jobs: str, group: str, count: int, *how: str) -> list[tuple[int, int]]:
    """Let the console consumer process so many jobs: delivery count and job."""
    words = ("--max-messages", str(count), "--timeout-ms", "20000", "--formatter-property", "print.delivery=true")
    said = java.lines(READ, "--topic", jobs, "--group", group, *words, *how)
    return [(int(count), int(job)) for count, job in (line.removeprefix("Delivery:").split("\t") for line in said)]


def offsets(java: JavaTools, group: str) -> list[tuple[str, str, str]]:
    """Partition, start offset and lag."""
    rows = table(java.lines(GROUPS, "--describe", "--group", group, "--offsets"))
    assert all(row["GROUP"] == group for row in rows)
    return [(row["PARTITION"], row["START-OFFSET"], row["LAG"]) for row in rows]


def lag(java: JavaTools, group: str) -> str:
    """How many jobs are left. The start offset that is stored may be an earlier one than the next job's."""
    [(_, _, lag)] = offsets(java, group)
    return lag


def test_the_console_consumer_accepts_releases_and_rejects(java: JavaTools, jobs: str, group: str) -> None:
    """It takes all that it can get, and what it has not printed is released at its end."""
    assert work(java, jobs, group, 4) == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert offsets(java, group) == [("0", "4", "6")]
    assert work(java, jobs, group, 3, "--release") == [(2, 4), (2, 5), (2, 6)]
    assert offsets(java, group) == [("0", "4", "6")]
    assert work(java, jobs, group, 2, "--reject") == [(3, 4), (3, 5)]
    assert offsets(java, group) == [("0", "6", "4")]
    assert work(java, jobs, group, 4) == [(4, 6), (4, 7), (4, 8), (4, 9)]
    assert lag(java, group) == "0"


def test_a_group_without_members_is_listed_described_and_deleted(java: JavaTools, jobs: str, group: str) -> None:
    work(java, jobs, group, 4)
    assert group in java.lines(GROUPS, "--list")
    assert {"GROUP": group, "STATE": "Empty"} in table(java.lines(GROUPS, "--list", "--state"))
    assert group not in java.lines(GROUPS, "--list", "--state", "Stable")
    [verbose] = table(java.lines(GROUPS, "--describe", "--group", group, "--offsets", "--verbose"))
    assert verbose == {
        **{"GROUP": group, "TOPIC": jobs, "PARTITION": "0", "LEADER-EPOCH": "0", "START-OFFSET": "4", "LAG": "6"}
    }
    [state] = table(java.lines(GROUPS, "--describe", "--group", group, "--state"))
    assert state == {"GROUP": group, "COORDINATOR": java.bootstrap, "STATE": "Empty", "#MEMBERS": "0"}
    said = java.run(GROUPS, "--describe", "--group", group, "--members").done().said
    assert f"Share group '{group}' has no active members." in said

    assert java.lines(GROUPS, "--delete", "--group", group) == [
        f"Deletion of requested share groups ('{group}') was successful."
    ]
    assert group not in java.lines(GROUPS, "--list")
    for what in ("--describe", "--delete"):
        assert "GroupIdNotFoundException" in java.run(GROUPS, what, "--group", group).said


def printed(consumer: Running) -> list[str]:
    return [line for line in consumer.lines if line.isdigit()]


def test_a_group_with_members_is_described_and_keeps_what_it_has(java: JavaTools, jobs: str, group: str) -> None:
    with java.begin(READ, "--topic", jobs, "--group", group) as consumer:
        until(lambda: len(printed(consumer)) == 10, "all jobs are printed")
        [state] = table(java.lines(GROUPS, "--describe", "--group", group, "--state", "--verbose"))
        epoch = state["GROUP-EPOCH"]
        assert state.items() >= {"STATE": "Stable", "ASSIGNMENT-EPOCH": epoch, "#MEMBERS": "1"}.items()
        [member] = table(java.lines(GROUPS, "--describe", "--group", group, "--members", "--verbose"))
        assert member.items() >= {"GROUP": group, "HOST": "/127.0.0.1", "#PARTITIONS": "1"}.items()
        assert (member["MEMBER-EPOCH"], member["ASSIGNMENT"]) == (epoch, f"{jobs}:0")
        assert {"GROUP": group, "STATE": "Stable"} in table(java.lines(GROUPS, "--list", "--state"))

        reset = ("--reset-offsets", "--group", group, "--topic", jobs, "--to-earliest", "--execute")
        assert f"Share group '{group}' is not empty." in java.run(GROUPS, *reset).said
        said = java.run(GROUPS, "--delete-offsets", "--group", group, "--topic", jobs).said
        assert "GroupNotEmptyException" in said or "not empty" in said, said
        said = java.run(GROUPS, "--delete", "--group", group).said
        assert "GroupNotEmptyException" in said or "not EMPTY" in said, said
        consumer.end()
    until(lambda: lag(java, group) == "0", "all jobs are done")


def test_offsets_are_reset_in_every_way_and_deleted(java: JavaTools, jobs: str, group: str, tmp_path: Path) -> None:
    work(java, jobs, group, 4)
    fifth = datetime.datetime.fromtimestamp(AN_HOUR_AGO_MS / 1000 + 5, datetime.UTC)
    at_five = fifth.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    of_topic = ("--reset-offsets", "--group", group, "--topic", jobs)

    def reset(*how: str) -> str:
        [row] = table(java.lines(GROUPS, *of_topic, *how))
        return row["NEW-OFFSET"]

    assert reset("--to-latest", "--dry-run") == "10"
    assert offsets(java, group) == [("0", "4", "6")]
    for how, start in (
        (("--to-earliest",), "0"),
        (("--to-latest",), "10"),
        (("--to-datetime", at_five), "5"),
        (("--to-current",), "5"),
    ):
        assert reset(*how, "--execute") == start
        assert offsets(java, group) == [("0", start, str(10 - int(start)))]
    exported = java.lines(GROUPS, *of_topic, "--to-current", "--export", "--dry-run")
    assert [line.replace('"', "") for line in exported] == [f"{jobs},0,5"]
    file = tmp_path / "offsets.csv"
    file.write_text("\n".join(exported))
    assert reset("--to-offset", "8", "--execute") == "8"
    java.lines(GROUPS, "--reset-offsets", "--group", group, "--from-file", str(file), "--execute")
    assert work(java, jobs, group, 5) == [(1, job) for job in range(5, 10)]

    [row] = table(java.lines(GROUPS, "--delete-offsets", "--group", group, "--topic", jobs))
    assert row == {"TOPIC": jobs, "STATUS": "Successful"}
    assert f"Share group '{group}' has no offset information." in java.run(GROUPS, "--describe", "--group", group).said
    # What has no offset begins anew, by the group's config.
    assert work(java, jobs, group, 10) == [(1, job) for job in range(10)]


def test_groups_of_every_kind_are_listed(java: JavaTools, client: Client, jobs: str, group: str) -> None:
    work(java, jobs, group, 10)
    client.commit(simple := f"simple-{jobs}", {Place(jobs, 0): Committed(3)})
    classic, consumer = (
        SeenMember(client, Membership(group=f"{protocol}-{jobs}", topics=(jobs,), protocol=protocol))
        for protocol in ("classic", "consumer")
    )
    with classic, consumer:
        for member in (classic, consumer):
            wait_for("reading", lambda member=member: len(member.seen.received) == 10, [member])  # type: ignore[misc]
        every = [
            {"GROUP": group, "TYPE": "Share", "PROTOCOL": "share"},
            {"GROUP": simple, "TYPE": "Classic"},
            {"GROUP": f"classic-{jobs}", "TYPE": "Classic", "PROTOCOL": "consumer"},
            {"GROUP": f"consumer-{jobs}", "TYPE": "Consumer", "PROTOCOL": "consumer"},
        ]

        def listed(*words: str) -> list[dict[str, str]]:
            return [row for row in table(java.lines("kafka-groups", "--list", *words)) if row["GROUP"].endswith(jobs)]

        def by_name(rows: list[dict[str, str]]) -> list[dict[str, str]]:
            return sorted(rows, key=lambda row: row["GROUP"])

        assert by_name(listed()) == by_name(every)
        assert listed("--share") == [every[0]]
        assert listed("--group-type", "consumer") == [every[3]]
        assert by_name(listed("--protocol", "consumer")) == by_name(every[2:])
        assert by_name(listed("--consumer")) == by_name(every[1:])


def test_a_consumer_group_with_members_is_described_and_keeps_what_it_has(
    java: JavaTools, client: Client, jobs: str
) -> None:
    tool, group = "kafka-consumer-groups", f"newer-{jobs}"
    membership = Membership(group=group, topics=(jobs,), protocol="consumer", commits="after each poll")
    with SeenMember(client, membership) as member:
        wait_for("reading", lambda: sum(member.seen.committed.values()) == 10, [member])

        def described(*what: str) -> dict[str, str]:
            [row] = table(java.lines(tool, "--describe", "--group", group, *what, "--verbose"))
            return row

        state = described("--state")
        epoch = state["GROUP-EPOCH"]
        assert state.items() >= {"ASSIGNMENT-STRATEGY": "uniform", "STATE": "Stable", "#MEMBERS": "1"}.items()
        assert state["TARGET-ASSIGNMENT-EPOCH"] == epoch
        seen = described("--members")
        assert seen.items() >= {"GROUP": group, "HOST": "/127.0.0.1", "#PARTITIONS": "1"}.items()
        assert (seen["CURRENT-EPOCH"], seen["CURRENT-ASSIGNMENT"]) == (epoch, f"{jobs}:0")
        assert (seen["TARGET-EPOCH"], seen["TARGET-ASSIGNMENT"]) == (epoch, f"{jobs}:0")
        at = described("--offsets")
        assert (at["CURRENT-OFFSET"], at["LAG"], at["CONSUMER-ID"]) == ("10", "0", seen["CONSUMER-ID"])

        reset = java.run(tool, "--reset-offsets", "--group", group, "--all-topics", "--to-earliest", "--execute")
        assert "can only be reset if the group" in reset.said
        refused = java.run(tool, "--delete-offsets", "--group", group, "--topic", jobs)
        assert "GroupSubscribedToTopicException" in refused.said
        assert "GroupNotEmptyException" in java.run(tool, "--delete", "--group", group).said
        assert client.committed(group, places(jobs, 1)) == {Place(jobs, 0): Committed(10)}
    java.run(tool, "--delete-offsets", "--group", group, "--topic", jobs).done()
    assert client.committed(group, places(jobs, 1)) == {}
