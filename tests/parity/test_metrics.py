"""Apache Kafka under the JMX exporter's agent and we get the same load, and export it under the same names and labels.

Where `OTTLA_TEST_KAFKA_LIBS` names the directory with Kafka's jars and Maven finds the agent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from dev.broker_process import BrokerProcess, port_below_client_ports
from dev.kafka_jars import NoKafka
from dev.waiting import until
from tests.parity.brokers import SETTINGS
from tests.parity.metrics_differences import MISSING, MISSING_ON_A_SINGLE_NODE, OTHER_VALUES
from tests.parity.metrics_load import ASKED_UNTIL_READY, load
from tests.support.jmx_exporter import WatchedKafka, agent
from tests.support.metrics import Page, Series, http_get

MOST_PATTERNS = 40
EXPLAINED = (*MISSING, *MISSING_ON_A_SINGLE_NODE)

ERRORS = "kafka_network_requestmetrics_errors_total"

COMPARED = re.compile(
    r"kafka_server_brokertopicmetrics_.*|kafka_network_requestmetrics_(?:errors|requests)_total.*|kafka_log_log_.*"
    r"|kafka_network_requestmetrics_\w+_count.*|kafka_cluster_partition_.*|kafka_server_replicamanager_.*"
    r"|kafka_controller_kafkacontroller_\w+count|kafka_server_delayed.*|kafka_server_fetchsessioncache_.*"
    r"|kafka_server_metadataloader_current.*|kafka_log_logmanager_.*|kafka_coordinator_group_.*"
    r"|kafka_log_logcleaner_(?!max_clean_time).*|kafka_log_logcleanermanager_(?:max_dirty|uncleanable)_.*"
    r"|kafka_utils_throttler_.*"
    r"|kafka_server_group_coordinator_metrics_(?:\w+_count|num_partitions).*"
    r"|kafka_coordinator_transaction_.*|kafka_server_addpartitionstotxnmanager_\w+_count"
)
"""Series whose values follow from what was asked."""

LAST = 'kafka_network_requestmetrics_requests_total{request="DeleteTopics",version="6"}'
"""What the load asks last: once it is counted, so is everything."""


def fetched(port: int) -> Page:
    return Page(http_get(port, "/metrics").text)


def loaded(broker: BrokerProcess, port: int) -> Page:
    """The page of a broker that was asked everything."""
    try:
        broker.start(timeout_s=180.0)
        with load(broker.bootstrap):
            until(lambda: fetched(port).get(LAST) is not None, "that all requests are counted")
            return fetched(port)
    except BaseException as error:
        error.add_note(f"log of the broker:\n{broker.log_text(last_lines=40)}")
        raise
    finally:
        broker.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Page, Page]:
    """Kafka's and ours."""
    libraries = os.environ.get("OTTLA_TEST_KAFKA_LIBS")
    if not libraries:
        pytest.skip("OTTLA_TEST_KAFKA_LIBS does not name a directory with Kafka's jars")
    try:
        agent()
    except NoKafka as reason:
        pytest.skip(str(reason))
    kafka = WatchedKafka(tmp_path_factory.mktemp("kafka"), settings=SETTINGS, libraries=libraries)
    theirs = loaded(kafka, kafka.metrics_port)
    port = port_below_client_ports()
    settings = {**SETTINGS, "ottla.prometheus.listener": f"127.0.0.1:{port}"}
    return theirs, loaded(BrokerProcess(tmp_path_factory.mktemp("ours"), settings=settings), port)


def written(one: Series) -> str:
    """A series as the table of differences has it; what differs from run to run is replaced."""
    name, labels = one
    shown = ",".join(f'{label}="{"DIR" if label == "logDirectory" else value}"' for label, value in sorted(labels))
    return f"{name}{{{shown}}}" if shown else name


def kafkas_own(page: Page) -> Iterator[Series]:
    """The series of Kafka's beans, not those of the agent or of Java; without errors that only come of impatience."""
    return (
        one
        for one in page.values
        if one[0].startswith("kafka_")
        and not (one[0] == ERRORS and any(("request", name) in one[1] for name in ASKED_UNTIL_READY))
    )


def test_every_series_of_kafka_is_ours_too_or_has_a_reason(pages: tuple[Page, Page]) -> None:
    theirs, mine = pages
    ours = {written(one) for one in mine.values}
    missing = sorted({written(one) for one in kafkas_own(theirs)} - ours)
    unexplained = [one for one in missing if not any(re.fullmatch(known.pattern, one) for known in EXPLAINED)]
    assert not unexplained, f"{len(unexplained)} series are missing:\n" + "\n".join(unexplained)


def test_each_reason_is_needed_and_there_are_few(pages: tuple[Page, Page]) -> None:
    theirs, mine = pages
    missing = {written(one) for one in kafkas_own(theirs)} - {written(one) for one in mine.values}
    idle = [known.pattern for known in EXPLAINED if not any(re.fullmatch(known.pattern, one) for one in missing)]
    assert not idle, f"no series is missing for which there is a reason: {idle}"
    assert len(EXPLAINED) + len(OTHER_VALUES) <= MOST_PATTERNS


def test_what_both_count_alike_has_the_same_values(pages: tuple[Page, Page]) -> None:
    theirs, mine = pages
    ours = {written(one): value for one, value in mine.values.items()}
    differing = {
        text: (value, ours[text])
        for one, value in theirs.values.items()
        if COMPARED.fullmatch(text := written(one)) and text in ours and ours[text] != value
    }
    unexplained = {
        text: values
        for text, values in differing.items()
        if not any(re.fullmatch(known.pattern, text) for known in OTHER_VALUES)
    }
    idle = [known.pattern for known in OTHER_VALUES if not any(re.fullmatch(known.pattern, text) for text in differing)]
    assert not unexplained, "Kafka's value and ours:\n" + "\n".join(f"{k}: {v}" for k, v in unexplained.items())
    assert not idle, f"values agree for which there is a reason: {idle}"
