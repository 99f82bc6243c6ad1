"""Prometheus as the distribution packages it, and its promtool: the page, the configuration, the rules, one alert."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml
from kafka import KafkaConsumer

from boards.all_boards import BOARDS
from boards.promql import filled_in
from broker.metrics.subjects import FAMILIES
from dev.broker_process import BrokerProcess, port_below_client_ports
from dev.prometheus import CONFIGURATION, Prometheus, configuration_for
from dev.waiting import until
from tests.interop import programs
from tests.interop.conftest import against_apache_kafka, installed
from tests.interop.programs import Outcome
from tests.support.clients import Committed, Place, Record, connect

INTERVAL_S = 0.5
EVERYTHING = {"__rate_interval": "5s", **dict.fromkeys(("instance", "topic", "group", "request"), ".+")}

OF_KAFKA = [family for family in FAMILIES if family.bean]
NAMES_OF_KAFKA = {family.name for family in OF_KAFKA}
LABELS_OF_KAFKA = {label for family in OF_KAFKA for label in family.labels}

pytestmark = pytest.mark.skipif(against_apache_kafka(), reason="Apache Kafka has no metrics endpoint of its own")


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with a metrics endpoint on a port that it comes back on."""
    port = port_below_client_ports()
    metrics = f"127.0.0.1:{port_below_client_ports(above=port)}"
    process = BrokerProcess(
        tmp_path_factory.mktemp("scraped"), settings={"ottla.prometheus.listener": metrics}, port=port
    )
    with process:
        yield process


@pytest.fixture(scope="module")
def prometheus(scraped: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """One that scrapes it twice a second, says after a second what it would say after minutes, and takes five seconds
    for a quarter of an hour."""
    directory = tmp_path_factory.mktemp("prometheus")
    rules = yaml.safe_load((CONFIGURATION / "alerts.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["for"] = "1s"
            rule["expr"] = rule["expr"].replace("[15m]", "[5s]")
    (directory / "alerts.yml").write_text(yaml.safe_dump(rules))
    configuration = configuration_for(address_of(scraped), interval_s=INTERVAL_S, rules=directory / "alerts.yml")
    program = installed(programs.prometheus) / "prometheus"
    process = Prometheus(str(program), directory, configuration).start()
    try:
        yield process
    finally:
        process.close()


def address_of(broker: BrokerProcess) -> str:
    return broker.settings["ottla.prometheus.listener"]


def is_about_kafkas_taste(remark: str) -> bool:
    """Whether promtool advises another name where the name, or the label, is the one that boards for Kafka know."""
    name, _, advice = remark.partition(" ")
    labels = {label for family in FAMILIES if family.name == name for label in family.labels if not label.islower()}
    match advice:
        case "label names should be written in 'snake_case' not 'camelCase'":
            return bool(labels) and labels <= LABELS_OF_KAFKA
        case "metric names should not contain abbreviated units":
            return name in NAMES_OF_KAFKA
    return False


def promtool(*arguments: str, stdin: bytes = b"") -> Outcome:
    return programs.run([str(installed(programs.prometheus) / "promtool"), *arguments], stdin=stdin)


def test_promtool_finds_nothing_wrong_with_the_page(scraped: BrokerProcess) -> None:
    client = connect("kafka-python", scraped.bootstrap)
    client.produce("linted", [Record(value=b"a line")])
    client.commit("linters", {Place("linted", 0): Committed(0)})
    with urlopen(f"http://{address_of(scraped)}/metrics") as answer:
        page = answer.read()

    remarks = promtool("check", "metrics", stdin=page).said.splitlines()

    assert b'kafka_consumergroup_lag{consumergroup="linters",topic="linted",partition="0"} 1\n' in page
    assert [remark for remark in remarks if not is_about_kafkas_taste(remark)] == []


def test_promtool_would_notice_a_page_that_is_wrong() -> None:
    page = b'# HELP kafka_a_ms A.\n# TYPE kafka_a_ms gauge\nkafka_a_ms{camelCase="b",quantile="0.50"} 1\n'
    page += b"# HELP ottla_things_count Things.\n# TYPE ottla_things_count gauge\nottla_things_count 1\n"

    remarks = promtool("check", "metrics", stdin=page).refused().said.splitlines()

    assert len(remarks) == 4
    assert not any(map(is_about_kafkas_taste, remarks)), "neither is a name of Kafka's"
    assert "error while linting" in promtool("check", "metrics", stdin=b"orders{ 1\n").refused().said


def test_promtool_accepts_the_configuration_and_its_rules() -> None:
    said = promtool("check", "config", str(CONFIGURATION / "prometheus.yml")).done().said

    assert said.count("SUCCESS") >= 2


def test_each_alert_fires_and_stays_silent_as_the_rule_tests_say() -> None:
    promtool("test", "rules", str(CONFIGURATION / "alerts_test.yml")).done()


def test_promtool_would_notice(tmp_path: Path) -> None:
    for name in ("alerts.yml", "alerts_test.yml"):
        (tmp_path / name).write_text((CONFIGURATION / name).read_text().replace("for: 1m", "for: 2m"))

    assert "BrokerDown" in promtool("test", "rules", str(tmp_path / "alerts_test.yml")).refused().said


def test_a_scrape_has_what_clients_did(scraped: BrokerProcess, prometheus: Prometheus) -> None:
    until(lambda: bool(prometheus.query("up == 1")), "a scrape")

    (target,) = prometheus.targets()
    assert (target["health"], target["lastError"]) == ("up", "")

    connect("kafka-python", scraped.bootstrap).produce("scraped", [Record(value=b"%d" % number) for number in range(7)])
    written = 'kafka_server_brokertopicmetrics_messagesin_total{topic="scraped"}'
    until(lambda: [value for _, value in prometheus.query(written)] == [7], "seven records")


def test_prometheus_understands_every_query_of_every_board(prometheus: Prometheus) -> None:
    for board in BOARDS:
        for panel in board.panels:
            for query in panel.queries:
                prometheus.query(filled_in(query.expr, EVERYTHING))


def test_an_alert_fires_while_a_consumer_stands_still_and_is_over_when_it_reads_on(
    scraped: BrokerProcess, prometheus: Prometheus
) -> None:
    client = connect("kafka-python", scraped.bootstrap)
    client.produce("read", [Record(value=b"first")])
    stuck = 'kafka_consumergroup_lag_sum{consumergroup="slow",topic="read"}'
    with closing(
        KafkaConsumer(
            bootstrap_servers=scraped.bootstrap, group_id="slow", auto_offset_reset="earliest", enable_auto_commit=False
        )
    ) as consumer:
        consumer.subscribe(["read"])
        consumer.partitions_for_topic("read")  # else it may never apply its assignment: see `kafka_python_member`
        until(lambda: bool(consumer.poll(timeout_ms=100)), "the first record")
        consumer.commit()
        client.produce("read", [Record(value=b"second")])
        until(lambda: prometheus.alerts().get("ConsumerGroupStuck") == "firing", "the alert")
        assert [value for _, value in prometheus.query(stuck)] == [1]

        until(lambda: bool(consumer.poll(timeout_ms=100)), "the second record")
        consumer.commit()
        until(lambda: "ConsumerGroupStuck" not in prometheus.alerts(), "its end")
    members = 'kafka_consumergroup_members{consumergroup="slow"}'
    until(lambda: [value for _, value in prometheus.query(members)] == [0], "that it has left")


def test_an_alert_fires_when_the_broker_is_killed_and_is_over_when_it_is_back(
    scraped: BrokerProcess, prometheus: Prometheus
) -> None:
    until(lambda: bool(prometheus.query("up == 1")), "a scrape")
    assert "BrokerDown" not in prometheus.alerts()

    scraped.kill()
    until(lambda: prometheus.alerts().get("BrokerDown") == "firing", "the alert")

    scraped.start()
    until(lambda: "BrokerDown" not in prometheus.alerts(), "its end")
    assert [rule["lastError"] for rule in prometheus.rules() if rule["health"] != "ok"] == []
