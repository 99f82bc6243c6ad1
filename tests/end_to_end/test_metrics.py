"""What stock clients do with a broker shows on its page of metrics, in the process as its user starts it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dev.broker_process import BrokerProcess
from dev.waiting import until
from tests.end_to_end.conftest import Shared
from tests.support.clients import Client, Committed, Place, Record, connect, values
from tests.support.clients.members import SeenMember, places
from tests.support.metrics import OPENMETRICS, Page, http_get

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_BOOTSTRAP") or os.environ.get("OTTLA_TEST_KAFKA_LIBS")),
    reason="another broker has no such page",
)

LINES = [b"line %d" % number for number in range(100)]


def page(broker: BrokerProcess) -> Page:
    answer = http_get(broker.metrics_port, "/metrics")
    assert answer.status == 200, answer.text
    return Page(answer.text)


def test_what_a_client_writes_and_reads_is_counted(
    client: Client, broker: BrokerProcess, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    before = page(broker)

    client.produce(topic, [Record(value=line, partition=1) for line in LINES])
    written = page(broker)
    assert values(client.consume_all(topic)) == LINES
    read = page(broker)

    def grew(series: str, *, since: Page = before, until: Page = written) -> float:
        return until[series] - (since.get(series) or 0)

    assert written[f'kafka_server_brokertopicmetrics_messagesin_total{{topic="{topic}"}}'] == len(LINES)
    assert grew("kafka_server_brokertopicmetrics_messagesin_total") == len(LINES)
    assert written[f'kafka_log_log_logendoffset{{topic="{topic}",partition="1"}}'] == len(LINES)
    assert written[f'kafka_log_log_logendoffset{{topic="{topic}",partition="0"}}'] == 0
    assert written[f'kafka_log_log_size{{topic="{topic}",partition="1"}}'] > sum(map(len, LINES))
    assert grew('kafka_network_requestmetrics_totaltimems_count{request="Produce"}') > 0
    assert grew('kafka_network_requestmetrics_errors_total{request="Produce",error="NONE"}') > 0
    bytes_in = written[f'kafka_server_brokertopicmetrics_bytesin_total{{topic="{topic}"}}']
    bytes_out = read[f'kafka_server_brokertopicmetrics_bytesout_total{{topic="{topic}"}}']
    assert bytes_out == bytes_in, "each batch was read once, and as it was written"
    assert (
        grew('kafka_network_requestmetrics_totaltimems_count{request="FetchConsumer"}', since=written, until=read) > 0
    )


def test_a_group_of_consumers_shows_with_its_members_what_it_has_committed_and_how_far_it_is_behind(
    client: Client, broker: BrokerProcess, four: str, group: str, join: Callable[..., SeenMember], shared: Shared
) -> None:
    on_topic = f'{{consumergroup="{group}",topic="{four}"}}'
    on_partition = f'{{consumergroup="{group}",topic="{four}",partition="1"}}'
    members = f'kafka_consumergroup_members{{consumergroup="{group}"}}'

    def shows(series: str, value: float) -> None:
        until(lambda: page(broker).get(series) == value, f"{series} {value}")

    one, another = [join(topics=(four,), commits="after each poll") for _ in range(2)]
    shared(places(four, 4), [one, another])
    shows(members, 2)
    assert page(broker)["kafka_coordinator_group_groupmetadatamanager_numgroupsstable"] >= 1

    client.produce(four, [Record(value=line, partition=1) for line in LINES])
    shows(f"kafka_consumergroup_current_offset{on_partition}", len(LINES))
    shows(f"kafka_consumergroup_lag{on_partition}", 0)

    one.close()
    another.close()
    shows(members, 0)
    client.produce(four, [Record(value=line, partition=1) for line in LINES])
    shows(f"kafka_consumergroup_lag{on_partition}", len(LINES))
    shows(f"kafka_consumergroup_lag_sum{on_topic}", len(LINES))

    client.commit(group, {Place(four, 1): Committed(2 * len(LINES) - 30)})
    shows(f"kafka_consumergroup_lag_sum{on_topic}", 30)


def test_both_formats_have_the_same_series(broker: BrokerProcess) -> None:
    plain = page(broker)
    openmetrics = Page(http_get(broker.metrics_port, "/metrics", accept=OPENMETRICS).text, is_openmetrics=True)

    assert plain.names() <= openmetrics.names()
    assert {name for name in openmetrics.names() - plain.names() if not name.endswith("_created")} == set()


def test_a_restart_after_a_crash_counts_anew_and_tells_of_the_logs_it_loaded(own_broker: BrokerProcess) -> None:
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic("orders", partitions=3)
    client.produce("orders", [Record(value=line, partition=2) for line in LINES])
    own_broker.kill()

    own_broker.start()

    answers = [http_get(own_broker.metrics_port, path) for path in ("/readyz", "/healthz")]
    assert [(answer.status, answer.text) for answer in answers] == [(200, "ready\n"), (200, "alive\n")]
    after, directory = page(own_broker), f'{{dir="{own_broker.data_directory}"}}'
    assert after[f"kafka_log_logmanager_logsloaded_total{directory}"] == 3
    assert after[f"kafka_log_logmanager_remaininglogstorecover{directory}"] == 0
    assert after['kafka_log_log_logendoffset{topic="orders",partition="2"}'] == len(LINES)
    assert after.get("kafka_server_brokertopicmetrics_messagesin_total") == 0
    assert after["kafka_server_kafkaserver_brokerstate"] == 3


def test_a_port_that_is_taken_ends_the_start_in_one_sentence(broker: BrokerProcess, tmp_path: Path) -> None:
    listener = f"127.0.0.1:{broker.metrics_port}"
    second = BrokerProcess(tmp_path / "second", settings={"ottla.prometheus.listener": listener})

    result = subprocess.run(second.command(), capture_output=True, text=True, timeout=60, check=False)

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1].endswith(
        f"ottla.prometheus.listener={listener} cannot be opened: Address already in use"
    )
