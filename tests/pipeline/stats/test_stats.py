"""`ottla pipeline stats` on what Apache Kafka wrote, on a running broker, and on damage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dev.broker_process import BrokerProcess
from tests.pipeline.conftest import FIXTURES
from tests.pipeline.stats.conftest import Counted
from tests.support.clients import Client, Committed, Place, Record
from tests.support.pages import Page
from tests.support.pipeline_commands import Run

NOW_MS = 1_700_000_040_000
"""The beginning of a minute."""
FOR_EVER = {"retention.ms": "-1"}
"""For records as old as these."""


def test_a_topic_is_counted_as_its_producer_sent_it(
    broker: BrokerProcess, client: Client, topic: str, counted: Counted
) -> None:
    client.create_topic(topic, partitions=2, configs=FOR_EVER)
    for number in range(60):
        key = b"hot" if number % 3 else b"%d" % number
        record = Record(
            key=None if number == 59 else key, value=None if number == 58 else b"v" * 100,
            timestamp_ms=NOW_MS + number * 10_000, partition=number % 2,
        )  # fmt: skip
        client.produce(topic, [record])
    client.commit("readers", {Place(topic, 0): Committed(10), Place(topic, 1): Committed(30)})

    code, report = counted("--data-dir", broker.directory / "data", "--bootstrap", broker.bootstrap, "--topics", topic)

    assert code == 0
    (found,) = report["topics"]
    assert (found["records"], found["batches"], found["records_per_batch"]) == (60, 60, 1.0)
    assert (found["tombstones"], found["records_without_key"], found["value_bytes"]) == (1, 1, 5900)
    assert (found["first_timestamp_ms"], found["last_timestamp_ms"]) == (NOW_MS, NOW_MS + 590_000)
    assert [bucket["records"] for bucket in found["rates"]["buckets"]] == [6] * 10
    assert found["rates"]["buckets"][0]["start_ms"] == NOW_MS
    assert found["keys"]["top"][0] == {"key": "hot", "records": 39, "share": 0.65}
    assert found["keys"]["distinct"] == 21
    assert {size["from"]: size["count"] for size in found["record_sizes"] if size["count"]} == {2: 1, 64: 59}
    assert [(p["partition"], p["records"], p["high_watermark"]) for p in found["partitions"]] == [
        (0, 30, 30),
        (1, 30, 30),
    ]
    size = sum(path.stat().st_size for path in broker.directory.glob(f"data/{topic}-*/*.log"))
    assert found["bytes"] == size == report["total"]["bytes"]
    assert {"group": "readers", "topic": topic, "partitions": 2, "lag": 20, "most_lag": 20} in found["lags"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_compression_ratio_is_that_of_the_codec(
    broker: BrokerProcess, client: Client, topic: str, counted: Counted, codec: str
) -> None:
    client.create_topic(topic)
    client.produce(topic, [Record(value=b"again and again " * 20) for _ in range(100)], codec=codec)

    _, report = counted("--data-dir", broker.directory / "data", "--bootstrap", broker.bootstrap, "--topics", topic)

    (found,) = report["topics"]
    assert list(found["codecs"]) == [codec]
    counts = found["codecs"][codec]
    assert counts["opened_bytes"] == pytest.approx(100 * 329, abs=600)
    if codec == "none":
        assert (found["compression_ratio"], counts["stored_bytes"]) == (1.0, counts["opened_bytes"])
    else:
        assert found["compression_ratio"] == pytest.approx(counts["opened_bytes"] / counts["stored_bytes"], abs=1e-4)
        assert found["compression_ratio"] > 10


@pytest.mark.parametrize("name", ["kafka-dir", "kafka-dir-unclean"])
def test_what_apache_kafka_wrote_is_counted_to_the_record(
    kafka_directory: Callable[[str], Path], counted: Counted, name: str
) -> None:
    directory = kafka_directory(name)
    expected = json.loads((FIXTURES / "expected.json").read_text())

    code, report = counted("--data-dir", directory)

    assert code == 0
    for topic in report["topics"]:
        partitions = expected["topics"][topic["topic"]]["records"].values()
        assert topic["records"] == sum(len(each["read_uncommitted"]) for each in partitions), topic["topic"]
    by_name = {topic["topic"]: topic for topic in report["topics"]}
    assert set(by_name["codecs"]["codecs"]) == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert by_name["txn"]["control_batches"] > 0


def test_the_page_shows_each_topic_and_fetches_nothing(
    kafka_directory: Callable[[str], Path], run_stats: Run, tmp_path: Path
) -> None:
    answer = run_stats("--data-dir", kafka_directory("kafka-dir"), "--report", tmp_path / "stats.html")

    page = Page((tmp_path / "stats.html").read_text())
    lines = answer.out.splitlines()
    assert page.classes.count("topic") == len(lines) - 1
    assert all(line.split()[0] in page.text for line in lines[1:])
    assert page.tags.count("svg") >= 10
    assert (page.fetched, "script" in page.tags, "link" in page.tags, "image" in page.tags) == ([], False, False, False)


def test_keys_and_groups_are_text_whatever_they_are(
    broker: BrokerProcess, client: Client, topic: str, run_stats: Run, tmp_path: Path
) -> None:
    client.create_topic(topic)
    keys = [b"<script>alert(1)</script>", b"{{ 7 * 7 }}", b'$x^2$ & "quoted"', b"\xff\x00", "\u202eright".encode(), b""]
    client.produce(topic, [Record(key=key, value=b"v") for key in keys])
    client.commit("<img src=x onerror=alert(1)>", {Place(topic, 0): Committed(1)})

    answer = run_stats(
        "--data-dir", broker.directory / "data", "--bootstrap", broker.bootstrap, "--topics", topic,
        "--report", tmp_path / "stats.html",
    )  # fmt: skip

    page = Page((tmp_path / "stats.html").read_text())
    assert answer.code == 0
    for shown in ("<script>alert(1)</script>", "{{ 7 * 7 }}", '$x^2$ & "quoted"', "0xff00", "\\u202eright", "(empty)",
                  "<img src=x onerror=alert(1)>"):  # fmt: skip
        assert shown in page.text
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert "\u202e" not in page.text


def test_an_empty_topic_has_a_page_too(
    broker: BrokerProcess, client: Client, topic: str, run_stats: Run, tmp_path: Path
) -> None:
    client.create_topic(topic)

    answer = run_stats(
        "--data-dir", broker.directory / "data", "--bootstrap", broker.bootstrap, "--topics", topic,
        "--report", tmp_path / "stats.html",
    )  # fmt: skip

    assert answer.code == 0
    assert "No records." in Page((tmp_path / "stats.html").read_text()).text


# What cannot be done, or not all of it --------------------------------------------------------------------------------


def _damaged(directory: Path) -> Path:
    path = directory / "plain-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    path.write_bytes(content)
    return path


def test_damage_ends_it_with_file_position_and_offset(
    kafka_directory: Callable[[str], Path], run_stats: Run, tmp_path: Path
) -> None:
    directory = kafka_directory("kafka-dir")
    path = _damaged(directory)

    answer = run_stats("--data-dir", directory, "--topics", "plain", "--report", tmp_path / "stats.json")

    assert (answer.code, answer.out) == (1, "")
    assert f"{path} at 0 (offset 0): found " in answer.err
    assert list(tmp_path.glob("*stats.json*")) == []


def test_damage_that_is_passed_over_is_told_and_the_rest_is_counted(
    kafka_directory: Callable[[str], Path], counted: Counted
) -> None:
    directory = kafka_directory("kafka-dir")
    _, whole = counted("--data-dir", directory, "--topics", "plain")
    path = _damaged(directory)

    code, report = counted("--data-dir", directory, "--topics", "plain", "--on-damage", "skip-batch")

    assert code == 1
    assert [(damage["path"], damage["position"]) for damage in report["damage"]] == [(str(path), 0)]
    assert 0 < report["total"]["records"] < whole["total"]["records"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--topics", "plian"), "did you mean plain?"),
        (("--topic-pattern", "none of them"), "there are no topics to count"),
        (("--report", "/nowhere/at/all.html"), "nothing can be written to /nowhere/at/all.html"),
        (("--bootstrap", "127.0.0.1:1"), "127.0.0.1:1"),
    ],
)
def test_what_is_not_there_is_a_sentence(
    kafka_directory: Callable[[str], Path],
    run_stats: Run,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    monkeypatch.setattr("pipeline.broker.TIMEOUT_S", 2.0)
    answer = run_stats("--data-dir", kafka_directory("kafka-dir"), *arguments)

    assert (answer.code, answer.out) == (2, "")
    assert sentence in answer.err
    assert answer.err.count("\n") == 1
