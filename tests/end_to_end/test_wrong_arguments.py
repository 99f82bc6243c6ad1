"""Each argument of each call for tests, wrong in each way, is refused in a sentence that names the argument."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.control.conditions import STATES
from broker.coordinators.group.classic_group import GroupState
from broker.coordinators.group.consumer.group import ConsumerGroupState
from broker.coordinators.group.streams.group import StreamsGroupState
from ottla.testing import Broker, BrokerError, NotInTime, Record
from ottla.testing.broker import JOBS

VALID: Mapping[str, dict[str, Any]] = {
    "/topics/create": {"topics": [{"name": "new"}]},
    "/records/write": {"topic": "orders", "records": ["{}"]},
    "/records/read": {"topic": "orders"},
    "/groups/describe": {"group": "g"},
    "/groups/expire": {"group": "g"},
    "/wait": {"group": "g", "topic": "orders", "records": 0},
    "/clock/advance": {"ms": 1},
    "/snapshots/restore": {"snapshot": 1},
}
"""Arguments of the calls that need some."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[Broker]:
    """One broker for all: a call that is refused changes nothing."""
    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
        yield broker


def asked(kafka: Broker, path: str, body: object) -> tuple[int, str]:
    """The status and the sentence of a call."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(kafka.control_url + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.loads(refused.read())["error"]


WRONG_BODIES: Sequence[object] = ([], "x", None, 5)


def wrong_values(schema: Mapping[str, Any]) -> Iterator[object]:
    """Values that an argument cannot have."""
    kinds = {one["type"]: one for one in schema.get("anyOf", [schema])}
    if "null" not in kinds:
        yield None
    for kind, value in {"string": "x", "boolean": True, "array": [], "object": {}, "number": 1.5}.items():
        if kind not in kinds:
            yield value
    for one in kinds.values():
        if "minimum" in one:
            yield from (one["minimum"] - 1, one["maximum"] + 1, 10**30, float("nan"))
        if one["type"] == "string":
            yield "\ud800"
        if "enum" in one:
            yield from ("", "Produc", one["enum"][0].swapcase())
        if one["type"] == "object" and one["additionalProperties"]:
            yield from ({"a": []}, {"\ud800": "x"})


def test_each_argument_by_http_wrong_in_each_way_is_a_400_that_names_it(kafka: Broker) -> None:
    with urllib.request.urlopen(f"{kafka.control_url}/openapi.json") as response:
        paths = json.load(response)["paths"]
    wrong = []
    for path, methods in paths.items():
        if "post" not in methods:
            continue
        schema = methods["post"]["requestBody"]["content"]["application/json"]["schema"]
        valid = VALID.get(path, {})
        assert set(schema.get("required", ())) <= set(valid), path
        bodies: list[tuple[str, Any]] = [("the body", value) for value in WRONG_BODIES]
        bodies.append(("nonsense", {**valid, "nonsense": 1}))
        bodies += [(name, {key: valid[key] for key in valid if key != name}) for name in schema.get("required", ())]
        bodies += [
            (name, {**valid, name: value}) for name, one in schema["properties"].items() for value in wrong_values(one)
        ]
        for name, body in bodies:
            status, sentence = asked(kafka, path, body)
            if status != 400 or name not in sentence:
                wrong.append((path, body, status, sentence))
    assert wrong == []
    assert kafka.log_text().partition("met a bug")[2] == ""


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("/topics/create", {"topics": [{"name": ""}]}, "INVALID_TOPIC_EXCEPTION"),
        ("/topics/create", {"topics": [{"name": "a/b"}]}, "'a/b'"),
        ("/topics/create", {"topics": [{"name": "x" * 40_000}]}, "Topic.name is 40000 bytes long"),
        ("/topics/create", {"topics": [{"name": "t", "partitions": 0}]}, "INVALID_PARTITIONS"),
        ("/topics/create", {"topics": [{"name": "t", "partitions": -2}]}, "topics[0].partitions is -2"),
        ("/topics/create", {"topics": [{"name": "t", "partitions": 1 << 31}]}, "topics[0].partitions is 2147483648"),
        ("/topics/create", {"topics": [{"name": "t", "configs": {"retention": "1"}}]}, "retention"),
        ("/topics/create", {"topics": [{"name": "t", "configs": {"retention.ms": "x"}}]}, "retention.ms"),
        ("/topics/create", {"topics": [{"name": "t", "config": {}}]}, "topics[0] has 'config'"),
        ("/topics/create", {"topics": ["t"]}, "topics[0] is 't', expected an object"),
        ("/records/write", {"topic": "", "records": []}, "INVALID_TOPIC_EXCEPTION"),
        ("/records/write", {"topic": "orders", "records": [{"partition": 2}]}, "records[0].partition is 2"),
        ("/records/write", {"topic": "orders", "records": [{"timestamp_ms": 1 << 62}]}, "INVALID_TIMESTAMP"),
        ("/records/write", {"topic": "orders", "records": [{"value_base64": "é"}]}, "records[0].value_base64 is 'é'"),
        ("/records/write", {"topic": "orders", "records": [{"key_base64": "a"}]}, "records[0].key_base64 is 'a'"),
        ("/records/write", {"topic": "orders", "records": [{"key": "a", "key_base64": "YQ=="}]}, "both"),
        ("/records/write", {"topic": "orders", "records": [{"headers": {"h": 1}}]}, "records[0].headers.h is 1"),
        ("/records/write", {"topic": "orders", "records": [{"headers": [{"value": "x"}]}]}, "records[0].headers[0]"),
        ("/records/write", {"topic": "orders", "records": [{"value": "x" * 2_000_000}]}, "records[0] cannot be"),
        ("/records/read", {"topic": "orders", "partition": 2}, "partition is 2, expected 0 to 1"),
        ("/records/read", {"topic": "nothing"}, "topic is 'nothing', and there is no such topic"),
        ("/groups/expire", {"group": "nobody"}, "group is 'nobody'"),
        ("/wait", {}, "nothing is waited for"),
        ("/wait", {"state": "Stable"}, "state, members, committed and caught_up say something of a group"),
        ("/wait", {"group": "g", "committed": {"orders": 1}}, "committed has 'orders'"),
        ("/wait", {"group": "g", "committed": {"orders-0": "1"}}, "committed.orders-0 is '1'"),
        ("/faults/add", {"api": "Produce"}, "a rule has one of error"),
        ("/faults/add", {"close": True, "silence": True}, "a rule has one of error"),
        ("/faults/add", {"error": "NONE"}, "error is 'NONE'"),
        ("/faults/add", {"close": True, "nth": 0}, "nth is 0"),
        ("/faults/add", {"close": True, "share": 1.1}, "share is 1.1"),
        ("/faults/add", {"close": True, "partition": 0}, "a partition is one of a topic"),
        ("/faults/remove", {"rule": 99}, "rule is 99"),
        ("/snapshots/restore", {"snapshot": 99}, "snapshot is 99"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_a_400(kafka: Broker, path: str, body: object, sentence: str) -> None:
    status, said = asked(kafka, path, body)
    assert (status, sentence in said) == (400, True), said


def test_what_is_right_and_not_possible_now_is_a_409(kafka: Broker) -> None:
    assert asked(kafka, "/topics/create", {"topics": [{"name": "orders"}]})[0] == 409
    assert asked(kafka, "/clock/advance", {"ms": 1}) == (
        409,
        "the broker's clock goes by itself: start it with the setting ottla.clock=manual",
    )


UNTYPED: Any = Broker
"""The class as a program without type hints uses it."""

WRONG: Mapping[str, tuple[Callable[[Any], object], str]] = {
    "a text for records": (lambda kafka: kafka.produce("t", "lamp"), "records is 'lamp', expected a list"),
    "bytes for records": (lambda kafka: kafka.produce("t", b"lamp"), "records is b'lamp'"),
    "an object for records": (lambda kafka: kafka.produce("t", {"value": "x"}), "records is {'value': 'x'}"),
    "a record for records": (lambda kafka: kafka.produce("t", Record(b"x")), "records is Record"),
    "nothing for records": (lambda kafka: kafka.produce("t", None), "records is None"),
    "a number for records": (lambda kafka: kafka.produce("t", 5), "records is 5"),
    "bytes for a topic": (lambda kafka: kafka.produce(b"t", []), "topic is b't', which cannot be written as JSON"),
    "no topic": (lambda kafka: kafka.produce(None, []), "lacks 'topic'"),
    "an unknown part": (lambda kafka: kafka.produce("t", [{"vlaue": "x"}]), "records[0] has 'vlaue'"),
    "a set for a value": (lambda kafka: kafka.produce("t", [{"value": {1}}]), "records[0].value is {1}"),
    "a number that is none": (lambda kafka: kafka.produce("t", ["a", float("nan")]), "records[1].value is nan"),
    "half a character": (lambda kafka: kafka.produce("t", ["\ud800"]), "records[0].value is '\\ud800'"),
    "a text for headers": (lambda kafka: kafka.produce("t", [{"headers": "h"}]), "records[0].headers is 'h'"),
    "a name for a header": (lambda kafka: kafka.produce("t", [{"headers": ["h"]}]), "records[0].headers[0] is 'h'"),
    "a number for a header": (lambda kafka: kafka.produce("t", [{"headers": {"h": 1}}]), "has the value 1"),
    "bytes for a header's name": (lambda kafka: kafka.produce("t", [{"headers": {b"h": "1"}}]), "records is"),
    "a text for a partition": (lambda kafka: kafka.produce("t", [{"partition": "0"}]), "records[0].partition is '0'"),
    "a time as an object": (
        lambda kafka: kafka.produce("t", [{"value": "x", "timestamp_ms": timedelta(1)}]),
        "timestamp_ms",
    ),
    "a file that is not there": (lambda kafka: kafka.seed("t", "/nowhere.jsonl"), "/nowhere.jsonl cannot be read"),
    "a file's number": (lambda kafka: kafka.seed("t", 5), "path is 5"),
    "a partition too many": (lambda kafka: kafka.records("orders", partition=2), "partition is 2, expected 0 to 1"),
    "a negative partition": (lambda kafka: kafka.records("orders", partition=-1), "partition is -1"),
    "a text for uncommitted": (lambda kafka: kafka.records("orders", uncommitted="yes"), "uncommitted is 'yes'"),
    "a topic that is not there": (lambda kafka: kafka.records("nothing"), "topic is 'nothing'"),
    "no name": (lambda kafka: kafka.create_topic(None), "topics[0].name is None"),
    "a text for partitions": (lambda kafka: kafka.create_topic("t", partitions="3"), "partitions is '3'"),
    "no partition": (lambda kafka: kafka.create_topic("t", partitions=0), "INVALID_PARTITIONS"),
    "a list for configs": (lambda kafka: kafka.create_topic("t", configs=["a"]), "configs is ['a']"),
    "a number for a config": (lambda kafka: kafka.create_topic("t", configs={"retention.ms": 1}), "retention.ms is 1"),
    "an unknown config": (lambda kafka: kafka.create_topic("t", configs={"retention": "1"}), "retention"),
    "bytes for a group": (lambda kafka: kafka.group(b"g"), "group is b'g'"),
    "a list for a group": (lambda kafka: kafka.committed(["g"]), "group is ['g']"),
    "a member that is not there": (lambda kafka: kafka.expire_members("g", "m"), "group is 'g'"),
    "a state by another case": (lambda kafka: kafka.wait_for(group="g", state="stable"), "state is 'stable'"),
    "a text for members": (lambda kafka: kafka.wait_for(group="g", members="2"), "members is '2'"),
    "offsets by topic": (lambda kafka: kafka.wait_for(group="g", committed={"t": 1}), "committed has 't'"),
    "a list of offsets": (lambda kafka: kafka.wait_for(group="g", committed=[1]), "committed is [1]"),
    "a text for an offset": (lambda kafka: kafka.wait_for(group="g", committed={("t", 0): "1"}), "committed.t-0 is"),
    "nothing to wait for": (lambda kafka: kafka.wait_for(), "nothing is waited for"),
    "a negative timeout": (lambda kafka: kafka.wait_for(topic="t", records=1, timeout=-1), "timeout is -1"),
    "no end": (lambda kafka: kafka.wait_for(topic="t", records=1, timeout=float("inf")), "timeout is inf"),
    "no timeout": (lambda kafka: kafka.wait_for(topic="t", records=1, timeout=None), "timeout is None"),
    "no step": (lambda kafka: kafka.advance(), "by is None"),
    "a number for a step": (lambda kafka: kafka.advance(7), "by is 7, expected a timedelta"),
    "two steps": (lambda kafka: kafka.advance(timedelta(1), days=1), "expected one of the two"),
    "a step back": (lambda kafka: kafka.advance(days=-1), "cannot be moved by -1 day"),
    "a text for days": (lambda kafka: kafka.advance(days="7"), "days is '7'"),
    "days that are no number": (lambda kafka: kafka.advance(days=float("nan")), "days is nan"),
    "too many days": (lambda kafka: kafka.advance(days=1e10), "so far"),
    "a job that does not exist": (lambda kafka: kafka.run("retentions"), "job is 'retentions', expected one of"),
    "a path for a job": (lambda kafka: kafka.run("../reset"), "job is '../reset'"),
    "an API that does not exist": (lambda kafka: kafka.requests(api="Produc"), "api is 'Produc', expected one of"),
    "a number for a client": (lambda kafka: kafka.requests(client_id=1), "client_id is 1"),
    "an unknown part of a rule": (lambda kafka: kafka.fail(apis="Produce"), "has 'apis'"),
    "bytes in a rule": (lambda kafka: kafka.fail(topic=b"t", close=True), "topic is b't'"),
    "a text for close": (lambda kafka: kafka.fail(close="yes"), "close is 'yes'"),
    "an error code's number": (lambda kafka: kafka.fail(error=3), "error is 3"),
    "a list for a client": (lambda kafka: kafka.close_connections(["a"]), "client_id is ['a']"),
    "settings as a text": (lambda _: UNTYPED("ottla.clock=manual"), "settings is 'ottla.clock=manual'"),
    "a number for a setting": (lambda _: UNTYPED({"num.partitions": 3}), "settings has 'num.partitions': 3"),
    "no listener": (lambda _: UNTYPED(listeners=0), "listeners is 0"),
    "a text for listeners": (lambda _: UNTYPED(listeners="2"), "listeners is '2'"),
    "faults in place": (lambda _: UNTYPED(faults=[{"close": True}]), "faults is [{'close': True}]"),
    "a file of faults that is not there": (lambda _: UNTYPED(faults="/nowhere").start(), "/nowhere cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_argument_in_python_is_named(kafka: Broker, what: str) -> None:
    call, sentence = WRONG[what]
    with pytest.raises(BrokerError) as refused:
        call(kafka)
    assert sentence in str(refused.value)
    assert not isinstance(refused.value, NotInTime)


def test_a_rule_that_is_wrong_in_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "faults.yaml").write_text("- {api: Produc, close: true}")
    with pytest.raises(BrokerError, match=r"rule 1 of .*faults.yaml: api is 'Produc'"):
        Broker(faults=tmp_path / "faults.yaml").start()


def test_a_wait_that_fails_says_for_what(kafka: Broker) -> None:
    with pytest.raises(NotInTime) as late:
        kafka.wait_for(group="g", state="Stable", members=1, timeout=0.01)
    assert str(late.value).startswith("waited 10 ms for group='g', state='Stable', members=1; there is {'group': ")


def test_what_was_read_can_be_written(kafka: Broker) -> None:
    headers = [("a", "1"), ("a", None), ("b", b"\xff"), ("c", "")]
    kafka.reset()
    kafka.create_topic("orders", partitions=2)
    kafka.produce("orders", [{"key": b"\xff", "value": None, "headers": headers, "partition": 1, "timestamp_ms": 5}])
    [read] = kafka.records("orders")
    assert read == Record(None, b"\xff", (("a", b"1"), ("a", None), ("b", b"\xff"), ("c", b"")), 1, 0, 5)
    kafka.create_topic("copies", partitions=2)
    kafka.produce("copies", kafka.records("orders"))
    assert kafka.records("copies") == [read]


def test_records_of_any_iterable_are_written(kafka: Broker) -> None:
    assert kafka.produce("numbers", ({"value": n} for n in range(3))) == [(0, 0), (0, 1), (0, 2)]
    assert [record.value for record in kafka.records("numbers")] == [b"0", b"1", b"2"]


def test_many_records_are_written_in_several_batches(kafka: Broker) -> None:
    places = kafka.produce("many", ["x" * 1_000] * 2_000)
    assert places == [(0, offset) for offset in range(2_000)]


def test_the_states_and_jobs_are_those_that_there_are(kafka: Broker) -> None:
    enums = (GroupState, ConsumerGroupState, StreamsGroupState)
    assert set(STATES) == {state.value for states in enums for state in states}
    for job in JOBS:
        kafka.run(job)
