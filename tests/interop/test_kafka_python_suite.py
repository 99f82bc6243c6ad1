"""The integration tests of kafka-python's own authors, as they are in its source distribution."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer

from dev.broker_process import BrokerProcess, port_below_client_ports
from dev.brokers import broker_for_tests
from dev.repository import REPOSITORY
from tests.interop import programs
from tests.interop.conftest import SUBJECTS, against_apache_kafka, installed
from tests.interop.not_applicable import read_list
from tests.interop.summary import OUTCOME

LIST = Path(__file__).resolve().parent / "kafka_python_not_applicable.tsv"
SUITE = "kafka-python's own suite"
SUITE_TIMEOUT_S = 900


@pytest.fixture
def broker_as_expected(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with the settings that the suite's own fixtures give theirs, as far as its tests can tell."""
    port = port_below_client_ports()
    settings = {
        "node.id": "0",
        "num.partitions": "4",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "offsets.topic.num.partitions": "2",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with broker_for_tests(tmp_path, settings=settings, port=port) as process:
        yield process


def implied_version(bootstrap: str) -> str:
    """The version of Kafka that kafka-python takes the broker for, from its ApiVersions."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        return ".".join(map(str, consumer.config["api_version"]))
    finally:
        consumer.close()


def test_every_entry_of_the_list_has_a_good_reason() -> None:
    for entry in read_list(LIST):
        assert entry.kind == "because" or entry.text in SUBJECTS, f"{entry.pattern} waits for '{entry.text}'"


@pytest.mark.timeout(SUITE_TIMEOUT_S + 60)
def test_what_kafka_python_expects_of_a_broker_holds(
    broker_as_expected: BrokerProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    source = installed(programs.kafka_python_source)
    outcomes = tmp_path / "outcomes.jsonl"
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "KAFKA_URI": f"kafka://{broker_as_expected.bootstrap}",
        "KAFKA_VERSION": implied_version(broker_as_expected.bootstrap),
        "KAFKA_ROOT": str(source),
    }
    ours = ("-p", "tests.interop.not_applicable", f"--not-applicable={LIST}", f"--outcomes={outcomes}")
    lenient = ("--may-pass",) if against_apache_kafka() else ()
    quiet = ("-o", "addopts=", "-o", "log_level=WARNING", "-p", "no:cacheprovider")
    theirs = ("--timeout=120", "--timeout-method=signal", "test/integration")
    outcome = programs.run(
        [sys.executable, "-m", "pytest", *ours, *lenient, *quiet, *theirs],
        cwd=source,
        environment=environment,
        timeout_s=SUITE_TIMEOUT_S,
    )
    assert outcomes.exists(), f"the suite did not run\n{outcome}"
    failures = []
    for line in outcomes.read_text().splitlines():
        ended = json.loads(line)
        if ended["outcome"] == "failed":
            failures.append(f"{ended['test']}: {ended['reason']}")
        reason = ended["reason"] if ended["outcome"] == "not applicable" else ""
        outcome_of_theirs = (SUITE, ended["test"].rpartition("/")[2], ended["outcome"], reason)
        request.node.user_properties.append((OUTCOME, outcome_of_theirs))
    assert not failures, "\n".join([*failures, outcome.output[-20_000:]])
    assert outcome.code == 0, f"the suite ended with exit code {outcome.code}\n{outcome}"
