"""`ottla pipeline sql`: queries over what Apache Kafka wrote and over a running broker's topics."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dev.broker_process import BrokerProcess
from pipeline.sql import quoted, table
from tests.support.clients import Client, Record
from tests.support.pipeline_commands import Run

NOW_MS = 1_700_000_000_123


@pytest.fixture
def kafkas(kafka_directory: Callable[[str], Path]) -> Path:
    return kafka_directory("kafka-dir")


@pytest.fixture
def source(broker: BrokerProcess, client: Client, topic: str) -> tuple[Any, ...]:
    """A topic of a running broker with three records, and the options that lead to it."""
    client.create_topic(topic, configs={"retention.ms": "-1"})
    client.produce(
        topic,
        [
            Record(key=b"a", value=b'{"n": 1}', headers=(("h", b"1"),), timestamp_ms=NOW_MS, partition=0),
            Record(key=None, value=b"\xff\x00", timestamp_ms=NOW_MS + 1, partition=0),
            Record(key=b"b", value=None, timestamp_ms=NOW_MS + 2, partition=0),
        ],
    )
    return "--data-dir", broker.directory / "data", "--bootstrap", broker.bootstrap, "--topics", topic


def rows_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# The views ------------------------------------------------------------------------------------------------------------


def test_views_are_listed_as_a_query_has_to_write_them(kafkas: Path, run_sql: Run) -> None:
    answer = run_sql("--data-dir", kafkas, "--list")

    names = answer.out.splitlines()
    assert answer.code == 0
    assert {"plain", "codecs", "`zstd-topic`", "`empty.topic_with-all.chars`"} <= set(names)
    assert not any("__" in name for name in names)


@pytest.mark.parametrize(
    ("topic", "name"), [("orders", "orders"), ("a.b", "`a.b`"), ("a-b", "`a-b`"), ("1st", "`1st`")]
)
def test_only_plain_names_stand_without_backticks(topic: str, name: str) -> None:
    assert quoted(topic) == name


def test_every_listed_view_can_be_asked(kafkas: Path, run_sql: Run) -> None:
    names = run_sql("--data-dir", kafkas, "--list").out.splitlines()
    query = " union all ".join(f"select '{name.strip('`')}' topic, count(*) n from {name}" for name in names)

    answer = run_sql("--data-dir", kafkas, "--format", "json", query)

    assert answer.code == 0, answer.err
    assert {row["topic"] for row in rows_of(answer.out)} == {name.strip("`") for name in names}


def test_records_of_aborted_transactions_are_there_only_when_asked_for(kafkas: Path, run_sql: Run) -> None:
    query = "select count(*) n from txn"
    committed = run_sql("--data-dir", kafkas, "--format", "json", query)
    everything = run_sql("--data-dir", kafkas, "--format", "json", "--isolation", "read_uncommitted", query)

    assert rows_of(committed.out)[0]["n"] < rows_of(everything.out)[0]["n"]


def test_topics_can_be_joined(kafkas: Path, run_sql: Run) -> None:
    answer = run_sql(
        "--data-dir", kafkas, "--format", "json",
        "select a.offset, b.offset from plain a join plain b on a.partition = b.partition and a.offset + 1 = b.offset "
        "order by a.partition, a.offset limit 2",
    )  # fmt: skip

    assert [row["offset_2"] - row["offset"] for row in rows_of(answer.out)] == [1, 1]


# Answers --------------------------------------------------------------------------------------------------------------


def test_an_answer_is_a_table_for_people(source: tuple[Any, ...], topic: str, run_sql: Run) -> None:
    answer = run_sql(*source, f"select offset, key, value, timestamp from `{topic}` order by offset")

    assert answer.code == 0, answer.err
    assert answer.out.splitlines() == [
        "offset  key   value     timestamp",
        "------  ----  --------  ------------------------",
        '     0  a     {"n": 1}  2023-11-14T22:13:20.123Z',
        "     1  null  0xff00    2023-11-14T22:13:20.124Z",
        "     2  b     null      2023-11-14T22:13:20.125Z",
    ]


def test_a_table_says_that_it_is_not_all(source: tuple[Any, ...], topic: str, run_sql: Run) -> None:
    answer = run_sql(*source, "--rows", 2, f"select offset from `{topic}` order by offset")

    assert answer.out.splitlines()[2:] == ["     0", "     1", "more than 2 rows: --rows, --format"]


def test_what_moves_a_cursor_is_spelled_out_in_a_table() -> None:
    assert table(["a"], [["\x1b[2J\n"]]).splitlines()[2] == "\\x1b[2J\\n"


def test_json_is_an_object_a_line(source: tuple[Any, ...], topic: str, run_sql: Run) -> None:
    query = f"select key, value, timestamp, headers, struct(timestamp) s from `{topic}` order by offset"
    answer = run_sql(*source, "--headers", "--format", "json", query)

    first, second, third = rows_of(answer.out)
    assert first == {
        "key": "a", "value": '{"n": 1}', "timestamp": "2023-11-14T22:13:20.123Z",
        "headers": [{"key": "h", "value": "1"}], "s": {"timestamp": "2023-11-14T22:13:20.123Z"},
    }  # fmt: skip
    assert (second["key"], second["value"], second["headers"]) == (None, {"base64": "/wA="}, None)
    assert third["value"] is None


def test_values_are_text_for_who_asks(source: tuple[Any, ...], topic: str, run_sql: Run) -> None:
    answer = run_sql(*source, "--format", "json",
                     f"select get_json_object(text(value), '$.n') n from `{topic}` where text(key) = 'a'")  # fmt: skip

    assert rows_of(answer.out) == [{"n": "1"}]


def test_csv_goes_into_a_file_whole(source: tuple[Any, ...], topic: str, run_sql: Run, tmp_path: Path) -> None:
    answer = run_sql(*source, "--output", tmp_path / "out.csv", f"select offset, key, value from `{topic}` order by 1")

    assert (answer.code, answer.out) == (0, "")
    assert list(csv.reader(io.StringIO((tmp_path / "out.csv").read_text()))) == [
        ["offset", "key", "value"],
        ["0", "a", '{"n": 1}'],
        ["1", "", "0xff00"],
        ["2", "b", ""],
    ]


def test_parquet_is_a_directory_that_others_read(
    source: tuple[Any, ...], topic: str, run_sql: Run, tmp_path: Path
) -> None:
    answer = run_sql(*source, "--output", tmp_path / "out.parquet", f"select offset, key from `{topic}`")

    assert (answer.code, answer.out) == (0, "")
    found = duckdb.sql(f"select * from '{tmp_path}/out.parquet/*.parquet' order by 1").fetchall()
    assert found == [(0, b"a"), (1, None), (2, b"b")]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("out")] == ["out.parquet"]


# What cannot be done --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("selct 1", "Syntax error at or near 'selct'"),
        ("select nothing from plain", "`nothing` cannot be resolved"),
        ("select * from plian", "The table or view `plian` cannot be found"),
        ("select cast('x' as int)", 'cannot be cast to "INT"'),
        ("select raise_error('no such thing') from plain", "no such thing"),
    ],
)
def test_a_wrong_query_is_told_in_sparks_words_without_its_stack(
    kafkas: Path, run_sql: Run, query: str, sentence: str
) -> None:
    answer = run_sql("--data-dir", kafkas, query)

    assert (answer.code, answer.out) == (2, "")
    assert sentence in answer.err
    assert answer.err.count("\n") == 1
    assert ".scala" not in answer.err


def _damage(directory: Path) -> Path:
    path = directory / "plain-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    path.write_bytes(content)
    return path


def test_damage_ends_a_query_and_leaves_no_file(kafkas: Path, run_sql: Run, tmp_path: Path) -> None:
    path = _damage(kafkas)

    for form in ("csv", "json", "parquet"):
        answer = run_sql("--data-dir", kafkas, "--output", tmp_path / f"out.{form}", "select * from plain")

        assert (answer.code, answer.out) == (1, "")
        assert f"{path} at 0 (offset 0): found " in answer.err
        assert answer.err.count("\n") == 1
        assert list(tmp_path.glob("*out.*")) == []


def test_damage_can_be_passed_over(kafkas: Path, run_sql: Run) -> None:
    query = "select count(*) n from plain"
    whole = rows_of(run_sql("--data-dir", kafkas, "--format", "json", query).out)[0]["n"]
    _damage(kafkas)

    answer = run_sql("--data-dir", kafkas, "--on-damage", "skip-batch", "--format", "json", query)

    assert answer.code == 0
    assert 0 < rows_of(answer.out)[0]["n"] < whole


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "no query was given"),
        (("--topics", "plian", "select 1"), "did you mean plain?"),
        (("--output", "/nowhere/at/all.csv", "select 1"), "nothing can be written to /nowhere/at/all.csv"),
        (("--output", "somewhere", "select 1"), "--format says what is to be written there"),
        (("--format", "parquet", "select 1"), "parquet needs --output"),
        (("--format", "parquet", "--output", "/tmp", "select 1"), "/tmp exists already"),
        (("--bootstrap", "127.0.0.1:1", "select 1"), "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_asked_is_a_sentence(
    kafkas: Path, run_sql: Run, arguments: tuple[str, ...], sentence: str
) -> None:
    answer = run_sql("--data-dir", kafkas, *arguments)

    assert (answer.code, answer.out) == (2, "")
    assert sentence in answer.err
    assert answer.err.count("\n") == 1
