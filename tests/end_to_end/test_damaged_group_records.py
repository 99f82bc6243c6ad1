"""Damaged records of every kind in the logs of groups and of the states of share groups: the broker starts, says
what it found, and the groups beside them go on. A member's regular expression delays nobody."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.broker_process import BrokerProcess, port_below_client_ports
from dev.waiting import until
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from protocol.messages.share_groups import ShareGroupDescribeRequest
from protocol.records.group_metadata import KEY_TYPES
from storage.batch.record_batch import HEADER_SIZE, read_header
from storage.batch.records import Record as LogRecord
from tests.support.batches import T, stored
from tests.support.clients import Committed, Place, Record, connect
from tests.support.clients.members import Membership, SeenMember, wait_for
from tests.support.raw_client import RawClient
from tests.support.sharing import QUICK, ShareTaker, from_the_beginning

confluent_kafka = pytest.importorskip("confluent_kafka")
if not hasattr(confluent_kafka, "ShareConsumer"):
    pytest.skip("this librdkafka has no share consumer", allow_module_level=True)
pytestmark = pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_BOOTSTRAP") or os.environ.get("OTTLA_TEST_KAFKA_LIBS")),
    reason="the logs of another broker are not ours to damage",
)

ONE_PARTITION = {"offsets.topic.num.partitions": "1", "share.coordinator.state.topic.num.partitions": "1"}
NEWER = [number for number in KEY_TYPES if 3 <= number <= 16]
TOPIC = "jobs"
LINES = 10
"""How many lines there are for what is unreadable; a last line has the number."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker each of whose internal topics has one partition."""
    process = BrokerProcess(tmp_path, port=port_below_client_ports(), settings={**QUICK, **ONE_PARTITION})
    with process:
        yield process


def append(broker: BrokerProcess, topic: str, records: list[tuple[bytes, bytes | None]]) -> None:
    """Put records, each in a batch, at the end of the log of a broker that was killed."""
    segment = max((broker.data_directory / f"{topic}-0").glob("*.log"))
    content = segment.read_bytes()
    position = offset = 0
    while position + HEADER_SIZE <= len(content):
        header = read_header(memoryview(content), position)
        offset, position = header.next_offset, position + header.size
    batches = [
        stored([LogRecord(timestamp=T, key=key, value=value)], offset=offset + place)
        for place, (key, value) in enumerate(records)
    ]
    segment.write_bytes(content[:position] + b"".join(batches))


def key_of(number: int, group_id: str) -> bytes:
    """The key of a record of a group, with a member or a regular expression where the type has it."""
    name = len(group_id).to_bytes(2, "big") + group_id.encode()
    has_more = number in (5, 7, 8, 10, 13, 14, 16)
    return number.to_bytes(2, "big") + name + (b"\x00\x04anna" if has_more else b"")


def lines_of_the_last_start(broker: BrokerProcess, pattern: str) -> list[str]:
    lines = broker.log_text(last_lines=10_000).splitlines()
    begin = max(number for number, line in enumerate(lines) if "loading logs from" in line)
    return [line for line in lines[begin:] if re.search(pattern, line)]


def test_damaged_records_of_every_kind_harm_no_other_group(broker: BrokerProcess) -> None:
    client = connect("confluent-kafka", broker.bootstrap)
    client.create_topic(TOPIC)
    client.produce(TOPIC, [Record(value=b"%d" % number, partition=0) for number in range(10)])
    from_the_beginning(broker.bootstrap, "workers")
    with ShareTaker(broker.bootstrap, "workers", TOPIC) as taker:
        taken = taker.take()
        taker.acknowledge(taken[:6])
        taker.acknowledge(taken[6:], "RELEASE")
        taker.commit()
    membership = Membership(group="readers", topics=(TOPIC,), protocol="consumer", commits="after each poll")
    with SeenMember(client, membership) as member:
        wait_for("reading", lambda: sum(member.seen.committed.values()) == 10, [member])
    broker.kill()

    cut = [(key_of(number, "damaged"), b"\x00\x00") for number in NEWER]
    of_later_versions = [(key_of(number, "later"), b"\x03\xe7" + bytes(8)) for number in NEWER]
    nonsense = [(key_of(number, "strange"), b"\x00\x00" + b"\xff" * 7) for number in NEWER]
    of_both_kinds = [
        (key_of(3, "both"), b"\x00\x00\x7f\xff\xff\xff\x00"),
        (key_of(11, "both"), b"\x00\x00\x7f\xff\xff\xff" + bytes(9)),
        (key_of(3, "workers") + b"\x00", b"\x00\x00" + bytes(5)),
    ]
    append(broker, "__consumer_offsets", cut + of_later_versions + nonsense + of_both_kinds)
    of_state = b"\x00\x07damaged" + bytes(16) + bytes(4)
    states = [
        (number.to_bytes(2, "big") + of_state, value)
        for number in (0, 1)
        for value in (b"\x00\x00\x00", b"\x03\xe7" + bytes(20), b"\x00\x00" + b"\xff" * 20)
    ]
    append(broker, "__share_group_state", states)
    broker.start()

    until(lambda: len(lines_of_the_last_start(broker, "is loaded: .* unreadable")) >= 2, "both topics are loaded")
    for loaded in ("__consumer_offsets .* 27 unreadable", "__share_group_state .* 4 unreadable"):
        assert len(lines_of_the_last_start(broker, loaded)) == 1
    assert len(lines_of_the_last_start(broker, "skipping offset")) == LINES
    for topic in ("__consumer_offsets", "__share_group_state"):
        unknown = f"{topic}-0 has records of an unknown type or version"
        assert len(lines_of_the_last_start(broker, unknown)) == 1
    assert lines_of_the_last_start(broker, "Traceback|ERROR") == []

    client.produce(TOPIC, [Record(value=b"%d" % number, partition=0) for number in range(10, 15)])
    with ShareTaker(broker.bootstrap, "workers", TOPIC) as taker:
        done = taker.work_off(9)
    assert done == {**{b"%d" % number: 2 for number in range(6, 10)}, **{b"%d" % number: 1 for number in range(10, 15)}}
    with SeenMember(client, membership) as member:
        wait_for("reading on", lambda: sum(member.seen.committed.values()) == 15, [member])
    assert member.seen.values == [b"%d" % number for number in range(10, 15)]
    assert client.committed("readers", [Place(TOPIC, 0)]) == {Place(TOPIC, 0): Committed(15)}
    with RawClient(broker.bootstrap) as raw:
        asked = ShareGroupDescribeRequest(group_ids=["both", "damaged"], include_authorized_operations=False)
        both, damaged = raw.ask(asked, 1).groups
    assert (both.error_code, both.group_epoch) == (ErrorCode.NONE, (1 << 31) - 1)
    assert damaged.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    broker.stop()
    assert lines_of_the_last_start(broker, "Traceback|ERROR") == []


EXPRESSIONS = {
    "(a+)+$": ErrorCode.NONE,
    "(a|aa)+(a|aa)+(a|aa)+b": ErrorCode.NONE,
    "(.*)*(.*)*(.*)*x": ErrorCode.NONE,
    ".*": ErrorCode.NONE,
    "nothing-matches-this": ErrorCode.NONE,
    "a" * 4_096: ErrorCode.NONE,
    "a" * 10_000: ErrorCode.INVALID_REGULAR_EXPRESSION,
    "(" * 1_000: ErrorCode.INVALID_REGULAR_EXPRESSION,
    r"(a)\1": ErrorCode.INVALID_REGULAR_EXPRESSION,
    "a(?=b)": ErrorCode.INVALID_REGULAR_EXPRESSION,
    "(x{100}){100}": ErrorCode.INVALID_REGULAR_EXPRESSION,
    "[[:nothing:]]": ErrorCode.INVALID_REGULAR_EXPRESSION,
}


def test_regular_expressions_of_members_delay_nobody(broker: BrokerProcess) -> None:
    """Each is sent by a member of its own, while another connection is asked again and again."""
    client = connect("confluent-kafka", broker.bootstrap)
    client.create_topic("a" * 200)
    client.create_topic("a" * 199 + "b")
    longest_s = 0.0

    def ask_beside(raw: RawClient) -> None:
        nonlocal longest_s
        began_s = time.monotonic()
        raw.ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 3)
        longest_s = max(longest_s, time.monotonic() - began_s)

    with RawClient(broker.bootstrap) as raw, RawClient(broker.bootstrap) as beside:

        def join(number: int, expression: str) -> ErrorCode:
            request = ConsumerGroupHeartbeatRequest(
                group_id=f"group {number}",
                member_id=f"member {number}",
                member_epoch=0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=[],
                subscribed_topic_regex=expression,
                topic_partitions=[],
            )
            raw.send(request, 1)
            ask_beside(beside)
            while raw.has_no_answer():
                ask_beside(beside)
            return ErrorCode(raw.receive().error_code)

        not_yet = (
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
        )
        client.commit("simple", {Place("a" * 200, 0): Committed(0)})
        until(lambda: join(0, ".*") not in not_yet, "a coordinator")
        answers = {expression: join(number, expression) for number, expression in enumerate(EXPRESSIONS, 1)}
    assert answers == EXPRESSIONS
    assert longest_s < 2, "an expression that backtracks takes hours"
