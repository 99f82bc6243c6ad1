"""The bench's transactional producers commit what they were given, and both isolation levels get the same load."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from bench import transaction_cases
from bench.conversation import READ_COMMITTED, READ_UNCOMMITTED, fetch_frame
from bench.librdkafka import TransactionalProducer
from bench.limits import SocketOptions
from bench.load import LoadFailed
from bench.processes import OwnBroker
from bench.raw_cases import Bench
from bench.rival import Rival
from bench.side_by_side.verified import VerifiedBench
from dev import waiting

VALUES = [b"value"] * 3


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    directory = tmp_path_factory.mktemp("bench")
    with contextlib.closing(OwnBroker(directory)) as broker:
        yield VerifiedBench(
            broker=broker,
            rival=Rival(directory / "kafka"),
            options=SocketOptions(),
            directory=directory,
            scale=0.001,
            data_directory=broker.data_directory,
        )


def test_a_transaction_is_its_records_and_a_marker_in_the_producers_partition(bench: Bench) -> None:
    with bench.topic(2) as topic:
        with TransactionalProducer(bench.broker.bootstrap, topic, topic, VALUES, partition=1) as producer:
            producer.start()
            producer.commit()
            producer.commit()

        waiting.until(lambda: bench.end_offsets(topic, 2) == 2 * (len(VALUES) + 1))


def test_a_fenced_producer_does_not_count_as_one_that_has_committed(bench: Bench) -> None:
    with (
        bench.topic(1) as topic,
        TransactionalProducer(bench.broker.bootstrap, topic, topic, VALUES) as fenced,
        TransactionalProducer(bench.broker.bootstrap, topic, topic, VALUES) as successor,
    ):
        fenced.start()
        successor.start()

        with pytest.raises(LoadFailed, match="fenced"):
            fenced.commit()


def test_producers_commit_side_by_side_and_what_they_have_committed_is_found_in_the_log(bench: Bench) -> None:
    figures = transaction_cases.committed(bench, producers=2, records=10)

    assert figures["records_s"] == pytest.approx(10 * figures["transactions_s"])
    assert figures["cpu_us"] > 0


def test_a_commit_has_a_latency(bench: Bench) -> None:
    figures = transaction_cases.commit_latency(bench)

    assert 0 < figures["p50_us"] <= figures["p99_us"]


def test_a_log_that_holds_more_than_was_committed_fails_the_sample(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bench, "end_offsets", lambda *_: 10**9)

    with pytest.raises(LoadFailed, match="were committed, the log holds"):
        transaction_cases.commit_latency(bench)


def test_both_isolation_levels_fetch_in_turns_and_are_compared_pair_by_pair(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[bytes] = []

    def fetch(_: Bench, frame: bytes, **load: Any) -> tuple[dict[str, float], int]:
        assert load == {"at_least": 32 * 1024, "in_flight": 2, "requests": 2_000}
        fetched.append(frame)
        pair = (len(fetched) - 1) // 2  # the first one, which does not count, is far off
        dearer = 1.5 if frame == committed else 1.0
        return {"mb_s": 100.0, "cpu_s_gb": dearer * (pair if pair else 1_000.0)}, 1

    @contextlib.contextmanager
    def topic(*_: object, **__: object) -> Iterator[str]:
        yield "t"

    monkeypatch.setattr(transaction_cases, "fetched_again", fetch)
    monkeypatch.setattr(transaction_cases, "filled_topic", topic)
    committed, uncommitted = (
        fetch_frame("t", [0], partition_bytes=64 * 1024, isolation_level=level)
        for level in (READ_COMMITTED, READ_UNCOMMITTED)
    )

    figures = transaction_cases.read_committed(bench, partitions=1)

    assert fetched[:4] == [uncommitted, committed, committed, uncommitted]
    assert len(fetched) == 2 * (transaction_cases.PAIRS + 1)
    assert figures["ratio"] == 1.5
    assert figures["cpu_s_gb"] == 1.5 * figures["uncommitted_cpu_s_gb"] == 1.5 * 8


def test_read_committed_costs_processor_time_on_a_broker(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_cases, "PAIRS", 1)

    figures = transaction_cases.isolation(bench)

    assert all(figures[f"{prefix}{name}"] > 0 for prefix in ("", "of_16_") for name in ("mb_s", "cpu_s_gb", "ratio"))
